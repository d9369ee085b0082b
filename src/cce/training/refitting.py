"""Rounds of refits after the last epoch: processes share the rows, and all take over the model of the first."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.distributed import broadcast
from cce.optim import RowOptimizer
from cce.reclustering import Fold, cross_entropy
from cce.training.optimizers import learning_rate_factor, set_learning_rate
from cce.training.outcome import best_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.run_folder import RunFolder
    from cce.training.session import Session


def go_back_to_best(session: Session, folder: RunFolder) -> None:
    """Let the model be that of the best validation, if it is not."""
    session.catch_up()  # or what rows still lack would be taken from the refitted ones
    if session.stopping.best_step not in (-1, session.step):
        model, _, _ = best_model(session, folder)
        session.model.load_state_dict(model.state_dict())


def refit_tables(session: Session) -> dict[str, dict[str, Any]]:
    """One round; what it did to the table of each feature, in plain values.

    The last round uses all rows for all tables; after any other the network is trained on rows of its own.
    """
    refit, ranks = session.refit, session.ranks
    assert refit is not None
    sent: Any = None
    seed = (session.config.seed + (session.num_refits << 32)) % 2**63
    is_last = session.num_refits + 1 == session.config.refits
    events = refit.round(use_all_rows=is_last, generator=torch.Generator().manual_seed(seed), ranks=ranks)
    if ranks.is_main:
        if refit.network_fold is not None and not is_last:
            train_network(session, refit.network_fold, seed)
        values = {name: asdict(event) for name, event in events.items()}
        sent = values, session.model.state_dict(), refit.state_dict()
    if ranks.world_size > 1:
        sent = broadcast(sent, ranks)
    found: dict[str, dict[str, Any]]
    found, model, priors = sent
    if not ranks.is_main:
        session.model.load_state_dict(model)
        refit.load_state_dict(priors)
    session.num_refits += 1
    session.parallel.refresh()
    return found


def train_network(session: Session, fold: Fold, seed: int) -> None:
    """An epoch of all but the refitted tables on the rows of a fold, by an optimizer whose rate falls to zero."""
    config, rows = session.config, session.data.rows("train")
    numbers = np.random.default_rng(seed).permutation(fold.numbers(len(rows)))
    total_steps = -(-len(numbers) // config.batch_size)
    session.model.train()
    with _only_the_network(session) as optimizers:
        for step in range(total_steps):
            factor = learning_rate_factor(step, schedule="cosine", warmup_steps=0, total_steps=total_steps)
            set_learning_rate(optimizers, config.lr * factor)
            batch = rows.fetch(numbers[step * config.batch_size :][: config.batch_size]).to(session.device)
            for optimizer in optimizers:
                optimizer.zero_grad()
            with session.autocast():
                logits = session.model(batch)
            cross_entropy(logits.float(), batch).mean().backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()


@contextmanager
def _only_the_network(session: Session) -> Iterator[list[torch.optim.Optimizer]]:
    """New optimizers of what is not refitted; what is refitted has no gradients meanwhile."""
    refit = session.refit
    assert refit is not None
    fixed = [p for name in refit.features for p in refit.tables[name].parameters() if p.requires_grad]
    for parameter in fixed:
        parameter.requires_grad = False
    try:
        optimizers = session.new_optimizers()
        yield optimizers
        for optimizer in optimizers:
            if isinstance(optimizer, RowOptimizer):
                optimizer.catch_up()
    finally:
        for parameter in fixed:
            parameter.requires_grad = True
            parameter.grad = None
