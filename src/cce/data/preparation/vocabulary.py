"""The vocabulary of a feature: which value has which id. The most frequent value has id 1; id 0 is "unseen".

A missing value is a value like any other, null in the vocabulary: where training rows have none, it is unseen.

The counts of blocks lie on disk and are merged one feature at a time, so memory holds the distinct values of the
features being worked on, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.data.arrow import (
    Values,
    Words,
    as_texts,
    as_values,
    by_falling_count,
    concatenate,
    find_values,
    is_whole,
    load_bags,
    load_vocabulary,
    load_words,
    merge_counts,
    missing_id,
    parquet_groups,
    save_vocabulary,
    with_missing,
)
from cce.data.vocabulary import Vocabulary, hashed_ids
from cce.files import write_atomic
from cce.hashing import Texts

if TYPE_CHECKING:
    from cce.data.preparation.job import VocabularyRule

MERGED = 1 << 22  # counts that are gathered before they are merged


@dataclass(frozen=True)
class FeatureTask:
    """One feature: its blocks, and where its vocabulary and its blocks' ids go."""

    name: str
    bag: int | None  # the index of a multi-hot column among the columns of words
    blocks: tuple[Path, ...]
    rule: VocabularyRule
    vocabulary: Path
    ids: Path
    reuse: Path | None = None  # take this vocabulary instead of counting
    counted: tuple[tuple[str, int | None], ...] = ()  # names and bags of all features with these ids; () for this one


def vocabulary_file(index: int) -> str:
    """The name of the vocabulary of the `index`-th feature within a data set's folder."""
    return f"vocabulary/{index:03d}.parquet"


def vocabulary_size(path: Path) -> int:
    """How many values a vocabulary has: one for each id except 0."""
    return sum(parquet_groups(path))


def index_vocabulary(path: Path, feature: str, num_embeddings: int) -> Vocabulary:
    """The vocabulary of a data set, indexed for lookups; that of hashed ids has no values."""
    values, _ = load_vocabulary(path)
    if not len(values) and num_embeddings > 1:
        return Vocabulary.hashed(feature, (num_embeddings - 1).bit_length())
    whole = is_whole(values)
    return Vocabulary.build(feature, "integers" if whole else "words", as_texts(values, whole=whole))


def split_file(block: Path) -> Path:
    """The file of the splits of a block's rows."""
    return block.with_suffix(".split.npy")


def number_values(task: FeatureTask) -> dict[str, Any]:
    """Count values, assign ids, and write the id of every value of every block; return a summary."""
    done = task.ids.with_suffix(".json")
    if done.exists():
        known: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return known
    values, counts = _vocabulary(task)
    task.vocabulary.parent.mkdir(parents=True, exist_ok=True)
    save_vocabulary(task.vocabulary, values, counts)
    size = max(MERGED, len(values))
    ids, starts = _ids_of_blocks(task, lambda words: _ids(words, values, task.rule.hash_bits), size)
    np.save(task.ids, ids)
    missing = (
        missing_id(values) if task.rule.hash_bits is None else int(hashed_ids(Texts.of([""]), task.rule.hash_bits)[0])
    )
    num_values = len(counts) if task.rule.hash_bits is None else 2**task.rule.hash_bits - 1
    summary = {"num_values": num_values, "num_counted": int(counts.sum()), "starts": starts}
    summary["missing"] = missing
    write_atomic(done, json.dumps(summary))
    return summary


def load_block_words(name: str, bag: int | None, block: Path) -> Words:
    """The words of a feature in one block."""
    return load_words(block, name) if bag is None else load_bags(block, name, bag)


def _vocabulary(task: FeatureTask) -> tuple[Values, np.ndarray]:
    if task.reuse:
        return load_vocabulary(task.reuse)
    if task.rule.hash_bits is not None:
        return as_values([]), np.empty(0, np.int64)
    values, counts = by_falling_count(*_merged(_counted(task)))
    num_kept = int(np.searchsorted(-counts, -task.rule.min_count, side="right"))
    return values[:num_kept], counts[:num_kept]


def _ids(words: Values, vocabulary: Values, hash_bits: int | None) -> np.ndarray:
    if hash_bits is not None:
        return hashed_ids(as_texts(words, whole=False), hash_bits)
    ids: np.ndarray = find_values(words, vocabulary) + 1
    return ids


def _counted(task: FeatureTask) -> Iterator[tuple[Values, np.ndarray]]:
    """Values of each block with their counts in the rows that count; values that do not occur there are left out."""
    for block, (name, bag) in product(task.blocks, task.counted or ((task.name, task.bag),)):
        words = load_block_words(name, bag, block)
        indices = words.indices
        if task.rule.source == "train":
            is_train = np.load(split_file(block)) == 0
            indices = indices[is_train if words.lengths is None else np.repeat(is_train, words.lengths)]
        counts = np.bincount(indices + 1, minlength=len(words.values) + 1)  # that of missing values comes first
        values = with_missing(words.values) if counts[0] else words.values
        counts = counts if counts[0] else counts[1:]
        yield values.take(np.flatnonzero(counts)), counts[counts > 0]


def _merged(pairs: Iterator[tuple[Values, np.ndarray]]) -> tuple[Values, np.ndarray]:
    held: list[tuple[Values, np.ndarray]] = []
    size = 0
    for pair in pairs:
        held.append(pair)
        size += len(pair[1])
        if size > max(MERGED, 2 * len(held[0][1])):
            held = [merge_counts(_of_one_kind(held))]
            size = len(held[0][1])
    return merge_counts(_of_one_kind(held))


def _of_one_kind(pairs: list[tuple[Values, np.ndarray]]) -> list[tuple[Values, np.ndarray]]:
    """Values of all pairs as one array, since files may differ in whether they hold words or integers."""
    return [(concatenate([values for values, _ in pairs]), np.concatenate([counts for _, counts in pairs]))]


def _ids_of_blocks(task: FeatureTask, find: Callable[[Values], np.ndarray], size: int) -> tuple[np.ndarray, list[int]]:
    """The ids of the values of all blocks, one block after the other, and where each block's begin.

    find: from values to ids. size: values that are looked up at a time.
    """
    ids: list[np.ndarray] = []
    held: list[Values] = []
    lengths = []
    for index, block in enumerate(task.blocks):
        held.append(load_block_words(task.name, task.bag, block).values)
        lengths.append(len(held[-1]))
        if index == len(task.blocks) - 1 or sum(map(len, held)) > size:
            ids.append(find(concatenate(held)))
            held = []
    return np.concatenate(ids), np.cumsum([0, *lengths[:-1]]).tolist()
