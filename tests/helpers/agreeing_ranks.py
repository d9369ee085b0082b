"""What several processes do with torch alone, as users start them: `agreeing_ranks.py OUT RANK WORLD_SIZE JOB ...`.

Every process has another global seed, as it has by itself.
"""

import gc
import pickle
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import cce
from cce.distributed import check_same, current_ranks
from cce.indexing import Assignments, IndexModule, index_tensors

CLUSTERED = cce.embeddings.ClusteredEmbedding.method
METHODS = ("hash", "robe", "dhe", "cce", CLUSTERED)
IDS = torch.arange(400)
SIZE = {"num_params": 640}
ROW_OPTIONS = {
    "by default": {},
    "unseen trained": {"unseen": "trained"},
    "at once": {"min_count": 1},
    "open": {"num_embeddings": None, "max_rows": 150, "eviction": "lru"},
}
OUT = Path(sys.argv[1]) if __name__ == "__main__" else Path()
DIFFERS = r"^\S+ of {} must be the same on all ranks, but ranks 0 and 1 differ.* give them the same seed on every rank"


class Clicks(nn.Module):
    """A table and a linear layer."""

    def __init__(self, table):
        super().__init__()
        self.table, self.out = table, nn.Linear(16, 1)

    def forward(self, ids):
        return self.out(self.table(ids)).squeeze(-1)


def table_of(method, **options):
    return cce.create_embedding(method, 400, 16, **SIZE, **options)


def my_ids(step=0):
    """Other ids on each rank."""
    return torch.randint(400, (32,), generator=torch.Generator().manual_seed(100 * step + current_ranks().rank))


def ids_of(step, ranks):
    """The ids of a step on these ranks, one after the other."""
    draws = [torch.Generator().manual_seed(100 * step + rank) for rank in ranks]
    return torch.cat([torch.randint(400, (32,), generator=draw) for draw in draws])


def row_model(seed, *, num_embeddings=400, **options):
    """A model whose table trains as int8 rows."""
    torch.manual_seed(0)
    return Clicks(cce.create_embedding("cce", num_embeddings, 16, seed=seed, **options))


def train_rows(parallel, ranks, num_steps=8):
    """The optimizer, after some steps on the batches of these ranks."""
    optimizer = cce.optim.Adam(parallel, lr=0.02)
    for step in range(num_steps):
        optimizer.zero_grad()
        ids = ids_of(step, ranks)
        (parallel(ids) - ids / 400).square().mean().backward()
        optimizer.step()
    return optimizer


def train(parallel, optimizer, num_steps=3, schedule=None):
    for step in range(num_steps):
        optimizer.zero_grad()
        parallel(my_ids(step)).square().sum().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


# -- jobs --------------------------------------------------------------------------------------------------------------


def no_seed():
    """Tables, collections and swapped tables are the same on all ranks, to the bit."""
    for method in METHODS:
        table = table_of(method)
        check_same(table.state_dict())
        table.reset_parameters()
        check_same(table.state_dict())
        model = nn.Sequential(nn.Embedding(400, 16))
        cce.compress(model, method=method, names="*", **SIZE)
        check_same(model.state_dict())
        check_same(cce.EmbeddingCollection({"user": 400, "item": 300}, 16, method=method, cap=640).state_dict())
    for direct in (cce.embeddings.HashingTrickEmbedding, cce.embeddings.ClusteredEmbedding):
        check_same(index_tensors(direct(400, 16, num_rows=8)))
    assignments = Assignments(50, 2, 8)
    check_same(assignments.state_dict())
    assignments.reset_parameters()
    check_same(assignments.state_dict())


def manual_seed():
    """The same global seed gives the same tables again, and leaves the same global generator."""
    made = []
    for _ in range(2):
        torch.manual_seed(5)
        made.append([table_of(method).to_dense() for method in METHODS])
        check_same({"global generator": torch.get_rng_state()})
    for first, second in zip(*made, strict=True):
        assert torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(table_of("hash").to_dense(), made[0][0])


def one_global_seed_decides():
    """Rank 0's global seed is the one that counts."""
    torch.manual_seed(5 + current_ranks().rank)
    found = table_of("hash").to_dense()
    torch.manual_seed(5)
    assert torch.equal(table_of("hash").to_dense(), found)


