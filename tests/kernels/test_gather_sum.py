"""`gather_sum` is the product `H · M`, forward and back."""

import pytest
import torch

from cce.kernels import gather_rows, gather_sum

NUM_ROWS, WIDTH = 11, 3
SHAPES = [(6, 1, 1), (6, 4, 1), (6, 1, 5), (6, 3, 2), (1, 1, 1), (200, 2, 3)]  # (batch, columns, terms)


def problem(shape, *, weighted, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    codebook = torch.randn(NUM_ROWS, WIDTH, generator=generator, dtype=dtype)
    rows = torch.randint(0, NUM_ROWS, shape, generator=generator)
    weights = torch.randn(shape, generator=generator, dtype=dtype) if weighted else None
    return codebook, rows, weights


def dense_h(rows, weights, column):
    """H of one column, `(batch, NUM_ROWS)`, term by term; a row named twice counts twice."""
    h = torch.zeros(len(rows), NUM_ROWS, dtype=torch.float64)
    for place, terms in enumerate(rows[:, column].tolist()):
        for term, row in enumerate(terms):
            h[place, row] += 1.0 if weights is None else weights[place, column, term].item()
    return h


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_it_equals_the_dense_product_of_each_column_side_by_side(shape, weighted, sparse):
    codebook, rows, weights = problem(shape, weighted=weighted)
    expected = torch.cat([dense_h(rows, weights, column) @ codebook for column in range(shape[1])], dim=1)
    vectors = gather_sum(codebook, rows, weights, sparse=sparse)
    assert vectors.shape == (shape[0], shape[1] * WIDTH)
    assert torch.allclose(vectors, expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_the_codebook_is_the_transposed_product(shape, weighted):
    codebook, rows, weights = problem(shape, weighted=weighted)
    codebook.requires_grad_()
    upstream = torch.randn(shape[0], shape[1] * WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gather_sum(codebook, rows, weights).backward(upstream)
    columns = zip(range(shape[1]), upstream.split(WIDTH, dim=1), strict=True)
    expected = sum(dense_h(rows, weights, column).T @ piece for column, piece in columns)
    assert torch.allclose(codebook.grad, expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sparse_gradient_equals_the_dense_one(shape, weighted):
    gradients = []
    for sparse in (False, True):
        codebook, rows, weights = problem(shape, weighted=weighted)
        codebook.requires_grad_()
        gather_sum(codebook, rows, weights, sparse=sparse).square().sum().backward()
        assert codebook.grad.is_sparse is sparse
        gradients.append(codebook.grad.to_dense())
    assert torch.allclose(*gradients)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_agree_with_finite_differences(weighted):
    codebook, rows, weights = problem((5, 2, 3), weighted=weighted)
    inputs = [tensor.requires_grad_() for tensor in (codebook, weights) if tensor is not None]
    assert torch.autograd.gradcheck(lambda c, w=None: gather_sum(c, rows, w), inputs)
    assert torch.autograd.gradgradcheck(lambda c, w=None: gather_sum(c, rows, w), inputs)


def test_a_row_named_twice_by_one_id_counts_twice():
    codebook = torch.tensor([[1.0], [10.0]], requires_grad=True)
    vectors = gather_sum(codebook, torch.tensor([[[1, 1, 0]]]))
    vectors.sum().backward()
    assert vectors.tolist() == [[21.0]]
    assert codebook.grad.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_have_the_type_of_the_codebook_whatever_that_of_the_weights(dtype):
    codebook, rows, weights = problem((6, 2, 2), weighted=True, dtype=torch.float32)
    vectors = gather_sum(codebook.to(dtype), rows, weights.double())
    assert vectors.dtype is dtype
    assert torch.allclose(
        vectors.float(), gather_sum(codebook, rows, weights), rtol=0, atol=20 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("sparse", [False, True])
def test_gathered_rows_are_those_of_plain_indexing(shape, dtype, sparse):
    codebook, rows, _ = problem(shape, weighted=False)
    assert torch.equal(gather_rows(codebook, rows.to(dtype), sparse=sparse), codebook[rows])
