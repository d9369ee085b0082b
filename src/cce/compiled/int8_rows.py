"""How numba compiles what loops do with rows of int8 and their gradients in float32. Needs numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cce.compiled.instructions import lanes_of, load_run, place_of, store_run

_SINGLE, _DOUBLE = ir.FloatType(), ir.DoubleType()


def _same(of: ir.Value, number: float) -> ir.Constant:
    """A constant in every lane, of the type of a run."""
    return ir.Constant(of.type, [number] * of.type.count)


def _load_codes(builder: ir.IRBuilder, address: ir.Value, count: int) -> ir.Value:
    stored = builder.load(place_of(builder, address, ir.IntType(8), count), align=1)
    return builder.sitofp(stored, ir.VectorType(_SINGLE, count))


def _add_lanes(builder: ir.IRBuilder, values: ir.Value, add: Any) -> ir.Value:
    """The sum of all lanes, always in the same order: halves are added until one is left."""
    count = values.type.count
    while count > 1:
        count //= 2
        lanes = ir.VectorType(ir.IntType(32), count)
        low, high = (ir.Constant(lanes, list(range(first, first + count))) for first in (0, count))
        values = add(builder.shuffle_vector(values, values, low), builder.shuffle_vector(values, values, high))
    return builder.extract_element(values, ir.Constant(ir.IntType(32), 0))


def _scaled_squares(builder: ir.IRBuilder, address: ir.Value, factor: ir.Value, count: int) -> ir.Value:
    """`(factor · values)²` in float64, the product rounded to float32."""
    values = builder.fmul(lanes_of(builder, factor, count), load_run(builder, address, types.float32, count))
    wide = builder.fpext(values, ir.VectorType(_DOUBLE, count))
    return builder.fmul(wide, wide)


@intrinsic
def put_codes(typing: Any, into: Any, codes: Any, scale: Any, run: Any) -> Any:
    """`into = scale · codes`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = _load_codes(builder, arguments[1], run.count)
        values = builder.fmul(lanes_of(builder, arguments[2], run.count), values)
        store_run(builder, values, arguments[0], types.float32, run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, run), generate


@intrinsic
def add_codes(typing: Any, into: Any, codes: Any, scale: Any, weight: Any, run: Any) -> Any:
    """`into += weight · (scale · codes)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scale, weight = (lanes_of(builder, number, run.count) for number in arguments[2:4])
        values = builder.fmul(weight, builder.fmul(scale, _load_codes(builder, arguments[1], run.count)))
        total = builder.fadd(load_run(builder, arguments[0], types.float32, run.count), values)
        store_run(builder, total, arguments[0], types.float32, run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.float32, run), generate


@intrinsic
def sum_squares(typing: Any, first: Any, factor: Any, run: Any) -> Any:
    """The sum of `(factor · first)²`, in float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        squares = _scaled_squares(builder, arguments[0], arguments[1], run.count)
        return _add_lanes(builder, squares, builder.fadd)

    return types.float64(types.int64, types.float32, run), generate


@intrinsic
def sum_weighted_squares(typing: Any, first: Any, factor: Any, weights: Any, run: Any) -> Any:
    """The sum of `(factor · first)² · weights`, in float64; `weights` is the address of as many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        squares = _scaled_squares(builder, arguments[0], arguments[1], run.count)
        weights = load_run(builder, arguments[2], types.float64, run.count)
        return _add_lanes(builder, builder.fmul(squares, weights), builder.fadd)

    return types.float64(types.int64, types.float32, types.int64, run), generate


@intrinsic
def add_squares(typing: Any, into: Any, first: Any, factor: Any, run: Any) -> Any:
    """`into += (factor · first)²`; `into` holds float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        squares = _scaled_squares(builder, arguments[1], arguments[2], run.count)
        total = builder.fadd(load_run(builder, arguments[0], types.float64, run.count), squares)
        store_run(builder, total, arguments[0], types.float64, run.count)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, run), generate


def _noise(builder: ir.IRBuilder, seed: ir.Value, shift: ir.Value, count: int) -> ir.Value:
    """A number in [0, 1) for each lane: see `indexing.noise.row_noise`. The seed is that of the first lane."""
    integer = ir.IntType(32)
    steps = ir.Constant(ir.VectorType(integer, count), [lane * 0x9E3779B9 % 2**32 for lane in range(count)])
    mixed = builder.add(lanes_of(builder, builder.trunc(seed, integer), count), steps)
    for shifted, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = builder.xor(mixed, builder.lshr(mixed, _same(mixed, shifted)))
        mixed = builder.mul(mixed, _same(mixed, factor))
    moved = builder.add(builder.lshr(mixed, _same(mixed, 8)), lanes_of(builder, builder.trunc(shift, integer), count))
    fraction = builder.uitofp(builder.and_(moved, _same(moved, 0xFF_FFFF)), ir.VectorType(_SINGLE, count))
    return builder.fmul(fraction, _same(fraction, 2.0**-24))


@intrinsic
def move_codes(
    typing: Any,
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

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count, (codes, gradient, factor, gain, speed, shrink, pull, seed, shift, _) = run.count, arguments
        factor, speed, pull = (lanes_of(builder, number, count) for number in (factor, speed, pull))
        gradient, gain, shrink = (load_run(builder, at, types.float32, count) for at in (gradient, gain, shrink))
        step = builder.fmul(builder.fmul(gain, speed), builder.fmul(factor, gradient))
        moved = builder.fsub(_load_codes(builder, codes, count), step)
        one = _same(moved, 1.0)
        decay = builder.fdiv(one, builder.fadd(one, builder.fmul(shrink, pull)))
        moved = builder.fadd(builder.fmul(decay, moved), _noise(builder, seed, shift, count))
        floor = builder.module.declare_intrinsic(
            f"llvm.floor.v{count}f32", fnty=ir.FunctionType(moved.type, [moved.type])
        )
        rounded = builder.call(floor, [moved])
        for sign, limit in (("<", -127.0), (">", 127.0)):
            edge = _same(rounded, limit)
            rounded = builder.select(builder.fcmp_ordered(sign, rounded, edge), edge, rounded)
        whole = builder.fptosi(rounded, ir.VectorType(ir.IntType(32), count))
        stored = builder.trunc(whole, ir.VectorType(ir.IntType(8), count))
        builder.store(stored, place_of(builder, codes, ir.IntType(8), count), align=1)
        return _add_lanes(builder, builder.mul(whole, whole), builder.add)

    integer, number = types.int64, types.float32
    signature = (integer, integer, number, integer, number, integer, number, integer, integer, run)
    return types.int32(*signature), generate
