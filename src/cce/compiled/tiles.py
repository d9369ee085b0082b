"""How numba compiles the inner loops of searches for the nearest centroid: six centroids, sixteen points. Needs numba.

A *tile* is six centroids, `(width, 6)` floats one after the other; a *block* is sixteen points, `(width, 16)`. All 96
sums stay in registers while a loop walks the dimensions: sixteen floats are one register of 512 bits or two of 256, and
of these sixteen registers twelve hold sums. The state of a block, `(3, 16)`, has for each point the smallest value that
was seen, the second smallest (of scores: those of whole tiles), and as an int32 where the smallest was.
"""

from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types

from cce.compiled.instructions import instruction
from cce.compiled.memory import BLOCK, LANES, TILE

_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _INTS = ir.VectorType(_FLOAT, BLOCK), ir.VectorType(_INT, BLOCK)


def _at(builder: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(builder.add(address, ir.Constant(_LONG, offset)), kind.as_pointer())


def _lanes(builder: ir.IRBuilder, values: ir.Value, lanes: list[int]) -> ir.Value:
    """These lanes of a vector."""
    mask = ir.Constant(ir.VectorType(_INT, len(lanes)), lanes)
    return builder.shuffle_vector(values, ir.Constant(values.type, ir.Undefined), mask)


def _splat(builder: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
    return _lanes(builder, first, [0] * kind.count)


def _sums(builder: ir.IRBuilder, block: ir.Value, tile: ir.Value, width: ir.Value, sums: list[Any], step: Any) -> Any:
    """The sums of a tile, as wide as there are sums, after all dimensions of a block, as wide as a sum.

    Each step of a sum is `step(builder, own, other, sum)`, with a vector of the block and a value of the tile.
    """
    kind = sums[0].type
    size = 4 if kind.element == _FLOAT else 8
    before, loop = builder.block, builder.append_basic_block("dimensions")
    builder.branch(loop)
    builder.position_at_end(loop)
    index = builder.phi(_LONG)
    index.add_incoming(ir.Constant(_LONG, 0), before)
    phis = [builder.phi(kind) for _ in sums]
    own = builder.add(block, builder.mul(index, ir.Constant(_LONG, size * kind.count)))
    others = builder.add(tile, builder.mul(index, ir.Constant(_LONG, size * len(sums))))
    values = builder.load(_at(builder, own, 0, kind), align=size)
    after = [
        step(builder, values, _splat(builder, builder.load(_at(builder, others, size * lane, kind.element)), kind), phi)
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


def _smaller(builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def _subtract_product(builder: ir.IRBuilder, point: ir.Value, centroid: ir.Value, total: ir.Value) -> ir.Value:
    """`total - point · centroid`, in one instruction where the processor has one."""
    function = builder.module.declare_intrinsic(
        f"llvm.fmuladd.v{BLOCK}f32", fnty=ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    )
    return builder.call(function, [builder.fneg(point), centroid, total])


def _add_square(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
    """`total + (one - other)²`, every step rounded."""
    difference = builder.fsub(one, other)
    return builder.fadd(total, builder.fmul(difference, difference))


@instruction(types.void, *[types.int64] * 6)
def score_tile(builder: Any, points: Any, tile: Any, halves: Any, width: Any, state: Any, index: Any) -> None:
    """Keep the smallest of `halves - point · centroid`, the second smallest of all tiles, and the tile of the smallest.

    `halves` has half of the square of each centroid's length.
    """
    sums = [_splat(builder, builder.load(_at(builder, halves, 4 * lane, _FLOAT)), _FLOATS) for lane in range(TILE)]
    sums = _sums(builder, points, tile, width, sums, _subtract_product)
    least = reduce(lambda one, other: _smaller(builder, one, other), sums)
    places = [_at(builder, state, 4 * BLOCK * part, kind) for part, kind in enumerate((_FLOATS, _FLOATS, _INTS))]
    best, second, winners = (builder.load(place, align=4) for place in places)
    is_less = builder.fcmp_ordered("<", least, best)
    second = _smaller(builder, builder.select(is_less, best, least), second)
    own = _splat(builder, builder.trunc(index, _INT), _INTS)
    after = builder.select(is_less, least, best), second, builder.select(is_less, own, winners)
    for place, values in zip(places, after, strict=True):
        builder.store(values, place, align=4)


@instruction(types.void, *[types.int64] * 5)
def measure_tile(builder: Any, points: Any, tile: Any, width: Any, state: Any, first: Any) -> None:
    """Keep the smallest squared distance, as the definition has it, and the first centroid that has it."""
    sums = _sums(builder, points, tile, width, [ir.Constant(_FLOATS, [0.0] * BLOCK)] * TILE, _add_square)
    places = [_at(builder, state, 0, _FLOATS), _at(builder, state, 8 * BLOCK, _INTS)]
    best, index = (builder.load(place, align=4) for place in places)
    for lane, value in enumerate(sums):
        own = builder.add(builder.trunc(first, _INT), ir.Constant(_INT, lane))
        index = builder.select(builder.fcmp_ordered("<", value, best), _splat(builder, own, _INTS), index)
        best = _smaller(builder, value, best)
    for place, values in zip(places, (best, index), strict=True):
        builder.store(values, place, align=4)


@instruction(types.int64, *[types.int64] * 4, None)
def nearest_of(builder: Any, point: Any, lanes: Any, width: Any, square: Any, kind: Any) -> Any:
    """The first of eight centroids, `(width, 8)`, of the smallest squared distance, as the definition has it.

    That distance is written to `square`. All values are of one `kind`.
    """
    of = ir.VectorType(_FLOAT if kind == types.float32 else ir.DoubleType(), LANES)
    (total,) = _sums(builder, lanes, point, width, [ir.Constant(of, [0.0] * LANES)], _add_square)
    least, half = total, LANES // 2
    while half:
        least = _smaller(builder, least, _lanes(builder, least, [lane ^ half for lane in range(LANES)]))
        half //= 2
    builder.store(builder.extract_element(least, ir.Constant(_INT, 0)), _at(builder, square, 0, of.element))
    bits = builder.bitcast(builder.fcmp_ordered("==", total, least), ir.IntType(LANES))
    return builder.zext(builder.cttz(bits, ir.Constant(ir.IntType(1), 0)), _LONG)
