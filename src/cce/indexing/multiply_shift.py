"""Universal hashing of 64-bit ids by pair-multiply-shift.

An id `x` is scrambled and cut into its low and high 32 bits. With three random 64-bit integers `a, b, c`,

    h(x) = ((a + low) · (b + high) + c mod 2⁶⁴) >> 32

is strongly universal into 32 bits: any two ids get independent, uniform values (Dietzfelbinger et al., "A reliable
randomized algorithm for the closest-pair problem", 1997; the pair form: Thorup, "High speed hashing for integers and
strings", 2015). That holds on average over functions; of consecutive ids, the ones we have, multiply-shift alone makes
equal steps, and one function in twenty lets them collide far more often than chance. Scrambling is a fixed bijection of
64 bits (the finaliser of splitmix64: Steele, Lea and Flood, 2014), so it takes nothing from universality and breaks the
steps. A value is brought into `[0, num_rows)` by `(h · num_rows) >> 32`, which needs no division and is off
uniform by at most `num_rows / 2³²`.

Signed 64-bit products wrap around in torch, in compiled kernels and in onnxruntime alike, so all give the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cce.checks import check_range
from cce.indexing.randomness import common_generator
from cce.indexing.state import IndexModule

MASK32 = 0xFFFF_FFFF
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64  # splitmix64's, as signed integers
SEED_BYTES = 3 * 8  # of one hash function
MAX_ROWS = 2**31  # (h · num_rows) must fit in 63 bits


def draw_seeds(num_hashes: int, generator: torch.Generator | None = None) -> Tensor:
    """Three random 64-bit integers for each hash function, `(num_hashes, 3)`."""
    generator = common_generator(generator)
    halves = torch.randint(0, 2**32, (2, num_hashes, 3), generator=generator, device="cpu", dtype=torch.int64)
    return (halves[0] << 32) | halves[1]


def scramble(ids: Tensor) -> Tensor:
    """A fixed bijection of 64-bit integers that leaves no arithmetic pattern."""
    mixed = (ids ^ _shift(ids, 30)) * MIX_1
    mixed = (mixed ^ _shift(mixed, 27)) * MIX_2
    return mixed ^ _shift(mixed, 31)


def hash32(ids: Tensor, seeds: Tensor) -> Tensor:
    """The 32-bit hashes of ids `(*s)` under seeds `(num_hashes, 3)`: int64 in [0, 2³²), `(*s, num_hashes)`."""
    scrambled = scramble(ids.long()).unsqueeze(-1)
    low, high = scrambled & MASK32, _shift(scrambled, 32)
    a, b, c = seeds.unbind(-1)
    return (((low + a) * (high + b) + c) >> 32) & MASK32


def stack_rows(rows: Tensor, num_rows: int) -> Tensor:
    """Rows `(*s, n)` within `n` tables of `num_rows` rows each, as rows of all tables one below the other."""
    return rows + torch.arange(rows.shape[-1], device=rows.device) * num_rows


class MultiplyShift(IndexModule):
    """`num_hashes` independent random functions from ids to `[0, num_rows)`.

    Ids `(*s)` give rows `(*s, num_hashes)`. On the meta device they are not drawn.
    """

    index_state = ("seeds",)
    device_tensors = ("seeds",)

    def __init__(
        self,
        num_hashes: int,
        num_rows: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_range("num_hashes", num_hashes, 0, MAX_ROWS)
        check_range("num_rows", num_rows, 1, MAX_ROWS)
        self.num_hashes = num_hashes
        self.num_rows = num_rows
        self.seeds = torch.empty(num_hashes, 3, dtype=torch.int64, device=device)
        self.reset_parameters(generator)

    @property
    def rows_per_column(self) -> tuple[int, ...]:
        """How many rows each of the functions can name."""
        return (self.num_rows,) * self.num_hashes

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_hashes)` of ids `(*s)`."""
        return (hash32(ids, self.seeds) * self.num_rows) >> 32

    def stacked(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_hashes)` of one codebook in which every function has `num_rows` rows of its own."""
        return stack_rows(self(ids), self.num_rows)

    def signs(self, ids: Tensor) -> Tensor:
        """+1 or −1, `(*s, num_hashes)`, from the top bit: use functions of their own for signs and rows."""
        return 1 - 2 * (hash32(ids, self.seeds) >> 31)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Become other random functions, in place."""
        if not self.seeds.is_meta:
            self.seeds.copy_(draw_seeds(self.num_hashes, generator))

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_hashes={self.num_hashes}, num_rows={self.num_rows}"


class UnitInterval(IndexModule):
    """`num_hashes` independent random functions from ids to [-1, 1], uniform, with mean exactly 0 and variance 1/3.

    The dense random H of deep hash embeddings (Kang et al., KDD 2021).
    """

    index_state = ("seeds",)
    device_tensors = ("seeds",)

    def __init__(
        self, num_hashes: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        check_range("num_hashes", num_hashes, 1, MAX_ROWS)
        self.num_hashes = num_hashes
        self.seeds = torch.empty(num_hashes, 3, dtype=torch.int64, device=device)
        self.reset_parameters(generator)

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers `(*s, num_hashes)` for ids `(*s)`."""
        centred = 2 * hash32(ids, self.seeds) - MASK32  # an odd integer in [-MASK32, MASK32]
        return (centred.to(torch.float64) / MASK32).to(dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Become other random functions, in place."""
        if not self.seeds.is_meta:
            self.seeds.copy_(draw_seeds(self.num_hashes, generator))

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_hashes={self.num_hashes}"


def _shift(values: Tensor, count: int) -> Tensor:
    """The logical shift to the right: torch's own keeps the sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)
