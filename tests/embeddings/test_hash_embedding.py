import torch

import cce
from cce.testing import EmbeddingContract, LinearContract
from helpers import slow


class TestHashEmbedding(LinearContract):
    table_class = cce.embeddings.HashEmbedding

    def reference(self, table, x):
        return sum(table.codebook[slow.row(x, seeds, table.hash.num_rows)] for seeds in table.hash.seeds)


class TestThreeHashes(TestHashEmbedding, variant=True):
    options = {"num_hashes": 3}  # noqa: RUF012


class TestWeighted(LinearContract):
    table_class = cce.embeddings.HashEmbedding
    options = {"weighted": True}  # noqa: RUF012

    def make(self, *args, **kwargs):
        table = super().make(*args, **kwargs)
        if table.method == "hash-embedding":  # at the start all weights are one and would hide mistakes
            with torch.no_grad():
                table.importance.copy_(
                    torch.linspace(0.4, 1.4, table.importance.numel(), device="cpu").view_as(table.importance)
                )
        return table

    def reference(self, table, x):
        importance = table.importance[slow.row(x, table.importance_hash.seeds[0], len(table.importance))]
        rows = [slow.row(x, seeds, table.hash.num_rows) for seeds in table.hash.seeds]
        return sum(weight * table.codebook[row] for weight, row in zip(importance, rows, strict=True))

    test_starts_with_the_common_mean_and_variance = None
    test_reset_parameters_draws_what_the_constructor_does = None  # other weights, but those of `make`


class TestWeightPerId(EmbeddingContract, variant=True):
    table_class = cce.embeddings.HashEmbedding
    options = {"weighted": True, "num_weights": 900}  # noqa: RUF012
    fills_budget = True

    def reference(self, table, x):
        return TestWeighted.reference(self, table, x)

    test_any_sizes_and_budgets = None
    test_any_embedding_dim_works_by_default = None
    test_gradients_are_right_in_float64 = None


def test_by_class_every_id_has_its_own_weights():
    table = cce.embeddings.HashEmbedding(100, 8, num_rows=10, weighted=True)
    assert table.importance.shape == (100, 2)
    assert table.importance_hash is None
    with torch.no_grad():
        table.importance[5] = 0
    assert not table(torch.tensor([5])).any()
    assert table(torch.tensor([6])).any()


def test_weighted_starts_as_the_plain_sum():
    options = {"num_rows": 10, "generator": None}
    for weighted in (False, True):
        options["generator"] = torch.Generator().manual_seed(0)
        table = cce.embeddings.HashEmbedding(100, 8, weighted=weighted, **options)
        if not weighted:
            plain = table.to_dense()
    assert torch.equal(table.to_dense(), plain)
