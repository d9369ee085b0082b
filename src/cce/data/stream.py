"""A stream: the parts of a log, such as days, one after the other, each read once and in its own order.

A part is a prepared data set, or a raw file, which is read as the rows of the stream's data set were: with its columns,
scales and vocabularies. Features without a bound have an id for every value; others take new values for unseen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data.preparation.job import raw_options
from cce.data.prepared import PreparedData
from cce.data.raw_files import Input
from cce.data.record_format import MANIFEST, checksum, list_parts
from cce.schema import Batch

if TYPE_CHECKING:  # they need pyarrow, which prepared parts do without
    from cce.data.raw_rows import RowEncoder


class StreamLoader:
    """The batches of a stream, part after part.

    `begin` opens the next part; iterating gives the rest of its rows, and at its end the part is done. Batches of a raw
    file are cut where its blocks end. As in `Loader`, each rank takes its share of every batch.

    data: says how raw files are read, and which columns prepared parts must have.
    stream: parts; or folders of parts, in which there may be more the next time.
    """

    def __init__(
        self,
        data: PreparedData,
        stream: Sequence[str],
        *,
        batch_size: int,
        verify: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.data, self.stream, self.batch_size, self.verify = data, stream, batch_size, verify
        self.rank, self.world_size = rank, world_size
        self.done: list[dict[str, Any]] = []  # parts: path, sha256, rows, times
        self.part: dict[str, Any] = {}  # the one that was begun
        self.position = 0  # rows of it that all ranks together were given

    @property
    def epoch(self) -> int:
        """Parts that are done."""
        return len(self.done)

    @property
    def num_rows(self) -> int:
        return int(self.part.get("rows", 0))

    @property
    def rows_given(self) -> int:
        return sum(int(part["rows"]) for part in self.done) + self.position

    def find_next(self) -> Path | None:
        """The part that was begun, or the first one that was not."""
        if self.part:
            return Path(self.part["path"])
        known = {part["path"] for part in self.done}
        return next((path for path in list_parts(self.stream) if str(path.absolute()) not in known), None)

    def begin(self, path: Path) -> str:
        """Open a part, or go on with it; what should be known about it, if anything.

        A part with the rows of another one is done at once. Afterwards `scored` gives its rows for the first time.
        """
        if not path.is_dir():
            Input(path).check()
            Input(path).check_end()
        digest = checksum(path / MANIFEST if path.is_dir() else path)
        if self.part:
            if digest != self.part["sha256"]:
                raise ValueError(f"{path} must be as it was when its rows began to be trained, and it has changed.")
            return ""
        part = {"path": str(path.absolute()), "sha256": digest, "rows": 0, "times": []}
        same = next((each for each in self.done if each["sha256"] == digest), None)
        if same is not None:
            self.done.append(part)
            return f"{path} has the rows of {same['path']}, which were trained: it is skipped."
        self.part = part
        return ""

    def scored(self, batch_size: int) -> PartRows:
        """All batches of the part that was begun; a malformed row is rejected."""
        return PartRows(self, batch_size)

    def count(self, scored: PartRows) -> None:
        """Note how many rows the part that was begun has, and when they were."""
        path, times, held_out = scored.path, scored.times, 0
        if path.is_dir():
            data = self.open(path)
            times, held_out = data.manifest.get("times") or [], sum(data.manifest["splits"].values())
            held_out -= data.num_rows("train")
        times = [min(times), max(times)] if times else []
        self.part |= {"rows": scored.position, "times": times, "held_out": held_out}

    @property
    def notes(self) -> list[str]:
        """What should be known of the part that was begun, once it was scored."""
        path, times, held_out = self.part["path"], self.part["times"], self.part["held_out"]
        last = max((part["times"][1] for part in self.done if part["times"]), default=-math.inf)
        found = [f"{path} has {held_out:,} rows held out, which are not trained."] if held_out else []
        if times and times[0] < last:
            found.append(
                f"the clock goes backwards: {path} begins at {times[0]:g}, and rows before it end at {last:g}."
            )
        return found

    def __iter__(self) -> Iterator[Batch]:
        rows = PartRows(self, self.batch_size, start=self.position)
        for batch in rows:
            self.position = rows.position
            yield batch
        self.done.append(self.part)
        self.part, self.position = {}, 0

    def state_dict(self) -> dict[str, Any]:
        """The parts so far, and the position in the one that was begun."""
        return {"done": self.done, "part": self.part, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.part, self.position = list(state["done"]), dict(state["part"]), state["position"]

    # -- reading -------------------------------------------------------------------------------------------------------

    @cached_property
    def encoder(self) -> RowEncoder:
        from cce.data.preparation.vocabulary import load_vocabularies
        from cce.data.raw_rows import RawRows, RowEncoder

        data = self.data
        columns, reading = raw_options(data.path / MANIFEST, data.manifest)
        rows = RawRows(columns, reading, has_names=data.manifest["kind"] == "table", has_labels=True, has_times=True)
        return RowEncoder(data.schema, rows, load_vocabularies(data.path, data.manifest, data.schema))

    def open(self, path: Path) -> PreparedData:
        """A prepared part, which must have ids and columns as the stream's data set has them."""
        part, data = PreparedData.open(path, verify=self.verify), self.data
        if part.schema != data.schema:
            raise ValueError(f"{path} must have the columns and ids of {data.path}, and it has others.")
        if path.absolute() == data.path.absolute() or data.manifest["kind"] == "synthetic":
            return part
        if part.manifest["options"]["rule"]["hash_bits"] is None:
            raise ValueError(
                f"{path} has its own vocabularies: give its raw file, which is read with those of {data.path}."
            )
        if raw_options(path, part.manifest) != raw_options(data.path, data.manifest):
            raise ValueError(f"{path} must have been prepared with the options and scales of {data.path}, got others.")
        return part


class PartRows:
    """The batches of the part that a stream has begun, from its row `start` on: this rank's share of each.

    position: rows that all ranks together were given. times: of rows of raw files.
    """

    def __init__(self, stream: StreamLoader, batch_size: int, *, start: int = 0) -> None:
        self.stream, self.batch_size, self.position = stream, batch_size, start
        self.path, self.times = Path(stream.part["path"]), list[float]()

    def __iter__(self) -> Iterator[Batch]:
        stream, how = self.stream, {"rank": self.stream.rank, "world_size": self.stream.world_size}
        if self.path.is_dir():
            loader = stream.open(self.path).loader("train", batch_size=self.batch_size, shuffle=False, **how)
            loader.position = self.position
            for batch in loader:
                self.position = loader.position
                yield batch
            return
        end, timestamp = 0, stream.encoder.raw_rows.columns.timestamp
        for raw in stream.encoder.raw_rows.blocks(self.path):
            if timestamp is not None and len(raw.lines):
                self.times += [float(raw.numbers[timestamp].min()), float(raw.numbers[timestamp].max())]
            last = end + len(raw.lines)
            for batch in stream.encoder.cut(raw, self.batch_size, **how):
                end = min(end + self.batch_size, last)
                if end > self.position:
                    self.position = end
                    yield batch
