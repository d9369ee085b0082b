"""Synthetic clicks: data whose best possible model is known, in memory or as a data set on disk.

Every id of every feature belongs to a hidden cluster, and only clusters matter for the label: a table with one row per
cluster would do. Ids are drawn by Zipf's law, numbered from the most frequent on, so most of them are rarely seen. With
drift, ids move to another cluster on the way from time 0 to time 1: a model that learned clusters once knows old ones.
With turnover ids die, and new ones take their places, each with a cluster of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from cce.checks import check_known, check_number, check_range, check_type
from cce.data.record_format import check_new, create_files, record_dtype, rows_file, seal, temporary_folder, write_at
from cce.files import clear_folder, lock_folder
from cce.hashing import mix
from cce.schema import Feature, Schema


@dataclass(frozen=True)
class Sample:
    """Rows of a click log."""

    ids: Tensor  # (n, features), int64
    labels: Tensor  # (n), 0 or 1
    probabilities: Tensor  # (n), of a 1: what only the oracle knows
    dense: Tensor  # (n, num_dense), float32

    @property
    def oracle_bce(self) -> float:
        """The binary cross-entropy of the true probabilities on these labels: no model can be expected below it."""
        return float(torch.nn.functional.binary_cross_entropy(self.probabilities, self.labels.double()))


class SyntheticClicks:
    """A click log of features with `vocabulary_sizes` ids, each in one of `num_clusters` hidden clusters.

    The logit of a row is the sum, over pairs of informative features, of the dot products of its ids' cluster vectors
    (of a single informative feature, the sum of its vector), plus a weight times each dense value. Features are
    informative from the first on, all of them unless `num_informative` says how many; the others are noise.
    `drift` is the share of ids that change their cluster between time 0 and time 1, each once, at a time of its own.
    `turnover` says how often each of the ids is replaced from time 0 to time 1: there are always `vocabulary_sizes` ids
    alive, and successor `g` of id `x` is `x + g · size`. Nine tenths of them, the rare ones, then share a quarter
    of the clusters, so that new frequent ids are unlike rare ones.
    """

    def __init__(
        self,
        vocabulary_sizes: Sequence[int],
        *,
        num_clusters: int = 16,
        latent_dim: int = 8,
        zipf: float = 1.0,
        num_informative: int | None = None,
        num_dense: int = 0,
        drift: float = 0.0,
        turnover: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        check_number("drift", drift, 0.0)
        check_number("turnover", turnover, 0.0)
        if drift > 1:
            raise ValueError(f"drift must be at most 1, got {drift}.")
        self.num_informative = len(vocabulary_sizes) if num_informative is None else num_informative
        check_range("number of vocabulary_sizes", len(vocabulary_sizes), 1, 2**31)
        check_range("num_informative", self.num_informative, 1, len(vocabulary_sizes) + 1)
        check_range("num_dense", num_dense, 0, 2**31)
        check_range("num_clusters", num_clusters, 1, 2**31)
        check_range("latent_dim", latent_dim, 1, 2**31)
        for size in vocabulary_sizes:
            check_range("vocabulary_sizes", size, 1, 2**31)
        if not (zipf >= 0 and math.isfinite(zipf)):
            raise ValueError(f"zipf must be a finite number of at least 0, got {zipf}.")
        self.vocabulary_sizes = tuple(vocabulary_sizes)
        self.turnover, self.num_lives = turnover, 1 + math.ceil(turnover)
        self.clusters = [
            torch.randint(num_clusters, (n * self.num_lives,), generator=generator) for n in vocabulary_sizes
        ]
        self.vectors = [
            _scale(self.num_informative, latent_dim)
            * torch.randn(num_clusters, latent_dim, generator=generator, dtype=torch.float64)
            for _ in vocabulary_sizes
        ]
        self.dense_weights = torch.randn(num_dense, generator=generator) / max(num_dense, 1) ** 0.5
        weights = [torch.arange(1, n + 1, dtype=torch.float64).pow(-zipf).cumsum(0) for n in vocabulary_sizes]
        self._cumulative = [cumulative / cumulative[-1].clone() for cumulative in weights]
        if turnover:
            self._phases = [torch.rand(n, dtype=torch.float64, generator=generator) for n in vocabulary_sizes]
            for clusters, n in zip(self.clusters, vocabulary_sizes, strict=True):
                clusters.view(-1, n)[:, n // 10 :] %= max(1, num_clusters // 4)
        self._moves = [_draw_moves(c, num_clusters, drift, generator) for c in self.clusters] if drift else None

    def sample(self, num_rows: int, *, times: Tensor | None = None, generator: torch.Generator | None = None) -> Sample:
        """`num_rows` independent rows, of these times in [0, 1]; without drift, and by default, all are of time 1."""
        check_range("num_rows", num_rows, 0, 2**63)
        if times is None:
            times = torch.ones(num_rows, dtype=torch.float64)
        check_type("times", times, Tensor, "a Tensor")
        if times.shape != (num_rows,):
            raise ValueError(f"times must have shape ({num_rows},), got {tuple(times.shape)}.")
        columns = []
        for feature, cumulative in enumerate(self._cumulative):
            uniform = torch.rand(num_rows, dtype=torch.float64, generator=generator)
            column = torch.searchsorted(cumulative, uniform, right=True).clamp(max=len(cumulative) - 1)
            if self.turnover:
                lives = (times * self.turnover + self._phases[feature][column]).long()
                column += lives * len(cumulative)
            columns.append(column)
        ids = torch.stack(columns, dim=1)
        dense = torch.randn(num_rows, len(self.dense_weights), generator=generator)
        probabilities = torch.sigmoid(self._logits(ids, times) + (dense @ self.dense_weights).double())
        labels = torch.bernoulli(probabilities, generator=generator).float()
        return Sample(ids, labels, probabilities, dense)

    def clusters_of(self, feature: int, ids: Tensor, times: Tensor) -> Tensor:
        clusters = self.clusters[feature][ids]
        if self._moves is None:
            return clusters
        moved_at, moved_to = self._moves[feature]
        return torch.where(times >= moved_at[ids], moved_to[ids], clusters)

    def _logits(self, ids: Tensor, times: Tensor) -> Tensor:
        columns = enumerate(ids[:, : self.num_informative].unbind(1))
        stacked = torch.stack([self.vectors[i][self.clusters_of(i, column, times)] for i, column in columns])
        if self.num_informative == 1:
            return stacked[0].sum(-1)
        return (stacked.sum(0).square() - stacked.square().sum(0)).sum(-1) / 2  # from (features, n, latent_dim)


def _draw_moves(
    clusters: Tensor, num_clusters: int, drift: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """When each id of a feature leaves its cluster, and for which one; a time above 1 is never."""
    times = torch.rand(len(clusters), dtype=torch.float64, generator=generator) / drift
    steps = torch.randint(max(num_clusters - 1, 1), (len(clusters),), generator=generator) + 1
    return times, (clusters + steps) % num_clusters


def _scale(num_informative: int, latent_dim: int) -> float:
    """The scale of cluster vectors, such that logits have standard deviation 3."""
    if num_informative == 1:
        return 3.0 / math.sqrt(latent_dim)
    num_pairs = num_informative * (num_informative - 1) / 2
    return math.sqrt(3.0 / math.sqrt(latent_dim * num_pairs))


BLOCK_ROWS = 1 << 16
HELD_OUT = 0.1  # of the rows for validation, and again for the test


@dataclass(frozen=True)
class SyntheticConfig:
    """Sizes of a synthetic data set."""

    num_rows: int = 500_000
    vocabulary_sizes: tuple[int, ...] = (20_000, 5_000, 1_000, 100)
    num_informative: int | None = None  # features that matter, from the first on; all of them if None
    num_clusters: int = 32
    num_dense: int = 4
    zipf: float = 1.0
    drift: float = 0.0  # share of ids that change their cluster while the training rows go by
    turnover: float = 0.0  # how often each id is replaced by a new one while they do
    day: int | None = None  # of a stream, from 1: all rows are for training, and ids are 64-bit hashes
    days: int = 10  # that the stream has
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, 100, 2**63)
        check_range("seed", self.seed, 0, 2**63)
        check_range("days", self.days, 1, 2**31)
        if self.day is not None:
            check_range("day", self.day, 1, self.days + 1)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SyntheticConfig:
        """The sizes with these options; an unknown one is rejected."""
        known = [each.name for each in fields(cls)]
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            check_known(f"{name!r} is no option of 'synthetic'", name, known)
        return cls(**given | {"vocabulary_sizes": tuple(given.get("vocabulary_sizes", cls.vocabulary_sizes))})

    def clicks(self) -> SyntheticClicks:
        sizes = {name: value for name, value in asdict(self).items() if name not in ("num_rows", "seed", "day", "days")}
        return SyntheticClicks(**sizes, generator=torch.Generator().manual_seed(self.seed))


def prepare_synthetic(out: Path, config: SyntheticConfig, *, progress: bool = True) -> dict[str, Any]:
    """Write the data set and return its manifest. Id 0 is never drawn: the most frequent id of a feature is 1."""
    check_new(out)
    clicks = config.clicks()
    sizes = [None if config.day else size * clicks.num_lives + 1 for size in config.vocabulary_sizes]
    features = tuple(Feature(f"c{index}", size) for index, size in enumerate(sizes))
    schema = Schema(features, tuple(f"d{index}" for index in range(config.num_dense)))
    held_out = int(config.num_rows * HELD_OUT)
    splits = {"train": config.num_rows - 2 * held_out, "validation": held_out, "test": held_out}
    first = {split: index for index, split in enumerate(splits)}  # of the random numbers
    if config.day:
        splits, first = {"train": config.num_rows}, {"train": 2 + config.day}
    temporary = temporary_folder(out)
    with lock_folder(temporary, temporary=True):
        try:
            clear_folder(temporary)
            create_files(temporary / "data", schema, splits)
            oracle = {
                split: _write_split(temporary / "data", split, count, schema, clicks, config, first[split], progress)
                for split, count in splits.items()
            }
            contents: dict[str, Any] = {"kind": "synthetic", "options": asdict(config), "splits": splits}
            contents |= {"oracle_bce": oracle.get("test", oracle["train"]), "oracle_bce_by_split": oracle}
            return seal(temporary / "data", out, schema, contents)
        finally:
            clear_folder(temporary)


def _hashed(numbers: np.ndarray, feature: int) -> np.ndarray:
    """Ids of a stream: no two features share any."""
    return mix(numbers.astype(np.uint64) + np.uint64(feature << 48)).view(np.int64)


def _write_split(
    folder: Path,
    split: str,
    num_rows: int,
    schema: Schema,
    clicks: SyntheticClicks,
    config: SyntheticConfig,
    index: int,
    progress: bool,  # noqa: FBT001
) -> float:
    """Draw and write the rows of a split in blocks, each with its own random numbers; return the oracle's BCE."""
    total = 0.0
    starts = range(0, num_rows, BLOCK_ROWS)
    for start in tqdm(starts, desc=split, unit="block", leave=False, disable=None if progress else True):
        seed = int(np.random.SeedSequence((config.seed, index, start)).generate_state(1, np.uint64)[0] >> 1)
        count = min(BLOCK_ROWS, num_rows - start)
        times = None  # training rows pass from time 0 to time 1, in order; the others are of the end
        if split == "train":
            times = torch.arange(start, start + count, dtype=torch.float64) / num_rows
            times = times if config.day is None else (config.day - 1 + times) / config.days
        sample = clicks.sample(count, times=times, generator=torch.Generator().manual_seed(seed))
        records = np.zeros(count, record_dtype(schema))
        records["label"] = sample.labels.numpy()
        if schema.dense:
            records["dense"] = sample.dense.numpy()
        for feature, column in enumerate(sample.ids.unbind(1)):
            numbers = column.numpy() + 1
            records[f"id{feature}"] = numbers if config.day is None else _hashed(numbers, feature)
        write_at(folder / rows_file(split), start, records)
        total += sample.oracle_bce * count
    return total / num_rows
