"""Deltas: readers that apply them have the bits of a full export, at once or not at all, and nothing else."""

import copy
import json
import shutil
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

import cce
from cce.embeddings.eviction import remove_rows
from cce.embeddings.shards import Shards
from cce.serving import numpy_reader
from cce.serving.deltas import MODEL
from cce.serving.freezing import as_array, bundle_of, freeze, version_of, write_bundle
from helpers.days import DIM, ITEMS, USERS, Model, export, learn, learned
from helpers.frozen import make_table


def encoded(model, folder):
    """The tensors of a full export at this moment, with the codebooks of the first one, made without deltas."""
    served, compact = numpy_reader.open_bundle(folder / "first.safetensors").tables, copy.deepcopy(model)
    for name, table in compact.named_modules():
        if isinstance(table, cce.embeddings.CCEEmbedding):
            spec, values = served[name].spec, torch.from_numpy(np.array(served[name].tensors["rows.values"]))
            rows = table.trained_rows()
            table.become(table.encode(rows, rows.kept(values.view(spec["columns"], -1, values.shape[1]))))
    return contents(freeze(compact))


def contents(served):
    """All that is served by name, as plain values; of a frozen model or of an open bundle."""
    if isinstance(served, nn.Module):
        tensors, spec = bundle_of(served)
        specs, arrays = json.loads(spec)["tables"], {name: as_array(each) for name, each in tensors.items()}
    else:
        specs = {name: table.spec for name, table in served.tables.items()}
        arrays = {f"model/{name}": each for name, each in served.weights.items()}
        for name, table in served.tables.items():
            arrays |= {f"{name}/{own}": each for own, each in table.tensors.items()}
    return specs | {name: (each.dtype.str, each.tolist()) for name, each in arrays.items()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "served"


def begin(folder, **users):
    """A model, and two readers of its export."""
    model = learned(**users)
    frozen = export(model, folder)
    shutil.copy(folder / MODEL, folder / "first.safetensors")
    return model, frozen, numpy_reader.open_bundle(folder / MODEL)


@pytest.mark.parametrize("shape", [(2, 16), (1, 5), (4, 3), (2, 256), (8, 20), (2, 300)], ids=str)
def test_readers_end_with_the_bits_of_a_full_export_day_after_day(folder, shape):
    model = learned()
    frozen = export(model, folder, num_columns=shape[0], num_rows=shape[1])
    shutil.copy(folder / MODEL, folder / "first.safetensors")
    bundle = numpy_reader.open_bundle(folder / MODEL)
    assert cce.delta(model, since=folder).path is None  # nothing has changed
    for day in (1, 2, 3):
        report = cce.delta(learn(model, day), since=folder)
        assert (report.number, report.path.name) == (day, f"delta-00000{day}.safetensors")
        for reader in (frozen, bundle):
            cce.apply_delta(reader, report.path)
        expected = encoded(model, folder)
        assert contents(frozen) == contents(bundle) == contents(numpy_reader.open_bundle(folder / MODEL)) == expected
        vectors = bundle["users"].vectors(USERS.numpy())
        np.testing.assert_array_equal(vectors, frozen.users(USERS).numpy())
        np.testing.assert_array_equal((vectors != 0).any(1), model.users.rows.find(USERS).numpy() > 0)
        np.testing.assert_array_equal(bundle["items"].vectors(ITEMS.numpy()), frozen.items(ITEMS).numpy())


def test_a_delta_counts_what_was_admitted_changed_and_evicted(folder):
    model, _, bundle = begin(folder)
    before = set(np.flatnonzero(bundle["users"].vectors(USERS.numpy()).any(1)))
    assert before
    report = cce.delta(learn(model, 2), since=folder)
    after = set(np.flatnonzero((model.users.rows.find(USERS) > 0).numpy()))
    users = {table.name: table for table in report.tables}["users"]
    assert (users.num_ids, users.admitted, users.evicted) == (len(after), len(after - before), len(before - after))
    assert 0 < users.changed <= len(after & before)
    assert 0 < users.lost < 1
    assert "delta 1: " in str(report)
    assert report.nbytes == report.path.stat().st_size


def test_an_id_that_went_and_came_again_is_served_as_it_is_now(folder):
    model, frozen, _ = begin(folder, max_rows=None, time_to_live=6)
    was_served = frozen.users(USERS[:100])
    cce.apply_delta(frozen, cce.delta(learn(model, 4), since=folder).path)
    cce.apply_delta(frozen, cce.delta(learn(model, 5), since=folder).path)
    gone = frozen.users(USERS[:100])
    assert was_served.any()
    assert not gone.any()
    learn(model, 0)
    cce.apply_delta(frozen, cce.delta(model, since=folder).path)
    assert frozen.users(USERS[:100]).any()
    assert contents(frozen) == encoded(model, folder)


def test_training_goes_on_as_if_there_were_no_deltas(folder):
    torch.manual_seed(0)
    model, _, _ = begin(folder)
    alone = copy.deepcopy(model)
    for day in (1, 2):
        learn(model, day)
        cce.delta(model, since=folder)
        learn(alone, day)
    ours, theirs = model.state_dict(), alone.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


# -- what is rejected --------------------------------------------------------------------------------------------------


@pytest.fixture
def shipped(folder):
    """Two readers of the first state, and the deltas 1 to 3."""
    model, frozen, bundle = begin(folder)
    return frozen, bundle, [cce.delta(learn(model, day), since=folder).path for day in (1, 2, 3)]


def rejects(reader, path, message):
    before = contents(reader)
    with pytest.raises(ValueError, match=message) as caught:
        cce.apply_delta(reader, path)
    assert "\n" not in str(caught.value)
    assert contents(reader) == before


def test_gaps_repeats_and_branches_are_rejected(shipped, folder, tmp_path):
    frozen, bundle, (first, second, third) = shipped
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folder / "first.safetensors", other / MODEL)
    branch = cce.delta(learn(learned(), 4), since=other).path
    for reader in (frozen, bundle):
        rejects(reader, second, r"delta-000002.safetensors must be delta 1, got delta 2: those between are missing\.")
        cce.apply_delta(reader, branch)
        rejects(reader, first, r"must be delta 2, got delta 1: that one was applied before\.")
        rejects(reader, second, r"must follow the delta 1 that was applied, and it follows another one\.")
        rejects(reader, third, r"must be delta 2, got delta 3: those between are missing\.")


