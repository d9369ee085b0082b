"""A budget is never exceeded and a larger one is never worse: of bytes and bits, given before or after training."""

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import cce
from cce.embeddings import CCEEmbedding

DIM = 8


def random_tables(seed):
    """Tables of random sizes, some of them near a few centres."""
    draw, model = torch.Generator().manual_seed(seed), nn.ModuleDict()
    for index in range(3):
        size = int(torch.randint(40, 1_500, (), generator=draw))
        centres = torch.randn(int(torch.randint(3, size, (), generator=draw)), DIM, generator=draw)
        near = centres[torch.randint(len(centres), (size,), generator=draw)]
        counts = torch.randint(1, 200, (size,), generator=draw)
        table = CCEEmbedding(size, DIM, counts=counts, generator=torch.Generator().manual_seed(index))
        table.fit_to(near + 0.1 * torch.randn(size, DIM, generator=draw))
        model[f"t{index}"] = table
    return model, {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("measure", ["nbytes", "bits"])
def test_a_budget_is_met_and_a_larger_one_loses_no_more(measure, seed):
    model, state = random_tables(seed)
    most = sum(table.nbytes for table in model.values())
    budgets = (
        [1, 2, 4, 6, 8, 12, 16, 32, 64] if measure == "bits" else [most // part for part in (12, 9, 6, 4, 3, 2, 1)]
    )
    lost = []
    for budget in budgets:
        model.load_state_dict(state)
        found = cce.finalize(model, **{measure: budget}, seed=0)
        assert found.nbytes == sum(table.nbytes for table in model.values())
        assert (found.nbytes if measure == "nbytes" else max(table.shape.bits for table in found.tables)) <= budget
        lost.append(found.chosen.distortion)
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] < lost[0] / 10


@pytest.mark.parametrize("measure", ["nbytes", "cap", "num_rows"])
def test_a_size_given_before_training_is_met_and_a_larger_one_loses_no_more(measure):
    weight, lost = torch.randn(1_500, DIM, generator=torch.Generator().manual_seed(0)), []
    for budget in {"nbytes": (4_000, 9_000, 14_200, 15_000, 40_000), "cap": (128, 512, 2_040, 2_048, 9_000)}.get(
        measure, (16, 64, 255, 256, 1_024)
    ):
        table = cce.create_embedding("cce", len(weight), DIM, seed=0, **{measure: budget})
        table.fit_to(weight)
        cce.finalize(nn.ModuleDict({"table": table}), seed=0)
        assert {"nbytes": table.nbytes, "cap": table.num_params, "num_rows": table.num_rows}[measure] <= budget
        lost.append(float((table.to_dense() - weight).square().sum()))
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] < lost[0] / 10


class Network(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tables = nn.ModuleList(cce.create_embedding("cce", size, DIM, seed=0) for size in sizes)
        self.top = nn.Sequential(nn.Linear(len(sizes) * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        vectors = [table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)]
        return self.top(torch.cat(vectors, dim=1)).squeeze(1)


def clicks(sizes, num_rows):
    """Ids and labels: users and items have shares of six tastes, and some ids come far more often."""
    draw = torch.Generator().manual_seed(0)
    likes = 2 * torch.randn(6, 6, generator=draw)
    shares = [torch.randn(size, 6, generator=draw).mul(2).softmax(1) for size in sizes]
    ids = torch.stack([(size * torch.rand(num_rows, generator=draw) ** 2).long() for size in sizes], dim=1)
    logits = 1.5 * ((shares[0][ids[:, 0]] @ likes) * shares[1][ids[:, 1]]).sum(1)
    return ids, (torch.rand(num_rows, generator=draw) < logits.sigmoid()).float()


@pytest.mark.slow
def test_after_a_training_a_larger_budget_validates_no_worse():
    sizes = (800, 500)
    torch.manual_seed(0)
    (ids, labels), model = clicks(sizes, 40_000), Network(sizes)
    optimizer = cce.optim.Adam(model, lr=0.01)
    for _ in range(3):
        for some in torch.randperm(30_000).split(500):
            optimizer.zero_grad()
            cross_entropy(model(ids[some]), labels[some]).backward()
            optimizer.step()

    @torch.no_grad()
    def validate():
        return float(cross_entropy(model(ids[30_000:]), labels[30_000:]))

    state, losses = {name: tensor.clone() for name, tensor in model.state_dict().items()}, []
    for nbytes in (1_200, 1_560, 2_028, 2_636, 3_427, 4_455, 5_792, 7_529, 9_788, 12_725):
        model.load_state_dict(state)
        found = cce.finalize(model, nbytes=nbytes, validate=validate, seed=0)
        assert found.nbytes <= nbytes
        assert found.chosen.loss == validate() <= min(losses, default=1.0) + 0.001
        losses.append(found.chosen.loss)
    assert losses[-1] < losses[0] - 0.005
