"""A figure as data: what it prints, and that JSON takes it."""

import json
from dataclasses import asdict

from cce_lab.theory import Claim, Figure, Series
from cce_lab.theory.figure import level, steps


def figure(*claims):
    series = (steps("run", [1.0, 0.5, 0.25]), level("best", 0.1, 2), Series("half", (1,), (0.3,)))
    return Figure("name", "Title", "step", "loss", series, claims, {"seed": 0})


HELD, MISSED = Claim("it falls", held=True, numbers="1 → 0.25"), Claim("it ends at 0", held=False, numbers="0.25")


def test_claims_read_as_sentences():
    assert str(HELD) == "held: it falls (1 → 0.25)"
    assert str(MISSED) == "did not hold: it ends at 0 (0.25)"


def test_it_prints_title_settings_and_claims():
    assert str(figure(HELD, MISSED)).splitlines() == [
        "Title",
        "seed 0",
        "",
        "held: it falls (1 → 0.25)",
        "did not hold: it ends at 0 (0.25)",
    ]


def test_json_gives_back_the_same():
    again = json.loads(json.dumps(asdict(figure(HELD, MISSED))))
    assert again["series"][0] == {
        "name": "run",
        "x": [0, 1, 2],
        "y": [1.0, 0.5, 0.25],
        "low": [],
        "high": [],
        "is_reference": False,
    }
    assert again["claims"][1] == {"text": "it ends at 0", "held": False, "numbers": "0.25"}
    assert again["settings"] == {"seed": 0}
