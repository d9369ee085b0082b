"""Feature maps: kinds of columns, shared ids, and files that are none."""

import json

import pytest

from cce.data.sources.reczoo import read_feature_map


def write(folder, **values):
    path = folder / "feature_map.json"
    path.write_text(json.dumps(values))
    return path


def test_columns_are_by_kind(tmp_path):
    specs = [
        {"a": {"type": "categorical"}},
        {"b": {"type": "sequence", "share_embedding": "a"}},
        {"n": {"type": "numeric"}},
    ]
    specs += [{"m": {"type": "meta"}}, {"e": {"type": "sequence", "share_embedding": "m"}}]
    columns, reading = read_feature_map(write(tmp_path, labels=["y", "z"], features=specs))
    assert (columns.label, columns.categorical, columns.multi_hot, columns.dense) == ("y", ("a",), ("b", "e"), ("n",))
    assert columns.shared == (("b", "a"),)
    assert (reading.missing, reading.transforms) == (("", "0"), (("n", "identity"),))


@pytest.mark.parametrize("values", [{}, {"labels": [], "features": []}, {"labels": ["y"], "features": [{"a": {}}]}])
def test_other_files_are_rejected(tmp_path, values):
    with pytest.raises(ValueError, match=r"feature_map\.json must be a feature map of FuxiCTR, and it is not: "):
        read_feature_map(write(tmp_path, **values))
