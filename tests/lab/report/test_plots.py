"""Charts: their rows are the records', and Vega-Lite can draw them."""

import pytest

from cce.evaluation import find_metric
from cce.runs import RunHistory
from cce_lab.report import vega
from cce_lab.report.groups import group_records
from cce_lab.report.plots import MOST_POINTS, curve_plot, curve_rows, plots_of, run_plots, score_plot
from cce_lab.report.vega import palette
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
NAMES = [*(f"{metric}-{size}" for metric in ("bce", "auc") for size in ("training", "bytes", "params"))]
NAMES += ["bce-curves"]
BCE, AUC = find_metric("bce"), find_metric("auc")


def plots(records):
    (group,) = group_records(records)
    return plots_of(group, palette(group.series))


def test_empty_charts_are_left_out():
    assert [plot.name for plot in plots(made_records(("hash",)))] == NAMES
    bare = made_record("cce", 500, bce=float("nan"), auc=float("nan"), curve=[], events=[])
    assert plots([bare]) == []


def test_a_chart_of_one_dot_is_left_out_as_the_summary_has_its_number():
    found = plots([made_record("cce", 500)])
    assert [plot.name for plot in found] == ["bce-curves"]


def test_tables_of_no_size_have_no_place_on_the_axis():
    empty = made_record("hash", 8000, num_params=0, nbytes=0)
    found = {plot.name: plot for plot in plots([made_record("cce", 500), made_record("cce", 900), empty])}
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


def curve_of(records):
    (group,) = group_records(records)
    return curve_plot(group, palette(group.series)).spec["data"]["values"]


def test_the_curve_of_a_run_begins_with_the_validations_of_its_int8_rows():
    early = [{"step": 100, "bce": 0.6}, {"step": 200, "bce": 0.5}]
    late = [{"step": 201, "epoch": 1, "bce": 0.55}, {"step": 202, "epoch": 1, "bce": 0.52}]
    rows = curve_of([made_record("cce", 500, curve=late, curve_before_finalize=early)])
    assert [row["step"] for row in rows if "score" in row] == [100, 200, 201, 202]


def test_one_curve_of_each_series_the_lowest_seed_of_its_best_budget():
    rows = curve_of([made_record("cce", cap, seed) for cap in (8000, 500) for seed in (2, 1)])
    scored = [row for row in rows if "score" in row]
    assert len(scored) == 12
    best = made_record("cce", 8000, 1).curve[0]["bce"]
    assert scored[0] == {"series": "cce", "budget": "cap 8,000", "step": 500, "score": round(best, 6)}


def test_clusterings_are_marked_once_a_step():
    rows = [row for row in curve_of([made_record("cce", 8000)]) if "marked" in row]
    assert [row["step"] for row in rows] == [1500, 3000, 4500]


def test_long_curves_keep_their_ends_and_their_best():
    points = [{"step": step, "bce": 0.5 if step != 501 else 0.1} for step in range(1000)]
    kept = [row["step"] for row in curve_rows(points, BCE)]
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (0, 999)
    assert 501 in kept
    worst = curve_rows([{"step": point["step"], "auc": point["bce"]} for point in points], AUC)
    assert 501 not in [row["step"] for row in worst]
    assert kept == sorted(kept)
    assert len(curve_rows(points[:MOST_POINTS], BCE)) == MOST_POINTS


EVENT = {"table": "user", "step": 7, "num_ids": 100, "churn": 0.5, "H1": 2.0, "H2": 3.0}


def test_curves_of_a_run_lead_with_its_metric_and_mark_clusterings():
    curve = [{"step": step, "epoch": 1, "auc": 0.6, "bce": 0.5} for step in (5, 10)]
    history = RunHistory(curve, losses=[{"step": 5, "loss": 0.7}, {"step": 6, "loss": None}], clusterings=[EVENT])
    plots = run_plots(history, "bce")
    assert [plot.name for plot in plots] == ["bce-curve", "auc-curve", "loss"]
    rows = plots[0].spec["data"]["values"]
    assert [(row["series"], row["step"], row.get("score"), row.get("marked")) for row in rows] == [
        ("training", 5, 0.5, None),
        ("training", 10, 0.5, None),
        ("training", 7, None, 1),
    ]
    assert plots[2].num_points == 1
    assert run_plots(RunHistory([]), "bce") == []


def test_the_curve_of_a_run_is_told_by_phases():
    early, late = [{"step": 1, "bce": 0.6}], [{"step": step, "bce": 0.5} for step in (2, 3, 4)]
    record = made_record("cce", None, curve=late, curve_before_finalize=early)
    (plot,) = run_plots(RunHistory([*early, *late], refits=[EVENT | {"step": 2}], record=record), "bce")
    rows = [(row["series"], row["step"]) for row in plot.spec["data"]["values"]]
    assert rows == [("training", 1), ("finalized", 2), ("refits", 3), ("refits", 4), ("refits", 2)]
