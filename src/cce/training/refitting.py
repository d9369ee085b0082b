"""Rounds of refits after the last epoch: the first process computes them, and all take over its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cce.distributed import broadcast
from cce.training.monitoring import event_values
from cce.training.outcome import best_model

if TYPE_CHECKING:
    from cce.run_folder import RunFolder
    from cce.training.session import Session


def go_back_to_best(session: Session, folder: RunFolder) -> None:
    """Let the model be that of the best validation, if it is not."""
    session.catch_up()  # or what rows still lack would be taken from the refitted ones
    if session.stopping.best_step not in (-1, session.step):
        model, _, _ = best_model(session, folder)
        session.model.load_state_dict(model.state_dict())


def refit_tables(session: Session) -> dict[str, dict[str, Any]]:
    """One round; what it did to the table of each feature, in plain values. The last round uses all rows for all."""
    refit, ranks = session.refit, session.ranks
    assert refit is not None
    sent: Any = None
    if ranks.is_main:
        generator = torch.Generator().manual_seed((session.config.seed + (session.num_refits << 32)) % 2**63)
        is_last = session.num_refits + 1 == session.config.refits
        events = refit.round(use_all_rows=is_last, generator=generator)
        named = zip(refit.features, events, strict=True)
        sent = ({name: event_values(event) for name, event in named}, refit.tables.state_dict(), refit.state_dict())
    if ranks.world_size > 1:
        sent = broadcast(sent, ranks)
    found: dict[str, dict[str, Any]]
    found, tables, priors = sent
    if not ranks.is_main:
        refit.tables.load_state_dict(tables)
        refit.load_state_dict(priors)
    session.num_refits += 1
    session.parallel.refresh()
    return found
