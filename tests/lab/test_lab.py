"""The names of cce_lab: a sweep and its report from Python, and what there is."""

import json

import pytest

import cce_lab

RECIPE = """
[data]
name = "tiny"
prepare = "synthetic --rows 400 --vocabulary-sizes 40 20 --num-dense 1"
[train]
embedding_dim = 4
batch_size = 64
threads = 1
model_options = { bottom = [4], top = [4] }
[sweep]
methods = ["full", "hash"]
caps = [40, 80]
"""


def test_all_public_names_are_there():
    assert len(dir(cce_lab)) == 10
    for name in dir(cce_lab):
        assert callable(getattr(cce_lab, name))
    with pytest.raises(AttributeError, match="module 'cce_lab' has no attribute 'colour'"):
        cce_lab.colour  # noqa: B018


@pytest.mark.slow
def test_a_sweep_and_its_report_are_at_hand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    result = cce_lab.sweep("tiny.toml", progress=False)
    assert [(row["series"], row["cap"]) for row in result.rows()] == [("full", None), ("hash", 40), ("hash", 80)]
    assert cce_lab.sweep("tiny.toml", progress=False).records == result.records  # nothing is run again
    assert capsys.readouterr().out == ""
    report = cce_lab.make_report(result.folder)
    assert report.page == result.folder / "report" / "index.html"
    assert report.page.exists()
    assert len(report.rows()) == 3
    json.dumps(report.rows("factors"))
    assert "bce-bytes" in [plot.name for plot in report.sections[0].plots]
    with pytest.raises(ValueError, match="table must be one of summary, factors; got 'plots'"):
        report.rows("plots")
    with pytest.raises(IndexError, match=r"section must lie in \[0, 1\), got 99"):
        report.rows(section=99)
    with pytest.raises(ValueError, match="runs must name at least one folder or file of records, got none"):
        cce_lab.make_report()


def test_functions_stay_functions_when_packages_are_imported():
    import cce_lab.sweeps.running
    import cce_lab.verbs.sweep

    assert callable(cce_lab.sweep)
