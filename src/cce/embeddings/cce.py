"""`cce`: int8 rows while it trains, pointers and codebooks afterwards, in one module.

In training a table is `Int8Rows`: an id that has occurred `min_count` times has a row of its own, and all others read
zeros. `finalize` clusters the rows, weighted by how often their ids occurred, into a codebook for each column, and
keeps a pointer for each row and column. Product quantisation: Jégou, Douze and Schmid (2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from cce.clustering import ClusterSettings, ProductQuantizer, Sample, draw_sample, encode_all
from cce.embeddings.base import check_budget, check_weight
from cce.embeddings.compositional import piece_shape
from cce.embeddings.finalizable import Finalizable
from cce.embeddings.int8_rows import MOST_COUNTED, Int8Rows
from cce.embeddings.linear import ID_TYPES, LinearEmbedding
from cce.embeddings.options import choice, optional, rules, whole
from cce.embeddings.row_lookup import RowTables
from cce.embeddings.shapes import Shapes
from cce.embeddings.training_defaults import TrainingDefaults
from cce.indexing import IndexModule, PointerStore, RowMap, RowSource, Slot, SlotKind, blocks, common_generator
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cce.embeddings.initialization import StartScale
    from cce.kernels import Layout

NUM_COLUMNS, NUM_ROWS = 4, 256  # of the codebooks: a byte for each column and id
SETTINGS = ClusterSettings(tol=1e-3, weighted=True)
FITTED_AT_A_TIME = 1 << 14  # ids
Unseen = Literal["neutral", "trained"]


class RowPointers(IndexModule):
    """Pointers of rows, in the order of rows; none while a table trains as int8 rows."""

    index_state: ClassVar[tuple[str, ...]] = ()  # the store saves itself

    def __init__(self, num_columns: int, *, is_meta: bool = False) -> None:
        super().__init__()
        self.store = PointerStore(0, num_columns, 1, is_meta=is_meta)

    @property
    def nbytes(self) -> int:
        """Bytes of the pointers."""
        return self.store.nbytes

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        sizes = [self.store.num_ids, self.store.num_columns, self.store.num_rows]
        destination[prefix + "words"] = self.store.words
        destination[prefix + "sizes"] = torch.tensor(sizes, dtype=torch.int64, device=self.store.words.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self.store.set_meta(fn(torch.empty(0, device=self.store.words.device)).is_meta)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found = {name: state_dict.pop(prefix + name, None) for name in ("words", "sizes")}
        super()._load_from_state_dict(state_dict, prefix, *args)
        _, _, missing_keys, _, error_msgs = args
        missing_keys += [prefix + name for name, tensor in found.items() if tensor is None]
        if any(tensor is None for tensor in found.values()):
            return
        store = PointerStore(*found["sizes"].tolist())
        if store.words.shape != found["words"].shape or store.words.dtype != found["words"].dtype:
            shape = tuple(found["words"].shape)
            error_msgs.append(f"words mismatch for {prefix}words: {shape} do not fit their sizes.")
            return
        store.words.copy_(found["words"])
        self.store = store


@dataclass(frozen=True)
class PointedRows(RowSource):
    """Rows that the pointers of an id's row name, each in the table of its column."""

    store: PointerStore

    @property
    def slots(self) -> Sequence[int]:  # type: ignore[override]
        """One for each column."""
        return range(self.store.num_columns)

    def rows(self, ids: Tensor) -> Tensor:
        """Each column's row, in its table; `ids` are rows of the table, counted from 0."""
        return self.store.read(ids) + torch.arange(self.store.num_columns, device=ids.device) * self.store.num_rows

    def describe(self) -> list[Slot]:
        """One slot for each column."""
        bits, num_columns = self.store.bits, self.store.num_columns
        return [
            Slot(
                SlotKind.LEARNED,
                column * self.store.num_rows,
                self.store.num_rows,
                column,
                self.store.words,
                num_learned=self.store.num_ids,
                bits=bits,
                first_bit=column * bits,
                stride=num_columns * bits,
            )
            for column in self.slots
        ]


@dataclass(frozen=True)
class Compact:
    """The compact form of a table, before it takes effect."""

    codebooks: Tensor  # (num_columns, num_rows, width)
    store: PointerStore
    distortion: float  # mean squared error of a value, weighted by how often ids occurred

    def state(self) -> dict[str, Any]:
        """Plain values and tensors, to send to another process."""
        sizes = [self.store.num_ids, self.store.num_columns, self.store.num_rows]
        return {"codebooks": self.codebooks, "words": self.store.words, "sizes": sizes, "distortion": self.distortion}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Compact:
        """What was sent."""
        store = PointerStore(*state["sizes"])
        store.words.copy_(state["words"])
        return cls(state["codebooks"], store, state["distortion"])


