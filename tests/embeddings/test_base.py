"""What the contract's own file promises beyond what every method is tested for."""

import pytest
import torch

import cce
from cce.embeddings.base import check_budget, check_weight


def table(**options):
    return cce.embeddings.HashingTrickEmbedding(10, 4, num_rows=3, **options)


def test_ids_on_the_meta_device_have_no_values_to_check():
    assert table().to("meta")(torch.zeros(3, dtype=torch.long, device="meta")).shape == (3, 4)


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


def test_a_budget_below_the_smallest_is_named():
    check_budget("magic", 7, 7)
    with pytest.raises(ValueError, match="num_params must be at least 8 for method 'magic'"):
        check_budget("magic", 7, 8)


def test_a_weight_of_another_shape_is_named():
    check_weight(table(), torch.zeros(10, 4))
    with pytest.raises(ValueError, match=r"weight must have shape \(10, 4\), got \(4, 10\)"):
        check_weight(table(), torch.zeros(4, 10))


def test_from_table_keeps_dtype_and_options():
    weight = torch.randn(50, 4, dtype=torch.float64)
    made = cce.embeddings.HashingTrickEmbedding.from_table(weight, num_params=40, padding_idx=2)
    assert made.codebook.dtype == torch.float64
    assert made.padding_idx == 2


def test_a_size_that_follows_from_the_budget_is_not_overwritten_in_silence():
    with pytest.raises(ValueError, match="num_rows follows from the budget: leave it out, got num_rows=5"):
        cce.create_embedding("hash", 100, 4, num_params=40, num_rows=5)
    assert cce.create_embedding("hash", 100, 4, num_params=40, num_rows=10).num_params == 40


def test_printing_shows_sizes_and_padding():
    assert "10, 4, num_params=12, padding_idx=1" in repr(table(padding_idx=1))


@pytest.mark.parametrize(
    ("sizes", "message"), [((0, 4), "num_embeddings must lie"), ((4, 0), "embedding_dim must lie")]
)
def test_sizes_below_one_are_rejected(sizes, message):
    with pytest.raises(ValueError, match=message):
        cce.embeddings.FullEmbedding(*sizes)


def test_a_padding_idx_outside_the_vocabulary_is_rejected():
    with pytest.raises(ValueError, match=r"padding_idx must lie in \[-10, 10\), got 10"):
        table(padding_idx=10)


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
