"""`cce theory` as it is typed: what it prints, what it writes, and what it rejects."""

import json
from pathlib import Path

import pytest

from cce.cli import main
from cce_lab.report import vega
from cce_lab.theory import FIGURES, Claim, Figure
from cce_lab.theory.figure import steps
from cce_lab.verbs.theory import NAMES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def figures(monkeypatch):
    """Figures of two claims in place of those that take minutes, not drawn; gives what each was asked for."""
    asked = []

    def make(name):
        def figure(*, seed, quick):
            asked.append((name, seed, quick))
            claims = Claim("it falls", held=True, numbers="1"), Claim("it ends", held=False, numbers="2")
            return Figure(name, f"Title of {name}", "step", "loss", (steps("run", [1.0, 0.5]),), claims, {"seed": seed})

        return figure

    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    for name in NAMES:
        monkeypatch.setitem(FIGURES, name, make(name))
    return asked


def test_the_names_are_those_of_the_figures():
    assert list(NAMES) == list(FIGURES)


@pytest.mark.slow
def test_it_prints_numbers_and_claims_and_writes_data_and_pictures(tmp_path, capsys):
    folder = tmp_path / "deep" / "figures"
    assert main(["theory", "rate-distortion", "--quick", "--seed", "3", "--out", str(folder)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "Rate and distortion with 16 planted clusters"
    assert sum(line.startswith(("held: ", "did not hold: ")) for line in lines) == 4
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["rate-distortion.json", "rate-distortion.svg"][: 1 + vega.can_draw()]
    data = json.loads((folder / "rate-distortion.json").read_text())
    assert (data["name"], data["settings"]["seed"], len(data["series"])) == ("rate-distortion", 3, 4)
    assert err == ""


def test_without_a_name_every_figure_is_run_and_a_table_says_what_held(tmp_path, capsys, figures):
    assert main(["theory", "--seed", "2", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("Title of ")] == [f"Title of {name}" for name in NAMES]
    assert sum(line.startswith("did not hold: ") for line in lines) == len(NAMES)
    table = lines[lines.index("figure           claims held  did not hold  seconds") :]
    assert [line.split()[:3] for line in table[2:-1]] == [[name, "1", "1"] for name in NAMES]
    assert table[-1].startswith("no picture: it needs vl-convert-python")
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == sorted(NAMES)
    assert figures == [(name, 2, False) for name in NAMES]
    assert err == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_verdict_of_the_kept_data_and_the_picture(name):
    data = json.loads((ROOT / "results" / "theory" / f"{name}.json").read_text())
    held, count = sum(claim["held"] for claim in data["claims"]), len(data["claims"])
    page = (ROOT / "docs" / "theory.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `cce theory {name}` |"))
    verdict = f"held, {count} claims" if held == count else f"{held} of {count} claims held"
    assert row.split("|")[-2].strip() == verdict
    assert (data["name"], data["settings"]["seed"]) == (name, 0)
    assert f"](figures/theory-{name}.svg)" in page
    assert (ROOT / "docs" / "figures" / f"theory-{name}.svg").is_file()
