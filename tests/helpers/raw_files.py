"""Raw files for tests, and a slow, obvious way to prepare them."""

import csv
import math
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO

from cce.cli import main
from cce.data import PreparedData, prepare_data, verify_data
from cce.workers import LocalEngine


def write_csv(path, header, rows, delimiter=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path


def table_with_everything(folder, *words):
    """A data set with every kind of file, from the shell: one-hot, multi-hot, dense, weights."""
    rows = [(n % 2, f"u{n % 5}", "|".join("abc"[: n % 4]), n, n) for n in range(40)]
    write_csv(folder / "a.csv", ("y", "user", "tags", "age", "w"), rows)
    columns = ["--label", "y", "--categorical", "user", "--multi-hot", "tags", "--dense", "age", "--weight", "w"]
    out = folder / "data"
    command = ["prepare", "table", str(folder / "a.csv"), str(out), *columns, "--split", "order", *words]
    with redirect_stdout(StringIO()):
        assert main(command) == 0
    return out


def run(job, out):
    """The data set of a job, prepared in this process."""
    prepare_data(job, out, engine=LocalEngine(1), progress=False)
    assert verify_data(out).problems == []
    return PreparedData.open(out)


def rows_of(data, split):
    """Every row of a split, as (label, dense, ids)."""
    rows = []
    for batch in data.loader(split, batch_size=7, shuffle=False):
        assert batch.offsets is None
        rows += zip(batch.labels.tolist(), batch.dense.tolist(), batch.ids.tolist(), strict=True)
    return rows


def vocabulary_of(values, *, min_count=1):
    """Ids by falling count and then by bytes; None is a missing value, the last of its count."""
    counts = Counter(None if value == "" else value for value in values)
    ranked = sorted(
        counts, key=lambda value: (-counts[value], value is None, value.encode() if isinstance(value, str) else value)
    )
    kept = [value for value in ranked if counts[value] >= min_count]
    return {value: index + 1 for index, value in enumerate(kept)}


def log1p_or_zero(text):
    return math.log1p(max(float(text), 0)) if text not in ("", None) else 0.0


def criteo_lines(path):
    return [line.split("\t") for line in path.read_text().split("\n") if line]


def encoded_criteo(lines, num_train, **rule):
    """What a preparation of Criteo's lines must give, by way of plain Python."""
    vocabularies = [vocabulary_of([line[14 + f] for line in lines[:num_train]], **rule) for f in range(26)]
    return [
        (
            float(line[0]),
            [log1p_or_zero(x) for x in line[1:14]],
            [vocabularies[f].get(line[14 + f] or None, 0) for f in range(26)],
        )
        for line in lines
    ]


def words_of(column):
    """A column of words as a list, None where one is missing."""
    values = column.values.to_pylist()
    return [None if index < 0 else values[index] for index in column.indices.tolist()]


def bags_of(column):
    """A multi-hot column as lists."""
    words = iter(words_of(column))
    return [[next(words) for _ in range(length)] for length in column.lengths.tolist()]