def test_deltas_of_other_models_and_damaged_ones_are_rejected(shipped, tmp_path):
    frozen, bundle, (path, *_) = shipped
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[-1] ^= 1
    relabelled = content.replace(b'"number":"1"', b'"number":"2"')
    assert relabelled != content
    others = export(learn(Model(), 3), tmp_path / "another")
    for reader in (frozen, bundle):
        for damaged in (flipped, relabelled):
            (tmp_path / "bad").write_bytes(damaged)
            rejects(reader, tmp_path / "bad", "bad must be a whole delta, and it is damaged: its checksum is another")
        for cut in (content[:-1], content[:100], b""):
            (tmp_path / "bad").write_bytes(cut)
            rejects(reader, tmp_path / "bad", "bad must be a whole safetensors file, and it is damaged")
        rejects(reader, tmp_path / "another" / MODEL, "must be a cce-delta of version 1, got 'cce-bundle'")
    rejects(others, path, r"must be a delta of model [0-9a-f]{12}, got one of model [0-9a-f]{12}\.")
    with pytest.raises(TypeError, match="served must be a frozen model or an open bundle, got Linear: freeze it"):
        cce.apply_delta(nn.Linear(1, 1), path)
    with pytest.raises(TypeError, match="served must be a frozen model or an open bundle, got 'served' of type str"):
        cce.apply_delta("served", path)


def test_only_the_model_of_the_export_makes_its_deltas(shipped, folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"since must be the folder of an export with model\.safetensors, got"):
        cce.delta(Model(), since=tmp_path)
    table = nn.Sequential(cce.create_embedding("full", 5, DIM))
    with pytest.raises(ValueError, match=r"of this model, with tables 0, got one with tables users, items, kind"):
        cce.delta(table, since=folder)
    other = learned()
    other.kind = cce.create_embedding("full", 6, DIM)
    with pytest.raises(ValueError, match="but its table 'kind' has other ids or dimensions"):
        cce.delta(other, since=folder)
    assert sorted(path.name for path in folder.iterdir() if "delta" in path.name)[-1] == "delta-000003.safetensors"


def test_a_process_with_a_share_of_the_rows_makes_no_deltas(folder):
    model, _, _ = begin(folder)
    model.users.rows.shards = Shards(0, 2)
    with pytest.raises(ValueError, match=r"table 'users' must have all rows in this process: .* got a share of them"):
        cce.delta(model, since=folder)


