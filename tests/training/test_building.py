"""Parts as the configuration says, and for the rest as the method of the tables has it."""

from dataclasses import replace

import pytest
import torch

import cce
from cce.data import PreparedData
from cce.runs import load_run
from cce.schema import Feature, Schema
from cce.training import Trainer, count_ids, resolve
from cce.training.checkpoint import open_checkpoint
from cce.training.model import load_model, make_model
from cce.training.resolving import DataSizes
from cce.training.session import build_schedule, create_optimizer, give_rows
from helpers.runs import CCE, tiny_config, tiny_resolved


def built(data, **changes):
    config = tiny_resolved(data, **changes)
    return config, make_model(vars(config), PreparedData.open(data).schema)


def test_the_seed_alone_makes_the_model(data):
    one, two, other = (built(data, seed=seed)[1].state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["top.0.weight"], other["top.0.weight"])


def test_budgets_and_options_reach_the_tables(data):
    options = {"num_columns": 2, "settings": {"init": "k-means++"}}
    _, model = built(data, method_options=options)
    table = model.tables.tables["c0"]
    assert isinstance(table, cce.embeddings.ClusteredEmbedding)
    assert table.num_columns == 2
    assert table.settings.init == "k-means++"
    assert table.num_params <= 320
    assert built(data, method="full", cap=None)[1].tables.num_params == (121 + 61 + 31) * 8


def test_a_budget_in_bytes_reaches_the_tables(data):
    config, model = built(data, cap=None, nbytes=5_000)
    assert config.budget == cce.budget.Budget(nbytes=5_000)
    assert 4_500 < model.tables.nbytes <= 5_000
    planned = cce.collection.plan_tables(model.tables.features, 8, method=config.method, budget=config.budget)
    assert [table.nbytes for table in model.tables.tables.values()] == [table.nbytes for table in planned.tables]


@pytest.mark.parametrize(
    ("changes", "num_columns"), [({}, 4), ({"method_options": {"num_columns": 2}}, 2), ({"embedding_dim": 10}, 5)]
)
def test_columns_are_the_paper_s_unless_told(data, changes, num_columns):
    _, model = built(data, **changes)
    assert model.tables.tables["c0"].num_columns == num_columns


def steps(data, **changes):
    config, model = built(data, **({"cluster_at": "auto", "batch_size": 8} | changes))
    assert config.steps_per_epoch == 100
    schedule = build_schedule(config, model, create_optimizer("sgd", model, lr=0.1))
    return schedule if schedule is None else schedule.steps


def test_nothing_is_chosen_that_a_method_has_no_use_for(data):
    config, _ = built(data, method="hash", cluster_at="auto")
    assert (config.cluster_at, config.tolerance, config.refits, config.min_count) == ([], 0, 0, 0)


@pytest.mark.slow
def test_schedules_are_chosen_by_the_epochs_and_the_method(data):
    assert steps(data, epochs=10, method="cce") is None  # refits come after the epochs
    assert steps(data, epochs=1) == {25, 50}
    assert steps(data, epochs=10, method="collide", cap=480) == {100, 200, 300, 400, 500, 600}
    assert steps(data, epochs=10, method="cce", preset="paper") == {100, 200, 300, 400, 500, 600}
    assert steps(data, epochs=1, cluster_at="best-of-10-epochs") == {100, 200, 300, 400, 500, 600}
    assert steps(data, cluster_at="never") is None
    assert steps(data, cluster_at=[0.5, 1.25]) == {50, 125}


@pytest.mark.slow
def test_a_checkpoint_gives_its_configuration_and_its_model(data, tmp_path):
    trainer = Trainer(tiny_config(data), tmp_path / "run")
    trainer.run()
    checkpoint = open_checkpoint(tmp_path / "run")[0]
    options, model = load_model(checkpoint)
    assert options == vars(trainer.config)
    assert model.state_dict().keys() == checkpoint.model.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, checkpoint.model[name]), name


def counted_by_hand(data):
    batch = next(iter(data.loader("train", batch_size=10**6, shuffle=False)))
    sizes = data.schema.vocabulary_sizes.values()
    return [torch.bincount(batch.ids[:, index], minlength=size) for index, size in enumerate(sizes)]


def test_ids_are_counted_in_the_training_rows(data, monkeypatch):
    prepared = PreparedData.open(data)
    monkeypatch.setattr("cce.data.prepared.COUNTED", 33)  # many blocks, the last not whole
    for name, wanted in zip(prepared.schema.vocabulary_sizes, counted_by_hand(prepared), strict=True):
        counts = count_ids(prepared, name)
        assert torch.equal(counts, wanted.int())
        assert counts.sum() == prepared.num_rows("train")


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"min_count": 8}])
def test_ids_that_occur_often_enough_have_rows_and_all_others_read_zeros(data, tmp_path, given):
    prepared = PreparedData.open(data)
    trainer = Trainer(tiny_config(data, **CCE, epochs=1, refits=1, **given), tmp_path / "run")
    trainer.run()
    tables = {n: t for n, t in trainer.model.tables.tables.items() if isinstance(t, cce.embeddings.CCEEmbedding)}
    assert list(tables) == ["c0", "c1"]  # the third is full
    for name, counts in zip(prepared.schema.vocabulary_sizes, counted_by_hand(prepared), strict=True):
        if name in tables:
            often = counts >= given.get("min_count", 1)
            assert 0 < int(often.sum()) < len(often)
            assert torch.equal(tables[name].row_map(torch.arange(len(often))) > 0, often)
            assert torch.equal(tables[name](torch.arange(len(often))).abs().sum(1) > 0, often)
    scores = load_run(tmp_path / "run").evaluate(data).scores  # a saved model has them as well
    assert 0 < scores["bce"] < 2


