"""What the contract's own file promises beyond what every method is tested for."""

import pytest
import torch

import cce


def table(**options):
    return cce.embeddings.HashingTrickEmbedding(10, 4, num_rows=3, **options)


def test_it_is_called_as_torch_s_and_says_what_there_is_in_place_of_weight():
    made, ids = table(), torch.arange(3)
    assert torch.equal(made(input=ids), made(ids))
    with pytest.raises(AttributeError, match=r"'HashingTrickEmbedding' .* 'weight': to_dense\(\) gives"):
        made.weight  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'colour'$"):
        made.colour  # noqa: B018


def test_options_are_completed_with_the_constructor_s_defaults():
    complete = cce.embeddings.HashEmbedding.complete_options({"num_hashes": 5})
    assert complete["num_hashes"] == 5
    assert complete["weighted"] is False
    assert "num_rows" not in complete  # it has no default


def test_from_table_keeps_dtype_and_options():
    weight = torch.randn(50, 4, dtype=torch.float64)
    made = cce.embeddings.ProductQuantizedEmbedding.from_table(weight, num_params=40, padding_idx=2)
    assert made.codebook.dtype == torch.float64
    assert made.padding_idx == 2


def test_printing_shows_sizes_and_padding():
    assert "10, 4, num_params=12, padding_idx=1" in repr(table(padding_idx=1))


def test_a_table_that_has_a_weight_of_its_own_gives_it():
    made = table()
    made.weight = torch.nn.Parameter(torch.ones(3))
    assert torch.equal(made.weight, torch.ones(3))


def test_the_hint_at_weight_does_not_disturb_a_parametrized_codebook():
    made = cce.embeddings.HashingTrickEmbedding(10, 4, num_rows=3)
    before = made.to_dense()
    torch.nn.utils.parametrize.register_parametrization(made, "codebook", torch.nn.Softplus())
    assert not hasattr(made, "weight")
    torch.testing.assert_close(made.to_dense(), torch.nn.functional.softplus(before))
