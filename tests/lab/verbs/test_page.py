"""`cce page` as it is typed."""

import pytest

from cce.cli import main
from cce_lab.report.vega import can_draw


@pytest.mark.slow
@pytest.mark.skipif(not can_draw(), reason="without vl-convert there is no page")
def test_a_page_is_written_into_the_run_or_beside_a_pack_or_where_it_is_asked_for(raw_run, alone, capsys):
    assert main(["page", str(raw_run / "run")]) == 0
    assert capsys.readouterr().out == f"page: {raw_run / 'run' / 'page.html'}\n"
    assert "<h2>Nearest values</h2>" in (raw_run / "run" / "page.html").read_text()
    assert main(["page", "one.ccez"]) == 0
    assert capsys.readouterr().out == "page: one.html\n"
    assert main(["page", "one.ccez", "here.html", "--data", "gone"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "page: here.html"
    for page in ("one.html", "here.html"):
        (alone / page).unlink()


@pytest.mark.slow
def test_bad_input_of_a_page_is_one_line_and_nothing_is_left_behind(raw_run, rejected):
    run = str(raw_run / "run")
    assert "gone must be a run or a checkpoint" in rejected(["page", "gone"])
    assert "new.csv must be a whole pack made by `cce pack`" in rejected(["page", "new.csv"])
    assert "page must be a file, got the folder '.'" in rejected(["page", run, "."])
