"""Values of columns and their counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cce.data.arrow.blocks import Array, Values, one_chunk
from cce.hashing import Texts, arrow_texts

LARGEST = str(2**63 - 1)
NO_NUMBER = "?"


def as_values(words: list[str]) -> Values:
    """Words as an arrow array."""
    return pa.array(words, pa.string())


def hex_words(values: Values, modulus: int | None) -> Values:
    """Hexadecimal words of at most eight digits as integers, taken modulo `modulus`."""
    words = pc.utf8_lpad(values, 8, "0")
    if not pc.all(pc.match_substring_regex(words, "^[0-9a-fA-F]{8}$")).as_py() and len(words):
        wrong = words.filter(pc.invert(pc.match_substring_regex(words, "^[0-9a-fA-F]{8}$")))
        raise ValueError(
            f"a categorical value must be a hexadecimal word of at most 8 digits, got {wrong[0].as_py()!r}."
        )
    digits = np.frombuffer("".join(words.to_pylist()).encode(), np.uint8).reshape(-1, 8).astype(np.int64)
    digits = np.where(digits > ord("9"), (digits | 32) - ord("a") + 10, digits - ord("0"))
    integers = (digits << np.arange(28, -1, -4)).sum(1)
    return pa.array(integers % modulus if modulus else integers, pa.int64())


def texts_of(values: Values) -> list[str]:
    """Values as words of Python."""
    texts: list[str] = pc.cast(values, pa.string()).to_pylist()
    return texts


def merge_counts(pairs: Sequence[tuple[Values, Array]]) -> tuple[Values, Array]:
    """Distinct values, and the sum of the counts of each; some pieces may hold words and others integers."""
    values, counts = concatenate([values for values, _ in pairs]), np.concatenate([counts for _, counts in pairs])
    table = pa.table({"value": values, "count": counts})
    merged = table.group_by("value", use_threads=False).aggregate([("count", "sum")])
    return one_chunk(merged["value"]), one_chunk(merged["count_sum"]).to_numpy()


def by_falling_count(values: Values, counts: Array) -> tuple[Values, Array]:
    """Sorted: the most frequent first, and among equals the smaller value (words by their bytes)."""
    table = pa.table({"value": values, "count": counts})
    table = table.take(pc.sort_indices(table, [("count", "descending"), ("value", "ascending")]))
    return one_chunk(table["value"]), one_chunk(table["count"]).to_numpy()


def find_values(values: Values, among: Values) -> Array:
    """The index of each value in `among`, or -1."""
    values = whole_numbers(values) if pa.types.is_integer(among.type) else pc.cast(values, among.type)
    found = pc.index_in(values, value_set=among, skip_nulls=True)
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def whole_numbers(values: Values) -> Values:
    """Values as int64; words that are no such number are null."""
    if pa.types.is_integer(values.type):
        return pc.cast(values, pa.int64())
    words = pc.cast(values, pa.string())
    digits = pc.utf8_ltrim(words, "-0")
    is_short = pc.less(pc.utf8_length(digits), len(LARGEST))
    fits = pc.or_(is_short, pc.and_(pc.equal(pc.utf8_length(digits), len(LARGEST)), pc.less_equal(digits, LARGEST)))
    is_whole = pc.and_(pc.match_substring_regex(words, r"^-?[0-9]+$"), fits)
    return pc.cast(pc.if_else(is_whole, words, pa.scalar(None, pa.string())), pa.int64())


def is_whole(values: Values) -> bool:
    """Whether a column holds integers."""
    return bool(pa.types.is_integer(values.type))


def as_texts(values: Values, *, whole: bool) -> Texts:
    """Offsets (int64) and UTF-8 bytes of the text of each value; of numbers, if `whole`, their decimal digits.

    A missing value has the empty text, which no other value has. What is no number where one is due is `NO_NUMBER`.
    """
    words = pc.cast(whole_numbers(values) if whole else values, pa.large_string())
    return arrow_texts(pc.if_else(pc.is_null(values), "", pc.fill_null(words, NO_NUMBER)))


def with_missing(values: Values) -> Values:
    """The same values after a missing one."""
    return pa.concat_arrays([pa.nulls(1, values.type), values])


def missing_id(values: Values) -> int:
    """The id of the missing value in a vocabulary, or 0 if it has none."""
    nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    return int(nulls[0]) + 1 if len(nulls) else 0


def concatenate(pieces: list[Values]) -> Values:
    """Arrays one after the other; of integers and words together, words."""
    kinds = {piece.type for piece in pieces}
    return pa.concat_arrays([pc.cast(piece, pa.string()) for piece in pieces] if len(kinds) > 1 else pieces)
