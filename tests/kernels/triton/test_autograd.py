"""`triton_gather_sum` is `gather_sum`, with its derivatives, in Triton's interpreter."""

import pytest
import torch

from cce.kernels import gather_sum
from cce.kernels.triton.autograd import triton_gather_sum
from helpers.triton_process import (
    check_by_finite_differences,
    gradient_after_a_change,
    gradients,
    second_derivative_of_sparse,
)

pytestmark = pytest.mark.slow


def problem(shape=(6, 3, 2), *, weighted=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    codebook = torch.randn(11, 3, generator=generator, dtype=dtype)
    rows = torch.randint(0, 11, shape, generator=generator)
    weights = torch.randn(shape, generator=generator, dtype=dtype) if weighted else None
    return codebook, rows, weights, torch.randn(shape[0], shape[1] * 3, generator=generator, dtype=dtype)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 3, 2), (0, 3, 2)])
def test_vectors_and_gradients_are_those_of_the_definition(interpreted, shape, weighted, sparse):
    inputs = problem(shape, weighted=weighted)
    ours = interpreted(gradients, *inputs, sparse=sparse)
    plain = gradients(*inputs, sparse=sparse, function=gather_sum)
    assert torch.equal(ours[0], plain[0])
    assert torch.allclose(ours[1], plain[1])
    assert torch.allclose(ours[2], plain[2]) if weighted else ours[2] is None


@pytest.mark.parametrize("weighted", [False, True])
def test_first_and_second_derivatives_agree_with_finite_differences(interpreted, weighted):
    codebook, _, weights, _ = problem((2, 1, 3), weighted=weighted)
    rows = torch.tensor([[[0, 2, 2]], [[1, 0, -1]]])
    assert interpreted(check_by_finite_differences, codebook[:3, :2], rows, weights)


def test_a_second_derivative_of_a_sparse_gradient_is_refused(interpreted):
    with pytest.raises(NotImplementedError, match="sparse must be False for second derivatives, got True"):
        interpreted(second_derivative_of_sparse)


def test_without_weights_the_codebook_may_change_before_backward(interpreted):
    codebook, rows, _, upstream = problem(weighted=False)
    _, expected, _ = gradients(codebook, rows, None, upstream, function=gather_sum)
    assert torch.allclose(interpreted(gradient_after_a_change, codebook, rows, upstream), expected)


@pytest.mark.parametrize("weight_type", [torch.float64, torch.float16, torch.int64])
def test_weights_of_another_type_are_cast_and_their_gradient_is_cast_back(interpreted, weight_type):
    codebook, rows, weights, upstream = problem(dtype=torch.float32)
    weights = (weights * 2).to(weight_type)
    ours = interpreted(gradients, codebook, rows, weights, upstream)
    plain = gradients(codebook, rows, weights, upstream, function=gather_sum)
    assert torch.equal(ours[0], plain[0])
    assert torch.allclose(ours[1], plain[1], atol=1e-5)
    if weight_type.is_floating_point:
        assert ours[2].dtype is weight_type
        assert torch.allclose(ours[2], plain[2], atol=1e-2 if weight_type is torch.float16 else 1e-5)


def test_weights_are_rounded_to_the_type_of_the_codebook_as_by_the_definition(interpreted):
    codebook, rows = torch.ones(2, 1, dtype=torch.bfloat16), torch.tensor([[[1]]])
    weights = torch.tensor([[[1 - 2**-10]]])  # the nearest number of bfloat16 is 1
    vectors, _, _ = interpreted(gradients, codebook, rows, weights, torch.ones(1, 1, dtype=torch.bfloat16))
    assert vectors.tolist() == gather_sum(codebook, rows, weights).tolist() == [[1.0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_may_be_int32(interpreted, sparse):
    codebook, rows, weights, upstream = problem()
    short, long = (
        interpreted(gradients, codebook, rows.to(dtype), weights, upstream, sparse=sparse)
        for dtype in (torch.int32, torch.int64)
    )
    assert all(torch.equal(ours, expected) for ours, expected in zip(short, long, strict=True))


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"codebook": torch.zeros(3, 2, dtype=torch.int64)},
            TypeError,
            "codebook must be float16, bfloat16, float32 or float64, got torch.int64.",
        ),
        (
            {"codebook": torch.zeros(3)},
            ValueError,
            r"codebook must have the shape \(num_rows, width\), got \(3,\).",
        ),
        ({"rows": torch.zeros(4, 2, 1)}, TypeError, "rows must be int32 or int64, got torch.float32."),
        (
            {"rows": torch.zeros(4, 2, dtype=torch.int64)},
            ValueError,
            r"rows must have the shape \(batch, columns, terms\), got \(4, 2\).",
        ),
        (
            {"weights": torch.zeros(4, 2)},
            ValueError,
            r"weights must have the shape of rows, \(4, 2, 1\), got \(4, 2\).",
        ),
        (
            {"rows": torch.zeros(4, 2, 1, dtype=torch.int64, device="meta")},
            ValueError,
            "rows must be on the device of codebook, cpu, got meta.",
        ),
        (
            {"weights": torch.zeros(4, 2, 1, device="meta")},
            ValueError,
            "weights must be on the device of codebook, cpu, got meta.",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_kernel_runs(changes, kind, text):
    fitting = {"codebook": torch.zeros(3, 2), "rows": torch.zeros(4, 2, 1, dtype=torch.int64)}
    with pytest.raises(kind, match=text):
        triton_gather_sum(**(fitting | changes))
