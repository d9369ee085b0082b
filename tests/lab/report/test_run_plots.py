"""The charts of the page of one run."""

import math

from cce.runs import CalibrationCurve, RunHistory
from cce_lab.report.run_plots import calibration_plot, curve_plots, event_plots, greatest_entropy

EVENT = {"table": "user", "step": 7, "num_ids": 100, "churn": 0.5, "H1": 2.0, "H2": 3.0}


def test_entropies_are_bounded_by_rows_and_by_ids():
    assert greatest_entropy(EVENT, "H1", {"user": 16}) == math.log(16)
    assert greatest_entropy(EVENT, "H2", {"user": 8}) == 2 * math.log(8)
    assert greatest_entropy(EVENT, "H2", {"user": 16}) == math.log(100)  # below that of 16 · 16 pairs
    assert greatest_entropy(EVENT, "churn", {"user": 16}) is None
    assert greatest_entropy(EVENT, "H1", {}) is None


def test_clusterings_have_a_chart_for_each_measurement_with_the_maxima_of_entropies():
    plots = {plot.name: plot for plot in event_plots([EVENT, EVENT | {"table": "item", "H2": None}], {"user": 16})}
    assert list(plots) == ["churn", "h1", "h2"]
    rows = plots["h1"].spec["data"]["values"]
    assert [row["series"] for row in rows] == ["user", "item"]
    assert [row.get("maximum") for row in rows] == [round(math.log(16), 5), None]
    assert "Dashed" in plots["h2"].about
    assert "Dashed" not in plots["churn"].about
    assert len(plots["h2"].spec["data"]["values"]) == 1
    assert event_plots([], {}) == []


def test_curves_lead_with_the_metric_of_the_run_and_mark_clusterings():
    curve = [{"step": step, "epoch": 1, "auc": 0.6, "bce": 0.5} for step in (5, 10)]
    history = RunHistory(curve, losses=[{"step": 5, "loss": 0.7}, {"step": 6, "loss": None}], clusterings=[EVENT])
    plots = curve_plots(history, "bce")
    assert [plot.name for plot in plots] == ["bce-curve", "auc-curve", "loss"]
    rows = plots[0].spec["data"]["values"]
    assert [(row["step"], row.get("score_bce"), row.get("marked")) for row in rows] == [
        (5, 0.5, None),
        (10, 0.5, None),
        (7, None, 1),
    ]
    assert len(plots[2].spec["data"]["values"]) == 2
    assert curve_plots(RunHistory([]), "bce") == []


def test_calibration_has_a_point_for_each_bin():
    plot = calibration_plot(CalibrationCurve("test", 1200, 0.0123, ((0.1, 0.2, 1000.0), (0.9, 0.8, 200.0))))
    assert [(row["predicted"], row["observed"]) for row in plot.spec["data"]["values"]] == [(0.1, 0.2), (0.9, 0.8)]
    assert plot.about.startswith("1,200 test rows; expected calibration error 0.0123.")
