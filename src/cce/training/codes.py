"""Codes first: tables that learn pointers train as fine codes, and are clustered into pointers afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.collection import EmbeddingCollection, readable_path
from cce.diagnostics import gradient_nbytes, summary
from cce.distributed import broadcast
from cce.embeddings import Embedding
from cce.training.building import count_ids, create_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor, nn

    from cce.training.session import Session


def cluster_codes(session: Session) -> list[str]:
    """Let tables of codes become those that were asked for; the names of these tables.

    What comes after is another model, so that validations so far are forgotten; the log has them.
    """
    config, ranks, model = session.config, session.ranks, session.model
    tables = next(module for module in model.modules() if isinstance(module, EmbeddingCollection))
    final = create_tables(config, session.data.schema)
    assert isinstance(final, EmbeddingCollection)
    counts, held, before = count_ids(session.data), held_by_codes(session), session.optimizers
    coded = fit_to_codes(tables, final, counts, seed=config.seed)
    if ranks.world_size > 1:
        model.load_state_dict(broadcast(model.state_dict() if ranks.is_main else None, ranks))
    session.parallel.close()
    session.equip()
    states = {parameter: state for old in before for parameter, state in old.state.items()}  # the network keeps its own
    for optimizer in session.optimizers:
        kept = [p for group in optimizer.param_groups for p in group["params"] if p in states]
        optimizer.state.update({parameter: states[parameter] for parameter in kept})
    session.codes = {path: held[path] for path in paths_of(model, [tables.tables[name] for name in coded])}
    session.stopping.forget()
    session.curve.clear()
    return coded


@torch.no_grad()
def fit_to_codes(
    tables: EmbeddingCollection, final: EmbeddingCollection, counts: Mapping[str, Tensor], *, seed: int
) -> list[str]:
    """Let the tables of codes be those of `final`, as near to the codes as they get; the names of these tables."""
    generator = torch.Generator().manual_seed(seed)
    coded = [name for name, table in tables.tables.items() if type(table) is not type(final.tables[name])]
    for name in coded:
        codes, table = tables.tables[name], final.tables[name]
        assert isinstance(codes, Embedding)
        assert isinstance(table, Embedding)
        table.to(next(codes.parameters()).device)
        table.fit_where_it_counts(codes.to_dense, counts[name], generator=generator)
        tables.tables[name] = table  # and the codes are gone
    return coded


def paths_of(model: nn.Module, modules: Collection[nn.Module]) -> list[str]:
    """Where modules are in a model, as ledgers name them: names of features may have dots."""
    return [readable_path(path) for path, module in model.named_modules() if any(module is each for each in modules)]


def held_by_codes(session: Session) -> dict[str, dict[str, int]]:
    """Bytes of the tables as they train now, by the paths of their modules."""
    modules = {readable_path(path): module for path, module in session.model.named_modules()}
    held: dict[str, dict[str, int]] = {}
    for optimizer in session.optimizers:
        for table in summary(session.model, optimizer).tables:
            own = held.setdefault(table.name, {"codes": table.nbytes, "optimizer": 0})
            own["optimizer"] += table.optimizer_nbytes
            own["gradients"] = gradient_nbytes(modules[table.name], sparse=False)
    return held
