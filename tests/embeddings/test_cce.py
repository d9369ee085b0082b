"""Both forms of a `cce` table under the contract: int8 rows while it trains, pointers and codebooks afterwards."""

import copy

import torch

import cce
from cce.testing import DIM, NUM_IDS, EmbeddingContract, LinearContract
from helpers.draws import seeded
from helpers.final_form import finalize_table


def fill(table, seed=0):
    """Rows for all ids, of the scale that tables start with, and an optimizer, without which nothing trains them."""
    if isinstance(table, cce.embeddings.CCEEmbedding) and not table.anchor.is_meta:
        values = torch.rand(table.num_embeddings, table.embedding_dim, generator=seeded(seed)) * 2 - 1
        table.fit_to(values * (3 * table.start_variance) ** 0.5)
        cce.optim.SGD(table, lr=0.1)
    return table


def finalized(table, seed=0):
    if isinstance(fill(table, seed), cce.embeddings.CCEEmbedding) and not table.anchor.is_meta:
        finalize_table(table, generator=seeded(seed))
    return table


class TestCompact(LinearContract):
    table_class = cce.embeddings.CCEEmbedding
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
        assert isinstance(self.make(20, num_params=20 * DIM), cce.embeddings.FullEmbedding)
        assert isinstance(
            self.make(num_params=NUM_IDS * DIM), cce.embeddings.CCEEmbedding
        )  # which is smaller than that

    test_fits_a_trained_table_or_says_why_not = None  # to int8 rows: below
    test_reset_parameters_draws_what_the_constructor_does = None  # which has no rows: below


class TestInt8Rows(EmbeddingContract):
    table_class = cce.embeddings.CCEEmbedding

    def make(self, num_ids=NUM_IDS, dim=DIM, *, seed=0, **options):
        return fill(super().make(num_ids, dim, seed=seed, **options), seed)

    def reference(self, table, x):
        row = int(table.row_map(torch.tensor([x])))
        return (table.rows.codes[row].float() * table.rows.scale).to(table.anchor.dtype)

    def test_fits_a_trained_table_or_says_why_not(self):
        weight = torch.randn(NUM_IDS, DIM, generator=seeded(3))
        table = self.table_class.from_table(weight, num_params=4000)
        assert table.num_rows == 250
        assert (table.to_dense() - weight).abs().max() <= table.rows.scale / 2 + 1e-6
        finalize_table(table, generator=seeded())
        assert table.num_params == 4000
        assert (table.to_dense() - weight).norm() < 0.7 * weight.norm()

    def test_reset_parameters_draws_what_the_constructor_does(self):
        ids, counts = self.ids(50), torch.full((NUM_IDS,), 2)
        expected = cce.create_embedding("cce", NUM_IDS, DIM, seed=3)
        state = copy.deepcopy(expected.state_dict())
        expected.give_rows(counts)
        tables = self.make(), finalized(self.make()), self.make(device="meta").to_empty(device="cpu")
        for table in tables:
            table.num_rows = 256
            table.reset_parameters(seeded(3))
            for name, tensor in state.items():
                assert torch.equal(table.state_dict()[name], tensor), name
            assert (table.anchor.requires_grad, table.codebook.requires_grad) == (True, False)
            table.give_rows(counts)
            assert torch.equal(table(ids), expected(ids))

    test_num_params_and_bytes_are_exact = None  # these are of the compact form, which the table is sized for
    test_its_footprint_is_what_it_holds = None
    test_a_budget_is_met_from_below_and_nearly_spent = None
    test_a_budget_in_bytes_is_met_from_below = None
    test_a_budget_that_holds_the_full_table_gives_the_full_table = None
    test_a_budget_too_small_says_the_smallest_that_works = None
    test_any_sizes_and_budgets = None
    test_gradients_are_right_in_float64 = None  # the anchor's is the norm of those of rows
    test_sparse_gradients_equal_dense_ones = None
    test_vmap_and_functional_gradients = None
    test_an_averaged_copy_of_the_model_keeps_its_index_state = None  # it is rejected: below
