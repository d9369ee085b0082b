"""The formulas of the papers with Python's own integers: slow, and independent of the library's code."""

MASK32 = 2**32 - 1
MASK64 = 2**64 - 1


def scramble(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def hash32(x: int, seeds) -> int:
    a, b, c = (int(seed) for seed in seeds)
    x = scramble(x)
    return (((x % 2**32 + a) * (x // 2**32 + b) + c) & MASK64) >> 32


def row(x: int, seeds, num_rows: int) -> int:
    return hash32(x, seeds) * num_rows // 2**32


def sign(x: int, seeds) -> int:
    return -1 if hash32(x, seeds) >= 2**31 else 1


def unit(x: int, seeds) -> float:
    return (2 * hash32(x, seeds) - MASK32) / MASK32


def digits(x: int, radices) -> list[int]:
    out = []
    for radix in radices:
        x, digit = divmod(x, radix)
        out.append(digit)
    return out
