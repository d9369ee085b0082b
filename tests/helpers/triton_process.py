"""What tests run in a process of its own, where Triton interprets or compiles kernels."""

import inspect
import os

import torch

from cce.kernels.triton import gather_sum as kernels
from cce.kernels.triton.autograd import triton_gather_sum


def set_environment(variables):
    os.environ.update(variables)


def codebook_gradient(way, *arguments, shape):
    """A gradient that is "atomic", "deterministic" or "sparse", as a dense tensor: sparse ones do not travel well."""
    torch.use_deterministic_algorithms(way == "deterministic")
    try:
        gradient = kernels.codebook_gradient(*arguments, shape=shape, sparse=way == "sparse")
    finally:
        torch.use_deterministic_algorithms(False)
    assert gradient.is_sparse is (way == "sparse")
    return gradient.to_dense()


def sparse_codebook_gradient(*arguments, shape):
    """Indices and values; both ask for a tensor that is coalesced."""
    gradient = kernels.codebook_gradient(*arguments, shape=shape, sparse=True)
    assert gradient.shape == shape
    return gradient.indices(), gradient.values()


def gradients(codebook, rows, weights, upstream, *, sparse=False, function=triton_gather_sum):
    """Vectors, the gradient of the codebook, and that of the weights or None."""
    codebook = codebook.detach().requires_grad_()
    if weights is not None and weights.is_floating_point():
        weights = weights.detach().requires_grad_()
    vectors = function(codebook, rows, weights, sparse=sparse)
    vectors.backward(upstream)
    assert codebook.grad.is_sparse is sparse
    return vectors.detach(), codebook.grad.to_dense(), None if weights is None else weights.grad


def check_by_finite_differences(codebook, rows, weights):
    """First and second derivatives."""
    inputs = [tensor.requires_grad_() for tensor in (codebook, weights) if tensor is not None]
    function = lambda c, w=None: triton_gather_sum(c, rows, w)  # noqa: E731
    return torch.autograd.gradcheck(function, inputs) and torch.autograd.gradgradcheck(function, inputs)


def second_derivative_of_sparse():
    codebook = torch.ones(3, 2, requires_grad=True)
    vectors = triton_gather_sum(codebook, torch.tensor([[[1]]]), sparse=True)
    (gradient,) = torch.autograd.grad(vectors.square().sum(), codebook, create_graph=True)
    gradient.to_dense().sum().backward()


def gradient_after_a_change(codebook, rows, upstream):
    """The codebook changes between forward and backward, as it does when an optimizer steps within backward."""
    codebook.requires_grad_()
    vectors = triton_gather_sum(codebook, rows)
    with torch.no_grad():
        codebook.zero_()
    vectors.backward(upstream)
    return codebook.grad


def compile_for_gpu(name, types, constants):
    """TTIR and PTX, for an A100, of a kernel whose arguments have these types; the others are `constants`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = kernels._compile(getattr(kernels, name))
    names = list(inspect.signature(getattr(kernels, name)).parameters)
    assert {*types, *constants} == set(names)
    signature = {name: types.get(name, "constexpr") for name in names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    result = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=kernels.OPTIONS)
    return result.asm["ttir"], result.asm["ptx"]
