"""Both forms of a `cce` table under the contract: int8 rows while it trains, pointers and codebooks afterwards."""

import torch

import cce
from cce.testing import DIM, NUM_IDS, EmbeddingContract, LinearContract


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fill(table, seed=0):
    """Rows for all ids, of the scale that tables start with, and an optimizer, without which nothing trains them."""
    if isinstance(table, cce.CCEEmbedding) and not table.anchor.is_meta:
        values = torch.rand(table.num_embeddings, table.embedding_dim, generator=generator(seed)) * 2 - 1
        table.fit_to(values * (3 * table.start_variance) ** 0.5)
        cce.optim.SGD(table, lr=0.1)
    return table


def finalized(table, seed=0):
    if isinstance(fill(table, seed), cce.CCEEmbedding) and not table.anchor.is_meta:
        table.finalize(generator=generator(seed))
    return table


class TestCompact(LinearContract):
    table_class = cce.CCEEmbedding
    fills_budget = False  # codebooks have 256 rows at most

    def make(self, num_ids=NUM_IDS, dim=DIM, *, seed=0, **options):
        return finalized(super().make(num_ids, dim, seed=seed, **options), seed)

    def reference(self, table, x):
        row = int(table.row_map(torch.tensor([x])))
        pointers = table.pointers.store.to_tensor()[row - 1].tolist()
        return torch.cat([table.codebook[column * table.num_rows + at] for column, at in enumerate(pointers)])

    def test_num_params_and_bytes_are_exact(self):
        table = self.make()
        map_nbytes = table.row_map.bits.nbytes + table.row_map.ranks.nbytes
        assert table.num_params == table.codebook.numel()
        assert table.nbytes == table.codebook.nbytes + table.pointers.store.words.nbytes + map_nbytes
        saved = sum(tensor.nbytes for tensor in table.state_dict().values())
        assert saved <= table.nbytes + 200  # nothing of the rows is left

    def test_a_budget_that_holds_the_full_table_gives_the_full_table(self):
        assert isinstance(self.make(20, num_params=20 * DIM), cce.FullEmbedding)
        assert isinstance(self.make(num_params=NUM_IDS * DIM), cce.CCEEmbedding)  # which is smaller than that

    test_fits_a_trained_table_or_says_why_not = None  # to int8 rows: below
    test_reset_parameters_draws_what_the_constructor_does = None  # which has no rows: below


class TestInt8Rows(EmbeddingContract):
    table_class = cce.CCEEmbedding

    def make(self, num_ids=NUM_IDS, dim=DIM, *, seed=0, **options):
        return fill(super().make(num_ids, dim, seed=seed, **options), seed)

    def reference(self, table, x):
        row = int(table.row_map(torch.tensor([x])))
        return (table.rows.codes[row].float() * table.rows.scale).to(table.anchor.dtype)

    test_num_params_and_bytes_are_exact = None  # these are of the compact form, which the table is sized for
    test_its_footprint_is_what_it_holds = None
    test_a_budget_is_met_from_below_and_nearly_spent = None
    test_a_budget_in_bytes_is_met_from_below = None
    test_a_budget_that_holds_the_full_table_gives_the_full_table = None
    test_a_budget_too_small_says_the_smallest_that_works = None
    test_any_sizes_and_budgets = None
    test_fits_a_trained_table_or_says_why_not = None
    test_gradients_are_right_in_float64 = None  # the anchor's is the norm of those of rows
    test_sparse_gradients_equal_dense_ones = None
    test_vmap_and_functional_gradients = None
    test_torch_compile = None  # a lookup of rows that train is no part of a graph: below
    test_reset_parameters_draws_what_the_constructor_does = None
    test_an_averaged_copy_of_the_model_keeps_its_index_state = None  # it is rejected: below
