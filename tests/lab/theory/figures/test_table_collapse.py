"""Table collapse, small: entropies of four methods."""

import pytest

from cce_lab.theory.figures import FIGURES
from cce_lab.theory.figures.table_collapse import QUICK

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figure():
    return FIGURES["table-collapse"](quick=True)


@pytest.fixture(scope="module")
def lines(figure):
    return {line.name: line.y for line in figure.series}


def test_there_are_two_entropies_for_each_method_after_each_clustering(figure, lines):
    names = ("CE", "CCE", "PQ", "circular")
    assert list(lines) == [f"{name}, H{order}" for order in (2, 1) for name in names]
    assert all(len(line) == QUICK.num_clusterings + 1 for line in lines.values())
    assert [line.name for line in figure.series if line.is_level] == ["CE, H2", "PQ, H2", "CE, H1", "PQ, H1"]


def test_all_start_from_random_pointers_as_ce_has_them(lines):
    for name in ("CCE, H2", "circular, H2"):
        assert lines[name][0] == pytest.approx(lines["CE, H2"][0], rel=0.03)


def test_circular_clustering_makes_columns_alike_and_cce_does_not(figure, lines):
    assert lines["circular, H2"][-1] < 0.95 * lines["PQ, H2"][-1]
    assert lines["PQ, H2"][-1] < lines["CCE, H2"][-1] < lines["CE, H2"][-1]
    held = {claim.text.split(":")[0]: claim.held for claim in figure.claims}
    assert held["circular clustering collapses"]
    assert held["CCE does not collapse"]
    near = abs(lines["CCE, H2"][-1] / lines["PQ, H2"][-1] - 1) <= 0.05
    assert held["the golden midpoint"] is near


def test_cce_learns_more_than_ce(figure):
    claim = figure.claims[-1]
    errors = dict(part.rsplit(" ", 1) for part in claim.numbers.split(", "))
    assert claim.held
    assert float(errors["PQ"]) < float(errors["CCE"]) < float(errors["CE"])