class CCEEmbedding(LinearEmbedding, Finalizable):
    """Rows of int8 while it trains; `T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with learned `h` after `finalize`.

    Ids come in any order. Those that have no row yet, or never get one, have the zero vector, in both forms.

    num_rows, num_columns: of the codebooks that `finalize` makes; 4 columns of 256 rows take 4 bytes an id.
    min_count: occurrences in training after which an id has a row; 1: from the first on.
    counts: `(num_embeddings,)`, how often each id occurs in training, if it is known: ids that occur `min_count` times
        have rows from the start, and no others get any.
    unseen: what ids without a row read: "neutral", zeros that are never trained, or "trained", one row that they train
        together. That is a bet that tomorrow's new ids are like yesterday's rare ones; `finalize` then keeps pointers
        for all ids.
    sparse: of the gradients of codebooks, after `finalize`.
    """

    method = "cce"
    option_checks = rules(
        num_rows=whole(1, 1 << 16),
        num_columns=optional(whole(1)),
        min_count=whole(1, MOST_COUNTED + 1),
        unseen=choice("neutral", "trained"),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int = NUM_ROWS,
        num_columns: int | None = None,
        min_count: int = 2,
        counts: Tensor | None = None,
        unseen: Unseen = "neutral",
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "dlrm",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(num_rows=num_rows, num_columns=num_columns, min_count=min_count, unseen=unseen)
        self.num_columns, self.width = piece_shape(embedding_dim, num_columns)
        self.num_rows = num_rows
        self.rows = Int8Rows(
            num_embeddings,
            embedding_dim,
            min_count=min_count,
            bound=(3 * self.start_variance) ** 0.5,
            trains_unseen=unseen == "trained",
            key=_draw_key(generator),
            device=device,
        )
        self.anchor = nn.Parameter(torch.ones(1, device=device, dtype=dtype))
        self.pointers = RowPointers(self.num_columns, is_meta=self.anchor.is_meta)
        self.codebook = nn.Parameter(torch.empty(0, self.width, device=device, dtype=dtype), requires_grad=False)
        self._attach()
        if counts is not None:
            self.give_rows(counts)

    # -- lookups -------------------------------------------------------------------------------------------------------

    @property
    def is_final(self) -> bool:
        """Whether the table has its compact form."""
        return len(self.codebook) > 0

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        if not isinstance(input, Tensor) or input.dtype not in ID_TYPES or self.is_final:
            return super().forward(input)
        if torch.compiler.is_exporting():  # a program of plain torch, which trains nothing
            vectors = self.rows.read(input.reshape(-1).long()).to(self.anchor.dtype)
            padding = input.reshape(-1) == (-1 if self.padding_idx is None else self.padding_idx)
            return vectors.masked_fill(padding.unsqueeze(-1), 0).view(*input.shape, self.embedding_dim)
        return self._read_rows(input)  # type: ignore[no-any-return]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _read_rows(self, ids: Tensor) -> Tensor:
        self.check_not_averaged()
        tables = RowTables([self.rows], [self.padding_idx])
        vectors: Tensor = tables.look_up(ids.reshape(-1, 1), [self.anchor], check=self.check_ids)
        return vectors.view(*ids.shape, self.embedding_dim)

    def embed(self, ids: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        """Vectors `(n, embedding_dim)`, or of `shape`."""
        if self.is_final:
            return super().embed(ids, shape)
        vectors = self.forward(ids)
        return vectors if shape is None else vectors.view(*shape)

    def sources(self) -> tuple[int, int, Sequence[RowSource]]:
        """H of the compact form: a pointer for each column."""
        if not self.is_final:
            raise ValueError("a table that trains as int8 rows has no codebook yet: finalize it first.")
        return self.num_columns, 1, [PointedRows(self.pointers.store)]

    @property
    def row_map(self) -> RowMap:
        """Which ids have rows."""
        return self.rows.map

    def layout(self) -> Layout:
        """H as a lookup takes it, behind the map of rows."""
        return replace(super().layout(), row_map=self.row_map)

    def lookup(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """H for ids `(n)` of the compact form: rows `(n, columns, 1)`, and weights, 0 for ids without a row."""
        layout = self.layout()
        weights = (self.row_map(ids) > 0).to(self.codebook.dtype)
        return layout.rows(ids), weights.view(-1, 1, 1).expand(-1, layout.columns, 1)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def give_rows(self, counts: Tensor) -> None:
        """Give rows to ids that occur `min_count` times in training, and to no others from here on."""
        if counts.shape != (self.num_embeddings,):
            raise ValueError(f"counts must have shape ({self.num_embeddings},), got {tuple(counts.shape)}.")
        often = counts >= self.rows.min_count
        ids = often.nonzero().squeeze(1).to(self.rows.records.device)
        self.rows.give_rows(ids[self.rows.find(ids).to(ids.device) == 0])
        self.rows.close()

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Rows for all ids, rounded from a trained table."""
        del generator
        check_weight(self, weight)
        self.rows.fit(weight)

    # -- the compact form ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> Compact:
        """Compute the compact form of the rows as they are; `become` lets the table have it."""
        rows = self.rows
        rows.compact()
        if rows.num_rows == 1:
            raise ValueError(f"{rows.name} must have rows to be finalized, got none: no id occurred often enough.")
        first = 0 if rows.trains_unseen else 1  # row 0 is clustered as well, if it was trained
        weights = self._occurrences(counts)[first:].clamp(min=1)
        num_rows = rows.num_rows - first
        quantizer = ProductQuantizer(self.num_columns, self.num_rows, SETTINGS)

        def source(at: Tensor) -> Tensor:
            return rows.codes[at.to(rows.records.device) + first].float() * rows.scale

        drawn, sampled = draw_sample(num_rows, self.num_rows, SETTINGS, counts=weights, generator=generator)
        quantizer.fit(Sample(source, drawn, self.embedding_dim, sampled), generator)
        store = encode_all(quantizer, source, num_rows, self.embedding_dim)
        distortion = _distortion(quantizer.codebooks, store, source, weights)
        return Compact(quantizer.codebooks, self._share_row_0(store) if first == 0 else store, distortion)

    def _occurrences(self, counts: Tensor | None) -> Tensor:
        """How often the id of each row occurred, row 0 included: by `counts` of ids, or as rows have counted."""
        if counts is None:
            return self.rows.occurrences().cpu()
        own = counts[torch.cat(list(self.row_map.ids())).to(counts.device)]
        return torch.cat([(counts.sum() - own.sum()).view(1), own]).cpu()

    def _share_row_0(self, store: PointerStore) -> PointerStore:
        """Pointers of all ids, by those of rows: ids without a row have the pointers of row 0."""
        shared = PointerStore(self.num_embeddings, store.num_columns, store.num_rows)
        for ids in blocks(self.num_embeddings):
            shared.write(int(ids[0]), store.read(self.row_map(ids.to(self.row_map.bits.device)).cpu()))
        return shared

    def resize(self, *, num_columns: int | None = None, num_rows: int | None = None) -> None:
        """Choose other codebooks for the compact form, which the table must not have yet."""
        self.check_options(num_columns=num_columns, num_rows=self.num_rows if num_rows is None else num_rows)
        if self.is_final:
            raise ValueError("a table must train as int8 rows to be resized, got one that is final.")
        self.num_rows = self.num_rows if num_rows is None else num_rows
        if num_columns is not None:
            self.num_columns, self.width = piece_shape(self.embedding_dim, num_columns)
            self.pointers = RowPointers(self.num_columns)
            self.codebook.data = self.codebook.new_empty(0, self.width)

    @torch.no_grad()
    def become(self, compact: Compact) -> None:
        """Have the compact form, whole or not at all."""
        with uninterrupted():
            self.pointers.store = compact.store
            self.codebook.data = compact.codebooks.flatten(0, 1).to(self.anchor)
            self._train_form()
            self.rows.release()
            if self.rows.trains_unseen:
                self.row_map.fill()

    def _train_form(self) -> None:
        """Let gradients go to what the table is made of now, if it is trained at all."""
        is_trained = self.anchor.requires_grad or self.codebook.requires_grad
        trained, other = (self.codebook, self.anchor) if self.is_final else (self.anchor, self.codebook)
        trained.requires_grad_(is_trained)
        other.requires_grad_(False)  # noqa: FBT003
        trained.grad = other.grad = None

    def finalize(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> float:
        """Turn int8 rows into pointers and codebooks; the mean squared error of a value, weighted by occurrences."""
        if self.is_final:
            return 0.0
        compact = self.stage(counts=counts, generator=generator)
        self.become(compact)
        return compact.distortion

    # -- sizes ---------------------------------------------------------------------------------------------------------

    @property
    def num_params(self) -> int:
        """Values of rows, or of codebooks."""
        return self.codebook.numel() if self.is_final else (self.rows.num_rows - 1) * self.embedding_dim

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of rows and of what is kept of each, or of codebooks."""
        return self.codebook.nbytes if self.is_final else self.rows.row_nbytes

    @property
    def pointer_nbytes(self) -> int:
        """Bytes of pointers, and of what says which ids have rows."""
        return self.row_map.nbytes + self.pointers.nbytes + (0 if self.is_final else self.rows.index_nbytes)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The compact form, if all ids have rows."""
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"])
        pointers = num_embeddings, num_columns, arguments["num_rows"]
        codebook = {"codebook": (num_columns * arguments["num_rows"], width)}
        return Shapes(codebook, pointers=pointers, num_mapped=num_embeddings)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The most rows of codebooks within the budget, 256 at most."""
        del num_embeddings, options
        check_budget(cls.method, num_params, embedding_dim)
        return {"num_rows": min(num_params // embedding_dim, NUM_ROWS)}

    @classmethod
    def training_defaults(cls, preset: str = "tuned") -> TrainingDefaults:
        """Rows for ids that occur twice; pointers after training."""
        del preset
        return TrainingDefaults(num_rows=NUM_ROWS, min_count=2, trains_as_rows=True, refits=5)

    # -- copies and devices --------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Let the anchor know its rows: optimizers find them by it."""
        if not hasattr(self.anchor, "int8_rows"):
            requires_grad = self.anchor.requires_grad
            self.anchor.requires_grad_(True)  # noqa: FBT003  # torch has no hooks of what is not trained now
            self.anchor.register_post_accumulate_grad_hook(_settle)  # type: ignore[no-untyped-call]
            self.anchor.requires_grad_(requires_grad)
        self.anchor.int8_rows = self.rows  # type: ignore[attr-defined]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self.anchor).pop("int8_rows", None)  # pickle keeps attributes of a parameter and drops its hooks
        self._attach()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        applied = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._attach()
        return applied  # type: ignore[no-any-return]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint of either form; the table then has that form."""
        codebook = state_dict.get(prefix + "codebook")
        if codebook is not None and codebook.dim() == 2 and self.embedding_dim % codebook.shape[1] == 0:
            self.width = codebook.shape[1]
            self.num_columns = self.embedding_dim // self.width
            self.num_rows = len(codebook) // self.num_columns or self.num_rows
            self.codebook.data = self.codebook.new_empty(codebook.shape)
            self._train_form()
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._attach()

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Let the anchor be that of rows that were never moved."""
        del generator
        with torch.no_grad():
            self.anchor.fill_(1)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Be as new: no id has a row."""
        device, dtype = self.anchor.device, self.anchor.dtype
        self.rows = Int8Rows(
            self.num_embeddings,
            self.embedding_dim,
            min_count=self.rows.min_count,
            bound=self.rows.bound,
            trains_unseen=self.rows.trains_unseen,
            key=_draw_key(generator),
            device=device,
        )
        self.pointers = RowPointers(self.num_columns, is_meta=self.anchor.is_meta)
        self.codebook.data = torch.empty(0, self.width, device=device, dtype=dtype)
        self._train_form()
        self.init_parameters(generator)
        self._attach()

    def extra_repr(self) -> str:
        """What `print` shows."""
        form = f"{self.num_columns} columns of {self.num_rows} rows" if self.is_final else "int8 rows"
        return f"{self.num_embeddings}, {self.embedding_dim}, {form}"


def _draw_key(generator: torch.Generator | None) -> int:
    return int(torch.randint(2**62, (), generator=common_generator(generator), device="cpu"))


def _settle(anchor: Tensor) -> None:
    anchor.int8_rows.settle(anchor)  # type: ignore[attr-defined]


def _distortion(codebooks: Tensor, store: PointerStore, source: Any, weights: Tensor) -> float:
    """The mean squared error of a value, weighted by how often ids occurred."""
    total = 0.0
    columns = torch.arange(store.num_columns)
    for first in range(0, store.num_ids, FITTED_AT_A_TIME):
        at = torch.arange(first, min(first + FITTED_AT_A_TIME, store.num_ids))
        found = codebooks.cpu()[columns, store.read(at)].flatten(1)
        errors = (source(at).cpu() - found).square().mean(1).double()
        total += float((errors * weights[at]).sum())
    return total / max(1.0, float(weights.sum()))
