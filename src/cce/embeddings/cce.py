"""`cce`: int8 rows while it trains, pointers and codebooks afterwards, in one module.

In training a table is `Int8Rows`: an id that has occurred `min_count` times has a row of its own, and all others read
zeros. `finalize` clusters the rows, weighted by how often their ids occurred, into a codebook for each column, and
keeps a pointer for each row and column. Product quantisation: Jégou, Douze and Schmid (2011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from weakref import ref

import torch
from torch import Tensor, nn

from cce.checks import check_flag
from cce.embeddings.admission import COUNTER_NBYTES, Eviction, RowPolicy
from cce.embeddings.base import check_budget, check_weight
from cce.embeddings.clusterable import Finalizable
from cce.embeddings.compact_form import Codebooks, Compact, PointedRows, RowPointers, SampledRows, TrainedRows
from cce.embeddings.compositional import piece_shape
from cce.embeddings.eviction import remove_rows
from cce.embeddings.initialization import new_parameter
from cce.embeddings.int8_rows import MOST_COUNTED, Int8Rows
from cce.embeddings.int8_rows import MOST_ROWS as MOST_IDS
from cce.embeddings.linear import ID_TYPES, LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, TrainingDefaults, choice, optional, rules, share, whole
from cce.embeddings.row_lookup import compiled_look_up, row_tables
from cce.embeddings.sharded_lookup import look_up_pointers
from cce.embeddings.shards import Shards
from cce.embeddings.sizing import Shapes
from cce.indexing import NO_ID, PointerStore, RowMap, RowSource, blocks, common_generator
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from cce.kernels import Layout

OPEN_NBYTES = 14  # that an open table holds of an id with a row, at most, beside the row
NUM_ROWS = 256  # of a codebook, unless another number is chosen: a byte for each column and id
MOST_ROWS = 1 << 16
GIVEN_AT_A_TIME = 1 << 18  # ids that get rows: about 150 bytes each are held meanwhile
Unseen = Literal["neutral", "trained"]


class CCEEmbedding(LinearEmbedding, Finalizable):
    """Rows of int8 while it trains; `T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with learned `h` after `finalize`.

    Ids come in any order. Those that have no row yet, or never get one, have the zero vector, in both forms.

    num_rows, num_columns: of the codebooks that `finalize` makes, if they are to be chosen beforehand. `cce.finalize`
        chooses them after training; without it, 4 columns of 256 rows take 4 bytes per id.
    num_embeddings: None for open tables, whose ids are any 64-bit integers. The smallest of them, which missing numbers
        are cast to, never gets a row.
    min_count: occurrences in training after which an id has a row; 1: from the first on.
    probability: of getting a row, at each occurrence, instead of a count of occurrences.
    counter_nbytes: of the counters of ids without rows, where `min_count` is above 1 and any id may come.
    max_rows, eviction: the most rows there ever are, and which go when as many are there: of ids that occur rarely
        ("lfu"), of those not seen for long ("lru"), or None: new ids get no rows any more.
    time_to_live: steps after which an id that did not occur loses its row.
    counts: `(num_embeddings,)`, how often each id occurs in training, if it is known: ids that occur `min_count` times
        have rows from the start, and no others get any.
    unseen: what ids without a row read: "neutral", zeros that are never trained, or "trained", one row that they train
        together. That is a bet that tomorrow's new ids are like yesterday's rare ones; `finalize` then keeps pointers
        for all ids.
    shard: whether each rank of the process group has the rows of a share of the ids, by a hash; all ranks must then
        look ids up together. A table of a process alone has all of them.
    sparse: of the gradients of codebooks, after `finalize`.
    """

    method = "cce"
    takes_any_id = True
    usual_start = "dlrm"
    option_checks = rules(
        num_rows=optional(whole(1, MOST_ROWS + 1)),
        num_columns=optional(whole(1)),
        min_count=whole(1, MOST_COUNTED + 1),
        probability=optional(share),
        counter_nbytes=whole(1, 2**31),
        max_rows=optional(whole(1, MOST_IDS + 1)),
        eviction=optional(choice("lfu", "lru")),
        time_to_live=optional(whole(1)),
        unseen=choice("neutral", "trained"),
    )

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        num_rows: int | None = None,
        num_columns: int | None = None,
        min_count: int = 1,
        probability: float | None = None,
        counter_nbytes: int = COUNTER_NBYTES,
        max_rows: int | None = None,
        eviction: Eviction | None = "lfu",
        time_to_live: int | None = None,
        counts: Tensor | None = None,
        unseen: Unseen = "neutral",
        shard: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        self.check_options(num_rows=num_rows, num_columns=num_columns, min_count=min_count, unseen=unseen)
        self.check_options(probability=probability, counter_nbytes=counter_nbytes, max_rows=max_rows)
        self.check_options(eviction=eviction, time_to_live=time_to_live)
        if num_embeddings is None and (unseen, counts) != ("neutral", None):
            raise ValueError("num_embeddings must be given with counts and unseen='trained', got None.")
        self.policy = RowPolicy(min_count, probability, counter_nbytes, max_rows, eviction, time_to_live)
        check_flag("shard", shard)
        if shard:
            _check_neutral(unseen)
        self.unseen, self.shard = unseen, shard
        self.register_load_state_dict_post_hook(_keep_share)  # type: ignore[no-untyped-call]
        self.is_sized = num_rows is not None or num_columns is not None  # before training
        self.num_columns, self.width = piece_shape(embedding_dim, num_columns)
        self.num_rows = num_rows or NUM_ROWS
        self.anchor = new_parameter((1,), device=common.get("device"), dtype=common.get("dtype"))
        self.codebook = nn.Parameter(self.anchor.new_empty(0, self.width))
        self.reset_parameters(common.get("generator"))
        if counts is not None:
            self.give_rows(counts)

    # -- lookups -------------------------------------------------------------------------------------------------------

    @property
    def is_sharded(self) -> bool:
        """Whether each rank has a share of the rows."""
        return self.rows.shards is not None

    @property
    def is_final(self) -> bool:
        """Whether the table has its compact form."""
        return len(self.codebook) > 0

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        if not isinstance(input, Tensor) or input.dtype not in ID_TYPES or (self.is_final and not self.is_sharded):
            return super().forward(input)
        if self.is_final:
            (vectors,) = look_up_pointers([self], [input.reshape(-1).long()], [self.rows.name])
            return vectors.view(*input.shape, self.embedding_dim)
        if torch.compiler.is_exporting():  # a program of plain torch, which trains nothing
            self.check_whole()
            vectors = self.rows.read(input.reshape(-1).long()).to(self.anchor.dtype)
            padding = input.reshape(-1) == (NO_ID if self.padding_idx is None else self.padding_idx)
            return vectors.masked_fill(padding.unsqueeze(-1), 0).view(*input.shape, self.embedding_dim)
        ids, anchors, paddings = input.reshape(-1, 1), [self.anchor], [self.padding_idx]
        if torch.compiler.is_compiling():
            vectors = compiled_look_up([self.rows], ids, anchors, paddings)
        else:
            self.check_not_averaged()
            vectors = row_tables([self.rows], paddings).look_up(ids, anchors)
        return vectors.view(*input.shape, self.embedding_dim)

    def check_whole(self) -> None:
        """Reject a sharded table: this rank has a share of the ids alone."""
        if self.is_sharded:
            raise ValueError(
                f"{self.rows.name} must be whole here, got a share: cce.save the model on all ranks, and load it."
            )

    def embed(self, ids: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        """Vectors `(n, embedding_dim)`, or of `shape`."""
        if self.is_final and not self.is_sharded:
            return super().embed(ids, shape)
        vectors = self.forward(ids)
        return vectors if shape is None else vectors.view(*shape)

    def sources(self) -> tuple[int, int, Sequence[RowSource]]:
        """H of the compact form: a pointer for each column."""
        self.check_whole()
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
        num_rows = self.rows.num_rows + sum(map(len, self._earning(counts)))
        if num_rows > self.rows.most_rows:
            raise ValueError(f"counts must give rows to at most max_rows={self.policy.max_rows} ids, got more.")
        self.rows.close()
        self.rows.reserve(num_rows)
        for ids in self._earning(counts):
            self.rows.give_rows(ids)

    def _earning(self, counts: Tensor) -> Iterator[Tensor]:
        """The ids without a row that occur often enough, some at a time."""
        for block in blocks(self.num_embeddings, GIVEN_AT_A_TIME):
            often = block[(counts[block.to(counts.device)] >= self.policy.min_count).to(block.device)]
            ids = often.to(self.rows.records.device)
            ids = ids if self.rows.shards is None else ids[self.rows.shards.is_mine(ids)]
            yield ids[self.rows.find(ids) == 0]

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Rows for all ids, rounded from a trained table."""
        check_weight(self, weight)
        if self.is_sharded:
            raise ValueError("start must be 'random' with shard=True, got trained weights.")
        self.rows.fit(weight)

    def shard_(self) -> None:
        """Keep the share of this rank, of a table that is the same on all ranks. Make the optimizer after this call."""
        _check_neutral(self.unseen)
        state, name, self.shard = self.state_dict(), self.rows.name, True
        self.reset_parameters()
        self.rows.name = name
        self.load_state_dict(state)

    # -- the compact form ----------------------------------------------------------------------------------------------

    def trained_rows(self, counts: Tensor | None = None) -> TrainedRows:
        """The rows as they are, to be clustered; `counts` of ids take the place of their own."""
        self.rows.compact()
        return TrainedRows(self.rows, None if counts is None else self._occurrences(counts))

    def sampled_rows(self, num_samples: int, counts: Tensor | None = None) -> SampledRows:
        """A sample of the rows of all ranks, which must all call it."""
        return SampledRows(self.trained_rows(counts), num_samples)

    def encode(self, rows: TrainedRows, codebooks: Codebooks) -> Compact:
        """The compact form with these codebooks; `become` lets the table have it."""
        compact = rows.encode(codebooks)
        return replace(compact, store=self._share_row_0(compact.store)) if self.rows.trains_unseen else compact

    def _occurrences(self, counts: Tensor) -> Tensor:
        """How often the id of each row occurred, row 0 included, by `counts` of ids."""
        found = torch.zeros(self.rows.num_rows)
        first = 1
        for ids in self.row_map.ids():
            found[first : first + len(ids)] = counts[ids.to(counts.device)]
            first += len(ids)
        found[0] = float(counts.sum()) - float(found.sum(dtype=torch.float64))
        return found

    def _share_row_0(self, store: PointerStore) -> PointerStore:
        """Pointers of all ids, by those of rows: ids without a row have the pointers of row 0."""
        shared = PointerStore(self.num_embeddings, store.num_columns, store.num_rows)
        for ids in blocks(self.num_embeddings):
            shared.write(int(ids[0]), store.read(self.row_map(ids.to(self.row_map.device)).cpu()))
        return shared

    @torch.no_grad()
    def become(self, compact: Compact) -> None:
        """Have the compact form, whole or not at all."""
        with uninterrupted():
            self._take(compact)
            self._train_form()
            self.rows.release()
            if self.rows.trains_unseen:
                self.row_map.fill()

    @contextmanager
    def trying(self, compact: Compact) -> Iterator[None]:
        """Have the compact form inside the block, and the rows as they were after it."""
        shape, store, codebook, row_map = (
            (self.num_columns, self.num_rows),
            self.pointers.store,
            self.codebook.data,
            self.row_map,
        )
        with uninterrupted():
            self._take(compact)
            self.rows.live.is_final = True  # for collections, which look int8 rows up together
            if self.rows.trains_unseen:
                self.rows.map = RowMap(self.num_embeddings, device=row_map.device)
                self.rows.map.fill()
        try:
            yield
        finally:
            with uninterrupted():
                self.pointers.store, self.codebook.data, self.rows.map = store, codebook, row_map
                self.num_columns, self.num_rows = shape
                self.width = self.embedding_dim // self.num_columns
                self.rows.live.is_final = False
                self.rows.has_moved()

    def _take(self, compact: Compact) -> None:
        self.num_columns, self.num_rows, self.width = compact.codebooks.shape
        self.pointers.store = compact.store
        self.codebook.data = compact.codebooks.flatten(0, 1).to(self.anchor)

    def _train_form(self) -> None:
        """Let gradients go to what the table is made of now, if it is trained at all."""
        self.rows.live.is_final = self.is_final
        is_trained = self.anchor.requires_grad or self.codebook.requires_grad
        trained, other = (self.codebook, self.anchor) if self.is_final else (self.anchor, self.codebook)
        trained.requires_grad_(is_trained)
        other.requires_grad_(False)  # noqa: FBT003
        trained.grad = other.grad = None

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
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        """The compact form, if all ids have rows; of an open table, the rows and what says which ids have them."""
        if num_embeddings is None:
            policy = RowPolicy(**{each.name: arguments[each.name] for each in fields(RowPolicy)})
            codes, counters = ((policy.max_rows or 0), embedding_dim), policy.counter_nbytes * (policy.min_count > 1)
            width = embedding_dim + policy.state_nbytes
            return Shapes({}, codes=codes, code_row_nbytes=width, other_nbytes=OPEN_NBYTES * codes[0] + counters)
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"])
        num_rows = arguments["num_rows"] or NUM_ROWS
        pointers = num_embeddings, num_columns, num_rows
        codebook = {"codebook": (num_columns * num_rows, width)}
        return Shapes(codebook, pointers=pointers, num_mapped=num_embeddings)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int | None, embedding_dim: int, num_params: int, options: Options
    ) -> Options:
        """The most rows of codebooks within the budget, 256 at most; of an open table, the most rows of ids."""
        if num_embeddings is None:
            check_budget(cls.method, num_params, embedding_dim)
            return {"max_rows": min(num_params // embedding_dim, MOST_IDS)}
        sizes = super().size_for_budget(num_embeddings, embedding_dim, num_params, options)
        return {"num_rows": min(sizes["num_rows"], NUM_ROWS)}

    @classmethod
    def training_defaults(cls) -> TrainingDefaults:
        """A row for each id that occurs in training; pointers after it."""
        return TrainingDefaults(num_rows=NUM_ROWS, min_count=1, trains_as_rows=True, refits=4)

    # -- copies and devices --------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Let the anchor know its rows: optimizers find them by it."""
        if not hasattr(self.anchor, "int8_rows"):
            requires_grad = self.anchor.requires_grad
            self.anchor.requires_grad_(True)  # noqa: FBT003  # torch has no hooks of what is not trained now
            self.anchor.register_post_accumulate_grad_hook(_settle)  # type: ignore[no-untyped-call]
            self.anchor.requires_grad_(requires_grad)
        self.anchor.int8_rows = self.rows  # type: ignore[attr-defined]
        self.rows.live.anchor = ref(self.anchor)

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
        with torch.no_grad():
            self.anchor.fill_(1)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Be as new: no id has a row."""
        self.rows = Int8Rows(
            self.num_embeddings,
            self.embedding_dim,
            policy=self.policy,
            bound=(3 * self.start_variance) ** 0.5,
            trains_unseen=self.unseen == "trained",
            key=int(torch.randint(2**62, (), generator=common_generator(generator), device="cpu")),
            shards=Shards.of_group() if self.shard else None,
            device=self.anchor.device,
        )
        self.pointers = RowPointers(self.num_columns, is_meta=self.anchor.is_meta)
        self.pointers.is_local = self.is_sharded
        self.codebook.data = self.anchor.new_empty(0, self.width)
        self._train_form()
        self.init_parameters(generator)
        self._attach()

    def extra_repr(self) -> str:
        """What `print` shows."""
        form = f"{self.num_columns} columns of {self.num_rows} rows" if self.is_final else "int8 rows"
        return f"{self.num_embeddings}, {self.embedding_dim}, {form}"


def _check_neutral(unseen: Unseen) -> None:
    if unseen != "neutral":
        raise ValueError(f"unseen must be 'neutral' with shard=True, got {unseen!r}: no rank has the row of all.")


def _keep_share(table: CCEEmbedding, keys: Any) -> None:
    """After all rows were loaded, keep those of this rank: a hook after `load_state_dict`."""
    del keys
    rows, num_rows = table.rows, table.pointers.store.num_ids if table.is_final else table.rows.num_rows - 1
    if rows.shards is None or rows.map.num_rows != num_rows:
        return
    is_mine = torch.cat([rows.shards.is_mine(ids).cpu() for ids in rows.map.ids()] or [torch.zeros(0).bool()])
    if table.is_final:
        kept = table.pointers.store.read(is_mine.nonzero().squeeze(1))
        table.pointers.store = PointerStore(len(kept), table.num_columns, table.num_rows)
        table.pointers.store.write(0, kept)
        rows.map.keep(is_mine.to(rows.map.device))
        return
    if rows.shards.rank and not bool(is_mine.all()):
        rows.forget_counters()  # rank 0 has those of all
    remove_rows(rows, ~is_mine)
    rows.trim()
    rows.forget_others()


def _settle(anchor: Tensor) -> None:
    anchor.int8_rows.live.settle(anchor)  # type: ignore[attr-defined]
