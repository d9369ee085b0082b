import torch

from cce.embeddings.rare_ids import with_rare_vector

TABLE = torch.arange(12.0).view(6, 2)
COUNTS = torch.tensor([0, 5, 4, 3, 1, 0])  # id 0 stands for what training never saw


def _vectors(*, num_learned=3, share_tail=False, counts=COUNTS):
    return with_rare_vector(TABLE.__getitem__, counts, num_learned, share_tail=share_tail)(torch.arange(6))


def test_ids_that_were_never_seen_get_the_mean_of_the_rare_ones_by_their_counts():
    found, rare = _vectors(), (3 * TABLE[3] + TABLE[4]) / 4
    torch.testing.assert_close(found, torch.stack([rare, *TABLE[1:5], rare]))


def test_rare_ids_share_it_if_they_are_to():
    found, rare = _vectors(share_tail=True), (3 * TABLE[3] + TABLE[4]) / 4
    torch.testing.assert_close(found, torch.stack([rare, TABLE[1], TABLE[2], rare, rare, rare]))


def test_without_rare_ids_nothing_changes():
    assert torch.equal(_vectors(num_learned=6), TABLE)
    assert torch.equal(_vectors(counts=torch.tensor([0, 5, 4, 0, 0, 0]), share_tail=True), TABLE)


def test_the_mean_is_made_of_pieces_and_does_not_depend_on_their_size(monkeypatch):
    whole = _vectors()
    monkeypatch.setattr("cce.embeddings.rare_ids.piece_size", lambda width: 1)
    torch.testing.assert_close(_vectors(), whole)
