"""One byte for the second moment of a row, and steps that divide by it."""

import pytest
import torch

from cce import compiled
from cce.optim import PointerDescent, code_steps
from cce.optim.code_moments import Moments, Settings
from cce.optim.code_steps import sum_rows
from cce.optim.row_moments import (
    NUM_LEVELS,
    RowSettings,
    RowState,
    decode_levels,
    encode_levels,
    new_state,
    step_rows,
    unit_of,
)
from helpers.codes import batch, table_of

LEVELS = torch.arange(NUM_LEVELS, dtype=torch.uint8)


def moments_of(table):
    num_groups = len(table.group_starts)
    return Moments(torch.zeros(num_groups, 6), torch.zeros(num_groups, 1))


# -- levels ------------------------------------------------------------------------------------------------------------


def test_levels_are_four_in_each_power_of_two():
    values = decode_levels(LEVELS)
    assert values[0] == 0
    assert values[4:9].mul(2**39).tolist() == [1, 1.25, 1.5, 1.75, 2]
    assert (values.diff() > 0).all()
    assert values[-1] == 1.75 * 2**23


def test_a_level_is_its_own_nearest():
    for noise in (0.0, 0.99):
        assert torch.equal(encode_levels(decode_levels(LEVELS[1:]), torch.tensor(noise)), LEVELS[1:])


def test_what_lies_between_two_levels_is_rounded_to_its_value_on_average():
    noise = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    for value in (1.05, 1.9, 3e-7):
        found = decode_levels(encode_levels(torch.full_like(noise, value), noise))
        assert len(found.unique()) == 2
        assert found.double().mean().item() == pytest.approx(value, rel=2e-3)


def test_levels_end_where_bytes_end():
    assert encode_levels(torch.tensor([1e-30, 1e30]), torch.tensor([0.0, 0.9])).tolist() == [1, 255]


# -- steps -------------------------------------------------------------------------------------------------------------


def first_visit(gradients, *, steps_before=0, weight_decay=0.0, beta=0.99):
    """What rows 3 and 4 move by at their first visit, after steps in which row 5 of their group was seen."""
    table = table_of(bits=16)
    moments, state = moments_of(table), new_state(table)
    before = table.to_dense(torch.tensor([3, 4]))
    for step in range(1, steps_before + 2):
        is_last = step == steps_before + 1
        given = (torch.tensor([3, 4]), gradients) if is_last else (torch.tensor([5]), torch.ones(1, 6))
        settings = RowSettings(Settings(1e-3, weight_decay, beta, 0.0, step), 1.0, 0)
        step_rows(table, moments, state, sum_rows(*given, table), settings)
    return before - table.to_dense(torch.tensor([3, 4])), table, state


@pytest.mark.parametrize("steps_before", [0, 10, 400])
def test_a_first_step_is_that_of_adam_whatever_the_size_of_the_gradient(steps_before, path):
    gradients = torch.tensor([[1e-3], [50.0]]).expand(2, 6).contiguous()
    steps, table, state = first_visit(gradients, steps_before=steps_before)
    expected = 1e-3 * ((1 - 0.99 ** (steps_before + 1)) / 0.01) ** 0.5
    torch.testing.assert_close(steps, torch.full((2, 6), expected), rtol=0, atol=1.01 * table.scale.item())
    assert state.uses[3:6].tolist() == [1, 1, steps_before % 256]
    assert decode_levels(state.levels[3:5]).tolist() == pytest.approx([0.01 * 1e-6, 0.01 * 2500], rel=0.25)


def test_a_row_without_gradients_is_left_alone(path):
    steps, _, state = first_visit(torch.zeros(2, 6), steps_before=3, weight_decay=0.1)
    assert not steps.any()
    assert state.levels[3:5].tolist() == [0, 0]


