"""What several processes do with sharded tables: `sharding_ranks.py OUT RANK WORLD_SIZE JOB ...`."""

import gc
import json
import os
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import cce
from cce.distributed import check_same, current_ranks, gather_rows, sum_over_ranks
from cce.embeddings import model_state

OUT = Path(sys.argv[1]) if __name__ == "__main__" else Path()
FEATURES = {"user": 400, "item": None, "shop": 30}
BATCH = 48  # of all ranks together
OPTIONS = {"min_count": 2, "counter_nbytes": 4096}


class Clicks(nn.Module):
    """Tables and a linear layer."""

    def __init__(self, *, shard=True, seed=0, features=FEATURES, **options):
        super().__init__()
        torch.manual_seed(0)
        self.tables = cce.EmbeddingCollection(features, 8, shard=shard, seed=seed, options={"cce": OPTIONS | options})
        self.out = nn.Linear(8 * len(features), 1)

    def forward(self, ids):
        return self.out(self.tables(ids).flatten(1)).squeeze(-1)


def batch_of(step, rank=0, world_size=1):
    """Ids and labels of a step: this rank's rows of a batch that is the same for any number of ranks."""
    draw = torch.Generator().manual_seed(step)
    ids = torch.randint(30, (BATCH, 3), generator=draw) * torch.tensor([13, 977, 1])
    labels = (ids.sum(1) % 7 < 3).float()
    own = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
    return ids[own], labels[own]


def train(model, parallel=None, num_steps=20, first=0, optimizer=None):
    """Adam, on the shares of each batch."""
    ranks = current_ranks()
    optimizer = optimizer or cce.optim.Adam(model, lr=0.02)
    for step in range(first, first + num_steps):
        optimizer.zero_grad()
        ids, labels = batch_of(step, ranks.rank, ranks.world_size)
        logits = (parallel or model)(ids)
        nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
    return optimizer


@torch.no_grad()
def loss_of(model):
    """The loss of rows that nobody trains on; each rank looks up all of them."""
    ids, labels = batch_of(1000)
    return float(nn.functional.binary_cross_entropy_with_logits(model(ids), labels))


def parallel_of(model):
    return DistributedDataParallel(model) if current_ranks().world_size > 1 else None


def tables_of(model):
    """The tables of int8 rows or pointers; "shop" is so small that it is full, and the same on all ranks."""
    return {name: table for name, table in model.tables.tables.items() if table.method == "cce"}


def trained(**options):
    model = Clicks(**options)
    optimizer = train(model, parallel_of(model))
    return model, optimizer


# -- jobs --------------------------------------------------------------------------------------------------------------


def trains_as_one_process():
    """The test compares the rows of all ranks, and the loss, with one process's."""
    model, optimizer = trained()
    state, ranks = model_state(model), current_ranks()
    loss = loss_of(model)
    held = torch.tensor([[table.nbytes for table in tables_of(model).values()]])
    held = gather_rows(held, ranks)
    squares = {name: optimizer.state[table.anchor]["squares"] for name, table in tables_of(model).items()}
    check_same(squares)
    if ranks.is_main:
        torch.save({"state": state, "loss": loss, "held": held, "squares": squares}, OUT / "trained.pt")


def finalizes_as_one_process():
    """Codebooks are the same on all ranks; the file that is saved serves what the ranks serve."""
    model, _ = trained()
    found = cce.finalize(model, num_columns=2, num_rows=8, seed=0)
    check_same({name: table.codebook for name, table in tables_of(model).items()})
    assert all(table.is_final for table in tables_of(model).values())
    cce.save(model, OUT / "served.safetensors")
    loss = loss_of(model)
    assert [table.num_ids for table in found.tables] == [30, 30]
    alone = cce.load(OUT / "served.safetensors", into=Clicks(shard=False))
    ids, _ = batch_of(7)
    assert torch.equal(model(ids), alone(ids))
    assert loss == loss_of(alone)
    parallel = parallel_of(model)
    before = model.tables.tables["user"].codebook.detach().clone()
    train(model, parallel, num_steps=2, first=50)
    after = model.tables.tables["user"].codebook
    assert not torch.equal(before, after)
    check_same({"codebook": after})


