"""Tests for embedding classes of your own: inherit a contract in your suite, and pytest checks every property.

    import cce.testing

    class TestMine(cce.testing.EmbeddingContract):
        table_class = MyEmbedding

        def reference(self, table, x):
            return ...  # the formula, for one id

It needs pytest and hypothesis: `pip install 'clustered-embeddings[testing]'`. `import cce` does not load it.
"""

import pytest

pytest.register_assert_rewrite(  # before they are imported: a failed assertion then shows its values
    *(f"{__name__}.{name}" for name in ("contract", "modules", "values"))
)

from cce.testing.contract import ONCE_A_CLASS, SLOW_TESTS, EmbeddingContract, LinearContract  # noqa: E402
from cce.testing.values import DIM, NUM_IDS  # noqa: E402
