"""Two and three real processes, started without `torchrun`, hold the same index state, or are told that they do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cce
from cce.indexing import check_index_state, common_generator, index_tensors
from helpers import agreeing_ranks

TESTS = Path(__file__).resolve().parents[1]
JOBS = (
    *("no_seed", "manual_seed", "one_global_seed_decides", "parallel_training", "different_seeds", "a_bare_table"),
    *("rank_zero_alone", "uneven_inputs", "compiled", "saved_before_the_first_forward", "schedule", "bare_clusterings"),
    *("trained_start", "new_kinds_of_state", "other_models"),
    *("int8_rows", "int8_rows_summed_over_passes", "int8_rows_clipped", "finalized_rows"),
    *("finalized_by_validation", "validation_that_fails_on_one_rank", "refitted"),
)


@pytest.fixture(scope="module", params=[2, 3])
def started(request, tmp_path_factory):
    """The folder in which processes that do one job after the other say what went wrong, and how many they are."""
    out, size = tmp_path_factory.mktemp("ranks"), request.param
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "helpers" / "agreeing_ranks.py"), str(out), str(rank), str(size), *JOBS],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return out, size, said


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_ranks_agree(started, job):
    out, size, said = started
    for rank in range(size):
        file = out / f"{job}-{rank}.txt"
        assert file.exists(), said[rank][-3000:]
        assert not file.read_text(), file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", agreeing_ranks.ROW_OPTIONS)
def test_int8_rows_are_those_of_one_process_with_the_whole_batch(started, name):
    out, size, _ = started
    model = agreeing_ranks.row_model(0, **agreeing_ranks.ROW_OPTIONS[name])
    optimizer = agreeing_ranks.train_rows(model, range(size))
    one, several = model.state_dict(), torch.load(out / f"{name} 0.pt")
    for key in {"table.rows.map.bits", "table.rows.map.keys", "table.rows.seen"} & one.keys():
        assert torch.equal(several[key], one[key])
    found, expected = (each["table.rows.records"].short() for each in (several, one))
    assert len(found) > 100
    assert (found - expected).abs()[:, :16].max() <= 1  # where a sum in another order was rounded to the other side
    assert (found == expected).float().mean() > 0.98
    torch.testing.assert_close(several["squares"], optimizer.state[model.table.anchor]["squares"], rtol=0.01, atol=0)
    torch.testing.assert_close(several["out.weight"], one["out.weight"], rtol=0, atol=1e-3)


def test_alone_nothing_is_compared_and_torchs_generator_is_used():
    assert common_generator(None) is None
    given = torch.Generator()
    assert common_generator(given) is given
    check_index_state({"the table": cce.create_embedding("hash", 10, 4, num_params=20)})


def test_index_state_is_named_by_its_table():
    table = cce.embeddings.ClusteredEmbedding(20, 4, num_rows=4, num_columns=2)
    found = index_tensors(nn.ModuleDict({"user": table}))
    names = ("assignments.pointers", "assignments.pointer_shape", "helper.seeds")
    assert set(found) == {f"{name} of table 'user'" for name in names}
    assert "helper.seeds of the table" in index_tensors(table)
