"""Bundles byte for byte: what `docs/format.md` promises to readers in other languages."""

import json

import pytest
import torch
from safetensors.torch import load_file

import cce
from cce.serving import freeze_table
from cce.serving.freezing import frozen_tables, write_bundle
from helpers.frozen import make_model, make_schema, make_table


def read_header(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), 8 + length, len(content)


@pytest.mark.parametrize("method", ["cce-paper", "quantized"])
def test_every_tensor_lies_at_a_multiple_of_its_size_and_is_read_back(method, tmp_path):
    frozen = cce.freeze(make_model(make_schema(multi_hot=False), method=method))
    write_bundle(tmp_path / "model.safetensors", frozen)
    header, start, size = read_header(tmp_path / "model.safetensors")
    metadata = header.pop("__metadata__")
    assert start % 8 == 0
    assert (metadata["format"], metadata["version"]) == ("cce-bundle", "1")
    end = 0
    for entry in header.values():
        first, last = entry["data_offsets"]
        assert first == end
        assert first % torch.empty(0, dtype=DTYPES[entry["dtype"]]).itemsize == 0
        end = last
    assert start + end == size
    tensors = load_file(tmp_path / "model.safetensors")
    tables = frozen_tables(frozen)
    expected = {f"{path}/{name}": each for path, table in tables.items() for name, each in table.tensors().items()}
    others = {name: each for name, each in frozen.state_dict().items() if not name.startswith("tables.")}
    expected |= {f"model/{name}": each for name, each in others.items()}
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name


DTYPES = {"F32": torch.float32, "I64": torch.int64, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}


def test_the_spec_names_features_pooling_and_rows(tmp_path):
    frozen = cce.freeze(make_model(make_schema(multi_hot=True), pooling="mean"))
    write_bundle(tmp_path / "model.safetensors", frozen)
    spec = json.loads(read_header(tmp_path / "model.safetensors")[0]["__metadata__"]["spec"])
    (collection,) = spec["collections"].values()
    assert collection["features"] == {"user": 600, "item": 300}
    assert collection["tables"] == {"user": "tables.tables.user", "item": "tables.tables.item"}
    assert (collection["pooling"], collection["unified"]) == ("mean", False)
    assert [group["kind"] for group in spec["tables"]["tables.tables.user"]["groups"]] == ["learned", "hashed"]


def test_a_table_that_is_not_made_of_rows_is_written_in_full(tmp_path):
    table = make_table("tt", {})
    write_bundle(tmp_path / "dense.safetensors", freeze_table(table))
    (values,) = load_file(tmp_path / "dense.safetensors").values()
    torch.testing.assert_close(values, table.to_dense(), rtol=0, atol=1e-7)