# -- kills and new codebooks -------------------------------------------------------------------------------------------


def test_numbers_go_on_after_a_kill_between_the_delta_and_the_export(folder):
    model, frozen, _ = begin(folder)
    first = cce.delta(learn(model, 1), since=folder).path
    shutil.copy(folder / "first.safetensors", folder / MODEL)  # as if it had not been replaced
    again = cce.delta(copy.deepcopy(model), since=folder)
    assert (again.path, again.number) == (None, 1)
    assert str(again) == "nothing has changed since delta 1"
    assert numpy_reader.open_bundle(folder / MODEL).state.version.number == 1
    second = cce.delta(learn(model, 2), since=folder)
    assert second.number == 2
    for path in (first, second.path):
        cce.apply_delta(frozen, path)
    assert contents(frozen) == encoded(model, folder)


def test_a_new_codebook_is_a_full_export_and_says_so(folder):
    model, frozen, bundle = begin(folder)
    learn(model, 1)
    for number, seed in ((1, 0), (2, 5)):
        compact = copy.deepcopy(model)
        cce.finalize(compact, num_columns=4, num_rows=10, seed=seed)
        report = cce.delta(compact, since=folder)
        assert str(report).count("new codebook: a full export") >= 2
        items = report.tables[1]
        assert (items.admitted, items.changed > 0, items.evicted) == (items.num_ids - 80 if number == 1 else 0, True, 0)
        for reader in (frozen, bundle):
            cce.apply_delta(reader, report.path)
            assert contents(reader) == contents(freeze(compact))
    report = cce.delta(learn(model, 2), since=folder)  # with the new codebooks
    cce.apply_delta(frozen, report.path)
    assert frozen.users.spec()["columns"] == 4
    assert contents(frozen) == contents(numpy_reader.open_bundle(folder / MODEL))


def test_int8_rows_that_are_served_as_they_are_have_deltas_of_rows(folder):
    model = learned()
    folder.mkdir()
    frozen = freeze(model)
    write_bundle(folder / MODEL, frozen)
    bundle = numpy_reader.open_bundle(folder / MODEL)
    report = cce.delta(learn(model, 1), since=folder)
    for reader in (frozen, bundle):
        cce.apply_delta(reader, report.path)
        assert contents(reader) == contents(freeze(model))


def test_a_table_that_lost_all_rows_reads_zeros_and_may_get_new_ones(folder):
    model, frozen, bundle = begin(folder, max_rows=None, time_to_live=3)
    model.users.rows.compact()
    remove_rows(model.users.rows, torch.ones(model.users.rows.num_rows - 1, dtype=torch.bool))
    report = cce.delta(model, since=folder)
    for reader in (frozen, bundle):
        cce.apply_delta(reader, report.path)
    assert not frozen.users(USERS).any()
    assert not bundle["users"].vectors(USERS.numpy()).any()
    report = cce.delta(learn(model, 1), since=folder)
    for reader in (frozen, bundle):
        cce.apply_delta(reader, report.path)
        assert contents(reader) == encoded(model, folder)


def test_all_ids_read_the_trained_row_where_no_id_has_one_of_its_own(folder):
    torch.manual_seed(0)
    table = cce.embeddings.CCEEmbedding(50, DIM, unseen="trained", counts=torch.ones(50))
    compact = copy.deepcopy(table)
    cce.finalize(compact, num_columns=2, num_rows=4, seed=0)
    folder.mkdir()
    write_bundle(folder / MODEL, freeze(compact))
    bundle = numpy_reader.open_bundle(folder / MODEL)
    remove_rows(table.rows, torch.ones(50, dtype=torch.bool))
    cce.apply_delta(bundle, cce.delta(table, since=folder).path)
    nearest = compact.codebook.view(2, 4, -1).square().sum(2).argmin(1)  # to row 0, which is zero
    row = compact.codebook.view(2, 4, -1)[torch.arange(2), nearest].flatten()
    for reader in (bundle, numpy_reader.open_bundle(folder / MODEL)):
        assert torch.equal(torch.from_numpy(reader["table"].vectors(range(50))), row.detach().expand(50, -1))


