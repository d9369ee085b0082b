"""Parameters with gradients of every form."""

import torch
from torch import nn

FORMS = ("dense", "coalesced", "sorted", "unsorted", "repeated")
SPARSE = FORMS[1:]


def make_parameters(shapes, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)) for shape in shapes]


def give_gradients(parameters, form, seed):
    """Fill `.grad`: dense; sparse with sorted rows, with unsorted rows, or with rows that occur several times."""
    g = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        num_rows = len(parameter)
        rows = torch.randperm(num_rows, generator=g)[: num_rows // 2 + 1]
        if form == "repeated":
            rows = torch.cat([rows, rows[: len(rows) // 2]])[torch.randperm(len(rows) + len(rows) // 2, generator=g)]
        elif form != "unsorted":
            rows = rows.sort().values
        values = torch.randn(len(rows), *parameter.shape[1:], generator=g, dtype=torch.float64).to(parameter.dtype)
        grad = torch.sparse_coo_tensor(
            rows.unsqueeze(0), values, parameter.shape, check_invariants=True, is_coalesced=form == "coalesced"
        )
        parameter.grad = grad.to_dense() if form == "dense" else grad


def copies(parameters):
    return [nn.Parameter(parameter.detach().clone()) for parameter in parameters]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
