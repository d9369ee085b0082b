"""What tables hold: parameters, and bytes of codebooks, pointers and optimizers. No torch here.

Bytes are not parameters: a learned pointer costs some bits for each id and column, and an optimizer may hold two more
values for every parameter. So both are always shown, each with its own compression ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from cce.text import format_bytes, format_ratio, format_table

SUMMED = (
    *("num_embeddings", "num_params", "codebook_nbytes", "pointer_nbytes", "gradient_nbytes", "optimizer_nbytes"),
    *("codes_nbytes", "clustering_nbytes", "full_params", "full_nbytes"),
)


@dataclass(frozen=True)
class Footprint:
    """One table, planned or real: what it holds, and what the full table that it stands for would hold."""

    name: str
    method: str
    num_embeddings: int  # 0: any ids, for which there is no full table to compare with
    embedding_dim: int
    num_params: int
    codebook_nbytes: int
    pointer_nbytes: int
    full_params: int
    full_nbytes: int
    gradient_nbytes: int = 0  # of the gradients that are there now
    optimizer_nbytes: int = 0
    codes_nbytes: int = 0  # of the codes that it trained as before it was clustered; gradients and optimizer are theirs
    clustering_nbytes: int = 0  # that a clustering or refit holds besides, at most, while it lasts
    sizes: dict[str, Any] = field(default_factory=dict)  # arguments of the constructor that make it so large
    reason: str = ""  # why a table is kept that was to be compressed

    @property
    def nbytes(self) -> int:
        """Bytes of the table itself: codebook and pointers."""
        return self.codebook_nbytes + self.pointer_nbytes

    @property
    def training_nbytes(self) -> int:
        """Bytes while it trains, at most: with gradients, the state of the optimizer and what a clustering holds."""
        besides = self.gradient_nbytes + self.optimizer_nbytes + self.codes_nbytes + self.clustering_nbytes
        return self.nbytes + besides

    @property
    def compression(self) -> float:
        """How many times fewer parameters than the full table has."""
        return self.full_params / max(1, self.num_params)

    @property
    def byte_compression(self) -> float:
        """How many times fewer bytes than the full table has."""
        return self.full_nbytes / self.nbytes

    def to_dict(self) -> dict[str, Any]:
        more = ("nbytes", "training_nbytes", "compression", "byte_compression")
        return asdict(self) | {name: getattr(self, name) for name in more}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Footprint:
        """The footprint that `to_dict` gave; what follows from other values is not read."""
        required = [each.name for each in fields(cls) if each.default is each.default_factory is MISSING]
        missing = [name for name in required if name not in values]
        if missing:
            raise ValueError(f"a footprint must have {', '.join(missing)}, got {dict(values)!r:.80}.")
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name in {*SUMMED, "embedding_dim"} & known.keys():
            if not isinstance(known[name], int):
                raise TypeError(f"{name} of a footprint must be an int, got {known[name]!r:.80}.")
        return cls(**known)


@dataclass(frozen=True)
class Footprints:
    """The tables of a model, and both measures of compression: over all tables, and of the largest one."""

    tables: tuple[Footprint, ...]

    @property
    def num_params(self) -> int:
        """Parameters of all tables."""
        return sum(table.num_params for table in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self.tables)

    @property
    def total(self) -> Footprint:
        """The tables added up."""
        sums = {name: sum(getattr(table, name) for table in self.tables) for name in SUMMED}
        return Footprint("all tables", "", embedding_dim=0, **sums)

    @property
    def largest(self) -> Footprint:
        """The table that would be the largest if all were full."""
        return max(self.tables, key=lambda table: table.full_params)

    @property
    def compressed(self) -> tuple[Footprint, ...]:
        """The tables that `compress` swapped, or would swap."""
        return tuple(table for table in self.tables if not table.reason)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tables": [table.to_dict() for table in self.tables],
            "all_tables": self.total.to_dict() if self.tables else None,
            "largest_table": self.largest.to_dict() if self.tables else None,
        }

    def __str__(self) -> str:
        if not self.tables:
            return "no embedding tables"
        columns = {name: [show(table) for table in (*self.tables, self.total)] for name, show in COLUMNS.items()}
        nothing = {"", format_bytes(0)}
        shown = {name: cells for name, cells in columns.items() if name not in WHERE_ANY or {*cells} - nothing}
        rows = [list(row) for row in zip(*shown.values(), strict=True)]
        largest = self.largest
        if not largest.full_params:
            return format_table([*shown], rows, num_left=2)
        note = f"largest table: {largest.name}, {format_ratio(largest.compression)} fewer params"
        note += f", {format_ratio(largest.byte_compression)} fewer bytes"
        return f"{format_table([*shown], rows, num_left=2)}\n{note}"


COLUMNS: dict[str, Callable[[Footprint], str]] = {
    "table": lambda table: table.name,
    "method": lambda table: table.method,
    "ids": lambda table: f"{table.num_embeddings:,}" if table.num_embeddings else "any",
    "dim": lambda table: str(table.embedding_dim or ""),
    "full params": lambda table: f"{table.full_params:,}" if table.full_params else "",
    "params": lambda table: f"{table.num_params:,}",
    "codebook": lambda table: format_bytes(table.codebook_nbytes),
    "pointers": lambda table: format_bytes(table.pointer_nbytes),
    "gradients": lambda table: format_bytes(table.gradient_nbytes),
    "optimizer": lambda table: format_bytes(table.optimizer_nbytes),
    "int8 rows": lambda table: format_bytes(table.codes_nbytes),
    "fewer params": lambda table: format_ratio(table.compression) if table.full_params else "",
    "fewer bytes": lambda table: format_ratio(table.byte_compression) if table.full_params else "",
    "why kept": lambda table: table.reason,
}
WHERE_ANY = ("gradients", "optimizer", "int8 rows", "why kept")  # columns that are shown if they say anything
