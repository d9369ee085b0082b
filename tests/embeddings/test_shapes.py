"""What a table holds is said once: the constructor makes it, and the footprint counts it."""

from cce.embeddings.sizing import Shapes


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
