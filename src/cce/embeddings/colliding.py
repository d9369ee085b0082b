"""Learning to collide: train a thin table first, then cluster its rows into a hash function.

Ghaemmaghami et al., "Learning to collide: recommendation system model compression with learned hash functions" (2022).
The thin table has a row for every id, so it cannot be smaller than the vocabulary: "a horizontal sketch, rather than a
vertical" (the CCE paper).
"""

import time
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from cce.checks import check_range
from cce.clustering import ClusterSettings, ProductQuantizer, checked_settings, column_entropies, count_dead
from cce.embeddings.base import MAX_IDS, check_weight
from cce.embeddings.cluster_step import learn_pointers
from cce.embeddings.clusterable import Clusterable, ClusterEvent, StagedClustering, check_clustering
from cce.embeddings.initialization import normal_, projection_
from cce.embeddings.low_rank import low_rank_factors
from cce.embeddings.options import CommonOptions, Options, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import Assignments, PointerStore, common_generator
from cce.kernels import gather_rows
from cce.signals import uninterrupted


class CollidingEmbedding(Clusterable):
    """`T[x] = N[x] · P` with `thin_dim` values per id until `cluster()`; from then on `T[x] = M[p(x)]`.

    `cluster()` replaces the parameters and can be called once. An optimizer must be updated (`ClusterSchedule` does)
    or rebuilt.
    """

    method = "collide"
    sized_by = "thin_dim"
    codebook: nn.Parameter  # thin rows of all ids, or the rows that they share
    projection: nn.Parameter | None
    option_checks = rules(num_rows=whole(1), thin_dim=whole(1, MAX_IDS))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        thin_dim: int = 1,
        settings: ClusterSettings | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(num_rows=num_rows, thin_dim=thin_dim)
        check_range("thin_dim", thin_dim, 1, embedding_dim + 1)
        self.num_rows = num_rows
        self.settings = checked_settings(settings)
        self.assignments: Assignments | None = None
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """The thin rows, or after clustering the shared ones, carry the scale."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)
        if self.projection is not None:
            projection_(self.projection, generator=generator)

    @property
    def can_cluster(self) -> bool:
        """Once."""
        return self.projection is not None

    def embed(self, ids: Tensor) -> Tensor:
        """The widened thin row, or after clustering the row that the id points to."""
        rows = ids if self.assignments is None else self.assignments(ids).squeeze(-1)
        vectors = gather_rows(self.codebook, rows, sparse=self.sparse)
        return vectors if self.projection is None else vectors @ self.projection

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The best thin table and projection of `weight`."""
        check_weight(self, weight)
        if self.projection is None:
            raise ValueError("method 'collide' can start from a trained table only before it is clustered.")
        thin, projection = low_rank_factors(weight, self.projection.shape[0])
        self.codebook.copy_(thin)
        self.projection.copy_(projection)

    @torch.no_grad()
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Let ids collide whose thin rows are near each other; their common row starts at the middle of theirs."""
        if self.projection is None:
            raise ValueError("a 'collide' table can be clustered once, and this one has been.")
        check_clustering(self, counts, self.num_embeddings, generator)
        generator, started = common_generator(generator), time.perf_counter()
        quantizer = ProductQuantizer(1, self.num_rows, self.settings)
        size = self.num_embeddings, self.codebook.shape[1]
        _, pointers = learn_pointers(quantizer, self._thin_rows, size, self.settings, generator, counts)
        rows = quantizer.codebooks[0].to(self.projection) @ self.projection
        shared = nn.Parameter(rows, requires_grad=self.codebook.requires_grad)
        event = ClusterEvent(
            num_ids=self.num_embeddings,
            num_rows=self.num_rows,
            seconds=time.perf_counter() - started,
            inertias=quantizer.inertias,
            churn=1.0,
            dead_rows=count_dead(pointers.blocks(), self.num_rows),
            entropies=column_entropies(pointers.to_tensor(), 1),
            replaced={self.codebook: shared, self.projection: None},
        )
        return StagedClustering(event, lambda: self._become_clustered(shared, pointers))

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        thin_dim = arguments["thin_dim"]
        return Shapes({"codebook": (num_embeddings, thin_dim), "projection": (thin_dim, embedding_dim)})

    @classmethod
    def size_for_budget(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The thin table as wide, and later the codebook as tall, as the budget holds."""
        thin = super().size_for_budget(num_embeddings, embedding_dim, num_params, options)
        return {"num_rows": num_params // embedding_dim, **thin}

    def _thin_rows(self, ids: Tensor) -> Tensor:
        return self.codebook.detach()[ids.to(self.codebook.device)]

    def _become_clustered(self, codebook: nn.Parameter, pointers: PointerStore) -> None:
        assignments = Assignments.of(pointers).to(codebook.device)
        with uninterrupted():
            self.codebook, self.projection, self.assignments = codebook, None, assignments

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the form of the checkpoint first: thin, or clustered."""
        clustered = prefix + "codebook" in state_dict and prefix + "projection" not in state_dict
        if clustered and self.assignments is None:
            rows = self.codebook.new_zeros(self.num_rows, self.embedding_dim).detach()
            shared = nn.Parameter(rows, requires_grad=self.codebook.requires_grad)
            self._become_clustered(shared, PointerStore(self.num_embeddings, 1, self.num_rows))
        super()._load_from_state_dict(state_dict, prefix, *args)
