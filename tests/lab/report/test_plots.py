"""Charts: their rows are the records', and Vega-Lite can draw them."""

import pytest

from cce.evaluation import find_metric
from cce_lab.report import vega
from cce_lab.report.groups import group_records
from cce_lab.report.plots import MOST_POINTS, curve_rows, event_rows, plots_of, score_plot, thin
from cce_lab.report.reading import LiveRun
from cce_lab.report.vega import palette
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
NAMES = ["factors", *(f"{metric}-{size}" for metric in ("bce", "auc") for size in ("training", "bytes", "params"))]
NAMES += ["bce-curves", "auc-curves", "churn", "h1", "h2"]
BCE, AUC = find_metric("bce"), find_metric("auc")


def plots(records):
    (group,) = group_records(records)
    return plots_of(group, palette(group.series), {})


def test_all_charts_of_a_sweep():
    found = plots(made_records())
    assert [plot.name for plot in found] == NAMES
    assert [plot.name for plot in found if plot.has_budgets] == NAMES[7:]


@pytest.mark.slow
def test_every_metric_of_the_records_has_its_charts():
    records = [
        made_record(
            "cce", cap, scores={"auc": 0.7, "ndcg@10": cap / 2e4}, curve=[{"step": 9, "epoch": 1, "ndcg@10": 0.4}]
        )
        for cap in (500, 8000)
    ]
    found = {plot.name: plot for plot in plots(records)}
    names = [
        *(f"{metric}-{size}" for metric in ("auc", "ndcg-10") for size in ("training", "bytes", "params")),
        *("ndcg-10-curves", "churn", "h1", "h2"),
    ]
    assert list(found) == names
    assert [found[name].metric for name in names[2:5]] == ["auc", "ndcg@10", "ndcg@10"]
    assert found["churn"].metric == ""
    assert [row["mean"] for row in found["ndcg-10-params"].spec["data"]["values"]] == [0.025, 0.4]
    assert [row["score_ndcg_10"] for row in found["ndcg-10-curves"].spec["data"]["values"] if row.get("epoch")] == [
        0.4
    ] * 2
    if vega.can_draw():
        svg = vega.picture(found["ndcg-10-curves"].spec, title="A title", kind="svg").decode()
        assert "validation NDCG@10" in svg


def test_curves_of_several_metrics_share_their_rows():
    found = {plot.name: plot.spec["data"]["values"] for plot in plots(made_records())}
    assert found["bce-curves"] is found["auc-curves"]


def test_empty_charts_are_left_out():
    assert [plot.name for plot in plots(made_records(("hash",)))] == NAMES[:9]
    bare = made_record("cce", 500, bce=float("nan"), auc=float("nan"), curve=[], events=[])
    assert plots([bare]) == []


def test_tables_of_no_size_have_no_place_on_the_axis():
    empty = made_record("hash", 8000, num_params=0, nbytes=0)
    found = {plot.name: plot for plot in plots([made_record("cce", 500), empty])}
    assert {row["series"] for row in found["bce-params"].spec["data"]["values"]} == {"cce"}


def test_points_are_means_with_their_least_and_greatest():
    records = [made_record("cce", 8000, seed, bce=bce) for seed, bce in enumerate((0.46, 0.48))]
    (group,) = group_records(records)
    (row,) = score_plot(group, palette(["cce"]), BCE, "bytes").spec["data"]["values"]
    assert row == {
        "series": "cce",
        "budget": "cap 8,000",
        "size": records[0].nbytes,
        "seeds": 2,
        "mean": pytest.approx(0.47),
        "least": 0.46,
        "greatest": 0.48,
    }


def test_the_full_table_is_a_dashed_rule():
    (plot,) = [plot for plot in plots(made_records()) if plot.name == "bce-params"]
    assert sum("data" in layer for layer in plot.spec["layer"]) == 2
    (plot,) = [plot for plot in plots([made_record("cce", 500)]) if plot.name == "bce-params"]
    assert not any("data" in layer for layer in plot.spec["layer"])


def test_a_series_has_one_colour_in_all_charts():
    for plot in plots(made_records()):
        scale = plot.spec["encoding"]["color"]["scale"]
        assert dict(zip(scale["domain"], scale["range"], strict=True))["cce"] == palette(["cce"])["cce"].colour


