"""Sums by row, codes that move, scales that follow: against slow loops."""

import pytest
import torch

from cce.optim import code_steps
from cce.optim.code_steps import RowSums, move_codes, refit_scales, sum_rows
from helpers.codes import batch, table_of

# -- sums --------------------------------------------------------------------------------------------------------------


def test_gradients_are_summed_by_row_and_squared_by_group(path):
    rows, values = batch()
    table = table_of()
    summed = sum_rows(rows, values, table)
    assert summed.rows.tolist() == sorted(set(rows.tolist()) - {-1})
    squares = torch.zeros(len(table.group_starts), 6, dtype=torch.float64)
    for row, group, total in zip(summed.rows.tolist(), summed.groups.tolist(), summed.sums, strict=True):
        expected = values[rows == row].double().sum(0)
        torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-6)
        assert group == ((row + 1).bit_length() - 1 if row < 300 else len(table.group_starts) - 1)
        squares[group] += expected.square()
    torch.testing.assert_close(summed.squares, squares, rtol=1e-5, atol=1e-5)


def test_a_batch_of_padding_alone_has_no_rows(path):
    summed = sum_rows(torch.full((3,), -1), torch.ones(3, 6), table_of())
    assert len(summed.rows) == len(summed.sums) == 0
    assert not summed.squares.any()


# -- codes -------------------------------------------------------------------------------------------------------------


def moved_by(table, amount, *, keep=1.0, key=3):
    """The codes after every row has had a gradient that asks for `amount` codes less."""
    rows, num_groups = torch.arange(320), len(table.group_starts)
    summed = sum_rows(rows, torch.ones(320, 6), table)
    move_codes(table, summed, torch.full((num_groups, 6), keep), torch.full((num_groups, 6), amount), key)
    return table.codes.values.long()


def test_whole_steps_are_exact(path):
    table = table_of()
    before = table.codes.values.long().clone()
    assert torch.equal(moved_by(table, 3.0), (before - 3).clamp(-127, 127))
    assert torch.equal(moved_by(table, 0.0), (before - 3).clamp(-127, 127))


def test_a_fraction_of_a_code_is_moved_on_average(path):
    table = table_of()
    table.codes.values.zero_()
    codes = moved_by(table, -0.3)
    assert codes.unique().tolist() == [0, 1]
    assert codes.double().mean().item() == pytest.approx(0.3, abs=0.04)  # of 1,920 codes: 4 standard deviations
    table.codes.values.zero_()
    assert moved_by(table, 0.3).double().mean().item() == pytest.approx(-0.3, abs=0.04)


def test_codes_end_at_the_largest(path):
    for bits, largest in ((8, 127), (16, 32767)):
        assert moved_by(table_of(bits=bits), -1e9).unique().tolist() == [largest]
        assert moved_by(table_of(bits=bits), 1e9).unique().tolist() == [-largest]


def test_groups_have_their_own_rates(path):
    table = table_of()
    table.codes.values.fill_(10)
    num_groups = len(table.group_starts)
    rows = torch.tensor([0, 2, 299, 319])
    summed = sum_rows(rows, torch.ones(4, 6), table)
    gain = torch.arange(float(num_groups)).unsqueeze(1).expand(-1, 6).contiguous()
    move_codes(table, summed, torch.full((num_groups, 6), 0.5), gain, 0)
    assert table.codes.values[rows, 0].tolist() == [5, 4, 5 - 8, 5 - 9]
    assert table.codes.values[1].tolist() == [10] * 6


# -- scales ------------------------------------------------------------------------------------------------------------


def test_scales_that_fit_are_left_alone():
    table = table_of()
    before, scale = table.codes.values.clone(), table.scale.clone()
    assert not refit_scales(table, 0)
    assert torch.equal(table.codes.values, before)
    assert torch.equal(table.scale, scale)


@pytest.mark.parametrize("factor", [0.5, 3])
@pytest.mark.parametrize("scale_by", ["table", "column", "group"])
def test_scales_follow_values_that_grew_or_shrank(scale_by, factor, path):
    table = table_of(scale_by=scale_by, bits=16)
    table.codes.values.copy_((table.codes.values.float() * factor).round().clamp(-32767, 32767))
    before, scale = table.to_dense(), table.scale.clone()
    assert refit_scales(table, 0)
    torch.testing.assert_close(table.to_dense(), before, rtol=0, atol=2 * table.scale.max().item())
    whole = table.scale.numel() < 20 and scale_by != "group"  # a group of one row has no scale to speak of
    if whole:
        torch.testing.assert_close(table.scale, scale * factor, rtol=0.15, atol=0)


def test_only_what_has_another_scale_is_rounded_again(path):
    table = table_of(scale_by="column")
    table.codes.values[:, 2] = (table.codes.values[:, 2] // 4).to(torch.int8)
    before, scale = table.codes.values.clone(), table.scale.clone()
    assert refit_scales(table, 0)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(table.codes.values[:, others], before[:, others])
    assert torch.equal(table.scale[:, others], scale[:, others])
    assert table.scale[0, 2] < scale[0, 2] / 3


@pytest.mark.parametrize("scale_by", ["table", "column", "group"])
def test_codes_are_rounded_again_to_the_same_bits_with_loops_and_without(scale_by, plain, num_threads, monkeypatch):
    monkeypatch.setattr(code_steps, "PARALLEL", 1)
    num_threads(3)
    in_loops, in_torch = table_of(scale_by=scale_by), table_of(scale_by=scale_by)
    for table in (in_loops, in_torch):
        table.codes.values.mul_(3)
    assert refit_scales(in_loops, 5)
    with plain():
        assert refit_scales(in_torch, 5)
    assert torch.equal(in_loops.codes.values, in_torch.codes.values)
    assert torch.equal(in_loops.scale, in_torch.scale)


def test_scales_may_follow_the_values_of_some_groups_alone(path):
    """Ids of weight 0, which nobody visits, do not keep the scale small."""
    table = table_of(bits=16)
    table.codes.values[:15] = (table.codes.values[:15].float() * 3).round().to(torch.int16)
    before, scale = table.to_dense(), table.scale.item()
    assert not refit_scales(table, 0)
    weights = torch.zeros(len(table.group_starts))
    weights[:4] = 1  # rows 0 to 14
    assert refit_scales(table, 0, weights)
    assert table.scale.item() == pytest.approx(scale * 3 * code_steps.VISITED_HEADROOM / code_steps.HEADROOM, rel=0.2)
    torch.testing.assert_close(table.to_dense(), before, rtol=0, atol=1.01 * table.scale.item())


def test_a_table_of_zeros_keeps_its_scale():
    table = table_of()
    table.codes.values.zero_()
    assert not refit_scales(table, 0)


def test_row_sums_are_named():
    assert RowSums._fields == ("rows", "groups", "sums", "squares")
