"""Values of columns and their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cce.data.prepare.arrow.blocks import Array, Values, one_chunk

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def merge_counts(pairs: Iterable[tuple[Values, Array]]) -> tuple[Values, Array]:
    """Distinct values, and the sum of the counts of each."""
    pieces = [pa.table({"value": values, "count": counts}) for values, counts in pairs]
    merged = pa.concat_tables(pieces).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return one_chunk(merged["value"]), one_chunk(merged["count_sum"]).to_numpy()


def by_falling_count(values: Values, counts: Array) -> tuple[Values, Array]:
    """Sorted: the most frequent first, and among equals the smaller value (words by their bytes)."""
    table = pa.table({"value": values, "count": counts})
    table = table.take(pc.sort_indices(table, [("count", "descending"), ("value", "ascending")]))
    return one_chunk(table["value"]), one_chunk(table["count"]).to_numpy()


def find_values(values: Values, among: Values) -> Array:
    """The index of each value in `among`, or -1."""
    return pc.fill_null(pc.index_in(pc.cast(values, among.type), value_set=among), -1).to_numpy().astype(np.int64)


def concatenate(pieces: list[Values]) -> Values:
    """Arrays one after the other; of integers and words together, words."""
    kinds = {piece.type for piece in pieces}
    return pa.concat_arrays([pc.cast(piece, pa.string()) for piece in pieces] if len(kinds) > 1 else pieces)
