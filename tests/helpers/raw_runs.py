"""A tiny run on raw rows, with everything in them: words, bags, dense values, weights; some missing, some unseen."""

import csv
import random

import torch

from cce.cli import main
from cce.training import Trainer
from helpers.raw_files import write_csv
from helpers.runs import tiny_config

HEADER = ("click", "user", "item", "tags", "age", "weight")
COLUMNS = ("--label", "click", "--categorical", "user", "item", "--multi-hot", "tags", "--dense", "age")
NUM_ROWS, NUM_TEST = 600, 60


def raw_rows(num_rows=NUM_ROWS, seed=0):
    """Rows of text, as `csv` reads them; users of the last tenth are often new."""
    draw = random.Random(seed)
    rows = []
    for index in range(num_rows):
        user = draw.choice(["", f"u{draw.randrange(40)}", f"u{draw.randrange(40 if index < 0.9 * num_rows else 90)}"])
        tags = "|".join(draw.choices(["a", "bé", "", "d"], k=draw.randrange(4)))
        age = draw.choice(["", "-3", str(draw.randrange(100))])
        rows.append((str(draw.randrange(2)), user, str(draw.randrange(1000, 1050)), tags, age, f"{draw.random():.3f}"))
    return [dict(zip(HEADER, row, strict=True)) for row in rows]


def train_on_raw(folder, *words, rows=None, **changes):
    """`raw.csv`, `data` made of it, and `run`, trained for a few steps; returns the folder of the run."""
    write_csv(folder / "raw.csv", HEADER, [tuple(row.values()) for row in rows or raw_rows()])
    command = ("prepare", "table", str(folder / "raw.csv"), str(folder / "data"), *COLUMNS, "--split", "order", *words)
    assert main([*command, "--json"]) == 0
    before = torch.get_num_threads()
    Trainer(tiny_config(folder / "data", **({"max_steps": 12, "epochs": 1} | changes)), folder / "run").run()
    torch.set_num_threads(before)
    return folder / "run"


def held_out_rows():
    """The rows that are held out for the test."""
    return raw_rows()[-NUM_TEST:]


def write_rows(path, rows, names=HEADER):
    """Some columns of rows as CSV or TSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path
