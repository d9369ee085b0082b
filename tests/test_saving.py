"""`cce.save` and `cce.load`: a compressed model in a file that says what its tables are."""

import copy
import json
import re

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import cce
from cce.embeddings import METHODS
from cce.saving import CHECKSUM, _checksum
from helpers.files import small_files


class Model(nn.Module):
    """Two plain tables, a bag, two tables with one weight, and a network."""

    def __init__(self, size=400):
        super().__init__()
        self.user, self.item = nn.Embedding(size, 8, padding_idx=3), nn.Embedding(300, 8)
        self.tags = nn.EmbeddingBag(200, 8, mode="sum", include_last_offset=True)
        self.first, self.second = nn.Embedding(250, 8), nn.Embedding(250, 8)
        self.second.weight = self.first.weight
        self.network = nn.Linear(8, 1)

    def forward(self, ids):
        bags = self.tags(ids % 200, torch.arange(len(ids) + 1))
        return self.network(self.user(ids) + self.item(ids) + bags + self.first(ids % 250) * self.second(ids % 250))


IDS = torch.arange(300)


def compressed(seed=0, **options):
    model = Model()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cce.compress(model, **({"method": "cce", "cap": 500, "min_params": 1} | options), seed=seed)
    return model.eval()


@pytest.mark.parametrize("method", [name for name in METHODS if name != "full"])
def test_a_plain_model_gets_the_saved_tables_of_any_method(method, tmp_path):
    model = compressed(method=method, cap=1200)
    cce.save(model, tmp_path / "model.safetensors")
    plain = Model()
    assert cce.load(tmp_path / "model.safetensors", into=plain) is plain
    assert type(plain.user) is METHODS[method]
    assert torch.equal(plain.eval()(IDS), model(IDS))
    assert plain.first is plain.second
    assert (plain.user.padding_idx, plain.tags.mode, plain.tags.include_last_offset) == (3, "sum", True)


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_cce_table_comes_back_in_the_form_that_it_had_and_trains_on(is_final, given, tmp_path):
    model = nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 1))
    counts = torch.arange(300) % 4 if given else None
    model[0] = cce.embeddings.CCEEmbedding(
        300, 8, counts=counts, num_rows=16, generator=torch.Generator().manual_seed(0)
    )
    optimizer = cce.optim.Adam(model, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(IDS).square().sum().backward()
        optimizer.step()
    if is_final:
        cce.finalize(model, num_columns=2)
    cce.save(model, tmp_path / "a")
    compressed_too = nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 1))
    cce.compress(compressed_too, min_params=1)
    for into in (nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 1)), compressed_too):
        loaded = cce.load(tmp_path / "a", into=into)
        assert torch.equal(loaded(IDS), model(IDS))
        assert loaded[0].is_final is is_final
        trained = {name for name, parameter in loaded.named_parameters() if parameter.requires_grad}
        assert trained == {"0.codebook" if is_final else "0.anchor", "1.weight", "1.bias"}
        optimizer = cce.optim.Adam(loaded, lr=0.1)
        loaded(IDS).square().sum().backward()
        optimizer.step()
        assert not torch.equal(loaded[0](IDS), model[0](IDS))


def test_a_table_that_was_clustered_and_is_half_frozen_comes_back(tmp_path):
    model = compressed(method="cce-paper", settings=cce.clustering.ClusterSettings(max_iter=3))
    model.item.requires_grad_(False)
    model.user.cluster(generator=torch.Generator().manual_seed(1))
    cce.save(model.double(), tmp_path / "a")
    other = Model().train()
    cce.load(tmp_path / "a", into=other)
    assert torch.equal(other.double().eval()(IDS), model(IDS))
    assert not any(parameter.requires_grad for parameter in other.item.parameters())
    assert other.user.settings.max_iter == 3
    assert other.user.codebook.dtype == torch.float64


def test_loading_into_a_compressed_model_keeps_tables_that_fit_and_draws_no_random_numbers(tmp_path):
    model, same, other = compressed(0), compressed(1), compressed(2, method="hash")
    cce.save(model, tmp_path / "a")
    kept, state = same.user, torch.get_rng_state()
    cce.load(tmp_path / "a", into=same)
    cce.load(tmp_path / "a", into=other)
    assert torch.equal(torch.get_rng_state(), state)
    assert same.user is kept
    assert torch.equal(same(IDS), model(IDS))
    assert torch.equal(other(IDS), model(IDS))


def test_a_copy_knows_how_it_was_made_and_shared_tensors_are_stored_once(tmp_path):
    cce.save(copy.deepcopy(saved := compressed()), tmp_path / "a")
    cce.load(tmp_path / "a", into=(model := Model()))
    assert torch.equal(model.eval()(IDS), saved(IDS))
    assert {"second.anchor", "second.rows.records"}.isdisjoint(load_file(tmp_path / "a"))
    assert "first.rows.records" in load_file(tmp_path / "a")


