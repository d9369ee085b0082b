"""The vocabulary of a feature: which value has which id. The most frequent value has id 1; 0 is "unseen or missing".

The counts of blocks lie on disk and are merged one feature at a time, so memory holds the distinct values of the
features being worked on, and no more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.data.prepare.arrow import (
    Values,
    Words,
    as_texts,
    by_falling_count,
    concatenate,
    find_values,
    is_whole,
    load_bags,
    load_vocabulary,
    load_words,
    merge_counts,
    parquet_groups,
    save_vocabulary,
)
from cce.data.vocabulary import Texts, Vocabulary
from cce.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cce.data.prepare.job import VocabularyRule

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


def vocabulary_file(index: int) -> str:
    """The name of the vocabulary of the `index`-th feature within a data set's folder."""
    return f"vocabulary/{index:03d}.parquet"


def vocabulary_size(path: Path) -> int:
    """How many values a vocabulary has: one for each id but 0."""
    return sum(parquet_groups(path))


def index_vocabulary(path: Path, feature: str) -> Vocabulary:
    """The vocabulary of a data set, indexed for lookups."""
    values, _ = load_vocabulary(path)
    whole = is_whole(values)
    return Vocabulary.build(feature, "integers" if whole else "words", Texts(*as_texts(values, whole=whole)))


def split_file(block: Path) -> Path:
    """The file of the splits of a block's rows."""
    return block.with_suffix(".split.npy")


def number_values(task: FeatureTask) -> dict[str, Any]:
    """Count values, assign ids, and write the id of every value of every block; return a summary."""
    done = task.ids.with_suffix(".json")
    if done.exists():
        known: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return known
    values, counts = load_vocabulary(task.reuse) if task.reuse else _rank(task)
    task.vocabulary.parent.mkdir(parents=True, exist_ok=True)
    save_vocabulary(task.vocabulary, values, counts)
    ids, starts = _ids_of_blocks(task, values)
    np.save(task.ids, ids)
    summary = {"num_values": len(counts), "num_counted": int(counts.sum()), "starts": starts}
    write_atomic(done, json.dumps(summary))
    return summary


def load_block_words(task: FeatureTask, block: Path) -> Words:
    """The words of this feature in one block."""
    return load_words(block, task.name) if task.bag is None else load_bags(block, task.name, task.bag)


def _rank(task: FeatureTask) -> tuple[Values, np.ndarray]:
    values, counts = _merged(_counted(task))
    values, counts = by_falling_count(values, counts)
    num_kept = int(np.searchsorted(-counts, -task.rule.min_count, side="right"))
    num_kept = min(num_kept, task.rule.max_ids or num_kept)
    return values[:num_kept], counts[:num_kept]


def _counted(task: FeatureTask) -> Iterator[tuple[Values, np.ndarray]]:
    """Values of each block with their counts in the rows that count; values that do not occur there are left out."""
    for block in task.blocks:
        words = load_block_words(task, block)
        indices = words.indices
        if task.rule.source == "train":
            is_train = np.load(split_file(block)) == 0
            indices = indices[is_train if words.lengths is None else np.repeat(is_train, words.lengths)]
        counts = np.bincount(indices[indices >= 0], minlength=len(words.values))
        yield words.values.take(np.flatnonzero(counts)), counts[counts > 0]


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


def _ids_of_blocks(task: FeatureTask, vocabulary: Values) -> tuple[np.ndarray, list[int]]:
    """The ids of the values of all blocks, one block after the other, and where each block's begin."""
    ids: list[np.ndarray] = []
    held: list[Values] = []
    lengths = []
    for index, block in enumerate(task.blocks):
        held.append(load_block_words(task, block).values)
        lengths.append(len(held[-1]))
        if index == len(task.blocks) - 1 or sum(map(len, held)) > max(MERGED, len(vocabulary)):
            ids.append(find_values(concatenate(held), vocabulary) + 1)
            held = []
    return np.concatenate(ids), np.cumsum([0, *lengths[:-1]]).tolist()
