"""The vocabulary of a feature: which value has which id. The most frequent value has id 1; id 0 is "unseen".

A missing value is a value like any other, null in the vocabulary: where training rows have none, it is unseen.

The counts of blocks lie on disk and are merged one feature at a time, so memory holds the distinct values of the
features being worked on, and no more.

Before that, which rows are for training, for validation and for the test. `random`: by a hash of the row's index and a
seed. `order`: the last rows of the input are held out. `last-file`: the last file is, one half for validation and one
for the test. `temporal`: the latest timestamps are. `last-two`: of each user, the last row is for the test and the one
before it for validation. `files`: each file has its split. `none`: no row is held out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cce.data.arrow.blocks import (
    Values,
    Words,
    as_texts,
    as_values,
    by_falling_count,
    concatenate,
    find_values,
    is_whole,
    load_numbers,
    load_words,
    merge_counts,
    missing_id,
    with_missing,
)
from cce.data.arrow.tables import load_vocabulary, save_vocabulary
from cce.data.preparation.job import OPEN_BITS, Splitting, VocabularyRule
from cce.data.record_format import SPLITS, checksum
from cce.data.vocabulary import Vocabulary, hashed_ids
from cce.files import write_atomic
from cce.hashing import Texts, mix
from cce.schema import Schema

MERGED = 1 << 22  # counts that are gathered before they are merged


@dataclass(frozen=True)
class FeatureTask:
    """One feature: its blocks, and where its vocabulary goes."""

    index: int  # among the columns of words
    name: str
    is_bag: bool
    blocks: Sequence[Path]
    rule: VocabularyRule
    vocabulary: Path

    def words(self, block: Path) -> Words:
        return load_words(block, f"word {self.name}", self.index if self.is_bag else None)


def vocabulary_file(index: int) -> str:
    return f"vocabulary/{index:03d}.parquet"


def index_vocabulary(path: Path, feature: str, num_embeddings: int | None) -> Vocabulary:
    """The vocabulary of a data set, indexed for lookups; that of hashed ids has no values."""
    if num_embeddings is None:
        return Vocabulary.hashed(feature, OPEN_BITS)
    values, _ = load_vocabulary(path)
    if not len(values) and num_embeddings > 1:
        return Vocabulary.hashed(feature, (num_embeddings - 1).bit_length())
    if len(values) != num_embeddings - 1:
        raise ValueError(f"{path} must have {num_embeddings - 1} values for {feature!r}, got {len(values)}.")
    whole = is_whole(values)
    return Vocabulary.build(feature, "integers" if whole else "words", as_texts(values, whole=whole))


def load_vocabularies(folder: Path, manifest: Mapping[str, Any], schema: Schema) -> dict[str, Vocabulary]:
    """The vocabularies of a data set by feature, in memory: a second for some million values."""
    found = {}
    for index, feature in enumerate(schema.features):
        path = folder / vocabulary_file(index)
        if not path.is_file() or checksum(path) != manifest["files"].get(vocabulary_file(index), {}).get("sha256"):
            raise ValueError(f"{path} must be as `cce prepare` wrote it, and it is missing or damaged.")
        found[feature.name] = index_vocabulary(path, feature.name, feature.num_embeddings)
    return found


def split_file(block: Path) -> Path:
    return block.with_suffix(".split.npy")


def ids_file(block: Path, index: int) -> Path:
    """The file of the ids of a block's values of the `index`-th feature, and of a missing one, which is the last."""
    return block.with_suffix(f".{index:03d}.npy")