def test_a_single_table_is_a_model_as_well(tmp_path):
    table = cce.create_embedding("robe", 100, 8, num_params=200, seed=0)
    cce.save(table, tmp_path / "a")
    again = cce.create_embedding("robe", 100, 8, num_params=200, seed=1)
    assert torch.equal(cce.load(tmp_path / "a", into=again)(IDS[:100]), table(IDS[:100]))
    with pytest.raises(ValueError, match=r"^into must be a table like that of .*, 'robe' with \{.*\}\.$"):
        cce.load(tmp_path / "a", into=cce.create_embedding("hash", 100, 8, num_params=200))


def untouched(path, model, message, error=ValueError):
    """The file is rejected in one line, and the model is as it was."""
    before, modules = {name: t.clone() for name, t in model.state_dict().items()}, dict(model.named_modules())
    with pytest.raises(error, match=message) as caught:
        cce.load(path, into=model)
    assert "\n" not in str(caught.value)
    assert dict(model.named_modules()) == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_does_not_fit_leaves_the_model_alone(tmp_path):
    cce.save(compressed(), path := tmp_path / "a")
    untouched(path, Model(size=401), r"^'user' of into must be a table of 400 × 8, as in .*, got 401 × 8\.$")
    other = Model()
    other.network = nn.Linear(8, 2)
    untouched(path, other, r"^'network.weight' of .* must have the shape \(2, 8\), got \(1, 8\)\.$")
    other.network = nn.Identity()
    untouched(path, other, "must hold the tensors of the model, but 'network.bias' the file has and the model lacks")
    del other.tags
    untouched(path, other, "^into must have a module 'tags', as the model in .* has; it has none")
    untouched(tmp_path / "none", Model(), "must be a file that cce.save wrote, and there is none", FileNotFoundError)


def with_other_checksum(path, raw, old, new):
    """The file with another description of its model, as somebody who means harm would write it."""
    path.write_bytes(raw)
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), load_file(path)
    assert old in metadata["model"]
    metadata["model"] = metadata["model"].replace(old, new)
    metadata[CHECKSUM] = _checksum(tensors, metadata)
    save_file(tensors, path, metadata)


def test_foreign_newer_and_damaged_files_are_rejected(tmp_path):
    cce.save(compressed(method="cce-paper"), path := tmp_path / "a")
    raw = path.read_bytes()
    save_file({"x": torch.zeros(1)}, tmp_path / "foreign")
    untouched(tmp_path / "foreign", Model(), r"must be a file that cce.save wrote, got a safetensors file of another")
    changes = {
        "version of .* must be 1, got '2', made by cce .*: update cce": (b'"version":"1"', b'"version":"2"'),
        "it is damaged: its checksum is another": (b'\\"num_rows\\": ', b'\\"num_rows\\":9'),
    }
    for message, (old, new) in changes.items():
        assert old in raw
        path.write_bytes(raw.replace(old, new))
        untouched(path, Model(), message)
    with_other_checksum(path, raw, '"method": "cce-paper"', '"method": "cce-papyr"')
    untouched(path, Model(), "it is damaged: \"no method 'cce-papyr'\"")
    with_other_checksum(path, raw, '"num_rows": ', '"num_rows":9')
    untouched(path, Model(), "^table 'user' of .* must be as it is described, but is not: ")
    path.write_bytes(raw[:-1])
    untouched(path, Model(), "must be a file that cce.save wrote, and it is damaged")


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(tmp_path):
    cce.save(nn.Sequential(cce.create_embedding("cce", 60, 4, num_params=40, seed=0), nn.Linear(4, 1)), tmp_path / "a")
    raw = (tmp_path / "a").read_bytes()
    into = nn.Sequential(nn.Embedding(60, 4), nn.Linear(4, 1))
    before = {name: tensor.clone() for name, tensor in into.state_dict().items()}
    for place in range(0, len(raw), 5):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << place % 8
        (tmp_path / "a").write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"a must be a file that cce\.save wrote|^version of .*a must be 1, got"
        ) as found:
            cce.load(tmp_path / "a", into=into)
        assert "\n" not in str(found.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in into.state_dict().items())


def test_what_cannot_be_described_is_not_saved_and_nothing_is_left(tmp_path):
    class Mine(cce.embeddings.HashingTrickEmbedding):
        method = "mine"

    message = r"^tables must be of a method of cce.embeddings.list_methods\(\) to be saved, got Mine as ''\.$"
    with pytest.raises(TypeError, match=message):
        cce.save(Mine(10, 4, num_rows=3), tmp_path / "a")
    cce.save(nn.Linear(2, 1), tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    with (
        small_files(4096),
        pytest.raises(OSError, match=re.escape(f"{tmp_path / 'a'} could not be written: ")) as caught,
    ):
        cce.save(nn.Linear(1000, 1000), tmp_path / "a")
    assert "\n" not in str(caught.value)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_the_metadata_is_plain_json(tmp_path):
    cce.save(compressed(method="tt", cap=2000), tmp_path / "a")
    with safe_open(tmp_path / "a", "np") as file:
        tables = json.loads(file.metadata()["model"])["tables"]
    assert [table["method"] for table in tables] == ["tt"] * len(tables)
    assert tables[0]["arguments"]["num_embeddings"] == 400
