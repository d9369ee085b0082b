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
INVERSE_1, INVERSE_2 = ((pow(mix, -1, 2**64) + 2**63) % 2**64 - 2**63 for mix in (MIX_1, MIX_2))  # modulo 2**64
SEED_BYTES = 3 * 8  # of one hash function
MAX_ROWS = 2**31  # (h · num_rows) must fit in 63 bits
GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # splitmix64's step, as a signed integer
GOLDEN_24 = 0x9E3779  # the golden ratio, modulo 1, in 24 bits
GOLDEN_32 = 0x9E3779B9
MASK_24 = 0xFF_FFFF
FRACTION = 2.0**-24


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


def unscramble(mixed: Tensor) -> Tensor:
    """The integers that `scramble` makes these of."""
    for shift, inverse in ((31, INVERSE_2), (27, INVERSE_1), (30, 1)):
        mixed = (mixed ^ _shift(mixed, shift) ^ _shift(mixed, 2 * shift)) * inverse
    return mixed


def hash32(ids: Tensor, seeds: Tensor) -> Tensor:
    """The 32-bit hashes of ids `(*s)` under seeds `(num_hashes, 3)`: int64 in [0, 2³²), `(*s, num_hashes)`."""
    scrambled = scramble(ids.long()).unsqueeze(-1)
    low, high = scrambled & MASK32, _shift(scrambled, 32)
    a, b, c = seeds.unbind(-1)
    return (((low + a) * (high + b) + c) >> 32) & MASK32


def stack_rows(rows: Tensor, num_rows: int) -> Tensor:
    """Rows `(*s, n)` within `n` tables of `num_rows` rows each, as rows of all tables one below the other."""
    return rows + torch.arange(rows.shape[-1], device=rows.device) * num_rows


class _Hashes(IndexModule):
    """`num_hashes` independent random functions of ids. On the meta device they are not drawn."""

    index_state = ("seeds",)
    device_tensors = ("seeds",)

    def __init__(
        self, num_hashes: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.num_hashes = num_hashes
        self.seeds = torch.empty(num_hashes, 3, dtype=torch.int64, device=device)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if not self.seeds.is_meta:
            self.seeds.copy_(draw_seeds(self.num_hashes, generator))

    def extra_repr(self) -> str:
        return f"num_hashes={self.num_hashes}"


class MultiplyShift(_Hashes):
    """`num_hashes` independent random functions from ids `(*s)` to rows in `[0, num_rows)`, `(*s, num_hashes)`."""

    def __init__(
        self,
        num_hashes: int,
        num_rows: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_range("num_hashes", num_hashes, 0, MAX_ROWS)
        check_range("num_rows", num_rows, 1, MAX_ROWS)
        super().__init__(num_hashes, generator=generator, device=device)
        self.num_rows = num_rows

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

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_rows={self.num_rows}"


class UnitInterval(_Hashes):
    """`num_hashes` independent random functions from ids to [-1, 1], uniform, with mean exactly 0 and variance 1/3.

    The dense random H of deep hash embeddings (Kang et al., KDD 2021), which checks how many there are.
    """

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers `(*s, num_hashes)` for ids `(*s)`."""
        centred = 2 * hash32(ids, self.seeds) - MASK32  # an odd integer in [-MASK32, MASK32]
        return (centred.to(torch.float64) / MASK32).to(dtype)


def _shift(values: Tensor, count: int) -> Tensor:
    """The logical shift to the right: torch's own keeps the sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)


# -- random numbers that are a function of where they are used ---------------------------------------------------------
#
# A counter-based generator: the number of value `place` is a hash of `place` and a key (Salmon et al., "Parallel random
# numbers: as easy as 1, 2, 3", 2011; the hash is splitmix64's). So threads and processes may share the work as they
# like, and a resumed run goes on as it would have.


def make_key(seed: int, counter: int) -> int:
    """The key of use number `counter` of a seed: a signed 64-bit integer."""
    state = (seed + counter * GOLDEN) % 2**64
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        state = (state ^ (state >> shift)) * factor % 2**64
    state ^= state >> 31
    return state - 2**64 if state >= 2**63 else state


def uniform(key: int, places: Tensor) -> Tensor:
    """A float32 in [0, 1) for each place, with 24 random bits."""
    bits = scramble(places * GOLDEN + key)
    return ((bits >> 40) & MASK_24).float() * FRACTION


def uniform_pair(key: int, places: Tensor) -> tuple[Tensor, Tensor]:
    """Two float32 in [0, 1) for each place, of the same hash; the first is that of `uniform`."""
    bits = scramble(places * GOLDEN + key)
    first, second = (((bits >> shift) & MASK_24).float() * FRACTION for shift in (40, 16))
    return first, second


def hash32_parts(key: int, places: Tensor) -> tuple[Tensor, Tensor]:
    """The low and the high half of a hash of each place, int64 in [0, 2³²)."""
    bits = scramble(places * GOLDEN + key)
    return bits & MASK32, _shift(bits, 32)


def row_noise(key: int, rows: Tensor, width: int, uses: Tensor) -> Tensor:
    """A float32 in [0, 1) for each value of some rows, `(n, width)`, that depends on how often the row was used `(n)`.

    A row has a 32-bit seed, and a value is a hash of the seed and its column (murmur3's finaliser). From use to use it
    is shifted by the golden ratio, modulo 1: a Kronecker sequence, which fills [0, 1) evenly. Errors of rounding the
    same steps again and again then cancel, where those of independent numbers grow as a random walk.
    """
    seeds = (scramble(rows * GOLDEN + key) >> 32).unsqueeze(1)
    mixed = (seeds + torch.arange(width, device=rows.device) * GOLDEN_32) & MASK32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & MASK32
    return (((mixed >> 8) + uses.long().unsqueeze(1) * GOLDEN_24) & MASK_24).float() * FRACTION
