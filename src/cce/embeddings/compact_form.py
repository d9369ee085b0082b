"""The compact form of a `cce` table: codebooks, one for each column, and a pointer for each row and column.

`TrainedRows` makes it from int8 rows by k-means of each column, weighted by how often ids occurred. Product
quantisation: Jégou, Douze and Schmid (2011). With a column for each value and the 256 levels of int8 in its codebook,
the compact form equals the rows exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from cce.clustering import KMeans, Weights, draw_weighted, kmeans, nearest_centroid
from cce.distributed import current_ranks, gather_rows
from cce.indexing import IndexModule, PointerStore, RowSource, Slot, blocks, slots_of

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

NO_ROWS = "{} must have rows to be finalized, got none: no id occurred often enough."
LEVELS = 256  # of an int8 value
TOL = 1e-2  # k-means ends when an iteration lowers the error by no more than this share
POINTS_PER_ROW, LEAST_SAMPLE = 64, 1 << 12  # rows that codebooks are fitted to, if there are this many
ROUNDS = 4  # in which centroids are drawn: nearly as good as k-means++, where clusters are far apart
LEVELS_SAMPLE, LEVEL_ITERATIONS = 1 << 16, 20
ENCODED_AT_A_TIME = 1 << 13  # rows: more of them are a tenth faster, and take 2 kB each beside the rows


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
        try:
            store.check_words(found["words"])
        except ValueError as error:
            error_msgs.append(f"words mismatch for {prefix}words: {error}")
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
        return slots_of(self.store, [column * self.store.num_rows for column in self.slots])


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


class TrainedRows:
    """The int8 rows of a table as points to cluster, each weighted by how often its id occurred.

    occurrences: of the id of each row, row 0 included, which is clustered only if it was trained; by default as rows
        have counted.
    """

    def __init__(self, rows: Int8Rows, occurrences: Tensor | None = None) -> None:
        self.first = 0 if rows.trains_unseen else 1
        self.rows, self.dim, self.num_points = rows, rows.dim, rows.num_rows - self.first
        if not self.num_points and rows.shards is None:
            raise ValueError(NO_ROWS.format(rows.name))
        self.weights: Weights = _CountedWeights(rows, self.first)
        if occurrences is not None:
            self.weights = occurrences[self.first :].clamp_(min=1)  # where they are: a copy of them may be large
        self._samples: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # the last one, by size and seed
        self._fits: dict[tuple[int, int, int], list[KMeans]] = {}  # by columns, rows and seed

    @cached_property
    def mass(self) -> float:
        """The sum of all weights."""
        return sum(
            float(self.weights[at].sum(dtype=torch.float64)) for at in blocks(self.num_points, ENCODED_AT_A_TIME)
        )

    @cached_property
    def variance(self) -> float:
        """The weighted mean squared difference of a value from its mean: the error of a codebook of one row."""
        mass, levels = self._levels, torch.arange(LEVELS, dtype=torch.float64)
        means = (mass * levels).sum(1) / mass.sum(1)
        squares = (levels - means.unsqueeze(1)).square() * self.rows.scale**2
        return float((mass * squares).sum() / mass.sum())

    def points(self, at: Tensor) -> Tensor:
        """Vectors `(n, dim)` of the points with these indices."""
        return self._codes(at).float() * self.rows.scale

    def fit(self, num_columns: int, num_rows: int, generator: torch.Generator | None = None) -> Codebooks:
        """Codebooks of this many columns and rows, fitted to a sample of the rows."""
        seed = int(torch.randint(2**62, (1,), generator=generator))
        if num_columns == self.dim:
            return self._fit_levels(num_rows)
        fits = self._fit_columns(num_columns, num_rows, seed)
        _, weights = self._sample(num_rows, seed)
        error = sum(fit.inertias[-1] for fit in fits) / float(weights.sum()) / self.dim
        return Codebooks(torch.stack([fit.centroids for fit in fits]).cpu(), None, error)

    def _fit_columns(self, num_columns: int, num_rows: int, seed: int) -> list[KMeans]:
        """k-means of each column.

        It begins at the centroids of a fit with a fourth of the rows or more, and at points that these serve badly:
        rounds of k-means|| (Bahmani et al., 2012), which cost far less than k-means++.
        """
        key = num_columns, num_rows, seed
        if key not in self._fits:
            fewer = 4 ** (((num_rows - 1).bit_length() - 1) // 2) if num_rows > 1 else 0
            starts = self._fit_columns(num_columns, fewer, seed) if fewer else [None] * num_columns
            points, weights = self._sample(num_rows, seed)
            generator = torch.Generator().manual_seed(seed)
            self._fits[key] = []
            for piece, start in zip(points.chunk(num_columns, dim=1), starts, strict=True):
                own = piece.contiguous()
                init = own[torch.arange(num_rows) % len(own)]
                if start is not None and len(own) > num_rows:
                    init = _grown(own, weights, start.centroids, num_rows, generator)
                self._fits[key].append(kmeans(own, num_rows, init=init, sample_weight=weights, tol=TOL))
        return self._fits[key]

    def _fit_levels(self, num_rows: int) -> Codebooks:
        """Codebooks of single values, by how often each level of int8 occurs (Lloyd, 1982; Max, 1960).

        They begin as dense as the cube root of the levels' density, best for many rows (Panter and Dite, 1951).
        """
        mass, levels = self._levels, torch.arange(LEVELS, dtype=torch.float64).expand(self.dim, -1).contiguous()
        if num_rows >= LEVELS:  # exact
            centres = torch.arange(num_rows).clamp_(max=LEVELS - 1).double().expand(self.dim, -1)
            rows = levels.long()
        else:
            density = mass.pow(1 / 3).cumsum(1)
            shares = (torch.arange(num_rows, dtype=torch.float64) + 0.5) / num_rows * density[:, -1:]
            centres = torch.searchsorted(density, shares).double()
            for _ in range(LEVEL_ITERATIONS):
                rows = torch.searchsorted((centres[:, 1:] + centres[:, :-1]) / 2, levels)
                totals, sums = (torch.zeros_like(centres).scatter_add_(1, rows, each) for each in (mass, mass * levels))
                centres = torch.where(totals > 0, sums / totals.clamp(min=1e-300), centres)
        error = mass * (levels - centres.gather(1, rows)).square() * self.rows.scale**2
        values = ((centres - LEVELS // 2).float() * self.rows.scale).unsqueeze(2)
        return Codebooks(values, rows, float(error.sum() / mass.sum()))

    @cached_property
    def _levels(self) -> Tensor:
        """How much weight each level has in each column, `(dim, LEVELS)`, in a sample of the rows."""
        at, weights = draw_weighted(self.weights, LEVELS_SAMPLE, generator=torch.Generator().manual_seed(0))
        found = torch.zeros(self.dim, LEVELS, dtype=torch.float64)
        for first in range(0, len(at), ENCODED_AT_A_TIME):
            own = slice(first, first + ENCODED_AT_A_TIME)
            levels = self._codes(at[own]).cpu().T.long() + LEVELS // 2
            found.scatter_add_(1, levels, weights[own].double().expand(self.dim, -1))
        return found

    def kept(self, values: Tensor) -> Codebooks:
        """Codebooks `(num_columns, num_rows, width)` of an earlier fit, for these rows."""
        levels = None
        if values.shape[2] == 1:
            points = ((torch.arange(LEVELS) - LEVELS // 2).float() * self.rows.scale).unsqueeze(1)
            levels = torch.stack([nearest_centroid(points, own) for own in values])
        return Codebooks(values, levels, 0.0)

    def encode(self, codebooks: Codebooks) -> Compact:
        """The compact form of all rows."""
        num_columns, num_rows, _ = codebooks.values.shape
        store, columns, error = PointerStore(self.num_points, num_columns, num_rows), torch.arange(num_columns), 0.0
        for at in blocks(self.num_points, ENCODED_AT_A_TIME):
            points = self.points(at)
            if codebooks.levels is not None:
                rows = codebooks.levels.gather(1, self._codes(at).cpu().T.long() + LEVELS // 2).T
            else:
                pairs = zip(points.chunk(num_columns, dim=1), codebooks.values.to(points.device), strict=True)
                found = [nearest_centroid(piece.contiguous(), values) for piece, values in pairs]
                rows = torch.stack(found, dim=1).cpu()
            store.write(int(at[0]), rows)
            squares = (points.cpu() - codebooks.values[columns, rows].flatten(1)).square_().mean(1)
            error += float((squares.double() * self.weights[at]).sum())
        return Compact(codebooks.values, store, error / (self.mass or 1.0))

    def _codes(self, at: Tensor) -> Tensor:
        return self.rows.codes[at.to(self.rows.records.device) + self.first]

    def _sample(self, num_rows: int, seed: int) -> tuple[Tensor, Tensor]:
        """Points to fit this many rows to, and their weights."""
        key = max(POINTS_PER_ROW * num_rows, LEAST_SAMPLE), seed
        if key not in self._samples:
            at, weights = draw_weighted(self.weights, key[0], generator=torch.Generator().manual_seed(seed))
            self._samples = {key: (self.points(at), weights.to(self.rows.records.device))}
        return self._samples[key]


class SampledRows(TrainedRows):
    """A sample of the rows of a sharded table, for codebooks to be fitted to; all of them, if they are few.

    num_samples: the rows of the sample. All ranks must make it; what is the same on all is computed by one.
    """

    def __init__(self, share: TrainedRows, num_samples: int) -> None:
        rows, ranks = share.rows, current_ranks()
        self.rows, self.dim, self.first = rows, share.dim, 0
        totals = gather_rows(torch.tensor([[share.num_points, share.mass]], dtype=torch.float64), ranks)
        self.num_points, self.mass = int(totals[:, 0].sum()), float(totals[:, 1].sum())
        if not self.num_points:
            raise ValueError(NO_ROWS.format(rows.name))
        is_all = self.num_points <= num_samples
        own = share.num_points if is_all else round(num_samples * share.mass / self.mass)
        at, weights = draw_weighted(share.weights, own, generator=torch.Generator().manual_seed(ranks.rank))
        gathered = (gather_rows(each.cpu(), ranks) for each in (rows.map.ids_of(at), share._codes(at), weights))
        ids, codes, weights = gathered
        order = rows.map.in_order(ids)
        self.weights, self._sampled = weights[order], codes[order].to(rows.records.device)
        self._samples, self._fits = {}, {}

    def _codes(self, at: Tensor) -> Tensor:
        return self._sampled[at.to(self._sampled.device)]


def _grown(points: Tensor, weights: Tensor, centroids: Tensor, num_rows: int, generator: torch.Generator) -> Tensor:
    """These centroids and points that they serve badly, drawn by squared distance in some rounds: `num_rows` in all."""
    added, squares = centroids, torch.full_like(weights, torch.inf)
    in_a_round = -(-(num_rows - len(centroids)) // ROUNDS)
    while len(centroids) < num_rows:
        squares = squares.minimum((points - added[nearest_centroid(points, added)]).square().sum(1))
        errors = (squares * weights).cpu().clamp_(min=1e-30)
        drawn, _ = draw_weighted(errors, min(in_a_round, num_rows - len(centroids)), generator=generator)
        added = points[drawn.to(points.device)]
        centroids = torch.cat([centroids, added])
    return centroids


class _CountedWeights:
    """Weights of rows as they have counted, read from a byte a row when they are asked for."""

    def __init__(self, rows: Int8Rows, first: int) -> None:
        self.rows, self.first = rows, first

    def __len__(self) -> int:
        return self.rows.num_rows - self.first

    def __getitem__(self, at: Tensor | slice) -> Tensor:
        if isinstance(at, slice):
            at = slice((at.start or 0) + self.first, None if at.stop is None else at.stop + self.first)
        else:
            at = at.to(self.rows.records.device) + self.first
        return self.rows.occurrences(at).cpu().clamp_(min=1)


@dataclass(frozen=True)
class Codebooks:
    """Codebooks that were fitted to a sample of rows."""

    values: Tensor  # (num_columns, num_rows, width)
    levels: Tensor | None  # (num_columns, LEVELS): with columns of one value, the row of each level of int8
    distortion: float  # mean squared error of a value of the sample, weighted
