"""Rows in every precision: how far they are from what they were, and what they cost."""

import pytest
import torch

from cce.serving.stored_rows import CODEBOOKS, StoredRows

ROWS = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.01, 1.0, 100.0])


def dense(stored):
    return stored(torch.arange(len(stored.values)).unsqueeze(1)).squeeze(1)


def nbytes(stored):
    return sum(tensor.nbytes for tensor in stored.state_dict().values())


def test_float32_is_kept_as_it_is_and_copied():
    stored = StoredRows.of(ROWS, "float32")
    assert torch.equal(dense(stored), ROWS)
    assert stored.values.data_ptr() != ROWS.data_ptr()


@pytest.mark.parametrize(("codebook", "relative"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_half_precision_is_off_by_its_last_bit_at_most(codebook, relative):
    stored = StoredRows.of(ROWS, codebook)
    assert nbytes(stored) == ROWS.nbytes / 2
    assert ((dense(stored) - ROWS).abs() <= ROWS.abs() * relative + 1e-7).all()


def test_integers_have_a_scale_for_each_column():
    stored = StoredRows.of(ROWS, "int8")
    assert nbytes(stored) == ROWS.numel() + 3 * 4
    steps = ROWS.abs().amax(0) / 127
    torch.testing.assert_close(stored.scale, steps.unsqueeze(0))
    assert ((dense(stored) - ROWS).abs() <= steps * 0.5001).all()
    assert int(stored.values.abs().amax()) == 127


def test_slots_of_several_tables_have_scales_of_their_own_and_share_those_of_shared_tables():
    rows = torch.cat([ROWS, ROWS * 1000])
    stored = StoredRows.of(rows, "int8", [(0, 40), (40, 40), (0, 40)])
    assert torch.equal(stored.scale[0], stored.scale[2])
    torch.testing.assert_close(stored.scale[1], stored.scale[0] * 1000)
    wanted = torch.tensor([[3, 43, 5]])
    assert ((stored(wanted) - rows[wanted]).abs() <= stored.scale * 0.5001).all()
    torch.testing.assert_close(stored(wanted)[:, 1], stored(wanted)[:, 0] * 1000)


def test_rows_of_zeros_stay_zeros():
    assert not dense(StoredRows.of(torch.zeros(4, 2), "int8")).any()


def test_an_unknown_precision_is_rejected():
    with pytest.raises(ValueError, match=f"codebook must be one of {', '.join(CODEBOOKS)}"):
        StoredRows.of(ROWS, "float8")