def test_cce_trains_as_int8_rows_and_is_refitted(data):
    prepared = PreparedData.open(data)
    config = resolve(tiny_config(data, **CCE), prepared)
    assert config.refits == cce.embeddings.CCEEmbedding.training_defaults().refits > 0
    table = make_model(vars(config), prepared.schema).tables.tables["c0"]
    assert isinstance(table, cce.embeddings.CCEEmbedding)
    assert not table.is_final


def test_the_size_of_cce_is_open_without_a_cap(data):
    bare, prepared = tiny_config(data, cap=None, **CCE), PreparedData.open(data)
    for given in (bare, replace(bare, nbytes=5000), replace(bare, bits=8.0), replace(bare, tolerance=0.1)):
        resolved = resolve(given, prepared)
        assert resolved.cap is None
        tables = make_model(
            vars(resolved), Schema((Feature("user", 9000), Feature("item", 8000)))
        ).tables.tables.values()
        assert [table.is_sized for table in tables] == [False, False]
    assert resolve(replace(bare, tolerance=0.1), prepared).tolerance == 0.1
    assert resolve(bare, prepared).tolerance == 0.0005
    assert resolve(replace(bare, method="full"), prepared).cap is None


@pytest.mark.parametrize("changes", [{"method": "hash"}, {"preset": "paper"}])
def test_other_methods_and_the_paper_s_need_a_budget(data, changes):
    bare = tiny_config(data, cap=None, **CCE | changes)
    rule = "give one of cap, num_params, nbytes and compression with method"
    with pytest.raises(ValueError, match=f"{rule} '{bare.method}', got none."):
        resolve(bare, PreparedData.open(data))


@pytest.mark.parametrize(
    "changes",
    [{"preset": "paper"}, {"method": "cce-paper"}, {"start_from": "runs/full"}, {"max_steps": 100}, {"method": "hash"}],
)
def test_other_methods_and_runs_that_start_from_others_or_are_cut_short_are_not_refitted_by_default(data, changes):
    config = tiny_config(data, **(CCE | changes))
    assert not resolve(config, PreparedData.open(data)).refits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_at": [0.5]}, "^method 'cce' is clustered once, .* leave out cluster_at, or take method 'cce-p"),
        ({"cluster_at": "one-epoch"}, "^method 'cce' is clustered once"),
        ({"method": "cce-paper", "refits": 2}, "^refits must be left out where .* refits=2 with method 'cce-paper'"),
        ({"method": "hash", "min_count": 3}, "^min_count must be left out where .* got min_count=3 with method 'hash'"),
        (
            {"preset": "paper", "optimizer_options": {"row_lr": 0.1}},
            "^optimizer_options row_lr goes with int8 rows, got it with method 'cce-paper'",
        ),
    ],
)
def test_options_that_a_method_has_no_use_for_are_rejected(data, changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(tiny_config(data, **CCE | changes), PreparedData.open(data))


def num_ids(prepared, name):
    return int((count_ids(prepared, name) >= 1).sum())


def test_so_many_ids_that_a_refit_would_be_dear_are_refitted_if_asked(data, monkeypatch):
    plain, prepared = tiny_config(data, **CCE), PreparedData.open(data)
    learned = num_ids(prepared, "c0") + num_ids(prepared, "c1")  # the table of c2 is full
    monkeypatch.setattr("cce.training.resolving.REFITTED_VALUES", learned * plain.embedding_dim)
    assert resolve(plain, prepared).refits > 0
    monkeypatch.setattr("cce.training.resolving.REFITTED_VALUES", learned * plain.embedding_dim - 1)
    assert resolve(plain, prepared).refits == 0
    assert resolve(replace(plain, refits=2), prepared).refits == 2


def test_many_tables_are_refitted_if_asked(data, monkeypatch):
    """Of three tables two have pointers."""
    plain, prepared = tiny_config(data, **CCE), PreparedData.open(data)
    monkeypatch.setattr("cce.training.resolving.ROWS_PER_ID", 10**9)
    monkeypatch.setattr("cce.training.resolving.REFITTED_TABLES", 2)
    assert resolve(plain, prepared).refits > 0
    monkeypatch.setattr("cce.training.resolving.REFITTED_TABLES", 1)
    assert resolve(plain, prepared).refits == 0
    assert resolve(replace(plain, refits=2), prepared).refits == 2


def test_many_tables_are_refitted_where_ids_have_rows_enough(data, monkeypatch):
    plain, prepared = tiny_config(data, **CCE), PreparedData.open(data)
    monkeypatch.setattr("cce.training.resolving.REFITTED_TABLES", 1)
    enough = 800 // (
        num_ids(prepared, "c0") + num_ids(prepared, "c1")
    )  # training rows for each id; the table of c2 is full
    monkeypatch.setattr("cce.training.resolving.ROWS_PER_ID", enough)
    assert resolve(plain, prepared).refits > 0
    monkeypatch.setattr("cce.training.resolving.ROWS_PER_ID", enough + 1)
    assert resolve(plain, prepared).refits == 0
    assert resolve(plain, DataSizes(prepared.schema.vocabulary_sizes)).refits == 0  # nobody knows how many there are