def parallel_training():
    """Without a seed, data-parallel training keeps parameters and index state equal."""
    for method in METHODS:
        parallel = DistributedDataParallel(Clicks(table_of(method)))
        assert len(parallel._forward_pre_hooks) == 1
        train(parallel, cce.optim.Adam(parallel, lr=0.1))
        assert not parallel._forward_pre_hooks
        check_same(parallel.state_dict())


def different_seeds():
    """Different seeds on purpose: the first forward in training raises on all ranks, and names the table."""
    rank = current_ranks().rank
    for method in METHODS:
        parallel = DistributedDataParallel(Clicks(table_of(method, seed=rank)))
        for _ in range(2):
            with pytest.raises(RuntimeError, match=DIFFERS.format("table 'table'")):
                parallel(my_ids())
        parallel.load_state_dict(DistributedDataParallel(Clicks(table_of(method, seed=0))).state_dict())
        train(parallel, cce.optim.Adam(parallel, lr=0.1), num_steps=1)
    tables = cce.EmbeddingCollection({"user": 400, "a.b": 300}, 16, method="hash", cap=640, seed=0)
    tables.tables["a.b"].hash.reset_parameters(torch.Generator().manual_seed(rank))
    with pytest.raises(RuntimeError, match=DIFFERS.format(r"table 'tables\.%a%2Eb'")):
        DistributedDataParallel(tables)(torch.zeros(2, 2, dtype=torch.long))


def a_bare_table():
    """A table that is itself wrapped has no name."""
    with pytest.raises(RuntimeError, match=DIFFERS.format("the table")):
        DistributedDataParallel(table_of("hash", seed=current_ranks().rank))(IDS)


def rank_zero_alone():
    """A forward in evaluation, without gradients or without reduction is one rank's own and waits for nobody."""
    parallel = DistributedDataParallel(Clicks(table_of(CLUSTERED)))
    if current_ranks().is_main:
        with torch.no_grad():
            parallel(IDS)
        parallel.eval()(IDS)
        with parallel.train().no_sync():
            parallel(IDS)
        parallel.module(IDS)
        assert len(parallel._forward_pre_hooks) == 1
        loaded = cce.embeddings.CollidingEmbedding(40, 4, num_rows=4, thin_dim=2, generator=torch.Generator())
        codebook, assignments = torch.zeros(4, 4), Assignments(40, 1, 4, generator=torch.Generator())
        loaded.load_state_dict(
            {"codebook": codebook} | {f"assignments.{name}": t for name, t in assignments.state_dict().items()}
        )
    distributed.barrier()
    parallel(IDS).sum().backward()
    assert not parallel._forward_pre_hooks


def uneven_inputs():
    """Where ranks join with uneven inputs, the last has no forward at all."""
    from torch.distributed.algorithms.join import Join

    parallel = DistributedDataParallel(Clicks(table_of("hash")))
    with Join([parallel]):
        for step in range(current_ranks().world_size - 1 - current_ranks().rank):
            parallel(my_ids(step)).sum().backward()


def compiled():
    """A compiled model is compared as well, inside or outside of the wrapper."""
    for wrapped in (
        lambda seed: torch.compile(DistributedDataParallel(Clicks(table_of("hash", seed=seed))), backend="eager"),
        lambda seed: DistributedDataParallel(torch.compile(Clicks(table_of("hash", seed=seed)), backend="eager")),
    ):
        with pytest.raises(RuntimeError, match=DIFFERS.format("table '(_orig_mod.)?table'")):
            wrapped(current_ranks().rank)(my_ids())
        model = wrapped(0)
        for step in range(3):
            model(my_ids(step)).sum().backward()
        check_same(model.state_dict())


def saved_before_the_first_forward():
    """A wrapped model can be pickled."""
    parallel = DistributedDataParallel(Clicks(table_of("hash")))
    copied = pickle.loads(pickle.dumps(parallel))
    copied(my_ids()).sum().backward()


def schedule():
    """A schedule finds the processes by itself: it sends its results, whatever seeds it has."""
    rank = current_ranks().rank
    tables = cce.EmbeddingCollection({"user": 400, "item": 300}, 16, method=CLUSTERED, cap=640)
    model = nn.Sequential(tables, nn.Flatten(), nn.Linear(32, 1))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.1)
    when = cce.reclustering.ClusterSchedule(parallel, optimizer, every=2, seed=rank)
    for step in range(4):
        optimizer.zero_grad()
        parallel(torch.stack([my_ids(step), my_ids(step) % 300], dim=1)).square().sum().backward()
        optimizer.step()
        assert len(when.step()) == 2 * (step % 2)
        check_same(index_tensors(model))
    check_same(model.state_dict())
    check_same({f"moment {index}": state["exp_avg"] for index, state in optimizer.state_dict()["state"].items()})


