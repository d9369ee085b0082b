"""Vocabularies: ids by falling count over blocks, the same however often counts are merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.data.arrow.blocks import Words, as_values, save_block
from cce.data.arrow.tables import load_vocabulary, save_vocabulary
from cce.data.preparation import vocabulary as module
from cce.data.preparation.job import VocabularyRule
from cce.data.preparation.vocabulary import FeatureTask, ids_file, index_vocabulary, number_values, split_file
from helpers.raw_files import vocabulary_of


def write_blocks(folder, blocks):
    """Blocks of words (None: missing) with the split of each row."""
    paths = []
    for number, rows in enumerate(blocks):
        values = [*sorted({word for word, _ in rows if word is not None}), "never used"]
        indices = np.array([-1 if word is None else values.index(word) for word, _ in rows], np.int32)
        path = folder / f"{number}.arrow"
        save_block(path, {}, {"word a": Words(indices, as_values(values))})
        np.save(split_file(path), np.array([split for _, split in rows], np.uint8))
        paths.append(path)
    return tuple(paths)


def task(folder, paths, rule, **options):
    return FeatureTask(0, "a", False, paths, rule, folder / "vocabulary.parquet", **options)


ROWS = st.lists(st.tuples(st.none() | st.sampled_from("abcdefgh"), st.sampled_from([0, 1, 2])), min_size=1, max_size=30)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=5),
    st.sampled_from([VocabularyRule(), VocabularyRule(2), VocabularyRule(2, "all")]),
    st.sampled_from([1, 5, 1 << 22]),
)
def test_ids_are_as_by_hand(tmp_path_factory, blocks, rule, merged):
    folder = tmp_path_factory.mktemp("vocabulary")
    paths = write_blocks(folder, blocks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED", merged)
        num_values = number_values(task(folder, paths, rule))
    counted = [word for rows in blocks for word, split in rows if split == 0 or rule.source == "all"]
    expected = vocabulary_of(counted, min_count=rule.min_count)
    values, counts = load_vocabulary(folder / "vocabulary.parquet")
    assert {value: place + 1 for place, value in enumerate(values.to_pylist())} == expected
    assert num_values == len(expected)
    assert counts.sum() == sum(word in expected for word in counted)
    for rows, path in zip(blocks, paths, strict=True):
        words = sorted({word for word, _ in rows if word is not None})
        assert np.load(ids_file(path, 0)).tolist() == [expected.get(word, 0) for word in (*words, "never used", None)]


def test_what_is_done_is_not_done_again(tmp_path):
    paths = write_blocks(tmp_path, [[("b", 0)]])
    assert number_values(task(tmp_path, paths, VocabularyRule())) == 1
    paths[0].unlink()
    assert number_values(task(tmp_path, paths, VocabularyRule())) == 1


def test_a_vocabulary_of_another_size_than_the_schema_says_is_rejected(tmp_path):
    save_vocabulary(tmp_path / "v.parquet", as_values(["a", "b"]), np.array([2, 1]))
    assert len(index_vocabulary(tmp_path / "v.parquet", "user", 3)) == 2
    with pytest.raises(ValueError, match=r"v\.parquet must have 4 values for 'user', got 2\.$"):
        index_vocabulary(tmp_path / "v.parquet", "user", 5)
