"""How numba compiles the functions in `memory`: to about one instruction each. Needs numba."""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from llvmlite import ir
from numba import carray as array_at  # type: ignore[attr-defined]
from numba import types
from numba.extending import intrinsic

from cce.compiled.disk_cache import processor

_SINGLE, _DOUBLE, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()


def _sum_type(kind: Any) -> ir.Type:
    return _DOUBLE if kind == types.float64 else _SINGLE


def place_of(builder: ir.IRBuilder, address: ir.Value, element: ir.Type, count: int) -> ir.Value:
    """An address as a pointer to a run of `count` values."""
    return builder.inttoptr(address, ir.VectorType(element, count).as_pointer())


def load_run(builder: ir.IRBuilder, address: ir.Value, kind: Any, count: int) -> ir.Value:
    """`count` stored floats, as the type that sums are made in."""
    if kind in (types.float32, types.float64):
        element = _sum_type(kind)
        size = 8 if kind == types.float64 else 4
        return builder.load(place_of(builder, address, element, count), align=size)
    wide = ir.VectorType(_SINGLE, count)
    if kind == types.int16 and _widens_half():  # float16
        return builder.fpext(builder.load(place_of(builder, address, _HALF, count), align=2), wide)
    integers = ir.VectorType(ir.IntType(32), count)
    stored = builder.load(place_of(builder, address, ir.IntType(16), count), align=2)
    bits = builder.zext(stored, integers)
    if kind == types.int16:
        return _widen_half(builder, bits, wide)
    return builder.bitcast(builder.shl(bits, ir.Constant(integers, [16] * count)), wide)  # bfloat16: half of a float32


@cache
def _widens_half() -> bool:
    """Whether the processor has an instruction for it; else LLVM calls a function that is not there, and aborts."""
    return "+f16c" in processor() or platform.machine().lower() not in ("x86_64", "amd64")


def _widen_half(builder: ir.IRBuilder, bits: ir.Value, wide: ir.Type) -> ir.Value:
    """float16 as float32, by integers: the exponent moves from a bias of 15 to one of 127."""

    def every(number: int) -> ir.Constant:
        return ir.Constant(bits.type, [number] * bits.type.count)

    moved = builder.shl(builder.and_(bits, every(0x7FFF)), every(13))
    exponent = builder.and_(moved, every(0x7C00 << 13))
    usual = builder.add(moved, every((127 - 15) << 23))
    largest = builder.add(usual, every((128 - 16) << 23))  # infinities and NaN
    one = builder.bitcast(builder.add(usual, every(1 << 23)), wide)
    small = builder.fsub(one, builder.bitcast(every(113 << 23), wide))  # below the smallest normal float16
    result = builder.select(builder.icmp_unsigned("==", exponent, every(0x7C00 << 13)), largest, usual)
    result = builder.select(builder.icmp_unsigned("==", exponent, every(0)), builder.bitcast(small, bits.type), result)
    sign = builder.shl(builder.and_(bits, every(0x8000)), every(16))
    return builder.bitcast(builder.or_(result, sign), wide)


def store_run(builder: ir.IRBuilder, values: ir.Value, address: ir.Value, kind: Any, count: int) -> None:
    """Store a run of floats."""
    size = 8 if kind == types.float64 else 4
    builder.store(values, place_of(builder, address, _sum_type(kind), count), align=size)


def _sum_kind(kind: Any) -> Any:
    return types.float64 if kind == types.float64 else types.float32


def _spread(builder: ir.IRBuilder, value: ir.Value, kind: Any, count: int) -> ir.Value:
    """A float64 in every lane of a run, as the type that sums are made in."""
    element = _sum_type(kind)
    return lanes_of(builder, value if element == _DOUBLE else builder.fptrunc(value, element), count)


def lanes_of(builder: ir.IRBuilder, number: ir.Value, count: int) -> ir.Value:
    """A number in every lane of a run."""
    run = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    for lane in range(count):
        run = builder.insert_element(run, number, ir.Constant(ir.IntType(32), lane))
    return run


@intrinsic
def put(typing: Any, into: Any, first: Any, kind: Any, run: Any) -> Any:
    """`into = first`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = load_run(builder, arguments[1], kind, run.count)
        store_run(builder, values, arguments[0], _sum_kind(kind), run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, kind, run), generate


@intrinsic
def put_sum(typing: Any, into: Any, first: Any, second: Any, kind: Any, run: Any) -> Any:
    """`into = first + second`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = [load_run(builder, address, kind, run.count) for address in arguments[1:3]]
        store_run(builder, builder.fadd(*values), arguments[0], _sum_kind(kind), run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, kind, run), generate


@intrinsic
def add(typing: Any, into: Any, first: Any, kind: Any, run: Any) -> Any:
    """`into += first`; `into` holds sums."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total = load_run(builder, arguments[0], _sum_kind(kind), run.count)
        values = load_run(builder, arguments[1], kind, run.count)
        store_run(builder, builder.fadd(total, values), arguments[0], _sum_kind(kind), run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, kind, run), generate


@intrinsic
def add_scaled(typing: Any, into: Any, first: Any, scale: Any, kind: Any, run: Any) -> Any:
    """`into += scale · first`; `into` holds sums, and `scale` is a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total = load_run(builder, arguments[0], _sum_kind(kind), run.count)
        values = load_run(builder, arguments[1], kind, run.count)
        scaled = builder.fmul(values, _spread(builder, arguments[2], kind, run.count))
        store_run(builder, builder.fadd(total, scaled), arguments[0], _sum_kind(kind), run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64, kind, run), generate


@intrinsic
def clear(typing: Any, into: Any, kind: Any, run: Any) -> Any:
    """`into = 0`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = _sum_type(kind)
        zeros = ir.Constant(ir.VectorType(element, run.count), [0.0] * run.count)
        store_run(builder, zeros, arguments[0], _sum_kind(kind), run.count)
        return context.get_dummy_value()

    return types.void(types.int64, kind, run), generate


@intrinsic
def count_bits(typing: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


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
    @intrinsic
    def write(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            builder.store(arguments[1], pointer)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return write


read_uint8, read_uint16, read_int32, read_int64, read_uint64 = map(
    _reader, (types.uint8, types.uint16, types.int32, types.int64, types.uint64)
)
read_float32, read_float64 = map(_reader, (types.float32, types.float64))
write_int64, write_int32, write_float32 = map(_writer, (types.int64, types.int32, types.float32))


carray = array_at  # an array at a pointer


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer, for `numba.carray`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Ask for the memory at an address, which is read soon: loops over random rows need not wait for each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        )
        read, near, data = (ir.Constant(flag, number) for number in (0, 3, 1))
        builder.call(function, [builder.inttoptr(arguments[0], byte), read, near, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float32 or float64, as an integer of its size."""
    kind = types.int64 if value == types.float64 else types.int32

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(kind))

    return kind(value), generate
