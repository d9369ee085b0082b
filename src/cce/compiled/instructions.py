"""How numba compiles the functions in `memory`: to about one instruction each. Needs numba."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import ir
from numba import carray as array_at
from numba import types
from numba.extending import intrinsic

_SINGLE, _DOUBLE, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()
_BYTE, _INT = ir.IntType(8), ir.IntType(32)
_LONG, _F32, _F64 = types.int64, types.float32, types.float64


def instruction(returns: Any, *kinds: Any) -> Callable[[Any], Any]:
    """Make a function for compiled loops of one that emits its code: with a builder, and a value for each argument.

    An argument whose kind is None may be of any type, and its type is given in place of a value.
    """

    def make(emit: Any) -> Any:
        @wraps(emit)
        def typed(typing: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                known = zip(kinds, given, values, strict=True)
                made = emit(builder, *(own if kind is None else value for kind, own, value in known))
                return context.get_dummy_value() if made is None else made

            return returns(*(own if kind is None else kind for kind, own in zip(kinds, given, strict=True))), generate

        return intrinsic(typed)

    return make


def _sum_kind(kind: Any) -> Any:
    return _F64 if kind == _F64 else _F32


def _sum_type(kind: Any) -> ir.Type:
    return _DOUBLE if kind == _F64 else _SINGLE


def _place_of(builder: ir.IRBuilder, address: ir.Value, element: ir.Type, count: int) -> ir.Value:
    """An address as a pointer to a run of `count` values."""
    return builder.inttoptr(address, ir.VectorType(element, count).as_pointer())


def _load(builder: ir.IRBuilder, address: ir.Value, kind: Any, count: int) -> ir.Value:
    """`count` stored floats, as the type that sums are made in."""
    if kind in (_F32, _F64):
        return builder.load(_place_of(builder, address, _sum_type(kind), count), align=kind.bitwidth // 8)
    wide = ir.VectorType(_SINGLE, count)
    if kind == types.int16:  # float16
        return builder.fpext(builder.load(_place_of(builder, address, _HALF, count), align=2), wide)
    bits = builder.zext(
        builder.load(_place_of(builder, address, ir.IntType(16), count), align=2), ir.VectorType(_INT, count)
    )
    return builder.bitcast(builder.shl(bits, _same(bits, 16)), wide)  # bfloat16: half of a float32


def _load_codes(builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    stored = builder.load(_place_of(builder, address, _BYTE, count), align=1)
    return builder.sitofp(stored, ir.VectorType(_SINGLE, count))


def _store(builder: ir.IRBuilder, values: ir.Value, address: ir.Value, kind: Any) -> None:
    """Store a run of sums."""
    place = _place_of(builder, address, _sum_type(kind), values.type.count)
    builder.store(values, place, align=_sum_kind(kind).bitwidth // 8)


def _lanes_of(builder: ir.IRBuilder, number: ir.Value, count: int) -> ir.Value:
    """A number in every lane of a run."""
    run = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    for lane in range(count):
        run = builder.insert_element(run, number, ir.Constant(_INT, lane))
    return run


def _same(of: ir.Value, number: float) -> ir.Constant:
    """A constant in every lane, of the type of a run."""
    return ir.Constant(of.type, [number] * of.type.count)


# -- floats ------------------------------------------------------------------------------------------------------------


@instruction(types.void, _LONG, _LONG, None, None)
def put(builder: Any, into: Any, first: Any, kind: Any, run: Any) -> None:
    """`into = first`."""
    _store(builder, _load(builder, first, kind, run.count), into, kind)


@instruction(types.void, _LONG, _LONG, _LONG, None, None)
def put_sum(builder: Any, into: Any, first: Any, second: Any, kind: Any, run: Any) -> None:
    """`into = first + second`."""
    values = [_load(builder, address, kind, run.count) for address in (first, second)]
    _store(builder, builder.fadd(*values), into, kind)


@instruction(types.void, _LONG, _LONG, None, None)
def add(builder: Any, into: Any, first: Any, kind: Any, run: Any) -> None:
    """`into += first`; `into` holds sums."""
    total = _load(builder, into, _sum_kind(kind), run.count)
    _store(builder, builder.fadd(total, _load(builder, first, kind, run.count)), into, kind)


@instruction(types.void, _LONG, _LONG, _F64, None, None)
def add_scaled(builder: Any, into: Any, first: Any, scale: Any, kind: Any, run: Any) -> None:
    """`into += scale · first`; `into` holds sums, and `scale` is a float64."""
    total, values = _load(builder, into, _sum_kind(kind), run.count), _load(builder, first, kind, run.count)
    scale = scale if kind == _F64 else builder.fptrunc(scale, _SINGLE)
    _store(builder, builder.fadd(total, builder.fmul(values, _lanes_of(builder, scale, run.count))), into, kind)


@instruction(types.void, _LONG, None, None)
def clear(builder: Any, into: Any, kind: Any, run: Any) -> None:
    """`into = 0`."""
    _store(builder, ir.Constant(ir.VectorType(_sum_type(kind), run.count), [0.0] * run.count), into, kind)


# -- rows of int8, and their gradients in float32 ----------------------------------------------------------------------


@instruction(types.void, _LONG, _LONG, _F32, None)
def put_codes(builder: Any, into: Any, codes: Any, scale: Any, run: Any) -> None:
    """`into = scale · codes`."""
    values = _load_codes(builder, codes, run.count)
    _store(builder, builder.fmul(_lanes_of(builder, scale, run.count), values), into, _F32)


@instruction(types.void, _LONG, _LONG, _F32, _F32, None)
def add_codes(builder: Any, into: Any, codes: Any, scale: Any, weight: Any, run: Any) -> None:
    """`into += weight · (scale · codes)`."""
    scale, weight = (_lanes_of(builder, number, run.count) for number in (scale, weight))
    values = builder.fmul(weight, builder.fmul(scale, _load_codes(builder, codes, run.count)))
    _store(builder, builder.fadd(_load(builder, into, _F32, run.count), values), into, _F32)


def _add_lanes(builder: ir.IRBuilder, values: ir.Value, add: Any) -> ir.Value:
    """The sum of all lanes, always in the same order: halves are added until one is left."""
    count = values.type.count
    while count > 1:
        count //= 2
        lanes = ir.VectorType(_INT, count)
        low, high = (ir.Constant(lanes, list(range(first, first + count))) for first in (0, count))
        values = add(builder.shuffle_vector(values, values, low), builder.shuffle_vector(values, values, high))
    return builder.extract_element(values, ir.Constant(_INT, 0))


def _scaled_squares(builder: ir.IRBuilder, address: ir.Value, factor: ir.Value, count: int) -> ir.Value:
    """`(factor · values)²` in float64, the product rounded to float32."""
    values = builder.fmul(_lanes_of(builder, factor, count), _load(builder, address, _F32, count))
    wide = builder.fpext(values, ir.VectorType(_DOUBLE, count))
    return builder.fmul(wide, wide)


@instruction(_F64, _LONG, _F32, None)
def sum_squares(builder: Any, first: Any, factor: Any, run: Any) -> Any:
    """The sum of `(factor · first)²`, in float64."""
    return _add_lanes(builder, _scaled_squares(builder, first, factor, run.count), builder.fadd)


@instruction(_F64, _LONG, _F32, _LONG, None)
def sum_weighted_squares(builder: Any, first: Any, factor: Any, weights: Any, run: Any) -> Any:
    """The sum of `(factor · first)² · weights`, in float64; `weights` is the address of as many."""
    squares = _scaled_squares(builder, first, factor, run.count)
    return _add_lanes(builder, builder.fmul(squares, _load(builder, weights, _F64, run.count)), builder.fadd)


@instruction(types.void, _LONG, _LONG, _F32, None)
def add_squares(builder: Any, into: Any, first: Any, factor: Any, run: Any) -> None:
    """`into += (factor · first)²`; `into` holds float64."""
    squares = _scaled_squares(builder, first, factor, run.count)
    _store(builder, builder.fadd(_load(builder, into, _F64, run.count), squares), into, _F64)


def _noise(builder: ir.IRBuilder, seed: ir.Value, shift: ir.Value, count: int) -> ir.Value:
    """A number in [0, 1) for each lane: see `indexing.row_noise`. The seed is that of the first lane."""
    steps = ir.Constant(ir.VectorType(_INT, count), [lane * 0x9E3779B9 % 2**32 for lane in range(count)])
    mixed = builder.add(_lanes_of(builder, builder.trunc(seed, _INT), count), steps)
    for shifted, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = builder.xor(mixed, builder.lshr(mixed, _same(mixed, shifted)))
        mixed = builder.mul(mixed, _same(mixed, factor))
    moved = builder.add(builder.lshr(mixed, _same(mixed, 8)), _lanes_of(builder, builder.trunc(shift, _INT), count))
    fraction = builder.uitofp(builder.and_(moved, _same(moved, 0xFF_FFFF)), ir.VectorType(_SINGLE, count))
    return builder.fmul(fraction, _same(fraction, 2.0**-24))


@instruction(types.int32, _LONG, _LONG, _F32, _LONG, _F32, _LONG, _F32, _LONG, _LONG, None)
def move_codes(
    builder: Any,
    codes: Any,
    gradient: Any,
    factor: Any,
    gain: Any,
    speed: Any,
    shrink: Any,
    pull: Any,
    seed: Any,
    shift: Any,
    run: Any,
) -> Any:
    """`codes = round((codes - gain · speed · (factor · gradient)) / (1 + shrink · pull))`; the sum of their squares."""
    count = run.count
    factor, speed, pull = (_lanes_of(builder, number, count) for number in (factor, speed, pull))
    gradient, gain, shrink = (_load(builder, at, _F32, count) for at in (gradient, gain, shrink))
    step = builder.fmul(builder.fmul(gain, speed), builder.fmul(factor, gradient))
    moved = builder.fsub(_load_codes(builder, codes, count), step)
    one = _same(moved, 1.0)
    decay = builder.fdiv(one, builder.fadd(one, builder.fmul(shrink, pull)))
    moved = builder.fadd(builder.fmul(decay, moved), _noise(builder, seed, shift, count))
    floor = builder.module.declare_intrinsic(f"llvm.floor.v{count}f32", fnty=ir.FunctionType(moved.type, [moved.type]))
    rounded = builder.call(floor, [moved])
    for sign, limit in (("<", -127.0), (">", 127.0)):
        edge = _same(rounded, limit)
        rounded = builder.select(builder.fcmp_ordered(sign, rounded, edge), edge, rounded)
    whole = builder.fptosi(rounded, ir.VectorType(_INT, count))
    stored = builder.trunc(whole, ir.VectorType(_BYTE, count))
    builder.store(stored, _place_of(builder, codes, _BYTE, count), align=1)
    return _add_lanes(builder, builder.mul(whole, whole), builder.add)


# -- scalars -----------------------------------------------------------------------------------------------------------


def _reader(kind: Any) -> Any:
    @intrinsic
    def read(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            return builder.load(pointer, align=1)  # of packed pointers, any

        return kind(types.int64), generate

    return read


def _writer(kind: Any) -> Any:
    @instruction(types.void, _LONG, kind)
    def write(builder: Any, address: Any, value: Any) -> None:
        builder.store(value, builder.inttoptr(address, value.type.as_pointer()))

    return write


read_uint8, read_int32, read_int64, read_uint64 = map(_reader, (types.uint8, types.int32, types.int64, types.uint64))
read_float32, read_float64 = map(_reader, (types.float32, types.float64))
write_int64, write_int32, write_float32 = map(_writer, (types.int64, types.int32, types.float32))


carray = array_at  # an array at a pointer


@instruction(types.voidptr, _LONG)
def pointer(builder: Any, address: Any) -> Any:
    """An address as a pointer, for `numba.carray`."""
    return builder.inttoptr(address, _BYTE.as_pointer())


@instruction(types.void, _LONG)
def prefetch(builder: Any, address: Any) -> None:
    """Ask for the memory at an address, which is read soon: loops over random rows need not wait for each."""
    byte = _BYTE.as_pointer()
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    )
    read, near, data = (ir.Constant(_INT, number) for number in (0, 3, 1))
    builder.call(function, [builder.inttoptr(address, byte), read, near, data])


@instruction(types.uint64, types.uint64)
def count_bits(builder: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""
    return builder.ctpop(word)


@intrinsic
def bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float32 or float64, as an integer of its size."""
    kind = types.int64 if value == types.float64 else types.int32

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(kind))

    return kind(value), generate