@pytest.mark.parametrize(
    ("method", "options"),
    [("cce-paper", {}), ("cce", {"unseen": "trained"}), ("robe", {}), ("pq", {}), ("quantized", {})],
    ids=str,
)
def test_tables_of_other_forms_have_deltas_too(folder, method, options):
    table, other = make_table(method, options), make_table(method, options)
    frozen = freeze(table)
    folder.mkdir()
    write_bundle(folder / MODEL, frozen)
    bundle = numpy_reader.open_bundle(folder / MODEL)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
        if method == "cce-paper":
            other.cluster()
    report = cce.delta(other, since=folder)
    for reader in (frozen, bundle):
        cce.apply_delta(reader, report.path)
        assert contents(reader) == contents(freeze(other))
    ids = torch.arange(600)
    np.testing.assert_array_equal(bundle["table"].vectors(ids.numpy()), frozen(ids).numpy())
    torch.testing.assert_close(frozen(ids), other(ids).detach())


def test_weights_of_bfloat16_move_as_well(folder):
    model = nn.Sequential(cce.create_embedding("full", 5, DIM), nn.Linear(DIM, 2)).bfloat16()
    frozen = freeze(model)
    folder.mkdir()
    write_bundle(folder / MODEL, frozen)
    with torch.no_grad():
        model[1].weight.mul_(3)
    cce.apply_delta(frozen, cce.delta(model, since=folder).path)
    assert torch.equal(frozen[1].weight, model[1].weight)
    assert not frozen[1].weight.requires_grad


def test_weights_that_are_not_contiguous_have_deltas_too(folder):
    model = nn.Sequential(cce.create_embedding("full", 5, DIM), nn.Linear(DIM, 2))
    model[1].weight = nn.Parameter(torch.arange(2.0 * DIM).view(DIM, 2).t())
    frozen = freeze(model)
    folder.mkdir()
    write_bundle(folder / MODEL, frozen)
    with torch.no_grad():
        model[1].weight.add_(1)
    cce.apply_delta(frozen, cce.delta(model, since=folder).path)
    assert torch.equal(frozen[1].weight, model[1].weight)
    assert not any(module.training for module in frozen.modules())


def test_a_frozen_model_is_known_by_what_it_holds_and_keeps_its_version_in_copies(shipped, folder):
    frozen, _, (first, second, _) = shipped
    version = numpy_reader.open_bundle(folder / "first.safetensors").state.version
    assert version_of(*bundle_of(frozen)) == version
    cce.apply_delta(frozen, first)
    again = copy.deepcopy(frozen)
    cce.apply_delta(again, second)
    rejects(again, second, "that one was applied before")
    cce.apply_delta(frozen, second)
    assert contents(frozen) == contents(again)


# -- readers that are in use -------------------------------------------------------------------------------------------


class Changing(nn.Module):
    """A collection whose features all have the same vectors at one time."""

    def __init__(self, value):
        super().__init__()
        self.tables = cce.EmbeddingCollection({"a": 50, "b": 50, "c": 50}, DIM, method="full", seed=0)
        for table in self.tables.tables.values():
            next(table.parameters()).data.fill_(value)


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["frozen", "bags", "bundle"])
def test_a_lookup_sees_the_state_before_or_after_a_delta_and_never_a_mix(folder, reader):
    folder.mkdir()
    frozen = freeze(Changing(0))
    write_bundle(folder / MODEL, frozen)
    bundle = numpy_reader.open_bundle(folder / MODEL)
    paths = [cce.delta(Changing(value), since=folder).path for value in range(1, 40)]
    ids, seen, mixed, is_done = torch.arange(48).view(16, 3), set(), [], threading.Event()
    bags = {name: (ids[:, 0], torch.arange(16)) for name in "abc"}

    def look_up():
        if reader == "bundle":
            tables = bundle.tables
            return torch.from_numpy(np.stack([table.vectors(ids.numpy()) for table in tables.values()]))
        return frozen.tables(ids) if reader == "frozen" else frozen.tables(bags)

    def read():
        while not is_done.is_set():
            values = look_up().unique().tolist()
            seen.update(values)
            mixed.extend([values] * (len(values) > 1))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    deadline = time.monotonic() + 60
    try:
        for value, path in enumerate(paths, start=1):
            cce.apply_delta(bundle if reader == "bundle" else frozen, path)
            while value not in seen and time.monotonic() < deadline:
                time.sleep(0)
    finally:
        is_done.set()
        for thread in readers:
            thread.join()
    assert mixed == []
    assert seen >= set(range(1, 40))
