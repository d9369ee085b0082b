"""Torch's optimizers, which move int8 rows as well: one optimizer for a whole model.

    optimizer = cce.optim.Adam(model, lr=1e-3)

A table of int8 rows is in the parameter groups as its anchor, a parameter of one value (`embeddings.row_lookup`): its
group has the learning rate and the weight decay of its rows. They move as by Adam (`row_step`), whatever moves the
rest. What torch does to gradients as a whole, clipping them by their norm or unscaling them, it does to rows as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import StateDict

from cce.checks import check_number
from cce.distributed import current_ranks, gather_rows
from cce.embeddings import Int8Rows, Pending, Route, merge_pending
from cce.optim.row_step import RowStep, Rule, new_state, take_steps

ROW_BETA, ROW_EPS = 0.97, 1e-12  # Adam's 0.999 lets rows that are seen late jump too far (docs/optimizers.md)
OTHER_LR = 0.003  # of rows beside an optimizer whose learning rate is of another kind than Adam's
CLOSE = 1e-5  # by which a mean over processes may differ from another order of its sum


class Int8RowOptimizer(torch.optim.Optimizer):
    """What the optimizers here add to those of torch; `params` is a model, or what torch takes.

    row_lr: learning rate of int8 rows, whose rule is Adam's: `lr` with Adam and AdamW, 0.003 with others. It rises and
        falls with `lr`.
    """

    torch_optimizer: type[torch.optim.Optimizer]
    is_like_adam = True

    def __init__(self, params: Any, *arguments: Any, row_lr: float | None = None, **options: Any) -> None:
        if row_lr is not None:
            check_number("row_lr", row_lr)
        self._row_lr = row_lr
        self._rows: list[tuple[nn.Parameter, Int8Rows]] = []
        super().__init__(params.parameters() if isinstance(params, nn.Module) else params, *arguments, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; tables of int8 rows know from here on who moves them."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        lr = float(group["lr"])
        own = self._row_lr if self._row_lr is not None else (lr if self.is_like_adam else OTHER_LR)
        group.setdefault("row_lr_factor", own / lr if lr else 1.0)
        for parameter in group["params"]:
            table = rows_of(parameter)
            if table is not None:
                table.live.has_optimizer = True
                self._rows.append((parameter, table))
                self.state[parameter] = new_state(table)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move everything that has a gradient; `closure` computes gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        steps = self._row_steps() if self._rows else []
        gradients = [(anchor, anchor.grad) for anchor, _ in self._rows]
        for anchor, _ in self._rows:
            anchor.grad = None  # torch's optimizer is to leave it alone
        inspect.unwrap(self.torch_optimizer.step)(self)
        for anchor, gradient in gradients:
            anchor.grad = gradient
        if steps:
            take_steps(steps)
        for anchor, table in self._rows:
            anchor.fill_(table.anchor_value)
        return loss

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on where `state_dict` was taken. (torch alone would give sums of squares the type of the parameters.)"""
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        pairs = zip(indices, parameters, strict=False)  # torch says if there are too many or too few
        states = [(parameter, state_dict["state"].get(index, {})) for index, parameter in pairs if rows_of(parameter)]
        for parameter, saved in states:
            _check_state(parameter.int8_rows, saved)
        super().load_state_dict(state_dict)
        for parameter, saved in states:
            self.state[parameter] = {
                name: value.to("cpu" if name in ("step", "unit") else parameter.device, copy=True)
                for name, value in saved.items()
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._row_lr = state.get("_row_lr", getattr(self, "_row_lr", None))
        found = [(p, rows_of(p)) for group in self.param_groups for p in group["params"]]
        self._rows = [(parameter, table) for parameter, table in found if table is not None]
        for _, table in self._rows:
            table.live.has_optimizer = True

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_row_lr": self._row_lr}

    def _row_steps(self) -> list[RowStep]:
        """The steps to take; nothing is changed if a gradient is not finite."""
        taken = [_take(anchor, table) for anchor, table in self._rows]
        has_ranks = current_ranks().world_size > 1
        if has_ranks:
            taken = mean_over_processes([table for _, table in self._rows], taken)
        tolerance = CLOSE if has_ranks else 0.0
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            return []
        rules: dict[int, Rule] = {}
        for group in self.param_groups:
            rules |= dict.fromkeys(map(id, group["params"]), _rule(group))
        moved = [(*pair, pending) for pair, pending in zip(self._rows, taken, strict=True) if pending is not None]
        gradients = [anchor.grad.float() for anchor, _, _ in moved if anchor.grad is not None]
        norms = torch.cat(gradients).tolist() if moved else []  # as backward left them, or as they were clipped
        steps = []
        for (anchor, table, pending), norm in zip(moved, norms, strict=True):
            if not pending.is_finite:
                raise ValueError(f"gradients of {table.name} must be finite, got NaN or inf; no row was changed.")
            is_same = pending.norm == 0 or abs(norm - pending.norm) <= tolerance * pending.norm
            factor = (1.0 if is_same else norm / pending.norm) / (1 if scale is None else float(scale))
            steps.append(RowStep(table, self.state[anchor], pending, rules[id(anchor)], factor))
        return steps


def _check_state(table: Int8Rows, saved: dict[str, Tensor]) -> None:
    """Reject the state of other rows: compiled loops would read and write beyond it."""
    for name, ours in new_state(table).items():
        theirs = saved.get(name, ours.new_empty(0))
        if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
            got = f"{tuple(theirs.shape)} of {theirs.dtype}"
            raise ValueError(f"{name} of {table.name} must be {tuple(ours.shape)} of {ours.dtype}, got {got}.")


def rows_of(parameter: Tensor) -> Int8Rows | None:
    """The int8 rows that a parameter is the anchor of, if it is one."""
    return getattr(parameter, "int8_rows", None)


def _rule(group: dict[str, Any]) -> Rule:
    lr = float(group["lr"]) * group["row_lr_factor"]
    return Rule(lr, float(group.get("weight_decay", 0)), ROW_BETA, ROW_EPS)


def _take(anchor: nn.Parameter, table: Int8Rows) -> Pending | None:
    """The gradients that wait, unless they were zeroed."""
    pending, table.live.pending = table.live.pending, None
    return None if anchor.grad is None else pending


class Adam(Int8RowOptimizer, torch.optim.Adam):
    """`torch.optim.Adam`, and int8 rows.

    The constructor differs from torch's: a model may stand for its parameters, and there is `row_lr`.
    """

    torch_optimizer = torch.optim.Adam


class AdamW(Int8RowOptimizer, torch.optim.AdamW):
    """`torch.optim.AdamW`, and int8 rows, whose weight decay is Adam's.

    The constructor differs from torch's: a model may stand for its parameters, and there is `row_lr`.
    """

    torch_optimizer = torch.optim.AdamW


class Adagrad(Int8RowOptimizer, torch.optim.Adagrad):
    """`torch.optim.Adagrad`, and int8 rows.

    The constructor differs from torch's: a model may stand for its parameters, and there is `row_lr`.
    """

    torch_optimizer, is_like_adam = torch.optim.Adagrad, False


class SGD(Int8RowOptimizer, torch.optim.SGD):
    """`torch.optim.SGD`, and int8 rows.

    The constructor differs from torch's: a model may stand for its parameters, and there is `row_lr`.
    """

    torch_optimizer, is_like_adam = torch.optim.SGD, False


# -- several processes ------------------------------------------------------------------------------------------------


def mean_over_processes(tables: list[Int8Rows], taken: list[Pending | None]) -> list[Pending | None]:
    """The mean of the gradients of all processes; its `norm` is the mean of theirs, which DDP gives to anchors.

    Those of sharded rows go to the owners of the rows alone.
    """
    ranks = current_ranks()
    found = [_nothing(table) if pending is None else pending for table, pending in zip(tables, taken, strict=True)]
    summaries = torch.tensor([[each.count, each.norm, each.is_finite] for each in found], dtype=torch.float64)
    everywhere = gather_rows(summaries.unsqueeze(0), ranks)  # (ranks, tables, 3)
    merged: list[Pending | None] = [None] * len(tables)
    for send in (_to_all, _to_owners):
        some = [index for index, table in enumerate(tables) if (table.shards is None) == (send is _to_all)]
        for index, parts in zip(some, send([found[at] for at in some], [tables[at] for at in some]), strict=True):
            if everywhere[:, index, 0].any():  # not so of a table that is final
                merged[index] = whole = merge_pending(tables[index], parts)
                whole.norm = float(everywhere[:, index, 1].mean())
                whole.is_finite = bool(everywhere[:, index, 2].all())
    return merged


def _to_all(found: list[Pending], tables: list[Int8Rows]) -> list[list[Pending]]:
    """The gradients of all processes, by table."""
    if not tables:
        return []
    ranks = current_ranks()
    counts = gather_rows(torch.tensor([[each.count for each in found]]), ranks)  # (ranks, tables)
    widths = torch.tensor([table.dim for table in tables])
    integers = torch.cat([torch.stack([each.ids, each.occurrences], dim=1) for each in found]).cpu()
    sums = torch.cat([each.sums.flatten() for each in found]).cpu()
    ids = torch.split(gather_rows(integers, ranks), counts.flatten().tolist())
    values = torch.split(gather_rows(sums, ranks), (counts * widths).flatten().tolist())
    return _received(tables, ids, values, ranks.world_size)


def _to_owners(found: list[Pending], tables: list[Int8Rows]) -> list[list[Pending]]:
    """The gradients of all processes of ids whose rows this one has, by table."""
    if not tables or tables[0].shards is None:
        return []
    route, width = Route(tables[0].shards, [each.ids for each in found]), max(table.dim for table in tables)
    integers = route.send([torch.stack([each.ids, each.occurrences], dim=1) for each in found])
    sums = route.send([functional.pad(each.sums, (0, width - each.sums.shape[1])) for each in found])
    return _received(tables, integers, sums, tables[0].shards.world_size)


def _nothing(table: Int8Rows) -> Pending:
    nothing = torch.empty(0, 2, dtype=torch.int64), torch.empty(0)
    return _received([table], [nothing[0]], [nothing[1]], 1)[0][0]


def _received(
    tables: list[Int8Rows], integers: Sequence[Tensor], sums: Sequence[Tensor], world_size: int
) -> list[list[Pending]]:
    """The parts of a mean, by table, that came by process and table: ids and occurrences `(n, 2)`, and gradients."""
    parts: list[list[Pending]] = [[] for _ in tables]
    for index, (own, values) in enumerate(zip(integers, sums, strict=True)):
        table = tables[index % len(tables)]
        ids, occurrences = own.to(table.records.device).unbind(1)
        mean = values.reshape(len(ids), values.numel() // max(1, len(ids)))[:, : table.dim].to(ids.device) / world_size
        mean = mean if len(ids) else mean.new_empty(0, table.dim)
        parts[index % len(tables)].append(Pending.of(ids, torch.zeros_like(ids), occurrences, mean, table.live.moves))
    return parts