def bare_clusterings():
    """Clusterings without a schedule agree on a seed; with different generators they raise."""
    rank = current_ranks().rank
    table = table_of(CLUSTERED)
    table.cluster()
    check_same(table.state_dict())
    tables = cce.EmbeddingCollection({"user": 400, "item": 300}, 16, method=CLUSTERED, cap=640)
    tables.cluster()
    check_same(tables.state_dict())
    with pytest.raises(RuntimeError, match=DIFFERS.format("the table")):
        table.cluster(generator=torch.Generator().manual_seed(rank))
    with pytest.raises(RuntimeError, match=DIFFERS.format("table of feature 'user'")):
        tables.cluster(generator=torch.Generator().manual_seed(rank))
    collide = cce.embeddings.CollidingEmbedding(
        400, 16, num_rows=8, thin_dim=4, generator=torch.Generator().manual_seed(0)
    )
    collide.cluster()
    check_same(collide.state_dict())


def trained_start():
    """Tables that are fitted to the same weights become the same, without a seed."""
    weight = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    for method in ("pq", CLUSTERED):
        model = nn.Sequential(nn.Embedding.from_pretrained(weight, freeze=False))
        cce.compress(model, method=method, names="*", start="trained", **SIZE)
        check_same(model.state_dict())


class Rows(IndexModule):
    """Index state that is stored in a way of its own, beside a parameter and a buffer."""

    index_state = ()

    def __init__(self, value):
        super().__init__()
        self.rows = torch.full((3,), value, dtype=torch.int8)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("steps", torch.tensor(float(current_ranks().rank)))

    def forward(self, ids):
        return self.scale * self.rows[ids]

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "rows"] = self.rows


def new_kinds_of_state():
    """Whatever an `IndexModule` saves is compared; parameters and buffers are torch's own to send."""
    assert list(index_tensors(nn.ModuleDict({"a": Rows(1)}))) == ["a.rows of the table"]
    DistributedDataParallel(nn.Sequential(Rows(1)))(torch.tensor([0])).sum().backward()
    with pytest.raises(RuntimeError, match=r"^0\.rows of the table must be the same on all ranks"):
        DistributedDataParallel(nn.Sequential(Rows(current_ranks().rank)))(torch.tensor([0]))


def int8_rows():
    """Int8 rows and their optimizer are equal on all ranks; the test compares them with one process's."""
    rank = current_ranks().rank
    for name, options in ROW_OPTIONS.items():
        parallel = DistributedDataParallel(row_model(0, **options))
        optimizer = train_rows(parallel, [rank])
        check_same(parallel.state_dict())
        state = optimizer.state[parallel.module.table.anchor]
        check_same({key: torch.as_tensor(value) for key, value in state.items()})
        torch.save(parallel.module.state_dict() | {"squares": state["squares"]}, OUT / f"{name} {rank}.pt")
    unseeded = DistributedDataParallel(Clicks(cce.create_embedding("cce", 400, 16)))
    train_rows(unseeded, [rank])
    check_same(unseeded.state_dict())
    unseeded.module.table.rows.key += rank
    with pytest.raises(RuntimeError, match=r"^rows\.numbers of table 'table' must be the same on all ranks"):
        DistributedDataParallel(unseeded.module)(my_ids())


def int8_rows_summed_over_passes():
    """Passes without a reduction are added up; a rank whose ids get no rows takes the steps of the others."""
    rank = current_ranks().rank
    parallel = DistributedDataParallel(row_model(None))
    optimizer = cce.optim.Adam(parallel, lr=0.02)
    for step in range(3):
        optimizer.zero_grad(set_to_none=step != 1)
        with parallel.no_sync():
            parallel(my_ids(step)).square().mean().backward()
        parallel(my_ids(step + 10)).square().mean().backward()
        optimizer.step()
        check_same(parallel.state_dict())
    before = parallel.module.table.rows.num_rows
    ids = 300 + torch.arange(40).view(20, 2) if rank else torch.arange(20).view(20, 1).repeat(1, 2)
    optimizer.zero_grad()
    parallel(ids.view(-1)).square().mean().backward()
    optimizer.step()
    check_same(parallel.state_dict())
    assert parallel.module.table.rows.num_rows > before


