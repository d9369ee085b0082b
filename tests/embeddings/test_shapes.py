"""What a table holds is said once: the constructor makes it, and the footprint counts it."""

import pytest
import torch

import cce
from cce.budget import FULL_SIZED
from cce.embeddings.sizing import Shapes
from cce.testing.values import trained
from cce_lab.variants import VARIANTS
from helpers.final_form import finalize_table
from helpers.variants import registered  # noqa: F401


def test_parameters_pointers_and_seeds_by_hand():
    shapes = Shapes({"codebook": (5, 4), "projection": (2, 3)}, num_hashes=3, pointers=(10, 4, 300), other_nbytes=28)
    assert shapes.num_params == 26
    assert shapes.pointer_nbytes == 45 + 3 + 3 * 24 + 28
    assert Shapes({}).pointer_nbytes == 0


def test_codes_are_parameters_of_their_own_size():
    shapes = Shapes({"scale": (1, 4)}, codes=(10, 4), code_row_nbytes=8)
    assert shapes.num_params == 40
    assert shapes.codebook_nbytes(itemsize=4) == 4 * 4 + 40 * 2
    assert shapes.pointer_nbytes == 0


OPTIONS = [
    *((method, {}) for method in cce.embeddings.list_methods()),
    *(("hash", {"signed": True}), ("hash-embedding", {"weighted": True}), ("ce-mult", {"num_tables": 3})),
    *(("ce-concat", {"split": "quotient-remainder"}), ("pq", {"residual": True}), ("mixed-dim", {"temperature": 0.7})),
    *((kind.method, {}) for kind in VARIANTS),
    *(("cce-helpers", {"num_helpers": 0}), ("cce-paper", {"num_learned": 5})),
    *(("dhe", {"num_hidden": 0}), ("dhe", {"num_hashes": 5})),
    *(("quantized", {"bits": 4}), ("quantized", {"scale_by": "column"})),
]


@pytest.mark.parametrize(("method", "options"), OPTIONS, ids=[f"{m} {o or ''}" for m, o in OPTIONS])
def test_a_table_has_the_parameters_that_its_class_says(method, options):
    compression = 1 if method in FULL_SIZED else 3
    table = cce.create_embedding(method, 300, 8, compression=compression, **options)
    if method == "cce":  # its compact form is what is planned
        table.fit_to(torch.rand(300, 8))
        finalize_table(table)
    kind = type(table)
    request = cce.collection.plan_tables(
        {"a": 300}, 8, method=method, compression=compression, options={method: options}
    )
    arguments = kind.complete_options(options | request.tables[0].sizes)
    shapes = kind.shapes(300, 8, arguments)
    assert dict(shapes.parameters) == {name: tuple(parameter.shape) for name, parameter in trained(table).items()}
    assert shapes.pointer_nbytes == table.pointer_nbytes
    assert (shapes.num_params, shapes.codebook_nbytes(4)) == (table.num_params, table.codebook_nbytes)
