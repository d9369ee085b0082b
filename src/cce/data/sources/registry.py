"""Sources of raw data: what a format is called, which options it has, and how a path becomes a job.

A source is plain values and a function, and loads neither numpy nor pyarrow before a job is made: the command line
builds its help from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cce.checks import check_choice, check_known
from cce.data.preparation.job import OPEN_BITS, WAYS, Job

SOURCES: dict[str, Source] = {}
OF_SPLIT = ("validation", "test", "seed")
OF_RULE = {"min_count": "min_count", "vocabulary_from": "source", "hash_ids": "hash_bits"}


@dataclass(frozen=True)
class Option:
    """An option of a source: `multi_hot` is typed `--multi-hot`. One that was not given is None."""

    name: str
    help: str
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    is_list: bool = False  # one value or more
    required: bool = False


@dataclass(frozen=True)
class Source:
    """A raw format. `make(raw, options)` returns the job of a path, with those of its options that were given."""

    name: str  # the word after `cce prepare`
    about: str
    splits: tuple[str, ...]  # ways in which its rows may be held out, the default first
    make: Callable[[Path, Mapping[str, Any]], Job]
    options: tuple[Option, ...] = ()

    def job(self, raw: Path | None, options: Mapping[str, Any]) -> Job:
        """The job of a path, with the options of the source and those that all sources have."""
        given = self._checked(options)
        if raw is None:
            raise ValueError(f"raw must be given for {self.name!r}: the path of a file or a folder.")
        if given.pop("open", False) and given.setdefault("hash_ids", OPEN_BITS) != OPEN_BITS:
            raise ValueError(f"open must be left out with hash_ids={given['hash_ids']}: open ids have all 64 bits.")
        job = self.make(raw, given)
        way = given.get("split")
        if way is not None:
            check_choice("split", way, self.splits)
        of_split = {name: given[name] for name in OF_SPLIT if name in given}
        if job.reading.sample != "all" and "seed" not in WAYS[way or job.splitting.way]:
            of_split.pop("seed", None)  # it is that of the sample
        return replace(
            job,
            splitting=job.splitting.adjusted(way, of_split),
            rule=replace(job.rule, **{name: given[typed] for typed, name in OF_RULE.items() if typed in given}),
        )

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that are given, lists as tuples; an unknown one is rejected with the closest match."""
        own = {option.name: option for option in self.options}
        known = [*own, "split", "open", *OF_SPLIT, *OF_RULE]
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            check_known(f"{name!r} is no option of {self.name!r}", name, known)
            if name in own and own[name].choices:
                check_choice(name, value, own[name].choices or ())
            if name in own and own[name].is_list:
                given[name] = tuple(value) if isinstance(value, list | tuple) else (value,)
        missing = [option.name for option in self.options if option.required and option.name not in given]
        if missing:
            raise ValueError(f"{missing[0]} must be given for {self.name!r}.")
        return given


def register_source(source: Source) -> Source:
    if source.name in SOURCES:
        raise ValueError(f"name of a source must be its own, got {source.name!r}, which is taken.")
    SOURCES[source.name] = source
    return source
