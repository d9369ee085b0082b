"""The end of int8 rows in a run: all tables become pointers and codebooks, and what they held is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.collection import readable_path
from cce.compression import finalize
from cce.diagnostics import summary
from cce.embeddings import Finalizable
from cce.training.building import counts_of_tables

if TYPE_CHECKING:
    from cce.compression import Finalized
    from cce.training.session import Session


def finalize_tables(session: Session) -> Finalized:
    """Finalize the tables of a run, the same on all processes.

    What comes after is another model, so that validations so far are forgotten; the log has them.
    """
    session.trained_nbytes = _nbytes_in_training(session)
    finalized = finalize(session.model, counts=counts_of_tables(session.model, session.data), seed=session.config.seed)
    session.parallel.close()
    states = [optimizer.state for optimizer in session.optimizers]
    session.equip()
    for optimizer, state in zip(session.optimizers, states, strict=True):  # the network keeps its own
        kept = [parameter for parameter in state if not hasattr(parameter, "int8_rows")]
        optimizer.state.update({parameter: state[parameter] for parameter in kept})
    return finalized


def _nbytes_in_training(session: Session) -> dict[str, dict[str, int]]:
    """Bytes of the tables as they train now, by the paths of their modules."""
    modules = {readable_path(path): module for path, module in session.model.named_modules()}
    held: dict[str, dict[str, int]] = {}
    for optimizer in session.optimizers:
        for table in summary(session.model, optimizer).tables:
            module = modules[table.name]
            if isinstance(module, Finalizable):
                own = held.setdefault(table.name, {"codes": table.nbytes, "optimizer": 0})
                own["optimizer"] += table.optimizer_nbytes
                own["gradients"] = _pending_nbytes(module, session.config.batch_size)
    return held


def _pending_nbytes(table: Finalizable, batch_size: int) -> int:
    """Bytes of the gradients of a batch: a vector and three integers for each of its ids, if a row has one of them."""
    return min(batch_size, table.rows.num_rows - 1) * (4 * table.embedding_dim + 3 * 8)