def int8_rows_clipped():
    """What clipping does to the norm of all gradients is done to those of rows."""
    rank, squares, totals = current_ranks().rank, [], []
    for max_norm in (1e9, 1e-3):
        parallel = DistributedDataParallel(row_model(0, min_count=1))
        optimizer = cce.optim.Adam(parallel, lr=0.02)
        parallel(ids_of(0, [rank])).square().mean().backward()
        totals.append(nn.utils.clip_grad_norm_(parallel.parameters(), max_norm))
        optimizer.step()
        check_same(parallel.state_dict())
        squares.append(optimizer.state[parallel.module.table.anchor]["squares"])
    assert totals[0] == totals[1] > 2e-3
    torch.testing.assert_close(squares[1], squares[0] * (1e-3 / totals[1]).double() ** 2, rtol=1e-3, atol=0)


def finalized_rows():
    """Tables are finalized alike, whatever the seeds of ranks, and train on."""
    rank = current_ranks().rank
    model = row_model(None)
    train_rows(DistributedDataParallel(model), [rank])
    cce.finalize(model, num_rows=8, seed=rank)
    check_same(model.state_dict())
    before = model.table.codebook.detach().clone()
    parallel = DistributedDataParallel(model)
    train_rows(parallel, [rank])
    check_same(parallel.state_dict())
    assert not torch.equal(model.table.codebook, before)


def finalized_by_validation():
    """All ranks choose the size by the mean of their losses, though each would choose another, and have equal bits."""
    rank = current_ranks().rank
    model = row_model(None)
    train_rows(DistributedDataParallel(model), [rank])
    rows = model.table.to_dense().detach()

    def validate():
        return (1 if rank else 100) * float((model.table.to_dense() - rows).square().mean())

    found = cce.finalize(model, validate=validate, tolerance=0.007)
    check_same(model.state_dict())
    losses = [found.loss_before, *(size.loss for size in found.curve if size.loss is not None)]
    check_same({"chosen": torch.tensor([found.nbytes, *found.chosen.shapes["table"]]), "losses": torch.tensor(losses)})
    assert model.table.is_final
    assert found.loss_before == 0 < found.chosen.loss <= 0.007
    assert found.chosen not in (found.curve[0], found.curve[-1])  # which ranks 1 and 0 would choose alone


def validation_that_fails_on_one_rank():
    """All ranks raise, whenever it fails, and have their rows as they were."""
    rank = current_ranks().rank
    model = row_model(None)
    train_rows(DistributedDataParallel(model), [rank])
    model.table.rows.compact()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for fails_at in (1, 3):
        calls = iter(range(1, 100))

        def validate(calls=calls, fails_at=fails_at):
            if next(calls) == fails_at and rank == 1:
                raise LookupError("no such file")
            return 0.5

        wanted = (LookupError, "no such file") if rank == 1 else (ValueError, "a finite loss on every process, got nan")
        with pytest.raises(wanted[0], match=wanted[1]):
            cce.finalize(model, validate=validate)
        assert next(calls) == fails_at + 1
        assert not model.table.is_final
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert cce.finalize(model, num_rows=8).nbytes == model.table.nbytes
    check_same(model.state_dict())


def refitted():
    """Ranks refit by rows of their own, and keep the same round, by the mean of scores of which rank 0 has others."""
    rank = current_ranks().rank
    model = row_model(None)
    train_rows(DistributedDataParallel(model), [rank])
    cce.finalize(model, num_rows=8)
    scores = iter([1.0, 3.0 if rank else 0.0, 0.9])
    ids = ids_of(0, [rank])
    found = cce.refit(model, [(ids, (ids % 2).float())], validate=lambda: next(scores), rounds=2, progress=False)
    check_same(model.state_dict())
    assert found.kept == 2
    assert found.rounds[1].score > 1


def other_models():
    """A model without tables of ours sends nothing."""
    parallel = DistributedDataParallel(nn.Linear(2, 1))
    parallel(torch.ones(1, 2)).sum().backward()
    assert not parallel._forward_pre_hooks


def main(out, rank, world_size, *jobs):
    torch.set_num_threads(1)
    store = f"file://{out}/store"
    distributed.init_process_group(
        "gloo", init_method=store, rank=int(rank), world_size=int(world_size), timeout=timedelta(seconds=120)
    )
    for job in jobs:
        torch.seed()
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
