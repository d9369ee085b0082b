"""Rows sharded over 1 to 4 real processes: the model, the file and the scores are those of one process."""

import pytest
import torch

import cce
from cce.embeddings.shards import Shards
from helpers import sharding_ranks as ranks

JOBS = (
    *("trains_as_one_process", "finalizes_as_one_process", "holds_its_share", "compresses_any_model"),
    *("evicts_by_itself", "rejects_what_does_not_fit"),
)


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def started(request, tmp_path_factory):
    """The folder of processes that do all jobs, how many they are, and what they said."""
    out = tmp_path_factory.mktemp("shards")
    return out, request.param, ranks.start(out, request.param, *JOBS)


@pytest.fixture(scope="module")
def alone():
    """The model of this process, which is not sharded."""
    return ranks.trained(shard=False)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_no_rank_fails(started, job):
    out, size, said = started
    for rank in range(size):
        file = out / f"{job}-{rank}.txt"
        assert file.exists(), said[rank][-3000:]
        assert not file.read_text(), file.read_text()


@pytest.mark.slow
def test_rows_and_scores_are_those_of_one_process(started, alone):
    out, size, _ = started
    found, (model, optimizer) = torch.load(out / "trained.pt"), alone
    one = ranks.model_state(model)
    for name, table in ranks.tables_of(model).items():
        prefix = f"tables.tables.{name}.rows."
        for key in {"map.bits", "map.keys"} & {each.removeprefix(prefix) for each in one}:
            assert torch.equal(found["state"][prefix + key], one[prefix + key])
        several, records = (each[prefix + "records"].short() for each in (found["state"], one))
        assert len(records) == 31
        assert (several - records).abs()[:, :8].max() <= 1  # where a sum in another order was rounded differently
        assert (several == records).float().mean() > (0.97 if size > 1 else 0.9999)
        squares = optimizer.state[table.anchor]["squares"]
        torch.testing.assert_close(found["squares"][name], squares, rtol=1e-3, atol=0)
    assert found["loss"] == pytest.approx(ranks.loss_of(model), abs=1e-4 if size > 1 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "sleeps"])
def test_a_lost_rank_is_reported_by_the_others_within_the_time_out(tmp_path, how):
    (tmp_path / how).touch()
    said = ranks.start(tmp_path, 3, "loses_a_rank")
    for rank in (0, 2):
        assert (tmp_path / f"loses_a_rank-{rank}.txt").read_text() == "", said


def share_after_loading(monkeypatch, *, is_final):
    """The table of rank 0 of two after it has loaded all rows, with a network that the file does not have."""
    whole = cce.embeddings.CCEEmbedding(200, 8, counts=torch.ones(200))
    if is_final:
        cce.finalize(whole, num_columns=2, num_rows=4, seed=0)
    monkeypatch.setattr(Shards, "of_group", classmethod(lambda cls: cls(0, 2)))
    own = cce.embeddings.CCEEmbedding(200, 8, shard=True)
    model = torch.nn.ModuleDict({"a network": torch.nn.Linear(1, 1), "table": own})
    model.load_state_dict({f"table.{name}": tensor for name, tensor in whole.state_dict().items()}, strict=False)
    return own


@pytest.mark.parametrize("is_final", [False, True])
def test_a_rank_keeps_its_share_and_no_memory_of_others_also_of_a_part_of_a_state(monkeypatch, is_final):
    own = share_after_loading(monkeypatch, is_final=is_final)
    num_mine = int(Shards(0, 2).is_mine(torch.arange(200)).sum())
    assert 60 < num_mine < 140
    assert own.rows.map.num_rows == num_mine
    assert len(own.pointers.store.to_tensor() if is_final else own.rows.records[1:]) == num_mine


def test_a_table_whose_row_0_is_trained_is_not_sharded_later_either():
    table = cce.embeddings.CCEEmbedding(10, 4, unseen="trained")
    with pytest.raises(ValueError, match="unseen must be 'neutral' with shard=True, got 'trained'"):
        table.shard_()
    assert not table.shard


def test_a_collection_is_sharded_as_a_whole(monkeypatch):
    tables = cce.EmbeddingCollection({"user": 2000, "item": 2000}, 8, seed=0)
    monkeypatch.setattr(Shards, "of_group", classmethod(lambda cls: cls(0, 2)))
    tables.tables["item"].shard_()
    with pytest.raises(ValueError, match="must all be sharded, or none, got feature 'item'"):
        tables(torch.zeros(4, 2, dtype=torch.int64))
