"""The methods that multiply: ce-mult, tt, collide before it is clustered, low-rank and mixed-dim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drawings.frame import CHOSEN, TOP, Frame, row_label
from drawings.linear import INTO_2, INTO_4, SIDE, SIGN, full_width, multiply, nearby, pointers
from drawings.matrices import CELL, DIM, NUM_IDS, Row, cells_of, draw_grid, draw_pointers, outline
from drawings.svg import GREEN, GREY, HUES, ORANGE, VIOLET, Paint

if TYPE_CHECKING:
    from drawings.matrices import Cells, Pointers


def draw_table(frame: Frame, t: Cells, *, product: bool = False) -> None:
    """T, with one id pointed out, and the sign that follows it."""
    x, y = frame.place(SIDE, SIDE)
    draw_grid(frame.canvas, x, y, t, product=product)
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, SIDE, CELL)
    row_label(frame.canvas, x, y, CHOSEN)
    frame.sign("=")


def draw_factor(frame: Frame, h: Pointers, m: list[Row], names: tuple[str, str]) -> None:
    """H · M for some rows of full width."""
    width, height = CELL * len(m), CELL * len(m)
    x, y = frame.place(width, SIDE)
    draw_pointers(frame.canvas, x, y, h, m)
    frame.name((x, y), width, names[0], "a 1 in each row", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, width, CELL)
    frame.sign("·")
    x, y = frame.place(SIDE, height)
    draw_grid(frame.canvas, x, y, cells_of(m))
    frame.name((x, y), SIDE, names[1], "k × d₂", height)
    outline(frame.canvas, x, y + h[CHOSEN][0].row * CELL, SIDE, CELL)


def draw_ce_mult() -> str:
    """A row from each of two tables, multiplied."""
    rows = full_width(4)
    h = [pointers(INTO_2[i : i + 1], "random", 2) for i in range(2)]
    first, second = multiply(h[0], rows[:2]), multiply(h[1], rows[2:])
    t = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(first, second, strict=True)]
    formula = "T[x] = M₁[h₁(x)] ⊙ M₂[h₂(x)]"
    frame = Frame(f"ce-mult: {formula}", SIDE, content=3 * SIDE + 4 * CELL + 4 * SIGN)
    draw_table(frame, t, product=True)
    draw_factor(frame, h[0], rows[:2], ("H₁", "M₁"))
    frame.sign("⊙")
    draw_factor(frame, h[1], rows[2:], ("H₂", "M₂"))
    caption = "A row from each of t tables, multiplied value by value: not linear in M. t·k·d₂ parameters."
    return frame.finish(("random", "product"), formula, caption)


# Tensor train: 8 = 2 · 2 · 2 ids, 8 = 2 · 2 · 2 values, ranks of 2.
TT_HUES = (ORANGE, GREEN, VIOLET)
TT_CHOSEN = 5
STRENGTHS = ((0.95, 0.62), (0.4, 0.2))  # of a digit of the id and a digit of the column
TT_CELL = 17.0


def digits(number: int) -> tuple[int, int, int]:
    """Three binary digits of an id, the last one first."""
    return number % 2, number // 2 % 2, number // 4


def core_paint(core: int, i: int, j: int) -> Paint:
    """The colour of what core `core` holds for digit `i` of the id and digit `j` of the column."""
    return Paint(TT_HUES[core], STRENGTHS[i][j])


def tensor_train_table() -> Cells:
    """Each value is a product of three: one from each core."""
    columns = [digits(j)[::-1] for j in range(DIM)]
    return [
        [tuple(core_paint(core, digits(x)[core], columns[j][core]) for core in range(3)) for j in range(DIM)]
        for x in range(NUM_IDS)
    ]


def draw_core(frame: Frame, core: int, shape: tuple[int, int], name: str) -> None:
    """Both slices of a core, one above the other, each with a matrix of `shape` for both digits of the column."""
    height, width = shape[0] * TT_CELL, 2 * shape[1] * TT_CELL + 8
    total = 2 * height + 36
    x, y = frame.place(width, total)
    frame.canvas.text(x + width / 2, TOP - 12, name, "ink math")
    for i in range(2):
        top = y + i * (height + 36)
        for j in range(2):
            cells = [[(core_paint(core, i, j),)] * shape[1] for _ in range(shape[0])]
            draw_grid(frame.canvas, x + j * (shape[1] * TT_CELL + 8), top, cells, TT_CELL)
        if i == digits(TT_CHOSEN)[core]:
            outline(frame.canvas, x - 3, top - 3, width + 6, height + 6)
        frame.canvas.text(x + width / 2, top + height + 17, f"i{'₁₂₃'[core]} = {i}", "quiet small")


def draw_tt() -> str:
    """A value is a row times a matrix times a column."""
    formula = "T[x]ⱼ = G₁[i₁, j₁] · G₂[i₂, j₂] · G₃[i₃, j₃]"
    widths = [2 * n * TT_CELL + 8 for n in (2, 2, 1)]
    frame = Frame(f"tt: {formula}", SIDE + 34, content=SIDE + sum(widths) + 3 * SIGN)
    x, y = frame.place(SIDE, SIDE)
    draw_grid(frame.canvas, x, y, tensor_train_table(), product=True)
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    outline(frame.canvas, x, y + TT_CHOSEN * CELL, SIDE, CELL)
    row_label(frame.canvas, x, y, TT_CHOSEN)
    for core, (sign, shape, name) in enumerate(
        (("=", (1, 2), "G₁"), ("·", (2, 2), "G₂"), ("·", (2, 1), "G₃")),
    ):
        frame.sign(sign)
        draw_core(frame, core, shape, name)
    caption = "Digits of the id (here 5 = 101₂) choose a slice of each core; digits of j a matrix in the slice."
    return frame.finish(("fixed", "product"), formula, caption)


# Learning to collide: a thin table first, and rows of full width for its clusters after.
GROUPS = INTO_4[0]
BETWEEN = 92.0  # the two halves of the drawing


def projection(num_rows: int) -> Cells:
    """A small trained matrix that widens narrow vectors."""
    return [[(Paint(GREY, 0.2 + 0.12 * ((5 * j + 3 * i) % 7)),) for j in range(DIM)] for i in range(num_rows)]


def draw_thin(frame: Frame) -> None:
    """T = N · P, with some values for every id."""
    thin = [nearby(Paint(HUES[GROUPS[x]]), x) for x in range(NUM_IDS)]
    draw_table(frame, [[(paint,)] * DIM for paint in thin])
    x, y = frame.place(2 * CELL, SIDE)
    draw_grid(frame.canvas, x, y, [[(paint,)] * 2 for paint in thin])
    frame.name((x, y), 2 * CELL, "N", "d₁ × r", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, 2 * CELL, CELL)
    frame.sign("·")
    x, y = frame.place(SIDE, 2 * CELL)
    draw_grid(frame.canvas, x, y, projection(2))
    frame.name((x, y), SIDE, "P", "r × d₂", 2 * CELL)


def draw_collide() -> str:
    """Before and after its one clustering."""
    formula = "T[x] = N[x] · P until cluster(), T[x] = M[p(x)] from then on"
    frame = Frame(f"collide: {formula}", 2 * SIDE + BETWEEN, content=2 * SIDE + 2 * SIGN + 4 * CELL)
    left, middle = frame.x, frame.middle
    frame.middle = middle - (SIDE + BETWEEN) / 2
    draw_thin(frame)
    frame.canvas.arrow(left + SIDE / 2, middle - 18, left + SIDE / 2, middle + 14)
    frame.canvas.text(left + SIDE / 2 + 16, middle + 3, "cluster(): k-means of the rows of N, once", "quiet", "start")
    frame.x, frame.middle = left, middle + (SIDE + BETWEEN) / 2
    rows, h = full_width(4), pointers((GROUPS,), "learned", 4)
    draw_table(frame, multiply(h, rows))
    draw_factor(frame, h, rows, ("H", "M"))
    caption = "A thin table with r values for every id is trained first; then ids of one cluster share a row."
    return frame.finish(("learned",), formula, caption)


def draw_low_rank() -> str:
    """A narrow table, widened."""
    formula = "T[x] = N[x] · P"
    frame = Frame(f"low-rank: {formula}", SIDE, content=2 * SIDE + 2 * SIGN + 2 * CELL)
    draw_thin(frame)
    caption = "Every id has r values of its own, a row of H = N; one projection, M = P, widens them all."
    return frame.finish((), formula, caption)


# Mixed dimensions: ids, width and hue of each block.
BLOCKS = ((2, 8, ORANGE), (6, 1, VIOLET))


def draw_block(frame: Frame, block: int, top: float) -> None:
    """T = N, or N · P where N is narrow, for some consecutive ids."""
    num_ids, width, hue = BLOCKS[block]
    canvas, x, middle = frame.canvas, frame.x, top + num_ids * CELL / 2
    rows = [Paint(hue, 0.95 - 0.14 * i) for i in range(num_ids)]
    canvas.text(x - 12, middle + 4, ("frequent ids", "rare ids")[block], "quiet small", anchor="end")
    draw_grid(canvas, x, top, [[(paint,)] * DIM for paint in rows])
    canvas.text(x + SIDE + SIGN / 2, middle + 7, "=", "ink math sign")
    x += SIDE + SIGN
    draw_grid(canvas, x, top, [[(paint,)] * width for paint in rows])
    canvas.text(x + width * CELL / 2, top - 12, ("N₁", "N₂")[block], "ink math")
    if width == DIM:
        canvas.text(x + SIDE + 14, middle + 4, "full width: no projection", "quiet small", anchor="start")
        return
    canvas.text(x + width * CELL + SIGN / 2, middle + 7, "·", "ink math sign")
    x += width * CELL + SIGN
    draw_grid(canvas, x, middle - width * CELL / 2, projection(width))
    canvas.text(x + SIDE / 2, middle - width * CELL / 2 - 12, "P₂", "ink math")


def draw_mixed_dim() -> str:
    """Wide vectors for frequent ids, narrow ones for rare ids."""
    formula = "T[x] = N₁[x] for frequent ids, N₂[x] · P₂ for rare ids"
    gap = 44.0
    frame = Frame(f"mixed-dim: {formula}", SIDE + gap, content=2 * SIDE + 2 * SIGN + CELL)
    frame.canvas.text(frame.x + SIDE / 2, TOP - 12, "T", "ink math")
    draw_block(frame, 0, TOP)
    draw_block(frame, 1, TOP + BLOCKS[0][0] * CELL + gap)
    caption = "Ids are numbered by falling frequency; each block of ids has a width and a projection of its own."
    return frame.finish((), formula, caption)
