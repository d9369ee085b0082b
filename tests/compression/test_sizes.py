"""Shapes that tables may have, and how tables share a number of bytes."""

import pytest
import torch

from cce.compression.sizes import Option, Shape, allocate, least_nbytes, shapes_within


def random_tables(seed, num_tables=3):
    draw = torch.Generator().manual_seed(seed)
    tables = {}
    for name in "abcdef"[:num_tables]:
        sizes = torch.randint(1, 60, (6,), generator=draw).tolist()
        errors = torch.rand(6, generator=draw).mul(100).tolist()
        tables[name] = [Option(Shape(1, 2), size, error) for size, error in zip(sizes, errors, strict=True)]
    return tables


def error_of(tables, nbytes):
    return sum(option.error for option in allocate(tables, nbytes).values())


@pytest.mark.parametrize("seed", range(20))
def test_a_larger_budget_is_met_and_never_worse(seed):
    tables = random_tables(seed)
    least = least_nbytes(tables)
    before = float("inf")
    for nbytes in range(least, least + 200):
        assert sum(option.nbytes for option in allocate(tables, nbytes).values()) <= nbytes
        error = error_of(tables, nbytes)
        assert error <= before
        before = error
    assert before == sum(min(option.error for option in options) for options in tables.values())


def test_bytes_go_where_they_gain_most():
    tables = {
        "steep": [Option(Shape(1, 2), 10, 100.0), Option(Shape(1, 4), 20, 10.0), Option(Shape(1, 16), 40, 9.0)],
        "flat": [Option(Shape(1, 2), 10, 100.0), Option(Shape(1, 4), 20, 90.0), Option(Shape(1, 16), 40, 50.0)],
    }
    chosen = allocate(tables, 60)
    assert {name: option.nbytes for name, option in chosen.items()} == {"steep": 20, "flat": 40}


@pytest.mark.parametrize("dim", [1, 3, 10, 16, 48, 64])
@pytest.mark.parametrize("num_ids", [1, 2, 8, 12, 64, 65, 100, 5_000, 1_000_000])
def test_no_shape_is_larger_than_the_rows_or_has_more_rows_than_ids(num_ids, dim):
    limit = num_ids * (dim + 3)
    shapes = shapes_within(limit, num_ids, dim, is_limited=True)
    assert len(set(shapes)) == len(shapes) > 0
    for shape in shapes:
        assert shape.num_rows <= num_ids
        assert dim % shape.num_columns == 0
        exact = num_ids <= 64 and shape == Shape(1, num_ids)
        assert shape.nbytes(num_ids, dim, 4) <= limit or exact or shape == Shape(1, 1)
    if num_ids <= 64:
        assert shapes_within(limit, num_ids, dim) == [shapes[-1]] == [Shape(1, num_ids)]
    if num_ids == 1_000_000 and dim > 1:
        assert {Shape(1, 2), Shape(1, 1024), Shape(dim, 256)} <= set(shapes)


def test_bytes_and_bits_of_a_shape():
    assert Shape(4, 256).bits == 32
    assert Shape(4, 256).nbytes(1000, 16, 4) == 4 * 1000 + 3 + 256 * 16 * 4
