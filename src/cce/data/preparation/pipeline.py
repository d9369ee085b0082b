"""Preparation of raw files to a data set, in steps that each leave their results on disk.

1. *Read*: every piece of the input becomes blocks of columns. 2. *Split*: every row is given its split. 3. *Number*:
for each feature, values are counted and given ids. 4. *Encode*: every block becomes records in the files of its
splits. Then the files are sealed and renamed. A preparation that was killed resumes after its last finished piece,
provided that its inputs and options are the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cce.data.arrow.blocks import load_numbers
from cce.data.arrow.tables import parquet_groups
from cce.data.preparation.job import Job
from cce.data.preparation.reading import BlockTask, Piece, encode_block, read_piece
from cce.data.preparation.vocabulary import (
    FeatureTask,
    SplitBlock,
    number_values,
    split_codes,
    split_file,
    vocabulary_file,
)
from cce.data.record_format import SPLITS, check_new, checksum, create_files, seal, temporary_folder
from cce.files import FULL_DISK, clear_folder, lock_folder, named_full_disk, write_atomic
from cce.schema import Feature, Schema

NOT_RESUMED = (ValueError, TypeError, FileNotFoundError, FileExistsError)  # it would end the same way again


class Preparation:
    """One job under way, in the folder beside its result."""

    def __init__(self, job: Job, out: Path, engine: Any, *, progress: bool) -> None:
        self.job, self.out, self.engine, self.progress = job, out, engine, progress
        self.columns = job.columns_read
        self.work, self.data = temporary_folder(out) / "work", temporary_folder(out) / "data"

    def run(self) -> dict[str, Any]:
        self._begin()
        paths = list(dict.fromkeys(input_.path for input_ in self.job.inputs))
        checksums = dict(zip(paths, self._map("checksums", checksum, paths), strict=True))
        summaries = self._read()
        self.blocks = [self.work / each["name"] for each in summaries if each["num_rows"]]
        if not self.blocks:
            raise ValueError(f"{self.job.inputs[0]} must hold rows, and no row of it can be used.")
        counts = self._split([each for each in summaries if each["num_rows"]])
        self.scales = self._fit_scales()
        schema = Schema(self._number(), self.columns.dense, has_weights=self.columns.weight is not None)
        self._encode(schema, counts)
        splits = dict(zip(SPLITS, counts.sum(0).tolist(), strict=True))
        manifest = seal(self.data, self.out, schema, self._contents(summaries, splits, checksums))
        clear_folder(temporary_folder(self.out))
        return manifest

    def _begin(self) -> None:
        check_new(self.out)
        for input_ in self.job.inputs:
            input_.check()
        key = self.job.key()
        key_file = temporary_folder(self.out) / "key.json"
        if not key_file.exists() or key_file.read_bytes() != key.encode():
            clear_folder(temporary_folder(self.out))
        self.work.mkdir(parents=True, exist_ok=True)
        write_atomic(key_file, key)

    def _map(self, name: str, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Results in the order of the tasks, with a bar of progress."""
        shown = None if self.progress else True
        yield from tqdm(self.engine.map(function, tasks), name, len(tasks), unit="part", leave=False, disable=shown)

    def _read(self) -> list[dict[str, Any]]:
        """Read all pieces; a summary of each block, in order."""
        found: list[dict[str, Any]] = []
        self.bad = BadRows(self.job)
        for summaries in self._map("read", read_piece, self._pieces()):
            for block in summaries:
                self.bad.add(block)
            found += summaries
        return found

    def _pieces(self) -> list[Piece]:
        found = []
        for file, input_ in enumerate(self.job.inputs):
            parts: Sequence[int | None] = [None]
            if input_.is_parquet:
                parts = range(len(parquet_groups(input_.path)))
            elif input_.is_plain:
                parts = range(-(-input_.path.stat().st_size // self.job.block_bytes))
            found += [(input_, file, part) for part in parts]
        job = self.job
        return [Piece(*piece, self.work, self.columns, job.reading, job.block_bytes) for piece in found]

    def _split(self, summaries: list[dict[str, Any]]) -> np.ndarray:
        """Rows of each block in each split: `(blocks, splits)`."""
        some = [SplitBlock(self.work / each["name"], each["file"], each["num_rows"]) for each in summaries]
        counts = []
        for block, codes in zip(some, split_codes(some, self.job.splitting), strict=True):
            np.save(split_file(block.path), codes)
            counts.append(np.bincount(codes, minlength=len(SPLITS)))
        result = np.array(counts)
        if not result[:, 0].sum():
            raise ValueError("split must leave rows to train on, and it leaves none.")
        return result

    def _fit_scales(self) -> tuple[tuple[str, float, float], ...]:
        """Mean and deviation, over the training rows, of the columns that are scaled."""
        return tuple(
            (name, *_mean_and_deviation(self.blocks, f"dense {index}"))
            for index, name in enumerate(self.columns.dense)
            if self.job.reading.transform_of(name) == "standard"
        )

    def _number(self) -> tuple[Feature, ...]:
        """The features with their vocabulary sizes; the ids of the values of each block are on disk then."""
        names, bags = self.columns.features, self.columns.multi_hot
        tasks = [
            FeatureTask(index, name, name in bags, self.blocks, self.job.rule, self.data / vocabulary_file(index))
            for index, name in enumerate(names)
        ]
        sizes = self._map("number", number_values, tasks)
        return tuple(
            Feature(name, None if size is None else 1 + size, multi_hot=name in bags)
            for name, size in zip(names, sizes, strict=True)
        )

    def _encode(self, schema: Schema, counts: np.ndarray) -> None:
        sizes = self._bag_sizes(schema)
        created = self.work / "created"
        if not created.exists():
            totals = dict(zip(SPLITS, counts.sum(0).tolist(), strict=True))
            create_files(self.data, schema, totals, {key: int(size.sum()) for key, size in sizes.items()})
            created.touch()
        row_starts = counts.cumsum(0) - counts
        tasks = [
            BlockTask(
                block=block,
                folder=self.data,
                schema=schema,
                columns=self.columns,
                row_starts=dict(zip(SPLITS, row_starts[index].tolist(), strict=True)),
                value_starts={key: int(size[:index].sum()) for key, size in sizes.items()},
                scales=self.scales,
            )
            for index, block in enumerate(self.blocks)
        ]
        for _ in self._map("encode", encode_block, tasks):
            pass

    def _bag_sizes(self, schema: Schema) -> dict[tuple[str, int], np.ndarray]:
        """The number of ids in each block, by split and multi-hot feature."""
        sizes: dict[tuple[str, int], np.ndarray] = {}
        for index, feature in enumerate(schema.features):
            if feature.multi_hot:
                counts = []
                for block in self.blocks:
                    lengths = load_numbers(block, f"word {feature.name} lengths")
                    counts.append(np.bincount(np.load(split_file(block)), lengths, len(SPLITS)).astype(np.int64))
                sizes |= {(split, index): np.array(counts)[:, code] for code, split in enumerate(SPLITS)}
        return sizes

    def _contents(
        self, summaries: list[dict[str, Any]], splits: dict[str, int], checksums: dict[Path, str]
    ) -> dict[str, Any]:
        job, num_dropped = self.job, sum(each["num_dropped"] for each in summaries)
        parts: dict[str, Any] = {"columns": self.columns, "reading": replace(job.reading, scales=self.scales)}
        parts |= {"splitting": job.splitting, "rule": job.rule}
        return {
            "kind": job.kind,
            "options": {name: asdict(part) for name, part in parts.items()},
            "inputs": [
                {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}
                for path, digest in checksums.items()
            ],
            "splits": splits,
            "rows": {
                "read": sum(splits.values()) + num_dropped,
                "left_out": num_dropped,
                "malformed": self.bad.count,
            },
            "malformed": self.bad.reported,
            "times": self._times(),
            "dense": {
                name: {what: sum(each[what][name] for each in summaries) for what in ("missing", "negative")}
                for name in self.columns.dense
            },
        }

    def _times(self) -> list[float] | None:
        if self.columns.timestamp is None:
            return None
        found = [load_numbers(block, "timestamp") for block in self.blocks]
        return [min(float(own.min()) for own in found), max(float(own.max()) for own in found)]


def _mean_and_deviation(blocks: Sequence[Path], name: str) -> tuple[float, float]:
    """Of the training rows of a column, without missing values; a column that does not vary has the deviation 1."""
    pieces = [load_numbers(block, name)[np.load(split_file(block)) == 0].astype(np.float64) for block in blocks]
    count = sum(int(np.isfinite(piece).sum()) for piece in pieces)
    mean = sum(float(np.nansum(piece)) for piece in pieces) / max(count, 1)
    variance = sum(float(np.nansum((piece - mean) ** 2)) for piece in pieces) / max(count, 1)
    return mean, variance**0.5 or 1.0


class BadRows:
    """Malformed rows so far, with the lines of the first; more than the job allows are rejected."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.count = 0
        self.reported: list[str] = []
        self._lines: dict[int, int] = {}  # lines of each file before the next block

    def add(self, block: dict[str, Any]) -> None:
        """Count a block; blocks of a file come in order."""
        file = block["file"]
        before = self._lines.setdefault(file, int(self.job.reading.has_header))
        for line, reason in block["bad"]:
            if len(self.reported) < 20:
                self.reported.append(f"{self.job.inputs[file]}, line {before + line + 1}: {reason}")
        self._lines[file] += block["num_lines"]
        self.count += block["num_bad"]
        if self.count > self.job.max_bad_rows:
            raise ValueError(
                f"malformed rows must be at most max_bad_rows={self.job.max_bad_rows}, got {self.count} or more. "
                + "; ".join(self.reported[:5])
            )


def prepare_data(job: Job, out: Path, *, engine: Any, progress: bool = True) -> dict[str, Any]:
    """Prepare the job's data set in the folder `out`; return its manifest. One process at a time can do so."""
    check_new(out)
    with lock_folder(temporary_folder(out), temporary=True):
        preparation = Preparation(job, out, engine, progress=progress)
        try:
            with named_full_disk(temporary_folder(out)):
                return preparation.run()
        except Exception as error:
            if isinstance(error, NOT_RESUMED) or getattr(error, "errno", None) in FULL_DISK:
                clear_folder(temporary_folder(out))
            raise
