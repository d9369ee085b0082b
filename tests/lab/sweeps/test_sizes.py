"""Several sizes of `cce` come from one training, finalized at each."""

import pytest

from cce.run_folder import RunFolder
from cce.training import Trainer
from cce_lab.report.groups import group_records
from cce_lab.report.plots import plots_of
from cce_lab.report.vega import palette
from cce_lab.sweeps import runs as runs_module
from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.running import Sweep
from helpers.runs import tiny_data
from helpers.sweeps import TRAIN, essence, tiny_runs

SWEEP = {"methods": ["full"], "seeds": [0]}
SERIES = {"cce": {"method": "cce", "bits": [4, 32]}, "small": {"method": "cce", "nbytes": 20_000}}
OTHER = {"other": {"method": "cce", "bits": [8], "lr": 0.02}}
OPTIONS = TRAIN | {"cluster_at": "auto", "epochs": 1, "refits": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two tables large enough for pointers."""
    return tiny_data(tmp_path_factory.mktemp("data") / "large", num_rows=4000, vocabulary_sizes=(2000, 900, 30))


def runs_of(data, series=SERIES):
    return tiny_runs(data, train=OPTIONS, sweep=SWEEP, series=series)


def test_runs_that_differ_in_their_size_alone_name_the_one_that_trains(data):
    runs = {run.name: run for run in runs_of(data, SERIES | OTHER)}
    assert {name: run.source for name, run in runs.items()} == {
        "full-seed0": None,
        "cce-bits4-seed0": None,
        "cce-bits32-seed0": "cce-bits4-seed0",
        "small-seed0": "cce-bits4-seed0",
        "other-bits8-seed0": None,  # another learning rate
    }
    assert next(iter(runs)) == "cce-bits4-seed0"  # what others need comes first
    assert [runs["cce-bits32-seed0"].config.bits, runs["small-seed0"].config.nbytes] == [32, 20_000]


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory):
    """The folder of a sweep that was interrupted when its second size was finalized and not yet recorded."""
    out, finalize, calls = tmp_path_factory.mktemp("sweep"), runs_module.finalize_run, []

    def finalize_and_stop(path, **options):
        calls.append(path)
        finalize(path, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module, "finalize_run", finalize_and_stop)
        with pytest.raises(KeyboardInterrupt):
            Sweep(runs_of(data), out).run()
    assert len(calls) == 1
    assert not RunFolder(out / "runs" / "cce-bits32-seed0").is_begun
    outcome = Sweep(runs_of(data), out).run()
    assert outcome.failures == {}
    return out, {record.name: record for record in outcome.records}


def without_steps(record):
    """All but the number of the checkpoint, which comes after those of the run that was trained."""
    values = essence(record)
    return values | {"curve": [line | {"step": 0} for line in values["curve"]]}


@pytest.mark.slow
def test_one_training_gives_what_a_training_for_each_size_would(data, swept, tmp_path):
    out, records = swept
    assert {name: record.trained_as for name, record in records.items()} == {
        "cce-bits4-seed0": "",
        "cce-bits32-seed0": "cce-bits4-seed0",
        "full-seed0": "",
        "small-seed0": "cce-bits4-seed0",
    }
    assert records["cce-bits4-seed0"].nbytes < records["cce-bits32-seed0"].nbytes
    assert records["small-seed0"].nbytes <= 20_000
    for run in runs_of(data):
        if run.source is not None:
            alone = Trainer(run.config, tmp_path / run.name).run(name=run.name, series=run.series)
            assert without_steps(alone) == without_steps(records[run.name]) | {"trained_as": ""}
    assert list(out.rglob("checkpoints")) == []
    assert Sweep(runs_of(data), out).left() == []


@pytest.mark.slow
def test_the_report_draws_every_size_of_the_training(swept):
    (group,) = group_records(swept[1].values())
    assert {budget.label for budget in group.series["cce"]} == {"4 bits per id", "32 bits per id"}
    plots = {plot.name: plot for plot in plots_of(group, palette(group.series))}
    sizes = [size for name, record in swept[1].items() if name.startswith("cce") for size in record.sizes]
    rows = [row for row in plots["sizes"].spec["data"]["values"] if row["series"] == "cce"]
    scored = {(size["nbytes"], round(size["loss"], 6)) for size in sizes if size["loss"] is not None}
    assert [(row["size"], row["mean"]) for row in rows] == sorted(scored)
    assert len(rows) == 3  # two sizes, and int8 rows
    assert rows[-1]["bits"] == "int8 rows"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"method": "hash", "bits": [4]}, r"may list bits for methods sized after training \(cce\), got 'hash'"),
        ({"method": "cce", "bits": [4, 4]}, "must list distinct bits, at least one, got"),
        ({"method": "cce", "nbytes": []}, "must list distinct nbytes, at least one, got"),
        ({"method": "cce", "nbytes": [4], "caps": [5]}, "must have caps or one of .*, got both"),
        (
            {"method": "cce", "nbytes": [4], "bits": [5]},
            "must list one of nbytes, bits, tolerance, got nbytes and bits",
        ),
    ],
)
def test_lists_that_one_training_cannot_give_are_rejected(own, message):
    with pytest.raises(ValueError, match=message):
        make_recipe("test", {"sweep": {"caps": [500]}, "series": {"x": own}})