def holds_its_share():
    """The bytes of a rank are its share of those of one process, within a tenth."""
    counts = {"user": torch.ones(40_000)}
    one, own = (cce.EmbeddingCollection({"user": 40_000}, 16, shard=s, seed=0, counts=counts) for s in (False, True))
    share = one.nbytes / current_ranks().world_size
    assert own.nbytes == pytest.approx(share, rel=0.1)
    assert own.tables["user"].rows.records.nbytes == pytest.approx(19 * 40_000 / current_ranks().world_size, rel=0.1)
    ids = torch.arange(39_000, 40_000).view(-1, 1)
    assert torch.equal(own(ids), one(ids))


class Bags(nn.Module):
    """A model as torch has it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.user = nn.Embedding(2000, 16, padding_idx=3)
        self.words = nn.EmbeddingBag(3000, 16, mode="mean")
        self.tags = nn.EmbeddingBag(3000, 16, mode="sum", include_last_offset=True)

    def forward(self, ids):
        offsets = torch.arange(0, ids.numel() + 1, ids.shape[1])
        tags = torch.cat([ids, ids[:1]]).flatten()  # some after the last bag
        weights = torch.linspace(-1, 1, len(tags))
        return self.user(ids[:, 0]) + self.words(ids) + self.tags(tags, offsets, weights)


def compresses_any_model():
    """Single ids, padding and bags, looked up twice before a step, as replicated rows; and what is saved is read."""
    ranks, made = current_ranks(), []
    ids = torch.randint(50, (24, 5), generator=torch.Generator().manual_seed(1)) * 3
    own = ids[ranks.rank * 24 // ranks.world_size : (ranks.rank + 1) * 24 // ranks.world_size]
    for shard in (True, False):
        model = Bags()
        cce.compress(model, shard=shard, seed=0, min_count=2)
        optimizer, parallel = cce.optim.Adam(model, lr=0.02), parallel_of(model) or model
        for _ in range(3):
            optimizer.zero_grad()
            (parallel(own) + model(own)).cumsum(1).sum().backward()
            optimizer.step()
        made.append(model)
    cce.save(made[0], OUT / "compressed.safetensors")
    loaded = cce.load(OUT / "compressed.safetensors", into=Bags())
    found, expected, one = made[0](ids), loaded(ids), made[1](ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    scale = made[1].user.rows.scale
    assert (made[0].user(ids) - made[1].user(ids)).abs().max() <= 1.01 * scale + 1e-6
    assert (found - one).abs().max() <= 0.2 * one.abs().max()
    for name in ("user", "words.table", "tags.table"):
        several, whole = (model.get_submodule(name).rows.counters["rows"] for model in made)
        assert int(sum_over_ranks(torch.tensor(several), ranks)) == whole > 10
    cce.finalize(made[0], num_columns=2, num_rows=4, seed=0)
    before = made[0](ids)
    cce.embeddings.unshard(made[0])
    assert not made[0].user.is_sharded
    torch.testing.assert_close(made[0](ids), before, rtol=0, atol=1e-6)


def evicts_by_itself():
    """Ranks take rows away, each its own; together there are never more than there may be."""
    model = Clicks(max_rows=24, min_count=1, eviction="lru")
    train(model, parallel_of(model))
    ranks = current_ranks()
    rows = gather_rows(torch.tensor([[table.rows.num_rows - 1 for table in tables_of(model).values()]]), ranks)
    assert (rows <= -(-24 // ranks.world_size)).all()
    assert (rows.sum(0) > 8).all()


def rejects_what_does_not_fit():
    """One clear line on every rank, and the next lookup works."""
    rank, size = current_ranks().rank, current_ranks().world_size
    differs = "must be the same on all ranks, but ranks 0 and 1 differ.*Rows are sharded over all ranks, which must"
    cases = {"the seed of feature 'user'": {"seed": rank}, "the arguments of feature 'user'": {"min_count": 1 + rank}}
    cases["the list of sharded tables"] = {"features": {"user": 400, "else" if rank else "item": None}}
    for what, options in cases.items() if size == 2 else ():
        with pytest.raises(RuntimeError, match=f"^{what} {differs}"):
            Clicks(**options)
    if size == 2:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cce.embeddings.shards.__version__", str(rank))
            with pytest.raises(RuntimeError, match=f"^the version of cce {differs}"):
                Clicks()
    model = Clicks()
    ids, _ = batch_of(0)
    wrong = ids.clone()
    wrong[5, 0] = 400 if rank == size - 1 else 0
    last = rank == size - 1
    kind, said = (
        (IndexError, r"ids of feature 'user' must lie in \[0, 400\), got 400")
        if last
        else (RuntimeError, f"no rank goes on, as rank {size - 1} has an error with its ids, and says which")
    )
    with pytest.raises(kind, match=said):
        model(wrong)
    assert model(ids[: 0 if last else BATCH]).shape == (0 if last else BATCH,)
    train(model, parallel_of(model), num_steps=3)
    cce.finalize(model, num_rows=4, seed=0)
    if size > 1:
        with pytest.raises(ValueError, match=r"^table .* must be whole here, got a share: cce\.save the model"):
            cce.freeze(model.tables)
        with pytest.raises(ValueError, match=r"tables must be whole to be refitted.*cce\.embeddings\.unshard"):
            cce.refit(model, [batch_of(0)], progress=False)
    cce.save_checkpoint(OUT / "small", model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cce.checkpoints.MOST_ROWS", 3)
        if size > 1:
            with pytest.raises(ValueError, match=r"must give each rank at most 3 rows of table 'tables.*, of which"):
                cce.load_checkpoint(OUT / "small", Clicks())


def loses_a_rank():
    """Rank 1 dies, or does not come; the others say so within the time-out, 15 seconds here."""
    model, began = Clicks(), time.monotonic()
    ids, _ = batch_of(0)
    model(ids)
    if current_ranks().rank == 1:
        time.sleep(30 if (OUT / "sleeps").exists() else 0)
        os._exit(1)
    with pytest.raises(RuntimeError, match=r"^one of the 3 ranks .* is gone, or did not come within 0:00:15"):
        model(ids)
    assert time.monotonic() - began < 80
    Path(OUT, f"loses_a_rank-{current_ranks().rank}.txt").write_text("")
    os._exit(0)  # the group is of no use any more


def saves_a_checkpoint():
    """The test loads it with other numbers of ranks, and goes on."""
    model, optimizer = trained()
    cce.save_checkpoint(OUT / "checkpoint", model, optimizer, step=20)
    cce.finalize(model, num_columns=2, num_rows=8, seed=0)
    cce.save_checkpoint(OUT / "final", model)


def goes_on_from(folder):
    """The loss after ten more steps from a checkpoint, and the sum of all counters."""
    model = Clicks(shard=current_ranks().world_size > 1)
    optimizer = cce.optim.Adam(model, lr=0.02)
    assert cce.load_checkpoint(folder, model, optimizer) == {"step": 20}
    train(model, parallel_of(model), num_steps=10, first=20, optimizer=optimizer)
    admitted = torch.tensor([table.rows.counters["admitted"] for table in tables_of(model).values()])
    return loss_of(model), sum_over_ranks(admitted, current_ranks()).tolist()


def loads_the_checkpoint_of_two():
    """That of two ranks, in the folder beside."""
    folder = OUT.parent / "two"
    loss, admitted = goes_on_from(folder / "checkpoint")
    model = Clicks()
    cce.load_checkpoint(folder / "final", model)
    Path(OUT, f"loaded-{current_ranks().rank}.json").write_text(json.dumps([loss, admitted, loss_of(model)]))


def start(out, size, *jobs):
    """Processes that do one job after the other, and what they wrote to stderr."""
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(out), str(rank), str(size), *jobs],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CCE_COMPILED": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        return [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()


def main(out, rank, world_size, *jobs):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{out}/store",
        rank=int(rank),
        world_size=int(world_size),
        timeout=timedelta(seconds=15 if "loses_a_rank" in jobs else 120),
    )
    for job in jobs:
        try:
            globals()[job]()
            message = ""
        except BaseException:  # noqa: BLE001  the test shows it
            message = traceback.format_exc()
        Path(out, f"{job}-{rank}.txt").write_text(message)
    gc.collect()  # a data-parallel model that outlives its group may abort the process
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
