"""How numba compiles the inner loop of searches for the nearest centroid: six centroids, sixteen points. Needs numba.

A *tile* is six centroids, `(width, 6)` floats one after the other; a *block* is sixteen points, `(width, 16)`. All 96
sums stay in registers while a loop walks the dimensions: sixteen floats are one register of 512 bits or two of 256, and
of these sixteen registers twelve hold sums. The state of a block, `(3, 16)`, has for each point the smallest value that
was seen, the second smallest, and the index of the smallest as an int32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from cce.compiled.instructions import instruction
from cce.compiled.memory import BLOCK, TILE

_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _INTS = ir.VectorType(_FLOAT, BLOCK), ir.VectorType(_INT, BLOCK)


def _at(builder: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(builder.add(address, ir.Constant(_LONG, offset)), kind.as_pointer())


def _splat(builder: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(_INTS, [0] * BLOCK))


def _sums(builder: ir.IRBuilder, points: ir.Value, tile: ir.Value, width: ir.Value, sums: list[Any], step: Any) -> Any:
    """The sums of a tile after all dimensions, each step of which is `step(builder, point, centroid, sum)`."""
    before, loop = builder.block, builder.append_basic_block("dimensions")
    builder.branch(loop)
    builder.position_at_end(loop)
    index = builder.phi(_LONG)
    index.add_incoming(ir.Constant(_LONG, 0), before)
    phis = [builder.phi(_FLOATS) for _ in sums]
    own = builder.add(points, builder.mul(index, ir.Constant(_LONG, 4 * BLOCK)))
    others = builder.add(tile, builder.mul(index, ir.Constant(_LONG, 4 * TILE)))
    values = builder.load(_at(builder, own, 0, _FLOATS), align=4)
    after = [
        step(builder, values, _splat(builder, builder.load(_at(builder, others, 4 * lane, _FLOAT)), _FLOATS), phi)
        for lane, phi in enumerate(phis)
    ]
    following = builder.add(index, ir.Constant(_LONG, 1))
    index.add_incoming(following, loop)
    for phi, start, end in zip(phis, sums, after, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(end, loop)
    done = builder.append_basic_block("done")
    builder.cbranch(builder.icmp_unsigned("<", following, width), loop, done)
    builder.position_at_end(done)
    return after


def _keep_smallest(builder: ir.IRBuilder, sums: list[ir.Value], state: ir.Value, first: ir.Value) -> None:
    """Bring the state of the block up to date; of equal sums the first one stays the smallest."""
    places = [_at(builder, state, 4 * BLOCK * part, kind) for part, kind in enumerate((_FLOATS, _FLOATS, _INTS))]
    best, second, index = (builder.load(place, align=4) for place in places)
    for lane, value in enumerate(sums):
        is_less = builder.fcmp_ordered("<", value, best)
        loser = builder.select(is_less, best, value)
        second = builder.select(builder.fcmp_ordered("<", loser, second), loser, second)
        best = builder.select(is_less, value, best)
        own = builder.add(builder.trunc(first, _INT), ir.Constant(_INT, lane))
        index = builder.select(is_less, _splat(builder, own, _INTS), index)
    for place, values in zip(places, (best, second, index), strict=True):
        builder.store(values, place, align=4)


def _subtract_product(builder: ir.IRBuilder, point: ir.Value, centroid: ir.Value, total: ir.Value) -> ir.Value:
    """`total - point · centroid`, in one instruction where the processor has one."""
    function = builder.module.declare_intrinsic(
        f"llvm.fmuladd.v{BLOCK}f32", fnty=ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    )
    return builder.call(function, [builder.fneg(point), centroid, total])


def _add_square(builder: ir.IRBuilder, point: ir.Value, centroid: ir.Value, total: ir.Value) -> ir.Value:
    """`total + (point - centroid)²`, every step rounded."""
    difference = builder.fsub(point, centroid)
    return builder.fadd(total, builder.fmul(difference, difference))


@instruction(types.void, *[types.int64] * 6)
def score_tile(builder: Any, points: Any, tile: Any, halves: Any, width: Any, state: Any, first: Any) -> None:
    """Keep the smallest of `halves - point · centroid`; `halves` has half of the square of each centroid's length."""
    sums = [_splat(builder, builder.load(_at(builder, halves, 4 * lane, _FLOAT)), _FLOATS) for lane in range(TILE)]
    _keep_smallest(builder, _sums(builder, points, tile, width, sums, _subtract_product), state, first)


@instruction(types.void, *[types.int64] * 5)
def measure_tile(builder: Any, points: Any, tile: Any, width: Any, state: Any, first: Any) -> None:
    """Keep the smallest squared distance, as the definition has it."""
    sums = [ir.Constant(_FLOATS, [0.0] * BLOCK)] * TILE
    _keep_smallest(builder, _sums(builder, points, tile, width, sums, _add_square), state, first)
