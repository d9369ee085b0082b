"""The data set that comes with the package: the same flights as tensors and as a file of raw values."""

import csv

import torch

from cce.data import load_flights, write_flights


def test_splits_are_disjoint_parts_of_all_flights_with_ids_by_column():
    splits = load_flights()
    assert {name: len(late) for name, (_, late) in splits.items()} == {
        "train": 261_878, "validation": 32_734, "test": 32_734}  # fmt: skip
    ids, late = (torch.cat(parts) for parts in zip(*splits.values(), strict=True))
    assert ids.dtype == torch.int64
    assert [(int(c.min()), int(c.max())) for c in ids.unbind(1)] == [(5, 26_277), (26_280, 31_985), (31_986, 32_089)]
    assert late.unique().tolist() == [0, 1]
    assert round(late.mean().item(), 4) == 0.2371


def test_the_file_has_the_same_rows_with_raw_values(tmp_path):
    write_flights(tmp_path / "flights.csv")
    with open(tmp_path / "flights.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"late": "0", "departure": "EWR 0101 05", "flight": "UA1545", "destination": "IAH"}
    assert rows[-1]["departure"].startswith("LGA 1231 ")
    splits = load_flights()
    ids, late = (torch.cat(parts) for parts in zip(*splits.values(), strict=True))
    for name, column in zip(("departure", "flight", "destination"), ids.unbind(1), strict=True):
        assert len({row[name] for row in rows}) == len(column.unique())
    number = ids[:, 1] == 26_280 + sorted({row["flight"] for row in rows}).index("UA1545")
    assert late[number].sum() == sum(row["late"] == "1" for row in rows if row["flight"] == "UA1545")
