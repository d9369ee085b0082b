"""`EmbeddingCollection`: all categorical features of a model, looked up in one call.

Every feature has its own table, with its own parameters: optimizers, checkpoints, clusterings and averages see
what they would see of single tables. The lookup is what is shared: compiled loops take the addresses of all tables and
go through all features in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack

from cce.budget import DEFAULT_METHOD, Budget
from cce.checks import check_choice, check_flag, check_range, check_start_scale, check_type, shown
from cce.collection.features import Jagged, TableDict, check_bags, join_bags
from cce.collection.plan import NO_BUDGET, MethodOf, check_vocabularies, plan_tables
from cce.embeddings import (
    Clusterable,
    ClusterEvent,
    Embedding,
    EmbeddingBag,
    Finalizable,
    LinearEmbedding,
    RowTables,
    StartScale,
    check_placement,
    check_shards,
    cluster_all,
    compiled_look_up,
    look_up_pointers,
    make_table,
    row_tables,
)
from cce.indexing import NO_ID, make_generator
from cce.kernels import Bags, Lookup

Pooling = Literal["sum", "mean"]


class EmbeddingCollection(nn.Module):
    """Tables of `features` (names and vocabulary sizes) within one budget: see `Budget` for how it is shared out.

    A feature of None ids is open: its ids are any 64-bit integers.
    Without a budget all tables are full, whatever the method, and `print` says so.

    Ids `(batch, features)` give vectors `(batch, features, embedding_dim)`, one column for each feature in order.
    Features with several ids an example come as `ids` `(n)` with `offsets` `(features · batch + 1)`, feature after
    feature as in torchrec's KeyedJaggedTensor, and are pooled. A dictionary by name will do as well, of ids
    `(batch)` or of tuples: ids, offsets `(batch + 1)` and, if any, weights.

    cap: most parameters of any one table; short for `budget=Budget(cap=cap)`, which has the other limits.
    options: further arguments of a method's class, by method.
    counts: by feature, how often each id occurs in training: ids that occur often enough have rows from the start.
    shard: whether each rank of the process group has a share of the rows of "cce" tables; other tables are the same on
        all ranks. All ranks must look ids up together.
    start_scale: scale of the vectors at the start, of every table whose method has none in `options`; None: that of
        each method.
    unified: one table for all features, whose values share its rows, hashed apart (a proposal of the paper).
    device, dtype: of the parameters, as in torch; a budget in bytes depends on the dtype.
    """

    def __init__(
        self,
        features: Mapping[str, int | None],
        embedding_dim: int,
        *,
        method: MethodOf = DEFAULT_METHOD,
        budget: Budget | None = None,
        cap: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        counts: Mapping[str, Tensor] | None = None,
        unified: bool = False,
        pooling: Pooling = "sum",
        shard: bool = False,
        sparse: bool = False,
        padding_idx: int | None = None,
        start_scale: StartScale | None = None,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("sum", "mean"))
        check_flag("unified", unified)
        if start_scale is not None:
            check_start_scale("start_scale", start_scale)
        check_placement(device, dtype)
        check_vocabularies("features", features)
        self.features: dict[str, Any] = dict(features)
        self.embedding_dim, self.pooling, self.unified = embedding_dim, pooling, unified
        sizes: dict[str, int | None] = {"all": sum(self._bounds())} if unified else self.features
        itemsize = (dtype or torch.get_default_dtype()).itemsize
        given = dict[str, Any](budget=budget, cap=cap, options=options, itemsize=itemsize)
        self.plan = plan_tables(sizes, embedding_dim, method=method, **given)
        if unified and padding_idx is not None:  # the same of every feature, so not the one of the common table
            for name, size in zip(features, self._bounds(), strict=True):
                check_range(f"padding_idx of {name!r}", padding_idx, -size, size)
        self.padding_idx = padding_idx
        placed = {"generator": make_generator(seed), "device": device, "dtype": dtype}
        common = {"sparse": sparse, "padding_idx": None if unified else padding_idx, **placed}
        own, start = options or {}, {} if start_scale is None else {"start_scale": start_scale}
        own = {**own, DEFAULT_METHOD: {**own.get(DEFAULT_METHOD, {}), "shard": True}} if shard else own
        planned = ((each, {**start, **own.get(each.method, {})}) for each in self.plan.tables)
        self.tables = TableDict({each.name: make_table(each, its, common) for each, its in planned})
        self._give_rows(counts or {})
        rows = {each.rows.name: each.rows for each in self.tables.values() if isinstance(each, Finalizable)}
        if shard and not rows:
            raise ValueError(f"shard must be False where no table is of method {DEFAULT_METHOD!r}, got True.")
        check_shards(rows)
        self._fused: _FusedTables | None = None
        self._fused_tables()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw index state and parameters of all tables again, as the constructor does."""
        for table in self._tables():
            table.reset_parameters(generator)

    def _give_rows(self, counts: Mapping[str, Tensor]) -> None:
        for name in counts:
            check_choice("a name in counts", name, self.tables)
        for name, table in self.tables.items():
            if isinstance(table, Finalizable):
                table.rows.name = f"feature {name!r}"
                if name in counts:
                    table.give_rows(counts[name])

    @property
    def num_features(self) -> int:
        """Columns of ids."""
        return len(self.features)

    @property
    def num_params(self) -> int:
        """The number of parameters of all tables."""
        return sum(table.num_params for table in self._tables())

    @property
    def nbytes(self) -> int:
        """Bytes of all tables, pointers included."""
        return sum(table.nbytes for table in self._tables())

    def forward(
        self,
        ids: Tensor | Mapping[str, Tensor | Jagged],
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Vectors `(batch, features, embedding_dim)`."""
        if isinstance(ids, Mapping):
            ids, offsets, per_sample_weights = self._join(ids)
        if not isinstance(ids, Tensor):
            check_type("ids", ids, Tensor, "a Tensor or a dictionary of Tensors")  # type: ignore[unreachable]
        if offsets is None:
            if per_sample_weights is not None:
                raise ValueError("per_sample_weights go with offsets, got offsets=None.")
            return self._one_each(ids)
        check_type("offsets", offsets, Tensor, "a Tensor")
        return self._bags(ids, offsets, per_sample_weights)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the lookup: a copy builds its own, with other addresses."""
        return self.__dict__ | {"_fused": None}

    def cluster(self, *, generator: torch.Generator | None = None) -> list[ClusterEvent]:
        """Cluster every table that can be, side by side."""
        named = zip(self.tables, self._tables(), strict=True)
        tables = {f"table of feature {name!r}": table for name, table in named if isinstance(table, Clusterable)}
        return cluster_all({name: table for name, table in tables.items() if table.can_cluster}, generator)

    # -- one id for each feature ---------------------------------------------------------------------------------------

    def _one_each(self, ids: Tensor) -> Tensor:
        num_features = len(self.features)
        if ids.dim() != 2 or ids.shape[1] != num_features:
            raise ValueError(f"ids must have shape (batch, {num_features}), got {tuple(ids.shape)}.")
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"ids must be int32 or int64, got {ids.dtype}.")
        if self.unified:
            vectors = self._only_table()(self._in_one_vocabulary(ids, lambda values: values.expand_as(ids)))
            return vectors.masked_fill((ids == self._paddings(ids)).unsqueeze(-1), 0)  # type: ignore[no-any-return]
        fused = self._fused_tables()
        if fused is None or not (fused.tables or fused.row_tables or fused.sharded):
            return torch.stack([table(ids[:, index]) for index, table in enumerate(self._tables())], dim=1)
        if len(fused.row_tables) == num_features:
            return fused.look_up_rows(ids)
        if len(fused.tables) < num_features:
            return self._mixed(fused, ids)
        return fused.look_up(ids, shape=(ids.shape[0], num_features, self.embedding_dim))

    def _mixed(self, fused: _FusedTables, ids: Tensor) -> Tensor:
        """The vectors of tables that are looked up together, and of the others between them."""
        columns: dict[int, Tensor] = {}
        if fused.tables:
            together = torch.split(fused.look_up(ids[:, fused.indices]), self.embedding_dim, dim=1)
            columns |= zip(fused.indices, together, strict=True)
        if fused.row_tables:
            columns |= zip(fused.row_indices, fused.look_up_rows(ids[:, fused.row_indices]).unbind(1), strict=True)
        columns |= fused.look_up_sharded(dict(enumerate(ids.long().unbind(1))))
        tables = enumerate(self._tables())
        return torch.stack([columns[f] if f in columns else table(ids[:, f]) for f, table in tables], dim=1)

    # -- bags ----------------------------------------------------------------------------------------------------------

    def _bags(self, ids: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        batch = check_bags(ids, offsets, weights, self.num_features)
        if self.pooling == "mean":
            if weights is not None:
                raise ValueError("per_sample_weights need pooling='sum', got pooling='mean'.")
            weights = self._shares(ids, offsets, batch)
        if self.unified:
            unpadded = self._per_id(self._paddings(ids), offsets, batch) != ids
            weights = unpadded.float() if weights is None else weights * unpadded
            shifted = self._in_one_vocabulary(ids, lambda values: self._per_id(values, offsets, batch))
            bag = EmbeddingBag(self._only_table(), mode="sum", include_last_offset=True)
            pooled = bag.pool(shifted, offsets, weights)
            return pooled.view(self.num_features, batch, self.embedding_dim).transpose(0, 1)
        fused = self._fused_tables()
        if fused is not None and len(fused.row_tables) == self.num_features and fused.can_pool_rows(ids, weights):
            own = None if weights is None else weights.float().contiguous()
            return fused.look_up_rows(ids, Bags(offsets.long().contiguous(), batch, own))
        if fused is None or len(fused.tables) < self.num_features:
            return torch.stack(self._bags_apart(ids, offsets, weights, batch), dim=1)
        shape = (batch, self.num_features, self.embedding_dim)
        return fused.look_up(ids.contiguous(), bags=Bags(offsets.long(), batch, weights), shape=shape)

    def _bags_apart(self, ids: Tensor, offsets: Tensor, weights: Tensor | None, batch: int) -> list[Tensor]:
        """Bags of one table after the other."""
        pooled = []
        for index, table in enumerate(self._tables()):
            own = offsets[index * batch : (index + 1) * batch + 1]
            first, last = int(own[0]), int(own[-1])
            share = None if weights is None else weights[first:last]
            bag = EmbeddingBag(table, mode="sum", include_last_offset=True)
            pooled.append(bag.pool(ids[first:last], own - first, share))
        return pooled

    def _join(self, inputs: Mapping[str, Tensor | Jagged]) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """A dictionary by name, as one tensor of ids, or as bags of all features."""
        missing = sorted(set(self.features) ^ set(inputs))
        if missing:
            names = ", ".join(self.features)
            raise ValueError(f"ids must name each feature once ({names}), got {shown(list(inputs))}.")
        columns = [inputs[name] for name in self.features]
        for name, column in inputs.items():
            check_type(f"ids of feature {name!r}", column, (Tensor, tuple), "a Tensor, or a tuple of ids and offsets")
        if all(isinstance(column, Tensor) for column in columns):
            sizes = {name: column.numel() for name, column in inputs.items()}  # type: ignore[union-attr]
            if len(set(sizes.values())) > 1:
                raise ValueError(f"ids of every feature must have as many examples, got {shown(sizes)}.")
            return torch.stack([column.reshape(-1) for column in columns], dim=1), None, None  # type: ignore[union-attr]
        return join_bags(columns)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _tables(self) -> Sequence[Embedding]:
        return list(self.tables.values())  # type: ignore[arg-type]

    def _bounds(self) -> list[int]:
        """The numbers of ids of all features, which one table for all must know."""
        for name, size in self.features.items():
            if size is None:
                raise ValueError(f"unified must be False where a feature has any ids, as {name!r} has.")
        return [size for size in self.features.values() if size is not None]

    def _only_table(self) -> Embedding:
        return self.tables["all"]  # type: ignore[return-value]

    def _shares(self, ids: Tensor, offsets: Tensor, batch: int) -> Tensor:
        """The weight of each id in the mean of its bag, in which padding does not count."""
        unpadded = self._per_id(self._paddings(ids), offsets, batch) != ids
        counts = torch.cat([offsets.new_zeros(1), unpadded.cumsum(0)])[offsets].diff()
        return torch.repeat_interleave(counts.clamp(min=1).double().reciprocal(), offsets.diff())

    def _paddings(self, ids: Tensor) -> Tensor:
        """The padding id of each feature; −1 where there is none."""
        if not self.unified:
            found = [NO_ID if table.padding_idx is None else table.padding_idx for table in self._tables()]
        else:
            padding = self.padding_idx
            found = [NO_ID if padding is None else padding % size for size in self._bounds()]
        return torch.tensor(found, device=ids.device)

    def _per_id(self, values: Tensor, offsets: Tensor, batch: int) -> Tensor:
        """Repeat the value of each feature for each of its ids."""
        return torch.repeat_interleave(values, offsets[::batch].diff()) if batch else values[:0]

    def _in_one_vocabulary(self, ids: Tensor, spread: Callable[[Tensor], Tensor]) -> Tensor:
        """Ids of all features, the vocabulary of each after those before it."""
        sizes = torch.tensor(self._bounds(), device=ids.device)
        wrong = (ids < 0) | (ids >= spread(sizes))
        if _readable(ids) and bool(wrong.any()):
            index = int(spread(torch.arange(self.num_features, device=ids.device))[wrong][0])
            name, size = list(self.features.items())[index]
            raise IndexError(f"ids of feature {name!r} must lie in [0, {size}), got {int(ids[wrong][0])}.")
        return ids + spread(sizes.cumsum(0) - sizes)

    def _fused_tables(self) -> _FusedTables | None:
        """The tables that are looked up together; noted again when a table was replaced, but not by a tracer."""
        tables: list[Embedding] = list(self.tables._modules.values())  # type: ignore[arg-type]
        if self._fused is None or self._fused.all_tables != tables or self._fused.has_changed:
            if torch.compiler.is_compiling():
                return None
            self._fused = _FusedTables.of(tables, list(self.features))
        return self._fused

    def extra_repr(self) -> str:
        """What `print` shows."""
        sizes = f"num_features={self.num_features}, embedding_dim={self.embedding_dim}, num_params={self.num_params}"
        return f"{sizes}, full tables: {NO_BUDGET}" if any(table.reason for table in self.plan.tables) else sizes


@dataclass(frozen=True)
class _FusedTables:
    """The linear tables of a collection, and their common lookup; and those that train as int8 rows, and theirs."""

    all_tables: Sequence[Embedding]
    indices: list[int]  # features with linear tables
    tables: list[LinearEmbedding]
    look_up: Lookup
    row_indices: list[int]  # features with int8 rows
    row_tables: list[Finalizable]
    rows: RowTables | None
    sharded: dict[int, Any]  # with pointers that ranks share out, by feature
    names: list[str]

    @property
    def has_changed(self) -> bool:
        """Whether a table was finalized, or has other rows than it had."""
        rows = self.rows.tables if self.rows else ()
        pairs = zip(self.row_tables, rows, strict=True)
        is_other = any(own.live.is_final or table._modules["rows"] is not own for table, own in pairs)
        was_sharded = any(not each.is_final or each.rows.shards is None for each in self.sharded.values())
        return is_other or was_sharded or any(map(_has_rows, self.tables))

    def can_pool_rows(self, ids: Tensor, weights: Tensor | None) -> bool:
        """Whether bags of the tables with int8 rows are looked up together."""
        dtypes = {table.anchor.dtype for table in self.row_tables}
        return self.rows is not None and len(dtypes) == 1 and self.rows.can_pool(ids, weights, *dtypes)

    def look_up_rows(self, ids: Tensor, bags: Bags | None = None) -> Tensor:
        """Vectors `(batch, tables, dim)` of the tables with int8 rows."""
        assert self.rows is not None
        anchors: list[Any] = [table._parameters["anchor"] for table in self.row_tables]
        if torch.compiler.is_compiling():
            return compiled_look_up(self.rows.tables, ids, anchors, [each.padding_idx for each in self.row_tables])
        for table, own in zip(self.row_tables, self.rows.tables, strict=True):
            if not own.live.has_optimizer:
                table.check_not_averaged()
        return self.rows.look_up(ids, anchors, bags=bags)

    def look_up_sharded(self, columns: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Vectors of the ids of each feature whose pointers ranks share out."""
        if not self.sharded:
            return {}
        found = look_up_pointers(
            list(self.sharded.values()), [columns[i] for i in self.sharded], [self.names[i] for i in self.sharded]
        )
        return dict(zip(self.sharded, found, strict=True))

    @classmethod
    def of(cls, tables: Sequence[Embedding], names: list[str]) -> _FusedTables:
        """Those without weights; the others are looked up one by one."""
        called = [f"feature {name!r}" for name in names]
        own_rows = {i: table for i, table in enumerate(tables) if isinstance(table, Finalizable) and _has_rows(table)}
        final = {i: table for i, table in enumerate(tables) if isinstance(table, Finalizable) and i not in own_rows}
        sharded = {i: table for i, table in final.items() if table.rows.shards is not None}
        linear = {
            i: table
            for i, table in enumerate(tables)
            if isinstance(table, LinearEmbedding) and not table.is_weighted and i not in own_rows | sharded
        }
        owners, own = list(own_rows.values()), list(linear.values())
        given = [each.rows for each in owners], [each.padding_idx for each in owners], [called[i] for i in own_rows]
        look_up, rows = Lookup(own, [called[i] for i in linear]), row_tables(*given) if owners else None
        return cls(tables, list(linear), own, look_up, list(own_rows), owners, rows, sharded, called)


def _has_rows(table: Embedding) -> bool:
    return isinstance(table, Finalizable) and not table.is_final


def _readable(ids: Tensor) -> bool:
    return ids.device.type == "cpu" and not torch.compiler.is_compiling() and peek_interpreter_stack() is None
