"""Sources: what one declares is what the command line has, and a new one is a file and a line."""

from dataclasses import replace
from pathlib import Path

import pytest

from cce.cli import main
from cce.data import SOURCES, Columns, Input, Job, Option, PreparedData, Reading, Source, Splitting, register_source

PIPES = Columns("y", ("user",))


def pipes_job(raw, options):
    reading = Reading(names=("y", "user"), delimiter=options.get("between", "|"))
    return Job("pipes", (Input(raw),), PIPES, reading, Splitting("order", validation=0.1, test=0.1))


@pytest.fixture
def pipes():
    """A format of its own: lines of a label and a user."""
    source = Source(
        name="pipes",
        about="lines of a label and a user",
        splits=("order", "random"),
        make=pipes_job,
        options=(Option("between", "what stands between the columns: 100 % your choice"),),
    )
    return register_source(source)


def test_a_new_source_is_a_kind_with_its_options(pipes, tmp_path, capsys):
    rows = [(n % 2, f"u{n % 3}") for n in range(20)]
    for delimiter in "|;":
        (tmp_path / f"a{delimiter}.txt").write_text("".join(f"{y}{delimiter}{user}\n" for y, user in rows))
    words = [str(tmp_path / "a;.txt"), str(tmp_path / "out"), "--between", ";", "--test", "0.25", "--json"]
    assert main(["prepare", "pipes", *words]) == 0
    data = PreparedData.open(tmp_path / "out")
    assert (data.manifest["kind"], data.num_rows("test"), data.schema.vocabulary_sizes) == ("pipes", 5, {"user": 4})
    with pytest.raises(SystemExit):
        main(["prepare", "pipes", "--help"])
    text = capsys.readouterr().out
    assert "100 % your choice" in " ".join(text.split())
    assert "options of pipes:" in text
    assert "pipes           lines of a label and a user; --split order | random" in text


def test_options_that_all_sources_have_change_the_job(pipes):
    raw = Path("a.txt")
    job = pipes.job(raw, {"split": None, "min_count": None})
    assert job == pipes_job(raw, {})
    job = pipes.job(raw, {"split": "random", "seed": 4, "vocabulary_from": "all"})
    assert job.splitting == Splitting("random", seed=4)
    assert job.rule.source == "all"
    with pytest.raises(ValueError, match="split must be one of order, random; got 'temporal'"):
        pipes.job(raw, {"split": "temporal"})
    with pytest.raises(ValueError, match="seed must be left out with split 'order', got 4"):
        pipes.job(raw, {"seed": 4})


def test_the_seed_of_a_sample_needs_no_random_split(tmp_path):
    (tmp_path / "day_0").touch()
    job = SOURCES["criteo-terabyte"].job(tmp_path, {"sample": "rows", "seed": 5})
    assert (job.reading.seed, job.splitting) == (5, Splitting("order"))
    both = SOURCES["criteo-terabyte"].job(tmp_path, {"sample": "rows", "seed": 5, "split": "random"})
    assert (both.reading.seed, both.splitting.seed) == (5, 5)


def test_a_name_is_taken_once(pipes):
    with pytest.raises(ValueError, match="name of a source must be its own, got 'pipes', which is taken"):
        register_source(replace(pipes, about="another"))
    assert list(SOURCES) == ["criteo-kaggle", "criteo-terabyte", "movielens", "recbole", "reczoo", "table", "pipes"]
