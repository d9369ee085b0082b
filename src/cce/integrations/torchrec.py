"""TorchRec: a collection of bags with its configs in, and its KeyedTensor out. The only file that imports it."""

from typing import Any

import torch
from torch import nn
from torchrec.distributed.types import ModuleSharder, ShardingEnv, ShardingType
from torchrec.modules.embedding_configs import EmbeddingBagConfig, data_type_to_dtype, pooling_type_to_str
from torchrec.modules.embedding_modules import EmbeddingBagCollectionInterface, get_embedding_names_by_table
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from cce.budget import DEFAULT_METHOD, Budget, check_given, make_budget
from cce.checks import check_choice
from cce.collection import allocate_budget
from cce.distributed import current_ranks
from cce.embeddings import METHODS, CCEEmbedding, EmbeddingBag, Finalizable, TableRequest, make_table
from cce.indexing import make_generator


class CompressedEmbeddingBagCollection(EmbeddingBagCollectionInterface):  # type: ignore[misc]
    """`torchrec.EmbeddingBagCollection` within a budget: tables that do not fit in full are compressed.

    Without a budget, tables train as int8 rows, which an optimizer of `cce.optim` moves and `cce.finalize` turns into
    pointers and codebooks; tables that would not become smaller stay full.

    tables: TorchRec's configs. A table may serve several features. `init_fn` and other initializers are not used:
        `start_scale` is an option here.
    is_weighted: whether ids come with weights.
    method, budget, cap, …, options: see `cce.create_embedding` and `cce.budget.Budget`.

    Data parallelism (also TorchRec's `DistributedModelParallel`) replicates it. Create it after `init_process_group`:
    all ranks then have the same hash seeds and pointers.
    """

    def __init__(
        self,
        tables: list[EmbeddingBagConfig],
        is_weighted: bool = False,  # noqa: FBT001, FBT002  # as TorchRec has it
        device: torch.device | str | None = None,
        *,
        method: str = DEFAULT_METHOD,
        budget: Budget | None = None,
        cap: int | None = None,
        num_params: int | None = None,
        nbytes: int | None = None,
        compression: float | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_choice("method", method, METHODS)
        _check_names(tables)
        limit = make_budget(budget, cap, num_params, nbytes, compression)
        check_given(limit, method)
        kind, generator = METHODS[method], make_generator(seed)
        requests = [
            TableRequest(kind, table.num_embeddings, table.embedding_dim, options, name=table.name) for table in tables
        ]
        self._configs, self._is_weighted = tables, is_weighted
        self.embedding_bags = nn.ModuleDict()
        for config, footprint in zip(tables, allocate_budget(requests, limit), strict=True):
            common = {"generator": generator, "device": device, "dtype": data_type_to_dtype(config.data_type)}
            table = make_table(footprint, options, common)
            if isinstance(table, Finalizable):
                table.rows.name = f"table {config.name!r}"
            mode = pooling_type_to_str(config.pooling)
            self.embedding_bags[config.name] = EmbeddingBag(table, mode=mode, include_last_offset=True)
        self._names = [name for names in get_embedding_names_by_table(tables) for name in names]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """The pooled vectors of every feature, side by side."""
        by_name, pooled = features.to_dict(), []
        for config, bag in zip(self._configs, self.embedding_bags.values(), strict=True):
            for name in config.feature_names or [config.name]:
                ids = by_name[name]
                weights = ids.weights() if self._is_weighted else None
                pooled.append(bag(ids.values(), ids.offsets(), weights).float())
        lengths = [vectors.shape[1] for vectors in pooled]
        return KeyedTensor(keys=self._names, values=torch.cat(pooled, dim=1), length_per_key=lengths)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """The configs that it was made of."""
        return self._configs

    def is_weighted(self) -> bool:
        """Whether ids come with weights."""
        return self._is_weighted


class CompressedEmbeddingBagCollectionSharder(ModuleSharder[CompressedEmbeddingBagCollection]):  # type: ignore[misc]
    """Int8 rows and pointers over all ranks, by a hash of the id; codebooks and other tables are data-parallel.

    For a plan that is made by hand: TorchRec's planner has no rows over ranks on a CPU.
    """

    module_type = CompressedEmbeddingBagCollection

    def shardable_parameters(self, module: CompressedEmbeddingBagCollection) -> dict[str, nn.Parameter]:
        """The tables of int8 rows or pointers, as if they were full."""
        shapes = {name: (each.num_embeddings, each.embedding_dim) for name, each in _row_tables(module).items()}
        return {name: nn.Parameter(torch.empty(shape, device="meta")) for name, shape in shapes.items()}

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Rows over ranks."""
        del compute_device_type
        return [ShardingType.ROW_WISE.value]

    def shard(
        self,
        module: CompressedEmbeddingBagCollection,
        params: dict[str, Any],
        env: ShardingEnv,
        device: torch.device | None = None,
        module_fqn: str | None = None,
    ) -> CompressedEmbeddingBagCollection:
        """Let each rank keep its share of these tables."""
        del device, module_fqn
        if env.world_size != current_ranks().world_size:
            raise ValueError(f"env must have all ranks of the default process group, got {env.world_size} of them.")
        for name in params:
            _row_tables(module)[name].shard_()
        return module


def _row_tables(module: CompressedEmbeddingBagCollection) -> dict[str, CCEEmbedding]:
    """The tables of int8 rows or pointers."""
    return {name: bag.table for name, bag in module.embedding_bags.items() if isinstance(bag.table, CCEEmbedding)}


def _check_names(tables: list[EmbeddingBagConfig]) -> None:
    names = [table.name for table in tables]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"tables must have different names, got {twice[0]!r} twice.")
    for table in tables:
        table.feature_names = table.feature_names or [table.name]  # as TorchRec does