@pytest.mark.slow
@needs_vega
@pytest.mark.parametrize("name", NAMES)
def test_every_chart_can_be_drawn(name):
    (plot,) = [plot for plot in plots(made_records(("cce", "hash"), (500, 8000))) if plot.name == name]
    svg = vega.picture(plot.spec, title="A title", kind="svg").decode()
    assert "A title" in svg
    assert "NaN" not in svg
    assert palette(["cce"])["cce"].colour in svg


LIVE = LiveRun(
    "hash-1",
    {"data": "data/clicks", "model": "dlrm", "epochs": 10, "method": "hash", "cap": 500},
    [
        {"kind": "train", "step": 50, "loss": 0.6},
        {"kind": "validation", "step": 100, "bce": 0.5, "auc": 0.7},
        {"kind": "validation", "step": 200, "bce": None, "auc": None},
    ],
    1.0,
    series="hashing",
)


def run_rows(records, live=(), name=None):
    (group,) = group_records(records, live)
    return curve_rows(group) if name is None else event_rows(group, name)


def test_the_curve_of_a_run_begins_with_the_validations_of_its_int8_rows():
    early = [{"step": 100, "bce": 0.6}, {"step": 200, "bce": 0.5}]
    late = [{"step": 201, "epoch": 1, "bce": 0.55}, {"step": 202, "epoch": 1, "bce": 0.52}]
    rows = run_rows([made_record("cce", 500, curve=late, curve_before_finalize=early)])
    assert [row["step"] for row in rows if "score_bce" in row] == [100, 200, 201, 202]


def test_one_run_of_each_budget_that_of_the_lowest_seed():
    rows = run_rows([made_record("cce", 500, seed) for seed in (2, 1)])
    scored = [row for row in rows if "score_bce" in row]
    assert len(scored) == 12
    assert scored[0]["score_bce"] == round(made_record("cce", 500, 1).curve[0]["bce"], 5)
    assert scored[0] | {"score_bce": 0, "score_auc": 0} == {
        "series": "cce",
        "budget": "cap 500",
        "run": 0,
        "live": 0,
        "step": 500,
        "epoch": 1,
        "score_bce": 0,
        "score_auc": 0,
    }


def test_clusterings_are_marked_once_a_step_with_what_they_did():
    rows = [row for row in run_rows([made_record("cce", 8000)]) if "clustered" in row]
    assert [(row["step"], row["clustered"]) for row in rows] == [
        (1500, "3 tables, churn 0.92"),
        (3000, "3 tables, churn 0.47"),
        (4500, "3 tables, churn 0.32"),
    ]


def test_facts_of_clusterings_are_averaged_over_tables():
    first = run_rows([made_record("cce", 8000)], name="churn")[0]
    assert first["mean"] == pytest.approx(0.92)
    assert (first["least"], first["greatest"], first["tables"], first["step"]) == (0.9, 0.94, 3, 1500)
    assert run_rows([made_record("hash", 8000)], name="H1") == []


def test_facts_that_are_missing_are_left_out():
    events = [{"step": 1, "churn": None}, {"step": 1, "churn": 0.5}, {"churn": 0.1}, {"step": 2}]
    rows = run_rows([made_record("cce", 8000, events=events)], name="churn")
    assert [(row["step"], row["mean"], row["tables"]) for row in rows] == [(1, 0.5, 1)]
    assert [row["clustered"] for row in run_rows([made_record("cce", 8000, events=events, curve=[])])] == [
        "2 tables, churn 0.50",
        "1 table",
    ]


def test_a_run_under_way_is_drawn_as_far_as_it_is():
    rows = [row for row in run_rows([made_record("cce", 500)], [LIVE]) if row["live"]]
    assert [(row["series"], row["budget"], row["step"], row["score_bce"]) for row in rows] == [
        ("hashing", "cap 500", 100, 0.5)
    ]


def test_long_curves_keep_their_ends_and_their_best():
    points = [{"step": step, "bce": 0.5 if step != 501 else 0.1} for step in range(1000)]
    kept = thin(points, BCE)
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0]["step"], kept[-1]["step"]) == (0, 999)
    assert any(point["step"] == 501 for point in kept)
    worst = thin([{"step": point["step"], "auc": point["bce"]} for point in points], AUC)
    assert not any(point["step"] == 501 for point in worst)
    assert [point["step"] for point in kept] == sorted(point["step"] for point in kept)
    assert thin(points[:MOST_POINTS], BCE) == points[:MOST_POINTS]
