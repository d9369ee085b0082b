"""The presets of CCE: the same by hand and in the trainer."""

import pytest
import torch

import cce
from cce.embeddings.presets import PRESETS

COUNTS = torch.tensor([0, 9, 5, 5, 4, 1, 0])


@pytest.mark.parametrize(
    ("dim", "tuned", "paper"),
    [(16, 8, 4), (8, 8, 4), (24, 8, 4), (12, 4, 4), (10, 5, 5), (7, 7, 7), (4, 4, 4), (1, 1, 1)],
)
def test_columns_follow_from_the_preset_and_the_dimension(dim, tuned, paper):
    for preset, columns in {"tuned": tuned, "paper": paper}.items():
        table = cce.ClusteredEmbedding(100, dim, num_rows=3, preset=preset)
        assert table.num_columns == columns
        sized = cce.create_embedding("cce", 100, dim, num_params=dim * 20, preset=preset)
        assert sized.num_columns == columns
        summed = cce.ClusteredEmbedding(100, dim, num_rows=3, preset=preset, combine="sum")
        assert summed.num_columns == columns


def by_hand(**options):
    model = torch.nn.ModuleDict({"a": torch.nn.Embedding(500, 16)})
    cce.compress(model, compression=4, min_params=1, **options)
    tables = cce.EmbeddingCollection({"a": 500}, 16, budget=cce.Budget(compression=4), options={"cce": options})
    weight = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    return [
        cce.ClusteredEmbedding(500, 16, num_rows=62, **options),
        cce.create_embedding("cce", 500, 16, compression=4, **options),
        cce.ClusteredEmbedding.from_budget(500, 16, num_params=2000, **options),
        cce.ClusteredEmbedding.from_table(weight, num_params=2000, **options),
        tables.tables["a"],
        model["a"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "columns"), [({}, 8), ({"preset": "paper"}, 4), ({"preset": "paper", "num_columns": 2}, 2)]
)
def test_all_ways_to_make_a_table_have_the_same_defaults(options, columns):
    for table in by_hand(**options):
        assert (table.num_columns, table.num_rows, table.assignments.num_learned) == (columns, 62, 500)


def test_bytes_of_a_plan_know_the_preset():
    for preset, columns in {"tuned": 8, "paper": 4}.items():
        plan = cce.plan_tables({"a": 1000}, 16, cap=1600, options={"cce": {"preset": preset}})
        table = cce.create_embedding("cce", 1000, 16, num_params=1600, preset=preset)
        assert plan.tables[0].nbytes == table.nbytes
        assert table.assignments.num_columns == columns


def test_the_class_says_when_to_cluster_and_which_ids_learn():
    tuned, paper = (cce.ClusteredEmbedding.training_defaults(preset) for preset in ("tuned", "paper"))
    assert cce.ClusteredEmbedding.training_defaults() == tuned
    assert (tuned.options, paper.options) == ({"preset": "tuned"}, {"preset": "paper"})
    assert tuned.cluster_epochs(1) == paper.cluster_epochs(1) == [0.25, 0.5]
    assert tuned.cluster_epochs(10) == [(index + 1) / 2 for index in range(12)]
    assert paper.cluster_epochs(10) == [1, 2, 3, 4, 5, 6]
    assert (tuned.num_learned(COUNTS), paper.num_learned(COUNTS)) == (4, 7)
    assert cce.ClusteredEmbedding(7, 8, num_rows=2, num_learned=tuned.num_learned(COUNTS)).assignments.num_learned == 4


def test_only_the_tuned_preset_begins_at_the_last_rows():
    tuned, paper = (cce.ClusteredEmbedding(7, 8, num_rows=2, preset=preset) for preset in ("tuned", "paper"))
    assert paper.settings == cce.ClusterSettings()
    assert (tuned.settings.warm_iter, tuned.settings.tol) == (4, 1e-3)
    given = cce.ClusterSettings(max_iter=3)
    assert cce.ClusteredEmbedding(7, 8, num_rows=2, settings=given).settings is given


def test_a_wrong_preset_is_rejected_with_the_right_ones():
    message = "preset must be one of tuned, paper; got 'best'"
    assert list(PRESETS) == ["tuned", "paper"]
    for make in (
        lambda: cce.ClusteredEmbedding(100, 8, num_rows=3, preset="best"),
        lambda: cce.create_embedding("cce", 100, 8, num_params=100, preset="best"),
        lambda: cce.ClusteredEmbedding.training_defaults("best"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_run_with_refits_clusters_at_no_other_time_unless_told():
    refitted = cce.ClusteredEmbedding.training_defaults("tuned").with_codes_and_refits(0, 3)
    assert refitted.options == {
        "preset": "tuned",
        "num_helpers": 0,
        "share_tail": True,
        "start_scale": "dlrm",
        "max_rows": 256,
    }
    assert refitted.min_count == 2
    assert cce.ClusteredEmbedding.training_defaults("tuned").with_codes_and_refits(8, 0) is refitted
    assert refitted.cluster_epochs(10) == refitted.cluster_epochs(1) == []
    assert refitted.cluster_epochs(10, 2) == [0.5, 1]
    for preset in ("tuned", "paper"):
        plain = cce.ClusteredEmbedding.training_defaults(preset)
        assert plain.with_codes_and_refits(0, 0) is plain
    assert plain.with_codes_and_refits(8, 3) is plain  # the paper has none


def test_a_budget_gives_no_more_rows_than_max_rows():
    for budget, rows in ((1600, 100), (16_000, 256)):
        table = cce.create_embedding("cce", 5000, 16, num_params=budget, num_helpers=0, max_rows=256)
        assert (table.num_rows, table.num_params) == (rows, rows * 16)
    by_bytes = cce.create_embedding("cce", 5000, 16, nbytes=150_000, num_helpers=0, max_rows=256)
    assert (by_bytes.num_rows, by_bytes.assignments.num_learned) == (256, 5000)
    with pytest.raises(ValueError, match="num_rows must be at most max_rows=256, got 257"):
        cce.ClusteredEmbedding(5000, 16, num_rows=257, max_rows=256)
