"""Pointer descent: codes of quantised tables, moved at every step, with two bytes of optimizer state for each row.

After backward, `G` is the summed gradient of a row. As in Adam, a step is divided by the root of a second moment and
decay counts for every step, visited or not; but moments are kept for each frequency group and dimension, times one
number for each row (`row_moments`), and the decay of all steps since an id was last seen is done when it is seen again.
Codes move by stochastic rounding. Where tables in float32 under Adam hold 12 bytes a value, this holds 1 or 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_choice, check_number, check_range, check_type
from cce.distributed import Ranks, current_ranks, gather_rows
from cce.embeddings import QuantizedEmbedding, RowGradients
from cce.optim.code_moments import Moments, Settings, follow_moments, group_sizes
from cce.optim.code_steps import RowSums, move_codes, refit_scales, sum_rows
from cce.optim.row_moments import RowSettings, RowState, new_state, step_rows, unit_of
from cce.optim.row_optimizer import check_not_negative
from cce.optim.stochastic_rounding import make_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import StateDict

NormalizeBy = Literal["row", "group"]
NORMALIZE_BY = ("row", "group")
SMALLEST_BITS = 8  # with 4, rounding at every step takes away what was learned


class PointerDescent(Optimizer):
    """`u = (T - lr · G / √v) / (1 + lr · weight_decay / (p · √v))`, then `code = round(u / scale)`.

    `v` is a mean of `G²`, and `p` is how often an id of a frequency group is seen in a step.

    model: any module; all its tables of method "quantized" are trained, and their scales no longer require gradients.
        What else there is to train is another optimizer's, which may be given all of `model.parameters()`.
    weight_decay: as `torch.optim.Adam` has it with dense gradients: it does not depend on how often an id is seen.
    beta: of the running means.
    normalize_by: "row": `v` is a mean square for each group and dimension times a number for each row, in two bytes a
        row, and close to what Adam has; "group": the former alone, without state for each row.
    refit_every: steps after which scales follow the values; they do so more often at first.
    seed: of stochastic rounding.
    ranks: where several processes train: all use the mean of their gradients, and so hold the same codes.

    `step` uses up what backward left. The gradients of codes are no `.grad` of a parameter: `clip_grad_norm_` and
    `GradScaler` do not see them.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float | Tensor = 1e-2,
        *,
        weight_decay: float = 0,
        beta: float = 0.999,
        eps: float = 1e-12,
        normalize_by: NormalizeBy = "row",
        refit_every: int = 256,
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        check_type("model", model, nn.Module, "a torch.nn.Module")
        check_not_negative(lr=lr, weight_decay=weight_decay, eps=eps)
        check_number("beta", beta)
        if beta >= 1:
            raise ValueError(f"beta must lie in [0, 1), got {beta}.")
        check_choice("normalize_by", normalize_by, NORMALIZE_BY)
        check_range("refit_every", refit_every, 1, 2**63)
        check_range("seed", seed, 0, 2**63)
        self.ranks = ranks or current_ranks()
        self.tables = _tables_of(model)
        if not self.tables:
            raise ValueError("model must have tables of method 'quantized', got none.")
        defaults: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "beta": beta, "eps": eps}
        defaults |= {"normalize_by": normalize_by, "refit_every": refit_every}
        super().__init__([table.scale for table in self.tables], defaults)
        for index, table in enumerate(self.tables):
            table.scale.requires_grad = False
            table.gradients = RowGradients()
            self.state[table.scale] = _first_state(table, make_key(seed, index), normalize_by)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move the codes of all rows that have a gradient; `closure` computes gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for table, group in zip(self.tables, self._groups(), strict=True):
            taken = self._take(table)
            if taken is not None:
                _check_trainable(table)
                self._step(table, group, sum_rows(*taken, table))
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002
        """Forget gradients that were not used."""
        super().zero_grad(set_to_none)
        for table in self.tables:
            assert table.gradients is not None
            table.gradients.clear()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on where `state_dict` was taken. (torch alone would give moments the type of the scales.)"""
        super().load_state_dict(state_dict)
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        for index, table in zip(indices, self.tables, strict=True):
            for name, saved in state_dict["state"][index].items():
                if isinstance(saved, Tensor):
                    self.state[table.scale][name] = saved.to(table.scale.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        """The tables travel with it: a copy of model and optimizer together trains on."""
        return super().__getstate__() | {"tables": self.tables, "ranks": self.ranks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("normalize_by", "group")  # as checkpoints of before were trained
        for table in self.tables:
            table.gradients = RowGradients()

    def _take(self, table: QuantizedEmbedding) -> tuple[Tensor, Tensor] | None:
        """The gradients of a table's rows, those of all ranks one after the other; None if there are none."""
        assert table.gradients is not None
        taken, num_ranks = table.gradients.take(), self.ranks.world_size
        if num_ranks == 1:
            return taken
        if taken is None:
            taken = torch.empty(0, dtype=torch.int64), torch.empty(0, table.embedding_dim, dtype=table.scale.dtype)
        rows, values = (gather_rows(tensor.cpu(), self.ranks) for tensor in taken)
        if not len(rows):
            return None
        return rows.to(table.scale.device), values.to(table.scale.device) / num_ranks

    def _groups(self) -> list[dict[str, Any]]:
        """The settings of each table."""
        found = {id(scale): group for group in self.param_groups for scale in group["params"]}
        return [found[id(table.scale)] for table in self.tables]

    def _step(self, table: QuantizedEmbedding, group: dict[str, Any], summed: RowSums) -> None:
        if not bool(summed.squares.isfinite().all()):  # no integer stands for NaN
            raise ValueError("gradients of codes must be finite, got NaN or inf; nothing was changed by them.")
        state = self.state[table.scale]
        state["step"] += 1
        settings = Settings(float(group["lr"]), group["weight_decay"], group["beta"], group["eps"], state["step"])
        moments, by_row = Moments(state["squares"], state["visits"]), group["normalize_by"] == "row"
        if by_row:
            state["unit"] = state["unit"] or unit_of(summed)
            given = RowSettings(settings, state["unit"] or 1.0, state["key"])
            step_rows(table, moments, RowState(state["levels"], state["uses"]), summed, given)
        else:
            keep, gain = follow_moments(table, moments, summed, settings)
            move_codes(table, summed, keep, gain, make_key(state["key"], 2 * state["step"]))
        if _is_due(state["step"], group["refit_every"]):
            weights = _visits(table, moments) if by_row else None
            refit_scales(table, make_key(state["key"], 2 * state["step"] + 1), weights)


