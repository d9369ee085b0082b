"""T = H · M for the methods that are exactly that: full, hash, hash-embedding, ce-concat, ce-sum, pq, cce, cce-paper.

T is computed from H and M, so a drawing cannot show another formula than the one its H and M have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from drawings.frame import CHOSEN, Frame, row_label
from drawings.matrices import CELL, DIM, NUM_IDS, Mark, Row, cells_of, draw_grid, draw_pointers, multiply, outline
from drawings.svg import HUES, Paint

if TYPE_CHECKING:
    from drawings.matrices import Cells, Pointers

SIDE = NUM_IDS * CELL  # of T, which is a square
SIGN = 38.0

# Functions from ids to 4 or to 2 rows, as a hash function could give them, or a clustering.
INTO_4 = ((0, 2, 1, 3, 0, 1, 3, 2), (3, 1, 3, 0, 2, 0, 1, 2), (1, 0, 2, 2, 3, 1, 0, 3), (2, 3, 0, 1, 1, 3, 2, 0))
INTO_2 = ((0, 1, 1, 0, 0, 1, 0, 1), (1, 0, 1, 1, 0, 0, 1, 0), (0, 0, 1, 0, 1, 1, 1, 0), (1, 1, 0, 0, 1, 0, 1, 0))
ALSO_INTO_2 = ((1, 1, 0, 0, 1, 0, 1, 0), (0, 1, 0, 1, 1, 0, 0, 1), (1, 0, 0, 1, 0, 1, 1, 0), (0, 1, 1, 0, 0, 1, 0, 1))
STRENGTHS_4 = (0.95, 0.7, 0.46, 0.24)  # rows of one column have one hue


@dataclass(frozen=True)
class Product:
    """H and M of a method, and what is written around them."""

    method: str
    h: Pointers
    m: list[Row]
    h_text: str
    m_text: str
    formula: str
    caption: str
    legend: tuple[str, ...]
    blocks: tuple[str, ...] = ()  # names of the tables that M consists of, from top to bottom; () is one table
    trained: bool = False  # whether a trained table comes first

    @property
    def content(self) -> float:
        """How wide all matrices are."""
        return SIDE + 2 * SIGN + CELL * len(self.m) + SIDE + (SIDE + SIGN) * self.trained + 24 * bool(self.blocks)

    def draw(self) -> str:
        """The file's text."""
        frame = Frame(f"{self.method}: {self.formula}", CELL * max(NUM_IDS, len(self.m)), content=self.content)
        t = multiply(self.h, self.m)
        if self.trained:
            self.draw_trained(frame, t)
        self.draw_table(frame, t)
        self.draw_h(frame)
        self.draw_m(frame)
        return frame.finish(self.legend, self.formula, self.caption)

    def draw_trained(self, frame: Frame, t: Cells) -> None:
        """The table that is approximated: near T, but no two rows are equal."""
        near = [[(nearby(paints[0], 3 * i + 5 * j),) for j, paints in enumerate(row)] for i, row in enumerate(t)]
        corner = frame.place(SIDE, SIDE)
        draw_grid(frame.canvas, *corner, near)
        frame.name(corner, SIDE, "trained", "d₁ × d₂", SIDE)
        frame.sign("≈")

    def draw_table(self, frame: Frame, t: Cells) -> None:
        """T, with one id pointed out."""
        x, y = frame.place(SIDE, SIDE)
        draw_grid(frame.canvas, x, y, t)
        frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
        outline(frame.canvas, x, y + CHOSEN * CELL, SIDE, CELL)
        if not self.trained:
            row_label(frame.canvas, x, y, CHOSEN)
        frame.sign("=")

    def draw_h(self, frame: Frame) -> None:
        """H, with the same id pointed out."""
        width = CELL * len(self.m)
        x, y = frame.place(width, SIDE)
        draw_pointers(frame.canvas, x, y, self.h, self.m)
        frame.name((x, y), width, "H", self.h_text, SIDE)
        outline(frame.canvas, x, y + CHOSEN * CELL, width, CELL)
        for edge in self.edges[1:-1]:
            frame.canvas.path(f"M{x + edge * CELL:g} {y:g}V{y + SIDE:g}", "line")
        frame.sign("·")

    def draw_m(self, frame: Frame) -> None:
        """M, with the rows of that id pointed out, and the names of its blocks."""
        height = CELL * len(self.m)
        x, y = frame.place(SIDE, height)
        draw_grid(frame.canvas, x, y, cells_of(self.m), bare=True)
        frame.name((x, y), SIDE, "M", self.m_text, height)
        for mark in self.h[CHOSEN]:
            row = self.m[mark.row]
            outline(frame.canvas, x + row.start * CELL, y + mark.row * CELL, (row.stop - row.start) * CELL, CELL)
        for name, (first, last) in zip(self.blocks, pairwise(self.edges), strict=True):
            side = x + self.m[first].stop * CELL + 9
            frame.canvas.text(side, y + (first + last) / 2 * CELL + 5, name, "quiet math", anchor="start")

    @property
    def edges(self) -> list[int]:
        """The first row of each named block, and the end."""
        if not self.blocks:
            return []
        height = len(self.m) // len(self.blocks)
        return [i * height for i in range(len(self.blocks) + 1)]


