"""Pointers and codebooks fitted to each id's own training rows.

A clustering of the table sees an id only through the vectors that training left. A refit asks the id's rows: with the
network and all other tables fixed, which vector would be best for it? Those estimates are coded. One pass over the rows
serves all ids of all tables, if memory allows, and all tables change at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cce.checks import check_range
from cce.compiled import available, why_plain
from cce.distributed import Ranks, current_ranks
from cce.indexing import check_index_state, common_generator
from cce.reclustering.refit.coding import RefitEvent, TableCoder
from cce.reclustering.refit.estimates import Prior, Quadratics, Sums, packed_size
from cce.reclustering.refit.lookups import LookupHooks, Recorded
from cce.reclustering.refit.sources import Source
from cce.signals import uninterrupted

NumRounds = int | Literal["auto"]
AUTO_ROUNDS = 4  # at most
SMALLEST_GAIN = 5e-4  # of the score before it, that a trial must gain for other rounds to follow
NUM_PARTS = 3  # of the rows, at most
FULL_NBYTES = 16  # of a value of a full table under Adam: itself, gradient and two moments
SMALLEST_NBYTES, LARGEST_NBYTES = 1 << 26, 1 << 30
EM_IDS, EM_VALUES = 1 << 12, 1 << 16  # ids of a sample, and values of their vectors, at most
EM_ROWS = 3  # that an id of the sample has at least


def check_rounds(rounds: object) -> None:
    """Reject anything but "auto" and a number of rounds."""
    if rounds == "auto":
        return
    if not isinstance(rounds, int):
        raise ValueError(f'rounds must be "auto" or a number, got {rounds!r}.')
    check_range("rounds", rounds, 1, 2**31)


def most_rounds(rounds: NumRounds) -> int:
    """How many rounds there are, at most."""
    return AUTO_ROUNDS if rounds == "auto" else rounds


def why_stop(rounds: NumRounds, scores: Sequence[float | None]) -> str:
    """Why no round follows those that gave these scores, of which less is better; "" if one does.

    scores: that of no round first. With "auto" and scores the first round is a trial: if it gains little, it is alone.
    """
    done, before = len(scores) - 1, scores[0]
    if rounds == "auto" and done and before is not None:
        trial = scores[1]
        if trial is None or not trial < before * (1 - math.copysign(SMALLEST_GAIN, before)):
            return "the first round gained too little"
    return "all rounds are done" if done >= most_rounds(rounds) else ""


def is_on_parts(number: int, num_rounds: int) -> bool:
    """Whether round `number`, counted from 1, is on parts of the rows: all but the first and the last.

    Of two rounds the first one is, as two on all rows would be worse than one.
    """
    return number < num_rounds and (number > 1 or num_rounds == 2)


def nbytes_per_id(dim: int) -> int:
    """Bytes that each id takes in a pass: half a Hessian, a gradient, and the number of its rows."""
    return 4 * (packed_size(dim) + dim + 1)


class Refit:
    """Fits the finalized `cce` tables of a model to training rows, in rounds.

    A table that is fitted to rows whose labels another table has learned believes these labels: rounds on all rows lose
    from the second one on. In a round on parts of the rows each table has a part of its own, which no table of another
    part has learned, and the next such round begins with what is as honest. The last round is on all rows.

    max_nbytes: of Hessians and gradients that are held at a time; more ids take more passes over the rows. By default
        that of full tables under Adam, but 64 MB to 1 GB. An id of 16 dimensions has 612 bytes, of 64 8.6 kB.
    """

    def __init__(self, source: Source, *, max_nbytes: int | None = None) -> None:
        if not available:
            raise RuntimeError(f"refits need compiled loops, but {why_plain}.")
        self.source, self.tables = source, {n: t for n, t in source.tables.items() if t.row_map.num_rows}
        for name, table in self.tables.items():
            if table.num_embeddings is None:
                raise ValueError(f"table {name!r} must have a number of ids to be refitted: open tables cannot be.")
        self.hooks = LookupHooks(source.model, self.tables)
        values = sum(table.num_embeddings * table.embedding_dim for table in self.tables.values())
        usual = min(max(values * FULL_NBYTES, SMALLEST_NBYTES), LARGEST_NBYTES)
        self.max_nbytes = usual if max_nbytes is None else max_nbytes
        self.priors: dict[str, Prior] = {}  # of the last round, by table

    @property
    def num_passes(self) -> int:
        """Passes of a round over the rows, each for a part of the ids of all tables."""
        total = sum(table.row_map.num_rows * nbytes_per_id(table.embedding_dim) for table in self.tables.values())
        return max(1, -(-total // self.max_nbytes))

    def round(
        self,
        *,
        generator: torch.Generator | None = None,
        ranks: Ranks | None = None,
        seen: Callable[[int], object] = lambda _: None,
        on_parts: bool = False,
    ) -> dict[str, RefitEvent]:
        """Refit all tables, each with the others as they were; all change at the end, or none. Say what happened.

        ranks: processes that all call this, with equal models and generators and rows of their own: all get the same
            tables. By default those of torch's process group, if there is one.
        seen: called with the number of rows of each batch.
        on_parts: fit each table on a part of the rows; see the class.
        """
        began, generator, ranks = perf_counter(), common_generator(generator), ranks or current_ranks()
        priors: dict[str, Prior] = {}
        coders: dict[str, TableCoder] = {}
        for part in range(self.num_passes):
            for name, quadratics in self._pass(part, ranks, seen, on_parts=on_parts):
                if name not in priors:
                    priors[name] = self._learn_prior(name, quadratics, generator)
                    coders[name] = TableCoder(self.tables[name], quadratics, priors[name], generator)
                coders[name].add(slice(part, None, self.num_passes), quadratics, priors[name])
                del quadratics
        made = {name: coder.compact() for name, coder in coders.items()}
        with uninterrupted():
            for name, (compact, _) in made.items():
                self.tables[name].become(compact)
            self.priors = priors
        if ranks.world_size > 1:
            check_index_state({f"table {name!r}": self.tables[name] for name in made})
        seconds = perf_counter() - began
        return {name: RefitEvent(coders[name].num_ids, churn, seconds) for name, (_, churn) in made.items()}

    def _pass(
        self, part: int, ranks: Ranks, seen: Callable[[int], object] = lambda _: None, *, on_parts: bool = False
    ) -> Iterator[tuple[str, Quadratics]]:
        """The quadratics of every `num_passes`-th id of each table: ids of all counts, so each part is a sample."""
        ids = {name: self._ids(name)[part :: self.num_passes] for name in self.tables}
        slots, sums = {}, {}
        for name, own in ids.items():
            table = self.tables[name]
            slots[name] = np.full(table.num_embeddings, -1, np.int32)
            slots[name][own.numpy()] = np.arange(len(own), dtype=np.int32)
            sums[name] = Sums(len(own), table.embedding_dim)
        with self.hooks.attached():
            for recorded, first, second in self.source.recorded(self.hooks):
                masks = self._masks(recorded) if on_parts else {}
                found = {name: recorded.find(name, slots[name], masks.get(name)) for name in sums}
                counts = {name: sums[name].add(each, first, second) for name, each in found.items()}
                moving = torch.stack([*counts.values()]).sum(0)
                if on_parts and len(found) > NUM_PARTS:
                    moving *= NUM_PARTS  # vectors that are fitted to other parts move as well
                moving = 1 + (moving - 1).clamp(min=0) * self.num_passes  # as do ids of other passes
                for name, each in counts.items():
                    sums[name].add_moving(second * each, moving)
                seen(len(first))
        for name in self.tables:
            yield name, sums.pop(name).quadratics(self._vectors(name, ids.pop(name)), ranks)

    def _masks(self, recorded: Recorded) -> dict[str, Tensor]:
        """The rows of the part that each table is fitted to: of its own, if there are not too many tables."""
        num_parts = min(NUM_PARTS, len(self.tables))
        parts = recorded.parts(num_parts)
        return {name: parts == at % num_parts for at, name in enumerate(self.tables)}

    def _ids(self, name: str) -> Tensor:
        return torch.cat(list(self.tables[name].row_map.ids())).cpu()

    def _vectors(self, name: str, ids: Tensor) -> Tensor:
        table = self.tables[name]
        with torch.no_grad():
            return table.embed(ids.to(table.codebook.device)).float().cpu()

    def _learn_prior(self, name: str, quadratics: Quadratics, generator: torch.Generator | None) -> Prior:
        """From a sample of the ids, starting at the prior of the last round."""
        num_ids = min(EM_IDS, -(-EM_VALUES // quadratics.points.shape[1]))
        drawn = torch.randperm(len(quadratics.points), generator=generator)
        often = quadratics.num_rows[drawn] >= min(EM_ROWS, float(quadratics.num_rows.max()))
        some = quadratics[drawn[often][:num_ids].sort().values]
        return some.learn_prior(self.priors.get(name))

    def state_dict(self) -> dict[str, Tensor]:
        """What the next round begins with: the priors."""
        return {f"{part}.{name}": value for name, prior in self.priors.items() for part, value in vars(prior).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        names = [key.removeprefix("mean.") for key in state if key.startswith("mean.")]
        parts = ("mean", "precision")  # copies: what lies elsewhere in memory is multiplied with other last bits
        self.priors = {name: Prior(*(state[f"{part}.{name}"].clone() for part in parts)) for name in names}