def test_a_gradient_next_to_nothing_does_not_decay_a_row_away(path):
    """It decays as after a typical gradient, which here is 1."""
    norms = []
    for weight_decay in (0.0, 0.1):
        _, table, _ = first_visit(torch.full((2, 6), 1e-9), steps_before=400, weight_decay=weight_decay)
        norms.append(table.to_dense(torch.tensor([3, 4])).norm().item())
    visits = 0.25  # of the rows 3 to 6, one is seen in a step; in the last one two are
    expected = 1 / (1 + 1e-3 * 0.1 / visits * (1 / 0.01) ** 0.5)
    assert norms[1] / norms[0] == pytest.approx(expected, abs=3e-4)


def test_dimensions_of_large_gradients_do_not_move_further(path):
    """As under Adam: what a dimension has in all rows of a group is divided away."""
    scales = torch.logspace(-3, 3, 6)
    table = table_of(bits=16)
    moments, state = moments_of(table), new_state(table)
    before = table.to_dense(torch.tensor([1, 2]))
    for step in range(1, 6):
        summed = sum_rows(torch.tensor([1, 2]), scales.expand(2, 6).contiguous(), table)
        step_rows(table, moments, state, summed, RowSettings(Settings(1e-3, 0.0, 0.999, 0.0, step), 1.0, 0))
    steps = before - table.to_dense(torch.tensor([1, 2]))
    torch.testing.assert_close(steps, torch.full((2, 6), 5e-3), rtol=0.1, atol=0)


def test_counts_of_visits_start_again_after_a_byte(path):
    table = table_of()
    state = RowState(new_state(table).levels, torch.full((320,), 255, dtype=torch.uint8))
    step_rows(
        table,
        moments_of(table),
        state,
        sum_rows(torch.tensor([7]), torch.ones(1, 6), table),
        RowSettings(Settings(1e-3, 0.0, 0.9, 0.0, 1), 1.0, 0),
    )
    assert state.uses[6:9].tolist() == [255, 0, 255]


def test_the_unit_is_a_power_of_two_near_the_first_squares():
    table = table_of()
    for size in (1e-6, 1.0, 3000.0):
        unit = unit_of(sum_rows(torch.tensor([1, 300]), torch.full((2, 6), size), table))
        assert 0.5 < unit / size**2 <= 2
        assert torch.tensor(unit).log2().frac() == 0
    assert unit_of(sum_rows(torch.tensor([1]), torch.zeros(1, 6), table)) == 0


def test_losses_in_another_unit_give_the_same_codes(path):
    codes = []
    for factor in (1.0, 2.0**-30, 2.0**20):
        table = table_of()
        optimizer = PointerDescent(table, eps=0.0)
        for step in range(10):
            ids = torch.arange(step, 300, 7)
            (factor * (table(ids) - 1).square().sum()).backward()
            optimizer.step()
        codes.append(table.codes.values)
    assert torch.equal(codes[0], codes[1])
    assert torch.equal(codes[0], codes[2])


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("scale_by", ["table", "column", "group"])
def test_loops_have_the_bits_of_plain_torch_on_any_number_of_threads(bits, scale_by, plain, num_threads, monkeypatch):
    monkeypatch.setattr(code_steps, "PARALLEL", 1)
    results = []
    for threads in (1, 3, None):
        table = table_of(bits=bits, scale_by=scale_by)
        moments, state = moments_of(table), new_state(table)
        num_threads(threads or 1)
        for step in range(1, 20):
            rows, values = batch(seed=step)
            values[:, 2] = 0  # a dimension that has no gradients
            given = RowSettings(Settings(0.02, 1e-3, 0.97, 1e-12, step), 0.25, 5)
            if threads is None:
                with plain():
                    step_rows(table, moments, state, sum_rows(rows, values, table), given)
            else:
                step_rows(table, moments, state, sum_rows(rows, values, table), given)
        results.append([table.codes.values, *moments, *state])
    for others in results[1:]:
        for found, expected in zip(others, results[0], strict=True):
            assert torch.equal(found, expected)
