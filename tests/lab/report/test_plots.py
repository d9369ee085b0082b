"""Charts: their rows are the records', and Vega-Lite can draw them."""

import pytest

from cce.evaluation import find_metric
from cce_lab.report import vega
from cce_lab.report.groups import group_records
from cce_lab.report.plots import MOST_POINTS, curve_rows, plots_of, score_plot, thin
from cce_lab.report.vega import palette
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
NAMES = [*(f"{metric}-{size}" for metric in ("bce", "auc") for size in ("training", "bytes", "params"))]
NAMES += ["bce-curves", "auc-curves"]
BCE, AUC = find_metric("bce"), find_metric("auc")


def plots(records):
    (group,) = group_records(records)
    return plots_of(group, palette(group.series))


def test_all_charts_of_a_sweep():
    found = plots(made_records())
    assert [plot.name for plot in found] == NAMES
    assert [plot.name for plot in found if plot.has_budgets] == NAMES[6:]


def test_empty_charts_are_left_out():
    assert [plot.name for plot in plots(made_records(("hash",)))] == NAMES
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


def run_rows(records):
    (group,) = group_records(records)
    return curve_rows(group)


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
        "step": 500,
        "epoch": 1,
        "score_bce": 0,
        "score_auc": 0,
    }


def test_clusterings_are_marked_once_a_step():
    rows = [row for row in run_rows([made_record("cce", 8000)]) if "clustered" in row]
    assert [row["step"] for row in rows] == [1500, 3000, 4500]


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
