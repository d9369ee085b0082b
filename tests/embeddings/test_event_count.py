import copy

from cce.embeddings.event_count import EventCount


def test_clusterings_are_counted_saved_and_copied():
    events = EventCount()
    events.add_one()
    events.add_one()
    twin, loaded = copy.deepcopy(events), EventCount()
    loaded.load_state_dict(events.state_dict())
    events.add_one()
    assert [int(each) for each in (events, twin, loaded)] == [3, 2, 2]
    assert events.nbytes == 4
    assert not list(events.parameters()) + list(events.buffers())
