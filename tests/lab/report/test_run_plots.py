"""The charts of the page of one run."""

from cce.runs import RunHistory
from cce_lab.report.plots import curve_plots

EVENT = {"table": "user", "step": 7, "num_ids": 100, "churn": 0.5, "H1": 2.0, "H2": 3.0}


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
