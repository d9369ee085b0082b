"""The tests of a method of your own: inherit the contract, and write its formula for one id.

Run it with `pytest examples/test_own_method.py`, after `pip install 'clustered-embeddings[testing]'`.
"""

from own_method import FactorizedEmbedding

from cce.testing import EmbeddingContract


class TestFactorized(EmbeddingContract):
    table_class = FactorizedEmbedding
    fills_budget = False  # the narrow table grows by whole columns
    has_matrix_products = True

    def reference(self, table, x):
        return sum(value * row for value, row in zip(table.narrow[x], table.projection, strict=True))
