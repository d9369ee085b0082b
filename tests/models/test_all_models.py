"""What every model must do: bags, no dense features, one feature, gradients, export, refits, and training."""

import pytest
import torch
from torch import nn

import cce
from cce.models import MODELS, create_model
from cce.schema import Batch
from helpers.model_rows import batch_of, schema_of, tables_of

SMALL = {
    "dlrm": {"bottom": [6], "top": [8]},
    "mlp": {"hidden": [8, 6]},
    "deepfm": {"hidden": [8, 6]},
    "dcnv2": {"hidden": [8, 6], "num_cross_layers": 2},
}
CASES = [(name, {}) for name in SMALL]
CASES += [("dlrm", {"concatenate": True})]
NAMES = [f"{name}-{'-'.join(options) or 'plain'}" for name, options in CASES]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=NAMES)


def made(name, schema, tables=None, **options):
    torch.manual_seed(0)
    return create_model(name, schema, tables or tables_of(schema), **(SMALL[name] | options))


def test_all_models_of_the_registry_are_here_but_gmf_which_takes_two_features():
    assert set(SMALL) == set(MODELS) - {"gmf"}


@every_case
@pytest.mark.parametrize("multi_hot", [False, True])
@pytest.mark.parametrize("num_dense", [0, 2])
def test_every_parameter_is_trained(name, options, num_dense, multi_hot):
    schema = schema_of(num_dense=num_dense, multi_hot=multi_hot)
    model, batch = made(name, schema, **options), batch_of(schema, rows=64)
    logits = model(batch)
    assert logits.shape == (64,)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


@every_case
def test_one_feature_is_enough(name, options):
    schema = schema_of(num_features=1, num_dense=0)
    if name == "dlrm" and not options:
        with pytest.raises(ValueError, match="for a dot product, or concatenate=true; got one feature"):
            made(name, schema)
        return
    options = {**options, **({"contexts": [["a"], []]} if "contexts" in options else {})}
    assert made(name, schema, **options)(batch_of(schema)).shape == (6,)


@every_case
def test_no_rows_and_one_row_work_with_batch_normalisation(name, options):
    schema = schema_of()
    model = made(name, schema, batch_norm=True, dropout=0.5, **options)
    for rows in (0, 1, 3):
        assert model.train()(batch_of(schema, rows)).shape == (rows,)
        assert model.eval()(batch_of(schema, rows)).shape == (rows,)


@every_case
def test_dropout_and_batch_normalisation_change_training_only(name, options):
    schema = schema_of()
    plain, batch = made(name, schema, **options), batch_of(schema)
    other = made(name, schema, dropout=0.5, batch_norm=True, **options)
    kinds = [type(module) for module in other.modules()]
    assert kinds.count(nn.Dropout) == kinds.count(nn.ReLU) - bare_relus(name, options)
    assert torch.allclose(other.eval()(batch), plain(batch), atol=1e-4)  # running mean 0 and variance 1
    assert not torch.allclose(other.train()(batch), plain(batch), atol=1e-3)


def bare_relus(name, options):
    """ReLUs that no dropout follows: those of gates, and the one after the bottom network of dlrm."""
    return 1 if name == "dlrm" else 0


@every_case
def test_the_same_seed_gives_the_same_start(name, options):
    one, two = (made(name, schema_of(), **options) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


class Plain(nn.Module):
    """A model of tensors, as it is exported."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, dense, ids):
        return self.model(Batch(dense, ids, dense[:, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_exported_program_gives_the_same_logits(name):
    schema = schema_of()
    model, batch = Plain(made(name, schema, batch_norm=True).eval()), batch_of(schema)
    program = torch.export.export(model, (batch.dense, batch.ids))
    other = batch_of(schema, seed=2)
    torch.testing.assert_close(program.module()(other.dense, other.ids), model(other.dense, other.ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_refit_learns_pointers_through_the_model(name, tmp_path):
    from cce.data import PreparedData, SyntheticConfig, prepare_synthetic

    config = SyntheticConfig(num_rows=600, vocabulary_sizes=(40, 30), num_dense=2, num_clusters=4)
    prepare_synthetic(tmp_path / "data", config, progress=False)
    data = PreparedData.open(tmp_path / "data")
    tables = cce.EmbeddingCollection(data.schema.vocabulary_sizes, 16, options={"cce": {"num_rows": 4}}, seed=0)
    for table in tables.tables.values():
        table.fit_to(torch.randn(table.num_embeddings, 16, generator=torch.Generator().manual_seed(1)))
    cce.finalize(tables)
    model = made(name, data.schema, tables, batch_norm=True, dropout=0.5)
    report = cce.refit(
        model,
        lambda: data.loader("train", batch_size=200, shuffle=False),
        forward=lambda batch: (model(batch), batch.labels),
        rounds=1,
    )
    assert len(report.rounds[1].tables) == 2
    assert all(event.churn > 0 for event in report.rounds[1].tables.values())
    batch = next(iter(data.loader("train", batch_size=16)))
    assert bool(model(batch).isfinite().all())
    assert model.training  # the refit left the mode as it was