def number_values(task: FeatureTask) -> int | None:
    """Count values, assign ids, and write those of every block; how many values have an id, None for any number."""
    bits, done = task.rule.hash_bits, task.blocks[0].with_name(f"numbered-{task.index:03d}.json")
    if done.exists():
        return json.loads(done.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    if bits is not None:
        values, counts = as_values([]), np.empty(0, np.int64)
    else:
        values, counts = by_falling_count(*_count(task))
        num_kept = int(np.searchsorted(-counts, -task.rule.min_count, side="right"))
        values, counts = values[:num_kept], counts[:num_kept]
    task.vocabulary.parent.mkdir(parents=True, exist_ok=True)
    save_vocabulary(task.vocabulary, values, counts)
    _write_ids(task, values, missing_id(values) if bits is None else int(hashed_ids(Texts.of([""]), bits)[0]))
    num_values = len(counts) if bits is None else None if bits == OPEN_BITS else 2**bits - 1
    write_atomic(done, json.dumps(num_values))
    return num_values


def _count(task: FeatureTask) -> tuple[Values, np.ndarray]:
    """Values of all blocks with their counts in the rows that count; values that do not occur there are left out."""
    held: list[tuple[Values, np.ndarray]] = []
    size = 0
    for block in task.blocks:
        words = task.words(block)
        indices = words.indices
        if task.rule.source == "train":
            is_train = np.load(split_file(block)) == 0
            indices = indices[is_train if words.lengths is None else np.repeat(is_train, words.lengths)]
        counts = np.bincount(indices + 1, minlength=len(words.values) + 1)  # that of missing values comes first
        values = with_missing(words.values) if counts[0] else words.values
        counts = counts if counts[0] else counts[1:]
        held.append((values.take(np.flatnonzero(counts)), counts[counts > 0]))
        size += len(held[-1][1])
        if size > max(MERGED, 2 * len(held[0][1])):
            held = [merge_counts(held)]
            size = len(held[0][1])
    return merge_counts(held)


def _write_ids(task: FeatureTask, vocabulary: Values, missing: int) -> None:
    """Blocks are looked up together, as many as the vocabulary has values."""
    held: dict[Path, Values] = {}
    for block in task.blocks:
        held[block] = task.words(block).values
        lengths = [len(values) for values in held.values()]
        if block == task.blocks[-1] or sum(lengths) > max(MERGED, len(vocabulary)):
            words, bits = concatenate(list(held.values())), task.rule.hash_bits
            ids = find_values(words, vocabulary) + 1 if bits is None else hashed_ids(as_texts(words, whole=False), bits)
            for path, own in zip(held, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
                np.save(ids_file(path, task.index), np.append(own, missing))
            held = {}


ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class SplitBlock:
    """What a split is decided by: where a block is, its file, and its rows."""

    path: Path
    file: int
    num_rows: int


def split_codes(blocks: Sequence[SplitBlock], how: Splitting) -> Iterator[np.ndarray]:
    """The index in `SPLITS` of each row, block by block."""
    count = sum(block.num_rows for block in blocks)
    starts = np.cumsum([0, *(block.num_rows for block in blocks)])
    if how.way in ("random", "order", "none"):  # the row's index is all they need
        for block, start in zip(blocks, starts.tolist(), strict=False):
            yield _by_index(np.arange(start, start + block.num_rows), count, how).astype(np.uint8)
        return
    ways = {"last-file": _last_file, "temporal": _temporal, "last-two": _last_two, "files": _files}
    yield from np.split(ways[how.way](blocks, how).astype(np.uint8), starts[1:-1])


def _by_index(indices: np.ndarray, count: int, how: Splitting) -> np.ndarray:
    if how.way == "none":
        return np.zeros(len(indices), np.uint8)
    if how.way == "order":
        bounds = (count - round(count * (how.validation + how.test)), count - round(count * how.test))
        return np.searchsorted(bounds, indices, side="right")
    return np.searchsorted((1 - how.validation - how.test, 1 - how.test), unit_hash(indices, how.seed), side="right")


def _files(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    codes = [SPLITS.index(how.of_files[block.file]) for block in blocks]
    return np.repeat(codes, [block.num_rows for block in blocks])


def _last_file(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    del how
    files = np.repeat([block.file for block in blocks], [block.num_rows for block in blocks])
    held_out = np.flatnonzero(files == files.max(initial=0))
    codes = np.zeros(len(files), np.uint8)
    codes[held_out[: len(held_out) // 2]] = 1
    codes[held_out[len(held_out) // 2 :]] = 2
    return codes


def _temporal(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    """Rows of the same time stay together."""
    times = _numbers(blocks, "timestamp")
    first, second = np.quantile(times, [1 - how.validation - how.test, 1 - how.test], method="higher")
    bounds = (first if how.validation + how.test else np.inf, second if how.test else np.inf)
    return np.searchsorted(bounds, times, side="right")


def _last_two(blocks: Sequence[SplitBlock], how: Splitting) -> np.ndarray:
    """Split by time, equal times in file order. A user's first row is always for training."""
    del how
    users, times = _numbers(blocks, "user"), _numbers(blocks, "timestamp")
    order = np.lexsort((np.arange(len(users)), times, users))
    first = np.flatnonzero(np.append(True, users[order][1:] != users[order][:-1]))
    lengths = np.diff([*first, len(users)])
    from_end = np.repeat(first + lengths, lengths) - np.arange(len(users))  # 1 for a user's last row
    from_start = np.arange(len(users)) - np.repeat(first, lengths)
    codes = np.zeros(len(users), np.uint8)
    codes[order] = np.where(from_start == 0, 0, np.select([from_end == 1, from_end == 2], [2, 1], 0))
    return codes


def _numbers(blocks: Sequence[SplitBlock], name: str) -> np.ndarray:
    return np.concatenate([load_numbers(block.path, name) for block in blocks])


def unit_hash(indices: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A hash in [0, 1) of each index, by splitmix64."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    bits = mix((indices.astype(np.uint64) + np.uint64(1)) * ODD + start)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)
