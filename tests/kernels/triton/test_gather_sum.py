"""The Triton kernels against the definition, in Triton's interpreter; and compiled for a GPU that is not there."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cce.kernels import gather_sum
from cce.kernels.triton import gather_sum as triton_gather_sum
from cce.kernels.triton.gather_sum import runs_on, sum_rows, weights_gradient
from helpers.triton_process import codebook_gradient, compile_for_gpu, sparse_codebook_gradient

pytestmark = pytest.mark.slow

NUM_ROWS = 11
WIDTHS = [1, 3, 5, 64, 128, 130]
SHAPES = [(1, 1, 1), (6, 1, 4), (6, 4, 1), (30, 3, 2)]  # (batch, columns, terms)
EMPTY = [(0, 2, 3), (4, 0, 3), (4, 2, 0)]
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
PTX_TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


def problem(shape, width, *, weighted, dtype=torch.float32, whole=False):
    """A codebook, rows, weights or None, and the gradient of vectors; `whole` numbers add up without rounding."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*size):
        values = torch.randn(size, generator=generator, dtype=torch.float64)
        return (values * 2).round().clamp(-3, 3).to(dtype) if whole else values.to(dtype)

    rows = torch.randint(0, NUM_ROWS, shape, generator=generator)
    weights = numbers(*shape) if weighted else None
    return numbers(NUM_ROWS, width), rows, weights, numbers(shape[0], shape[1] * width)


def expected_gradients(codebook, rows, weights, upstream):
    """Of the codebook and of the weights, by the definition, in float64."""
    codebook = codebook.double().requires_grad_()
    weights = (torch.ones(rows.shape) if weights is None else weights).double().requires_grad_()
    gather_sum(codebook, rows, weights).backward(upstream.double())
    return codebook.grad, weights.grad


# -- forward -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_equal_those_of_the_definition_to_the_bit(interpreted, width, weighted, dtype):
    for shape in SHAPES:
        codebook, rows, weights, _ = problem(shape, width, weighted=weighted, dtype=dtype)
        assert torch.equal(interpreted(sum_rows, codebook, rows, weights), gather_sum(codebook, rows, weights))


@pytest.mark.parametrize("weighted", [False, True])
def test_more_than_four_terms_are_added_one_after_another(interpreted, weighted):
    """From five on the order of torch's own sum depends on the width, so there equal bits cannot be asked for."""
    codebook, rows, weights, _ = problem((6, 2, 40), 3, weighted=weighted)
    total = torch.zeros(6, 2 * 3)
    for term in range(40):
        total += gather_sum(
            codebook, rows[..., term : term + 1], None if weights is None else weights[..., term : term + 1]
        )
    vectors = interpreted(sum_rows, codebook, rows, weights)
    assert torch.equal(vectors, total)
    assert torch.allclose(vectors, gather_sum(codebook, rows, weights), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weighted", [False, True])
def test_half_types_are_summed_in_float32(interpreted, dtype, weighted):
    codebook, rows, weights, _ = problem((6, 2, 40), 5, weighted=weighted, dtype=dtype)
    vectors = interpreted(sum_rows, codebook, rows, weights)
    exact = gather_sum(codebook.double(), rows, weights)
    assert vectors.dtype is dtype
    # one rounding, at the end, which the interpreter does towards zero; in the half type itself it would be forty
    assert torch.allclose(vectors.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)
    whole = problem((6, 2, 3), 5, weighted=weighted, dtype=dtype, whole=True)[:3]
    assert torch.equal(interpreted(sum_rows, *whole), gather_sum(*whole))


@pytest.mark.parametrize("weighted", [False, True])
def test_negative_rows_add_nothing(interpreted, weighted):
    codebook, rows, weights, _ = problem((6, 3, 4), 5, weighted=weighted)
    padding = torch.rand(rows.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    padding[2, 1] = True
    ones = torch.ones(rows.shape) if weights is None else weights
    expected = gather_sum(codebook, rows, ones.masked_fill(padding, 0))
    if weighted:
        weights = weights.masked_fill(padding, torch.nan)
    vectors = interpreted(sum_rows, codebook, torch.where(padding, -1 - rows, rows), weights)
    assert torch.equal(vectors, expected)
    assert not vectors.view(6, 3, 5)[2, 1].any()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_beyond_the_codebook_makes_its_own_vector_nan(interpreted, weighted):
    codebook, rows, weights, _ = problem((4, 1, 2), 3, weighted=weighted)
    rows[2, 0, 1] = NUM_ROWS
    assert interpreted(sum_rows, codebook, rows, weights).isnan().all(1).tolist() == [False, False, True, False]


# -- backward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("way", ["atomic", "deterministic", "sparse"])
def test_gradients_of_the_codebook_are_those_of_the_definition(interpreted, width, weighted, way):
    for shape in SHAPES[1::2]:
        codebook, rows, weights, upstream = problem(shape, width, weighted=weighted, whole=True)
        expected, _ = expected_gradients(codebook, rows, weights, upstream)
        gradient = interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, width))
        assert torch.equal(gradient.double(), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", ["atomic", "deterministic", "sparse"])
def test_gradients_have_the_type_of_the_codebook_and_are_rounded_once(interpreted, dtype, way):
    codebook, rows, weights, upstream = problem((200, 1, 2), 3, weighted=True, dtype=dtype)
    to_codebook, to_weights = expected_gradients(codebook, rows, weights, upstream)
    gradient = interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, 3))
    assert gradient.dtype is dtype
    assert torch.allclose(gradient.double(), to_codebook, rtol=torch.finfo(dtype).eps, atol=1e-5)
    gradient = interpreted(weights_gradient, upstream, codebook, rows)
    assert gradient.dtype is dtype
    assert torch.allclose(gradient.double(), to_weights, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_of_the_weights_are_those_of_the_definition(interpreted, width):
    for shape in SHAPES:
        codebook, rows, weights, upstream = problem(shape, width, weighted=True, whole=True)
        _, expected = expected_gradients(codebook, rows, weights, upstream)
        assert torch.equal(interpreted(weights_gradient, upstream, codebook, rows).double(), expected)


@pytest.mark.parametrize("way", ["atomic", "deterministic", "sparse"])
def test_rows_outside_the_codebook_get_no_gradient(interpreted, way):
    _, rows, weights, upstream = problem((6, 2, 2), 3, weighted=True)
    rows[0], rows[1, 0, 1] = -1, NUM_ROWS
    inside = (rows >= 0) & (rows < NUM_ROWS)
    expected, _ = expected_gradients(torch.zeros(NUM_ROWS, 3), rows * inside, weights * inside, upstream)
    gradient = interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, 3))
    assert torch.allclose(gradient.double(), expected, atol=1e-5)
    codebook = torch.ones(NUM_ROWS + 20, 3)[10:-10]  # ones before and after it, which must not be read
    to_weights = interpreted(weights_gradient, upstream, codebook, rows)
    assert torch.equal(to_weights != 0, inside)


