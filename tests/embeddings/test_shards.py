"""Rows sharded over 1 to 4 real processes: the model, the file and the scores are those of one process."""

import pytest
import torch

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
