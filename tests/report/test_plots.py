"""Charts: their rows are the records', and Vega-Lite can draw them."""

import pytest

from cce.report import vega
from cce.report.groups import group_records
from cce.report.palette import palette
from cce.report.plots import plots_of, score_plot
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
NAMES = ["factors", "bce-params", "bce-bytes", "auc-params", "auc-bytes", "curves", "churn", "h1", "h2"]


def plots(records):
    (group,) = group_records(records)
    return plots_of(group, palette(group.series), {})


def test_all_charts_of_a_sweep():
    found = plots(made_records())
    assert [plot.name for plot in found] == NAMES
    assert [plot.name for plot in found if plot.has_budgets] == NAMES[5:]


def test_empty_charts_are_left_out():
    assert [plot.name for plot in plots(made_records(("hash",)))] == NAMES[:6]
    bare = made_record("cce", 500, bce=float("nan"), auc=float("nan"), curve=[], events=[])
    assert plots([bare]) == []


def test_tables_of_no_size_have_no_place_on_the_axis():
    empty = made_record("hash", 8000, num_params=0, nbytes=0)
    found = {plot.name: plot for plot in plots([made_record("cce", 500), empty])}
    assert {row["series"] for row in found["bce-params"].spec["data"]["values"]} == {"cce"}


def test_points_are_means_with_their_least_and_greatest():
    records = [made_record("cce", 8000, seed, bce=bce) for seed, bce in enumerate((0.46, 0.48))]
    (group,) = group_records(records)
    (row,) = score_plot(group, palette(["cce"]), "bce", "bytes").spec["data"]["values"]
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


@needs_vega
@pytest.mark.parametrize("name", NAMES)
def test_every_chart_can_be_drawn(name):
    (plot,) = [plot for plot in plots(made_records(("cce", "hash"), (500, 8000))) if plot.name == name]
    svg = vega.picture(plot.spec, title="A title", kind="svg").decode()
    assert "A title" in svg
    assert "NaN" not in svg
    assert palette(["cce"])["cce"].colour in svg