def test_sparse_gradients_are_coalesced_and_name_only_the_rows_that_were_used(interpreted):
    rows = torch.tensor([[[7, 2, 7]], [[-1, 7, 4]]])
    upstream = torch.tensor([[1.0], [10.0]])
    indices, values = interpreted(sparse_codebook_gradient, upstream, rows, None, shape=(9, 1))
    assert indices.tolist() == [[2, 4, 7]]
    assert values.tolist() == [[1.0], [10.0], [12.0]]


def test_deterministic_gradients_are_summed_row_by_row_as_sparse_ones_are(interpreted):
    _, rows, weights, upstream = problem((1000, 2, 2), 3, weighted=True)
    atomic, deterministic, sparse = (
        interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, 3))
        for way in ("atomic", "deterministic", "sparse")
    )
    assert torch.equal(deterministic, sparse)
    short = interpreted(codebook_gradient, "deterministic", upstream, rows.int(), weights, shape=(NUM_ROWS, 3))
    assert torch.equal(short, deterministic)
    assert not torch.equal(deterministic, atomic)  # another order of sums: the two ways are two
    assert torch.allclose(deterministic, atomic, atol=1e-3)


# -- odd inputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("way", ["atomic", "deterministic", "sparse"])
def test_nothing_in_gives_nothing_or_zeros(interpreted, shape, weighted, way):
    codebook, rows, weights, upstream = problem(shape, 3, weighted=weighted)
    vectors = interpreted(sum_rows, codebook, rows, weights)
    assert vectors.shape == (shape[0], shape[1] * 3)
    assert not vectors.any()
    gradient = interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, 3))
    assert gradient.shape == (NUM_ROWS, 3)
    assert not gradient.any()
    assert interpreted(weights_gradient, upstream, codebook, rows).shape == shape


@pytest.mark.parametrize("way", ["atomic", "deterministic", "sparse"])
def test_tensors_need_not_be_contiguous(interpreted, way):
    codebook, rows, weights, upstream = problem((6, 3, 2), 5, weighted=True, whole=True)
    to_codebook, to_weights = expected_gradients(codebook, rows, weights, upstream)
    spread = [every_second_transposed(tensor) for tensor in (codebook, rows, weights, upstream)]
    assert not any(tensor.is_contiguous() for tensor in spread)
    codebook, rows, weights, upstream = spread
    assert torch.equal(interpreted(sum_rows, codebook, rows, weights), gather_sum(codebook, rows, weights))
    gradient = interpreted(codebook_gradient, way, upstream, rows, weights, shape=(NUM_ROWS, 5))
    assert torch.equal(gradient.double(), to_codebook)
    assert torch.equal(interpreted(weights_gradient, upstream, codebook, rows).double(), to_weights)


