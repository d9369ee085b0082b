"""Facts of the public sets that nothing else would notice to be wrong."""

from cce.data.sources.reczoo import PUBLIC_SETS, find_public_set


def test_published_settings():
    facts = {each.name: (each.min_count, len(each.categorical), each.files[1]) for each in PUBLIC_SETS}
    assert facts == {
        "Criteo_x1": (1, 26, "valid.csv"),
        "Criteo_x4": (10, 39, "valid.csv"),
        "Avazu_x4": (2, 24, "valid.csv"),
        "KuaiVideo_x1": (10, 2, "test.csv"),
        "MicroVideo1.7M_x1": (1, 3, "test.csv"),
        "AmazonElectronics_x1": (1, 2, "test.csv"),
    }


def test_each_set_is_found_by_its_columns():
    for each in PUBLIC_SETS:
        assert find_public_set((*each.columns, "more")) is each
    assert find_public_set(("label",)) is None