def _first_state(table: QuantizedEmbedding, key: int, normalize_by: NormalizeBy) -> dict[str, Any]:
    num_groups, device = len(table.group_starts), table.scale.device
    squares = torch.zeros(num_groups, table.embedding_dim, device=device)
    state = {"step": 0, "key": key, "squares": squares, "visits": torch.zeros(num_groups, 1, device=device)}
    return state | ({"unit": 0.0, **new_state(table)._asdict()} if normalize_by == "row" else {})


def _visits(table: QuantizedEmbedding, moments: Moments) -> Tensor:
    """How often ids of each group are seen in a step, all of them together."""
    return moments.visits.squeeze(1) * torch.from_numpy(group_sizes(table)).to(moments.visits.device)


def _check_trainable(table: QuantizedEmbedding) -> None:
    if table.codes.bits < SMALLEST_BITS:
        raise ValueError(
            f"bits must be 8 or 16 to be trained, got {table.codes.bits}: a trained table is rounded to fewer (fit_to)."
        )


def has_codes(model: nn.Module) -> bool:
    """Whether a model has tables that `PointerDescent` trains."""
    return bool(_tables_of(model))


def _tables_of(model: nn.Module) -> list[QuantizedEmbedding]:
    return [table for table in model.modules() if isinstance(table, QuantizedEmbedding)]


def _is_due(step: int, every: int) -> bool:
    """Every so many steps, and at powers of two before."""
    return step % every == 0 or (step < every and step & (step - 1) == 0)
