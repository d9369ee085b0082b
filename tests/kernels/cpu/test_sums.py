"""Sums of rows in every specialisation: lengths of runs, terms and columns."""

import pytest
import torch

from cce import compiled
from cce.indexing import MultiplyShift
from cce.indexing.sources import HashedRows
from cce.kernels import LaunchPlan, Layout, gather_sum
from cce.kernels.cpu.plan import SHORT_COLUMNS, SHORT_TERMS, specialise
from helpers.linear_tables import look_up, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


def problem(columns, terms, width, padding_idx=None):
    hashed = MultiplyShift(columns * terms, 9, generator=seeded())
    first_rows = range(0, 9 * columns * terms, 9)
    source = HashedRows(hashed, range(columns * terms), first_rows)
    layout = Layout(700, columns, terms, width, 9 * columns * terms, (source,), padding_idx)
    return layout, torch.randn(layout.num_rows, width, generator=seeded(1)).requires_grad_()


@pytest.mark.parametrize(
    ("columns", "terms", "width", "is_short"),
    [(4, 2, 4, True), (1, 1, 16, True), (2, 1, 8, True), (3, 2, 4, False), (2, 4, 12, False), (5, 1, 1, False)],
)
def test_every_specialisation_sums_as_the_definition(columns, terms, width, is_short):
    layout, codebook = problem(columns, terms, width, padding_idx=3)
    assert (
        bool(specialise(layout)[1])
        is is_short
        is (columns in SHORT_COLUMNS and terms in SHORT_TERMS and width in (1, 4, 8, 16))
    )
    ids = some_ids(300)
    ids[::9] = 3
    vectors = look_up(LaunchPlan([layout]), ids.unsqueeze(1), [codebook])
    rows = layout.sources[0].rows(ids).view(-1, columns, terms)
    expected = gather_sum(codebook, rows).masked_fill((ids == 3).unsqueeze(1), 0)
    assert torch.equal(vectors, expected)
    upstream = torch.randn(vectors.shape, generator=seeded(2))
    found, right = (torch.autograd.grad(v, codebook, upstream)[0] for v in (vectors, expected))
    assert torch.equal(found, right)


def test_numbers_that_are_not_finite_stay_with_their_rows():
    layout, codebook = problem(4, 2, 4, padding_idx=3)
    with torch.no_grad():
        codebook[layout.sources[0].rows(torch.tensor([3]))[0]] = float("nan")
    ids = torch.tensor([3, 5])
    vectors = look_up(LaunchPlan([layout]), ids.unsqueeze(1), [codebook])
    assert not vectors[0].any()  # padding is zero, not zero times NaN
    assert torch.equal(
        vectors[1].isnan(), gather_sum(codebook, layout.sources[0].rows(ids[1:]).view(1, 4, 2))[0].isnan()
    )
