"""The one package that imports pyarrow: text and Parquet into columns, values into counts, and files of both."""

from cce.data.arrow.blocks import RawBlock, Values, Words, load_bags, load_numbers, load_words, save_block
from cce.data.arrow.tables import (
    TableWriter,
    frame_blocks,
    load_vocabulary,
    parquet_blocks,
    parquet_columns,
    parquet_groups,
    record_blocks,
    save_vocabulary,
)
from cce.data.arrow.text import as_values, json_names, open_zstd, parse_json_lines, parse_text
from cce.data.arrow.values import (
    as_texts,
    by_falling_count,
    concatenate,
    find_values,
    hex_words,
    is_whole,
    merge_counts,
    missing_id,
    texts_of,
    with_missing,
)

__all__ = [
    "RawBlock",
    "TableWriter",
    "Values",
    "Words",
    "as_texts",
    "as_values",
    "by_falling_count",
    "concatenate",
    "find_values",
    "frame_blocks",
    "hex_words",
    "is_whole",
    "json_names",
    "load_bags",
    "load_numbers",
    "load_vocabulary",
    "load_words",
    "merge_counts",
    "missing_id",
    "open_zstd",
    "parquet_blocks",
    "parquet_columns",
    "parquet_groups",
    "parse_json_lines",
    "parse_text",
    "record_blocks",
    "save_block",
    "save_vocabulary",
    "texts_of",
    "with_missing",
]
