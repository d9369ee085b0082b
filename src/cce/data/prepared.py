"""A prepared data set: a folder with a manifest and the rows of its splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.data.loader import Loader
from cce.data.manifest import check_files, has_labels, read_manifest
from cce.data.split_rows import SplitRows
from cce.data.verify import verify_data
from cce.schema import Schema


@dataclass(frozen=True)
class PreparedData:
    """A data set that `cce prepare` wrote; `PreparedData.open(path)` reads it."""

    path: Path
    schema: Schema
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> PreparedData:
        """The data set in a folder; rejected with the name of the file if one is missing or truncated."""
        folder = Path(path)
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        return cls(folder, Schema.from_dict(manifest["schema"]), manifest)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits: `train`, `validation`, `test`."""
        return tuple(self.manifest["splits"])

    @property
    def has_labels(self) -> bool:
        """Whether rows have labels, so that they can be scored."""
        return has_labels(self.manifest)

    def num_rows(self, split: str) -> int:
        """Rows of a split."""
        check_choice("split", split, self.splits)
        return int(self.manifest["splits"][split])

    def rows(self, split: str) -> SplitRows:
        """The rows of a split, by index."""
        check_choice("split", split, self.splits)
        return SplitRows(self.path, split, self.schema)

    def loader(
        self,
        split: str,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ) -> Loader:
        """The batches of a split; `batch_size` is that of all ranks together."""
        return Loader(
            self.rows(split),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
        )

    def verify(self) -> None:
        """Read every file and raise the first problem: a wrong checksum, shape or value."""
        problems = verify_data(self.path).problems
        if problems:
            raise ValueError(problems[0])