def test_a_run_whose_tables_are_all_small_has_nothing_to_refit(data, tmp_path):
    record = Trainer(tiny_config(data, cap=10**6, epochs=1, **CCE), tmp_path / "run").run()
    assert {table.method for table in record.tables} == {"full"}
    assert len(record.curve) == 3  # validations of the epoch, and none of a refit


def shapes(table):
    return {name: value.shape for name, value in table.state_dict().items() if hasattr(value, "shape")}


@pytest.mark.parametrize("method", ["cce", "cce-paper"])
def test_a_table_of_a_run_is_the_table_that_is_made_by_hand(data, method):
    """All that a run adds is what it counts in its data, and tables by hand can be given the same counts."""
    prepared, options = PreparedData.open(data), {"cap": 320, "method": method}
    config = resolve(tiny_config(data, **CCE | options), prepared)
    model = make_model(vars(config), prepared.schema)
    give_rows(model, prepared)
    tables, counts = model.tables, {name: count_ids(prepared, name) for name in prepared.schema.vocabulary_sizes}
    table = tables.tables["c0"]
    model = torch.nn.ModuleDict({"c0": torch.nn.Embedding(table.num_embeddings, 8)})
    cce.compress(model, min_params=1, counts={"c0": counts["c0"]}, **options)
    together = cce.EmbeddingCollection(tables.features, 8, counts=counts, **options)
    assert shapes(model["c0"]) == shapes(table)
    assert shapes(together) == shapes(tables)
    assert together.nbytes == tables.nbytes
    cce.finalize(together)
    assert together.nbytes <= together.plan.nbytes  # which has pointers of all ids


def spread(model):
    return {name: (table.method, table.to_dense().std().item()) for name, table in model.tables.tables.items()}


def test_the_start_of_a_run_is_that_of_all_its_tables_unless_the_method_s_options_say_otherwise(data):
    uniform, dlrm = (1 / 24) ** 0.5, {"c0": (1 / 363) ** 0.5, "c1": (1 / 183) ** 0.5, "c2": (1 / 93) ** 0.5}
    for name, (_, deviation) in spread(built(data, start_scale="uniform")[1]).items():
        assert deviation == pytest.approx(uniform, rel=0.25), name
    for name, (_, deviation) in spread(built(data, start_scale="dlrm")[1]).items():
        assert deviation == pytest.approx(dlrm[name], rel=0.25), name
    found = spread(built(data, start_scale=0.5, method_options={"start_scale": 0.01})[1])
    for method, deviation in found.values():
        assert deviation == pytest.approx(0.01 if method == "cce-paper" else 0.5, rel=0.25)
    assert {method for method, _ in found.values()} == {"cce-paper", "full"}


def test_the_paper_s_full_tables_start_as_dlrm_s_and_its_cce_tables_do_not(data):
    dlrm = {"c0": (1 / 363) ** 0.5, "c1": (1 / 183) ** 0.5, "c2": (1 / 93) ** 0.5}
    for changes in ({}, {"method": "full", "cap": None}):
        for name, (method, deviation) in spread(built(data, preset="paper", **changes)[1]).items():
            expected = dlrm[name] if method == "full" else (2 / 24) ** 0.5
            assert deviation == pytest.approx(expected, rel=0.25), name
    for method, deviation in spread(built(data, preset="paper", start_scale="uniform")[1]).values():
        assert deviation == pytest.approx((1 / 24) ** 0.5, rel=0.25), method


def test_a_start_at_zero_needs_a_vector_that_is_not(data):
    built(data, start_scale="zero")  # dlrm has dense features
    schema = Schema((Feature("user", 9), Feature("item", 7)))
    with pytest.raises(ValueError, match="start_scale must not be 'zero' for all tables of model 'gmf'"):
        make_model(vars(tiny_resolved(data, model="gmf", model_options={}, start_scale="zero")), schema)


def test_dropout_is_an_option_of_the_model(data):
    _, model = built(data, model_options={"bottom": [8], "top": [8], "dropout": 0.25})
    assert [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)] == [0.25, 0.25]
