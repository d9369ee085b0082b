"""A synthetic data set on disk: synthetic clicks of any size; its manifest has the best possible score."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from cce.checks import check_range
from cce.data.prepare.writer import check_new, create_files, seal, temporary_folder, write_at
from cce.data.record_format import record_dtype, rows_file
from cce.data.synthetic import Sample, SyntheticClicks
from cce.files import clear_folder, lock_folder
from cce.schema import Feature, Schema

if TYPE_CHECKING:
    from pathlib import Path

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
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, 100, 2**63)
        check_range("seed", self.seed, 0, 2**63)


def prepare_synthetic(out: Path, config: SyntheticConfig, *, progress: bool = True) -> dict[str, Any]:
    """Write the data set and return its manifest. Id 0 is never drawn: the most frequent id of a feature is 1."""
    check_new(out)
    with lock_folder(temporary_folder(out), temporary=True):
        try:
            clear_folder(temporary_folder(out))
            return _prepare(temporary_folder(out) / "data", out, config, progress=progress)
        finally:
            clear_folder(temporary_folder(out))


def _prepare(folder: Path, out: Path, config: SyntheticConfig, *, progress: bool) -> dict[str, Any]:
    clicks = _clicks(config)
    features = tuple(Feature(f"c{index}", size + 1) for index, size in enumerate(config.vocabulary_sizes))
    schema = Schema(features, tuple(f"d{index}" for index in range(config.num_dense)))
    held_out = int(config.num_rows * HELD_OUT)
    splits = {"train": config.num_rows - 2 * held_out, "validation": held_out, "test": held_out}
    create_files(folder, schema, splits)
    oracle = {
        split: _write_split(folder, split, count, schema, clicks, (config.seed, index), progress=progress)
        for index, (split, count) in enumerate(splits.items())
    }
    contents = {"kind": "synthetic", "options": asdict(config), "splits": splits}
    return seal(folder, out, schema, {**contents, "oracle_bce": oracle["test"], "oracle_bce_by_split": oracle})


def _clicks(config: SyntheticConfig) -> SyntheticClicks:
    return SyntheticClicks(
        config.vocabulary_sizes,
        num_clusters=config.num_clusters,
        zipf=config.zipf,
        num_informative=config.num_informative,
        num_dense=config.num_dense,
        drift=config.drift,
        generator=torch.Generator().manual_seed(config.seed),
    )


def _write_split(
    folder: Path,
    split: str,
    num_rows: int,
    schema: Schema,
    clicks: SyntheticClicks,
    seeds: tuple[int, int],
    *,
    progress: bool,
) -> float:
    """Draw and write the rows of a split in blocks, each with its own random numbers; return the oracle's BCE."""
    total = 0.0
    starts = range(0, num_rows, BLOCK_ROWS)
    for start in tqdm(starts, desc=split, unit="block", leave=False, disable=None if progress else True):
        seed = int(np.random.SeedSequence((*seeds, start)).generate_state(1, np.uint64)[0] >> 1)
        count = min(BLOCK_ROWS, num_rows - start)
        sample = clicks.sample(count, times=_times(split, start, count, num_rows), generator=_generator(seed))
        write_at(folder / rows_file(split), start, _records(sample, schema))
        total += sample.oracle_bce * count
    return total / num_rows


def _times(split: str, start: int, count: int, num_rows: int) -> Tensor:
    """Training rows pass from time 0 to time 1, in order; the others are of the end."""
    if split != "train":
        return torch.ones(count, dtype=torch.float64)
    return torch.arange(start, start + count, dtype=torch.float64) / num_rows


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _records(sample: Sample, schema: Schema) -> np.ndarray:
    records = np.zeros(len(sample.labels), record_dtype(schema))
    records["label"] = sample.labels.numpy()
    if schema.dense:
        records["dense"] = sample.dense.numpy()
    for index, column in enumerate(sample.ids.unbind(1)):
        records[f"id{index}"] = column.numpy() + 1
    return records
