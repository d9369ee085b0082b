"""The memory ledger: what every table of a model weighs, in trainable numbers and in bytes.

Bytes are not parameters: a learned pointer costs a byte or more for each id and column, and an optimizer may hold two
more numbers for every trained one. So both are always shown, each with a compression of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_type
from cce.collection.names import readable_path
from cce.embeddings.base import Embedding
from cce.text import format_bytes, format_ratio, format_table

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = ("params", "codebook", "pointers", "optimizer", "fewer params", "fewer bytes")
HEADERS = ("table", "method", "ids", "dim", *SIZES)
Table = Embedding | nn.Embedding | nn.EmbeddingBag


@dataclass(frozen=True)
class TableSummary:
    """One table: its sizes now, and those of the full table it stands for."""

    name: str
    method: str
    num_embeddings: int
    embedding_dim: int
    num_params: int
    codebook_nbytes: int
    pointer_nbytes: int
    optimizer_nbytes: int
    full_params: int
    full_nbytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the table itself, without the optimizer."""
        return self.codebook_nbytes + self.pointer_nbytes

    @property
    def compression(self) -> float:
        """How many times fewer trainable numbers than the full table has."""
        return self.full_params / self.num_params

    @property
    def byte_compression(self) -> float:
        """How many times fewer bytes than the full table has."""
        return self.full_nbytes / self.nbytes


@dataclass(frozen=True)
class Summary:
    """All tables of a model, and both measures of compression: over all tables, and of the largest one."""

    tables: tuple[TableSummary, ...]

    @property
    def total(self) -> TableSummary:
        """The tables added up."""
        sums = {
            field: sum(getattr(table, field) for table in self.tables)
            for field in (
                "num_embeddings",
                "num_params",
                "codebook_nbytes",
                "pointer_nbytes",
                "optimizer_nbytes",
                "full_params",
                "full_nbytes",
            )
        }
        return TableSummary(name="all tables", method="", embedding_dim=0, **sums)

    @property
    def largest(self) -> TableSummary:
        """The table that would be the largest if all were full."""
        return max(self.tables, key=lambda table: table.full_params)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return {
            "tables": [_as_dict(table) for table in self.tables],
            "all_tables": _as_dict(self.total) if self.tables else None,
            "largest_table": _as_dict(self.largest) if self.tables else None,
        }

    def __str__(self) -> str:
        if not self.tables:
            return "no embedding tables"
        rows = [_row(table) for table in self.tables]
        largest = self.largest
        name, method, num_ids, _, *sizes = _row(self.total)
        rows.append((name, method, num_ids, "", *sizes))
        note = f"largest table: {largest.name}, {format_ratio(largest.compression)} fewer params"
        note += f", {format_ratio(largest.byte_compression)} fewer bytes"
        return f"{format_table(HEADERS, rows, num_left=2)}\n{note}"


def summary(model: nn.Module, optimizer: Optimizer | None = None) -> Summary:
    """What every table of `model` weighs, `nn.Embedding` and `nn.EmbeddingBag` included; each shared table once."""
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_type("optimizer", optimizer, (Optimizer, type(None)), "a torch optimizer")
    return Summary(
        tuple(_summarize(readable_path(name) or "(model)", table, optimizer) for name, table in _tables(model))
    )


def _tables(model: nn.Module) -> Iterator[tuple[str, Table]]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, Table):
            weights = {id(parameter) for parameter in module.parameters()}
            if not weights <= seen:  # tied tables are counted once
                yield name, module
            seen |= weights


def _summarize(name: str, table: Table, optimizer: Optimizer | None) -> TableSummary:
    parameters = list(table.parameters())
    full_params = table.num_embeddings * table.embedding_dim
    return TableSummary(
        name=name,
        method=table.method if isinstance(table, Embedding) else f"nn.{type(table).__name__}",
        num_embeddings=table.num_embeddings,
        embedding_dim=table.embedding_dim,
        num_params=sum(parameter.numel() for parameter in parameters),
        codebook_nbytes=sum(parameter.nbytes for parameter in parameters),
        pointer_nbytes=table.pointer_nbytes if isinstance(table, Embedding) else 0,
        optimizer_nbytes=_state_nbytes(parameters, optimizer),
        full_params=full_params,
        full_nbytes=full_params * parameters[0].element_size(),
    )


def _state_nbytes(parameters: list[nn.Parameter], optimizer: Optimizer | None) -> int:
    if optimizer is None:
        return 0
    states = (value for parameter in parameters for value in optimizer.state.get(parameter, {}).values())
    return sum(value.nbytes for value in states if isinstance(value, Tensor))


def _as_dict(table: TableSummary) -> dict[str, Any]:
    ratios = {"compression": table.compression, "byte_compression": table.byte_compression}
    return asdict(table) | {"nbytes": table.nbytes} | ratios


def _row(table: TableSummary) -> tuple[str, ...]:
    return (
        table.name,
        table.method,
        f"{table.num_embeddings:,}",
        str(table.embedding_dim),
        f"{table.num_params:,}",
        format_bytes(table.codebook_nbytes),
        format_bytes(table.pointer_nbytes),
        format_bytes(table.optimizer_nbytes),
        format_ratio(table.compression),
        format_ratio(table.byte_compression),
    )
