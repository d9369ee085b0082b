"""The one package that imports pyarrow: text and Parquet into columns, values into counts, and files of both."""

from cce.data.prepare.arrow.blocks import RawBlock, Values, Words, load_bags, load_numbers, load_words, save_block
from cce.data.prepare.arrow.compressed import open_zstd
from cce.data.prepare.arrow.frames import frame_blocks, record_blocks
from cce.data.prepare.arrow.json_lines import json_names, parse_json_lines
from cce.data.prepare.arrow.parquet import (
    TableWriter,
    load_vocabulary,
    parquet_blocks,
    parquet_columns,
    parquet_groups,
    save_vocabulary,
)
from cce.data.prepare.arrow.text import as_values, parse_text, write_text
from cce.data.prepare.arrow.values import (
    as_texts,
    by_falling_count,
    concatenate,
    find_values,
    hex_words,
    is_whole,
    merge_counts,
    texts_of,
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
    "write_text",
]