def every_second_transposed(tensor):
    """The same numbers, far apart and in another order in memory."""
    return tensor.mT.contiguous().repeat_interleave(2, dim=-1)[..., ::2].mT


# -- a GPU that is not there -------------------------------------------------------------------------------------------

NUMBERS = {"num_bags": "i64", "num_rows": "i64", "terms": "i32", "width": "i32"}
BLOCKS = {"block_bags": 16, "block_width": 64}


def compile_kernel(compiled, name, dtype, *, rows="*i64", weighted=True, **fixed):
    """A kernel's TTIR and PTX; `fixed` numbers are built in, as Triton does with those that are 1."""
    value = PTX_TYPES[dtype]
    sums = "*fp64" if dtype is torch.float64 else "*fp32"
    types = {
        "_sum_kernel": {"vectors": value, "codebook": value, "rows": rows, "weights": value},
        "_add_kernel": {"gradient": sums, "upstream": value, "rows": rows, "weights": value},
        "_dot_kernel": {"gradient": value, "upstream": value, "codebook": value, "rows": rows},
        "_segment_kernel": {"sums": value, "upstream": value, "weights": value, "order": "*i64", "ends": "*i64"},
    }[name]
    numbers = ("terms", "width") if name == "_segment_kernel" else tuple(NUMBERS)
    types |= {number: NUMBERS[number] for number in numbers if number not in fixed}
    constants = BLOCKS | fixed
    if name != "_add_kernel":
        constants["double"] = dtype is torch.float64
    if not weighted:
        del types["weights"]
        constants["weights"] = None
    return compiled(compile_for_gpu, name, types, constants)


@pytest.mark.parametrize("name", ["_sum_kernel", "_add_kernel", "_dot_kernel", "_segment_kernel"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_kernel_compiles_for_a_gpu(compiled, name, dtype):
    _, ptx = compile_kernel(compiled, name, dtype)
    assert ".target sm_80" in ptx
    assert f".visible .entry {name}(" in ptx
    assert "fma.rn" not in ptx  # a product is rounded before it is added, as by torch
    if dtype is torch.bfloat16 and name != "_add_kernel":
        assert "cvt.rn.bf16" in ptx  # to the nearest, which the interpreter does not do
    if name == "_add_kernel":
        assert f"add.f{64 if dtype is torch.float64 else 32}" in ptx
        assert ".relaxed." in ptx


@pytest.mark.parametrize("name", ["_sum_kernel", "_add_kernel", "_segment_kernel"])
def test_kernels_compile_without_weights_and_for_one_term_of_width_one(compiled, name):
    for fixed in ({}, {"terms": 1, "width": 1}):
        assert ".target sm_80" in compile_kernel(compiled, name, torch.float32, weighted=False, **fixed)[1]


@pytest.mark.parametrize("name", ["_sum_kernel", "_add_kernel", "_dot_kernel", "_segment_kernel"])
def test_offsets_are_multiplied_in_64_bits(compiled, name):
    """The largest tensors have more than 2**31 numbers. Only the place within a row is a product of 32 bits."""
    ttir, _ = compile_kernel(compiled, name, torch.float32, rows="*i32")
    products = [line for line in ttir.splitlines() if "arith.muli" in line]
    short = [line for line in products if "i32" in line.partition(" : ")[2]]
    assert len(products) - len(short) >= 2
    assert ["%places" in line and "tensor<" not in line for line in short] == [True] * (name != "_dot_kernel")


# -- when it is used ---------------------------------------------------------------------------------------------------


def test_it_runs_on_the_cpu_only_in_the_interpreter(monkeypatch):
    installed = importlib.util.find_spec("triton") is not None
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not runs_on(torch.zeros(2, 3))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert runs_on(torch.zeros(2, 3)) is installed
    assert not runs_on(torch.zeros(2, 3, dtype=torch.complex64))


def test_it_runs_on_cuda_where_triton_is_installed(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with FakeTensorMode():  # tensors of a GPU that is not there
        codebook = torch.empty(2, 3, device="cuda")
    for installed in (True, False):
        monkeypatch.setattr(triton_gather_sum, "_triton_is_installed", lambda installed=installed: installed)
        assert runs_on(codebook) is runs_on(codebook.half()) is installed
        assert not runs_on(codebook.to(torch.complex64))


def test_neither_importing_it_nor_an_empty_batch_loads_triton():
    code = (
        "import sys, torch, cce, cce.kernels.triton.autograd as autograd, cce.kernels.triton.gather_sum as kernels\n"
        "assert autograd.triton_gather_sum and kernels.runs_on(torch.zeros(2, 3)) is False\n"
        "assert kernels.sum_rows(torch.zeros(2, 3), torch.zeros(0, 1, 1, dtype=torch.int64), None).shape == (0, 3)\n"
        "sys.exit('triton' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
