"""Footprints add up, are compared with the full tables, and are shown as text and as plain data."""

import json

import pytest

from cce.footprint import Footprint, Footprints

USER = Footprint("user", "cce", 1000, 8, 200, 800, 1000, full_params=8000, full_nbytes=32_000, sizes={"num_rows": 5})
ITEM = Footprint("item", "full", 10, 4, 40, 160, 0, full_params=40, full_nbytes=160)


def test_bytes_are_codebook_and_pointers_and_in_training_more():
    trained = Footprint("a", "cce", 10, 4, 5, 20, 30, 40, 160, gradient_nbytes=20, optimizer_nbytes=40)
    assert (trained.nbytes, trained.training_nbytes) == (50, 110)
    assert (trained.compression, trained.byte_compression) == (8, 3.2)


def test_tables_add_up_and_the_largest_is_the_one_that_would_be_in_full():
    both = Footprints((ITEM, USER))
    assert (both.num_params, both.nbytes) == (240, 1960)
    assert (both.total.full_params, both.total.num_embeddings, both.total.name) == (8040, 1010, "all tables")
    assert both.largest is USER


def test_columns_are_shown_where_they_say_something():
    plain = str(Footprints((ITEM, USER)))
    assert plain.splitlines()[0].split("  ")[-1] == "fewer bytes"
    assert plain.splitlines()[-1] == "largest table: user, 40.0× fewer params, 17.8× fewer bytes"
    kept = Footprints((Footprint("a", "nn.Embedding", 10, 4, 40, 160, 0, 40, 160, optimizer_nbytes=8, reason="tied"),))
    header, _, row, *_ = str(kept).splitlines()
    assert header.split() == [
        *("table", "method", "ids", "dim", "full", "params", "params", "codebook", "pointers", "optimizer"),
        *("fewer", "params", "fewer", "bytes", "why", "kept"),
    ]
    assert row.split()[-1] == "tied"
    assert kept.compressed == ()
    assert str(Footprints(())) == "no embedding tables"


def test_as_data_it_is_plain_json():
    data = Footprints((ITEM, USER)).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["largest_table"] == data["tables"][1]
    assert data["tables"][1]["sizes"] == {"num_rows": 5}
    assert data["all_tables"]["nbytes"] == 1960


def test_it_comes_back_from_plain_data():
    assert Footprint.from_dict(json.loads(json.dumps(USER.to_dict()))) == USER
    first_format = {name: value for name, value in ITEM.to_dict().items() if name not in ("gradient_nbytes", "sizes")}
    assert Footprint.from_dict(first_format) == ITEM


def test_plain_data_of_another_kind_is_rejected():
    values = USER.to_dict()
    with pytest.raises(ValueError, match=r"a footprint must have method, full_nbytes, got {'name': 'user'"):
        Footprint.from_dict({name: value for name, value in values.items() if name not in ("method", "full_nbytes")})
    with pytest.raises(TypeError, match="num_params of a footprint must be an int, got None"):
        Footprint.from_dict(values | {"num_params": None})