def nearby(paint: Paint, salt: int) -> Paint:
    """A colour close to another."""
    return Paint(paint.hue, paint.strength * (1 - 0.1 * (salt % 4)))


def full_width(num_rows: int) -> list[Row]:
    """Rows of full width, each with a hue of its own."""
    return [Row(Paint(hue)) for hue in HUES[:num_rows]]


def narrow(num_columns: int, strengths: tuple[float, ...]) -> list[Row]:
    """A hue for each column, and rows of different strength in it."""
    width = DIM // num_columns
    return [
        Row(Paint(HUES[column], strength), column * width, (column + 1) * width)
        for column in range(num_columns)
        for strength in strengths
    ]


def pointers(functions: tuple[tuple[int, ...], ...], kind: str, height: int) -> Pointers:
    """One mark in each block of `height` rows, the i-th by the i-th function."""
    return [tuple(Mark(i * height + function[x], kind) for i, function in enumerate(functions)) for x in range(NUM_IDS)]


def learned_and_hashed() -> Pointers:
    """CCE: in each block of 4 rows a learned one among the first two, and a hashed one among the last two."""
    return [
        tuple(
            mark
            for i in range(4)
            for mark in (Mark(4 * i + INTO_2[i][x], "learned"), Mark(4 * i + 2 + ALSO_INTO_2[i][x], "random"))
        )
        for x in range(NUM_IDS)
    ]


PRODUCTS = (
    Product(
        "full",
        pointers((tuple(range(NUM_IDS)),), "fixed", NUM_IDS),
        full_width(NUM_IDS),
        "the identity",
        "d₁ × d₂",
        "T[x] = M[x]",
        "Every id has a row of its own: d₁·d₂ parameters.",
        ("fixed",),
    ),
    Product(
        "hash",
        pointers(INTO_4[:1], "random", 4),
        full_width(4),
        "a 1 in each row",
        "k × d₂",
        "T[x] = M[h(x)]",
        "Ids that the hash function sends to one row have equal vectors for good: k·d₂ parameters.",
        ("random",),
    ),
    Product(
        "hash-embedding",
        [(Mark(INTO_4[0][x], "random"), Mark(INTO_4[1][x], "random")) for x in range(NUM_IDS)],
        full_width(4),
        "t ones or weights",
        "k × d₂",
        "T[x] = w₁(x) · M[h₁(x)] + w₂(x) · M[h₂(x)]",
        "The sum of a few rows of one table: two ids are alike only if all their rows are the same.",
        ("random", "sum"),
    ),
    Product(
        "ce-concat",
        pointers(INTO_4, "random", 4),
        narrow(4, STRENGTHS_4),
        "a 1 in each of c blocks",
        "block-diagonal",
        "T[x] = [ M₁[h₁(x)] | M₂[h₂(x)] | M₃[h₃(x)] | M₄[h₄(x)] ]",
        "Pieces from c narrow tables, side by side: kᶜ possible vectors from k·d₂ parameters.",
        ("random",),
        ("M₁", "M₂", "M₃", "M₄"),
    ),
    Product(
        "ce-sum",
        pointers(INTO_2[:2], "random", 2),
        full_width(4),
        "a 1 in each block",
        "t·k × d₂",
        "T[x] = M₁[h₁(x)] + M₂[h₂(x)]",
        "A row from each of t tables, added up: t·k·d₂ parameters.",
        ("random", "sum"),
        ("M₁", "M₂"),
    ),
    Product(
        "pq",
        pointers(INTO_4[::-1], "learned", 4),
        narrow(4, STRENGTHS_4),
        "a 1 in each of c blocks",
        "block-diagonal",
        "T[x] = [ M₁[p₁(x)] | M₂[p₂(x)] | M₃[p₃(x)] | M₄[p₄(x)] ]",
        "k-means of each column of a table that was trained in full: H and M come after training.",
        ("learned",),
        ("M₁", "M₂", "M₃", "M₄"),
        trained=True,
    ),
    Product(
        "cce",
        pointers(INTO_4, "learned", 4),
        narrow(4, STRENGTHS_4),
        "a 1 in each of c blocks",
        "block-diagonal",
        "T[x] = [ M₁[h₁(x)] | M₂[h₂(x)] | M₃[h₃(x)] | M₄[h₄(x)] ]",
        "Rows of 8 bits while training; then weighted k-means of each column, and refits of H and M.",
        ("learned",),
        ("M₁", "M₂", "M₃", "M₄"),
        trained=True,
    ),
    Product(
        "cce-paper",
        learned_and_hashed(),
        narrow(4, STRENGTHS_4),
        "a learned and a random 1 for each column",
        "block-diagonal",
        "T[x] = [ M₁[h₁(x)] + M′₁[h′₁(x)] | … | M₄[h₄(x)] + M′₄[h′₄(x)] ]",
        "Ids that want similar vectors are made to share rows of M; the helper M′ lets them part again.",
        ("learned", "random", "sum"),
        ("M₁", "M′₁", "M₂", "M′₂", "M₃", "M′₃", "M₄", "M′₄"),
    ),
)
