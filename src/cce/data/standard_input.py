"""Parts of a stream from standard input: JSON lines, which are on the disk before they are trained on.

So a run that is killed goes on with the same rows, when it is given those that come after them.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable
from pathlib import Path

from cce.data.raw_files import JSON_LINES
from cce.signals import StopRequest

READ_BYTES = 1 << 20
SECONDS, LOOKS = 0.2, 300  # from one look at the stop request to the next, and how many there are


class InputParts:
    """Writes the lines of standard input to `folder`, as parts of `num_rows` rows, the last of which may be shorter.

    Lines of a part that is not complete are in `next`, to which a run that goes on adds.
    """

    def __init__(self, folder: Path, num_rows: int) -> None:
        self.folder, self.num_rows, self.begun = folder, num_rows, folder / "next"
        self.has_ended = sys.stdin is None or sys.stdin.isatty()
        self._rest = b""  # what was read of lines to come
        folder.mkdir(exist_ok=True)

    def make_part(self, done: Iterable[Path], request: StopRequest) -> None:
        """Wait until a part is complete or the input ends; no longer than a minute, or until somebody asks to stop.

        done: parts that were trained, whose numbers are not given again.
        """
        with self.begun.open("ab+", buffering=0) as file:
            file.seek(0)
            count = sum(1 for _ in file)
            while count < self.num_rows and (lines := self._read_lines(self.num_rows - count, request)):
                file.write(b"".join(lines))
                count += len(lines)
        if count == self.num_rows or (self.has_ended and count):
            known = [*done, *self.folder.glob("*" + JSON_LINES)]
            number = 1 + max((int(path.stem) for path in known if path.parent == self.folder), default=0)
            self.begun.rename(self.folder / f"{number:06d}{JSON_LINES}")

    def _read_lines(self, most: int, request: StopRequest) -> list[bytes]:
        """Whole lines; none at the end of the input, after a minute, or when somebody asks to stop."""
        for _ in range(LOOKS):
            if b"\n" in self._rest or self.has_ended or request.is_set:
                break
            if select.select([sys.stdin], [], [], SECONDS)[0]:
                text = os.read(sys.stdin.fileno(), READ_BYTES)
                self._rest, self.has_ended = self._rest + text, not text
        if self.has_ended and self._rest and b"\n" not in self._rest:
            raise ValueError(
                f"standard input must end with a line break, got {self._rest[:40]!r}: its last row may have been cut. "
                f"Whole rows before it are in {self.begun}."
            )
        *lines, rest = self._rest.split(b"\n", most)
        self._rest = rest
        return [line + b"\n" for line in lines]
