"""Bad input of every kind to training: one clear line with the argument or file, the rule and the value; no traces.

Options go through `TrainConfig` and `Trainer`, words through `cce`, and damage is done to the folder of a real run.
"""
# ruff: noqa: E501 - a case is a line

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from cce.training.checkpoint import list_checkpoints, read_checkpoint, write_checkpoint
from cce.training.inspection import verify_run
from cce_lab.sweeps.recipe import read_recipe
from helpers.runs import CCE, tiny_config

# -- options, as TrainConfig takes them --------------------------------------------------------------------------------


def assert_one_line(text, *parts):
    assert len(text.splitlines()) == 1
    for part in parts:
        assert part in text


# -- options that only a data set and a model can reject ---------------------------------------------------------------

RUNS = [
    ({"method": "ccee"}, ValueError, "method must be one of full, hash,"),
    ({"optimizer": "adma"}, ValueError, "optimizer must be one of adam, adamw,"),
    ({"optimizer_options": {"eps": "x"}}, ValueError, "optimizer 'adam' could not be made with lr=0.01, eps='x',"),
    ({"optimizer_options": {"eps": -1}}, ValueError, "optimizer 'adam' could not be made with lr=0.01, eps=-1,"),
    ({"optimizer_options": {"foo": 1}}, ValueError, "unexpected keyword argument 'foo'"),
    ({"model_options": {"bottom": [0]}}, ValueError, "bottom must lie in [1, 2**31), got 0."),
    ({"model_options": {"bottom": "x"}}, TypeError, "bottom must be a list of ints, got 'x' of type str."),
    ({"model_options": {"wrong": 8}}, TypeError, "model 'dlrm' could not be made with options {'wrong': 8}: "),
    ({"method_options": {"num_columns": 3}}, ValueError, "embedding_dim must be a multiple of num_columns, got"),
    ({"method_options": {"colums": 3}}, TypeError, "method 'cce-paper' has no option 'colums'; its options are num_rows,"),
    ({"method_options": {"settings": {"foo": 1}}}, TypeError, "method_options settings must be those of ClusterSett"),
    ({"method_options": {"settings": 3}}, TypeError, "settings must be ClusterSettings, got 3 of type int."),
    ({"embedding_dim": 10**12}, ValueError, "cap must be at least 2000000000000 for method 'cce-paper' of the table of"),
    ({"embedding_dim": 10**12, "cap": 10**13}, MemoryError, "tables must fit into memory, but those of method 'cce-paper' and embe"),
    ({"device": "tpu"}, ValueError, "device must be one of this machine's, cpu, cuda ("),
    ({"device": "meta"}, ValueError, "or auto, got 'meta'."),
    ({"cap": None, "num_params": 1}, ValueError, "num_params must be at least"),
    ({"min_count": 5}, ValueError, "min_count must be left out where no table trains as int8 rows, got min_count=5 wi"),
    (CCE | {"min_count": 300}, ValueError, "min_count must lie in [1, 257), got 300."),
    (CCE | {"optimizer": "rmsprop"}, ValueError, "optimizer must be one of adam, adamw, adagrad, sgd;"),
    ({"start_from": "nowhere"}, FileNotFoundError, "start_from must name a run or a checkpoint, got 'nowhere': "),
    ({"model": "nowhere.py:X"}, FileNotFoundError, "model must name a file that is there, got 'nowhere.py'."),
    ({"model": ":X"}, ValueError, "model must be one of dlrm, gmf, mlp, deepfm, dcnv2, or path/to/file.py:Name; got ':X'."),
    ({"batch_size": 10**10}, ValueError, "batch_size must lie in [1, 2**31), got 10000000000."),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "message"), RUNS, ids=lambda value: str(value)[:40])
def test_runs_that_cannot_begin(data, tmp_path, options, kind, message):
    with pytest.raises(kind) as raised:
        Trainer(tiny_config(data, **options), tmp_path / "new" / "run")
    assert_one_line(str(raised.value), message)
    assert list(tmp_path.iterdir()) == []


# -- schedules and optimizers by themselves ----------------------------------------------------------------------------


# -- words after cce ---------------------------------------------------------------------------------------------------

TRAIN = (
    "train",
    "DATA",
    "--cap",
    "320",
    "--embedding-dim",
    "8",
    "--set",
    "threads=1",
    "--max-steps",
    "2",
    "--out",
    "out",
)
SWEEP = ("sweep", "recipe.toml", "--data", "DATA", "--out", "out")
WORDS = [
    ((*TRAIN, "--device", "tpu"), "got 'tpu'."),
    ((*TRAIN, "--model", "bad.py:X"), "bad.py': SyntaxError in line 1: "),
    ((*TRAIN, "--model", "recipe.toml:X"), "model must name a Python file, got"),
    ((*TRAIN, "--model", "good.py:Y"), "model names 'Y', but"),
    ((*TRAIN, "--lr", "x"), "argument --lr: invalid float value: 'x'; see `cce train --help`."),
    ((*TRAIN, "--epochs", "1.5"), "argument --epochs: invalid int value: '1.5'"),
    ((*TRAIN, "--nope"), "unrecognized arguments: --nope"),
    ((*TRAIN, "--method-options", "=3"), "method_options must have the form NAME=VALUE, got '=3'."),
    ((*TRAIN, "--cluster-at"), "argument --cluster-at: expected at least one argument"),
    ((*TRAIN, "--config", "nowhere.toml"), "config must name a file that is there, got 'nowhere.toml'."),
    ((*TRAIN, "--config", "latin.toml"), "latin.toml must be TOML: 'utf-8' codec can't decode byte 0xe9"),
    ((*TRAIN, "--config", "wrong.toml"), "wrong.toml has an option that is not known, 'epoch': did you mean 'epochs'?"),
    ((*TRAIN, "--resume", "RUN"), "config and out do not go with resume: a run keeps its folder and its options."),
    ((*TRAIN, "--set", "threads=1000000000000"), "threads must lie in [1, 2**16), got 1000000000000."),
    ((*TRAIN[:-1], "good.py"), "good.py must be a folder, got the file "),
    ((*TRAIN[:-1], "DATA"), "which holds a data set."),
    ((*TRAIN[:-1], "RUN"), "holds a run: give another folder, or resume with `cce train --resume"),
    (("train",), "data must be given: the folder of a data set made by `cce prepare`."),
    (("train", "nowhere", *TRAIN[2:]), "nowhere must be a data set made by `cce prepare`, got no manifest.json there."),
    (("train", "--resume", "nowhere"), "resume must name the folder of a run, got 'nowhere'."),
    (("train", "--resume", "DATA"), "resume must name the folder of a run, got "),
    (("train", "--resume", "RUN", "--lr", "1"), "lr does not go with resume, which may change epochs, max_steps"),
    (("train", "--resume", "RUN", "--device", "tpu"), "cce train: device must be one of this machine's"),
    (("train", "--resume", "RUN", "--model", "bad.py:X"), "model must name a Python file that can be run, got"),
    (("inspect",), "the following arguments are required: RUN|CHECKPOINT; see `cce inspect --help`."),
    (("inspect", "nowhere"), "nowhere must be a run or a checkpoint, got no whole checkpoint there."),
    (("inspect", "good.py"), "RUN must be a folder, got the file 'good.py'."),
    (("inspect", "RUN", "--model", "bad.py:X"), "cce inspect: model must name a Python file that can be run, got"),
    (("evaluate", "RUN"), "the following arguments are required: DATA|RAW"),
    (("evaluate", "RUN", "nowhere"), "data must be the folder of a data set or a file of raw rows, got 'nowhere'."),
    (("evaluate", "nowhere", "DATA"), "nowhere must be a run or a checkpoint"),
    (("evaluate", "RUN", "DATA", "--split", "tests"), "split must be one of train, validation, test; got 'tests'."),
    (("evaluate", "RUN", "DATA", "--model", "gmf"), "must fit the options of its run, but it does not: "),
    (("plan",), "the following arguments are required: features"),
    (("plan", "x"), "features must be numbers, NAME=NUMBER or the folder of a data set, got 'x'."),
    (("plan", "a=1", "a=2"), "features must have distinct names, got 'a' twice."),
    (("plan", "10", "--cap", "5", "--bits", "5"), "argument --bits: not allowed with argument --cap"),
    (("plan", "10", "--nbytes", "infMB"), "bytes must be a number with a unit such as 50MB, got 'infMB'."),
    (("plan", "10", "--set", "compression=nan"), "compression must be finite and at least 1, got nan."),
    (("plan", "10", "--method", "cc", "--cap", "4"), "method must be one of full, hash"),
    (("demo", "--rows", "1", "--out", "out"), "num_rows must lie in [100, 2**31), got 1."),
    (("demo", "--out", "good.py"), "out must be a folder, got the file 'good.py'."),
    (("sweep", "nowhere.toml"), "recipe must name a file that is there, or one of ours, got 'nowhere.toml'"),
    (("sweep", "latin.toml"), "latin.toml must be TOML: 'utf-8' codec can't decode byte 0xe9"),
    (("sweep", "wrong.toml"), "wrong.toml has a part that is not known, 'epoch'"),
    ((*SWEEP, "--jobs", "0"), "jobs must lie in [1, 2**16), got 0."),
    ((*SWEEP, "--engine", "dask"), "engine must be local, ray or ray://host:port, got 'dask'."),
    ((*SWEEP, "--only", "hash"), "only must name series of the recipe (full), got 'hash'."),
    (("sweep", "recipe.toml", "--data", "nowhere"), "nowhere must be a data set made by `cce prepare`"),
    (("nope",), "argument VERB: invalid choice: 'nope'"),
]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run that was stopped after 9 steps, with checkpoints of validations after steps 3, 6 and of step 9."""
    out = tmp_path_factory.mktemp("bad") / "run"
    Trainer(tiny_config(data, max_steps=9, validations_per_epoch=4), out).run()
    return out


def fingerprint(folder):
    return {path: path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "message"), WORDS, ids=[" ".join(words)[-50:] for words, _ in WORDS])
def test_words(data, run, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("def f(:\n")
    Path("good.py").write_text("X = 3\n")
    Path("latin.toml").write_bytes('about = "caf\xe9"\n'.encode("latin-1"))
    Path("wrong.toml").write_text("epoch = 3\n")
    Path("recipe.toml").write_text('[sweep]\nmethods = ["full"]\n')
    before = [fingerprint(folder) for folder in (tmp_path, run, data)]
    code = exit_code([{"DATA": str(data), "RUN": str(run)}.get(word, word) for word in words])
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert_one_line(err, "cce", message)
    assert "Traceback" not in err
    assert [fingerprint(folder) for folder in (tmp_path, run, data)] == before


def exit_code(words):
    try:
        return main(words)
    except SystemExit as left:  # words that the parser rejects
        return left.code


# -- the folder of a run, damaged --------------------------------------------------------------------------------------

LAST = "checkpoints/step-0000000009"


def write(name, text):
    """Damage: a file with this content."""

    def damage(run):
        content = text if isinstance(text, bytes) else text.encode()
        (run / name).write_bytes(content)

    return damage


def cut(name, count):
    """Damage: a file without its last bytes."""
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-count])


def edit_options(old, new):
    """Damage: an edit by hand."""

    def damage(run):
        text = (run / "config.toml").read_text()
        assert old in text
        (run / "config.toml").write_text(text.replace(old, new))

    return damage


def rewrite(change):
    """Damage: the last checkpoint, written again with right checksums and another content."""

    def damage(run):
        checkpoint = read_checkpoint(run / LAST)
        change(checkpoint)
        write_checkpoint(run / "checkpoints", checkpoint.step, checkpoint.model, checkpoint.state)

    return damage


def edit_body(**changes):
    """Damage: a manifest with a right checksum, and other words."""

    def damage(run):
        file = run / LAST / "checkpoint.json"
        body = json.loads(file.read_text())["body"] | changes
        digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        file.write_text(json.dumps({"sha256": digest, "body": body}))

    return damage


def state(name, value):
    return rewrite(lambda checkpoint: checkpoint.state.update({name: value}))


def without(name):
    return rewrite(lambda checkpoint: checkpoint.state.pop(name))


def weights(change):
    return rewrite(lambda checkpoint: change(checkpoint.model))


def only_last(damage):
    """Damage to the last checkpoint, with no other to fall back to."""

    def damages(run):
        others = [path for path in list_checkpoints(run / "checkpoints") if path != run / LAST]
        assert others
        for path in others:
            shutil.rmtree(path)
        damage(run)

    return damages


RESUME, INSPECT, EVALUATE = ("train", "--resume", "RUN"), ("inspect", "RUN"), ("evaluate", "LAST", "DATA")
FITS = f"{LAST} must fit the options of its run, but it does not: "
DAMAGES = {
    "options cut short": (cut("config.toml", 20), RESUME, "config.toml must be TOML: "),
    "options empty": (write("config.toml", ""), RESUME, "config.toml must hold the options of a run: data must be given"),
    "options binary": (write("config.toml", b"\xff\xfe\x00"), RESUME, "config.toml must be TOML: 'utf-8' codec"),
    "an unknown option": (write("config.toml", 'dta = "x"'), RESUME, "config.toml has an option that is not known, 'dta'"),
    "an option of another type": (edit_options("lr = 0.01", 'lr = "x"'), RESUME, "config.toml must hold the options of"),
    "an option out of range": (edit_options("seed = 0", "seed = -1"), RESUME, "seed must lie in [0, 2**63), got -1."),
    "another rate": (edit_options("lr = 0.01", "lr = 0.5"), RESUME, "lr in config.toml must be what the run was begun wi"),
    "another seed": (edit_options("seed = 0", "seed = 1"), RESUME, "seed in config.toml must be what the run was begun"),
    "another dimension": (edit_options("embedding_dim = 8", "embedding_dim = 4"), RESUME, "embedding_dim in config.toml m"),
    "other data": (edit_options("tiny", "tony"), RESUME, "tony must be a data set made by `cce prepare`, got no manifest"),
    "a model in a file": (edit_options('"dlrm"', '"x.py:X"'), RESUME, "must be trusted, as its code would be run, got 'x"),
    "no checkpoint": (lambda run: shutil.rmtree(run / "checkpoints"), INSPECT, "must be a run or a checkpoint, got no who"),
    "all checkpoints damaged": (only_last(cut(f"{LAST}/model.safetensors", 1)), RESUME, "must hold a whole checkpoint"),
    "no manifest": (only_last(lambda run: (run / LAST / "checkpoint.json").unlink()), INSPECT, "checkpoint.json there."),
    "no tensors": (only_last(lambda run: (run / LAST / "model.safetensors").unlink()), INSPECT, "model.safetensors is mis"),
    "manifest cut short": (only_last(cut(f"{LAST}/checkpoint.json", 9)), EVALUATE, "checkpoint.json is not what was writt"),
    "manifest binary": (only_last(write(f"{LAST}/checkpoint.json", b"\x80")), INSPECT, "checkpoint.json is not what was w"),
    "manifest a list": (only_last(write(f"{LAST}/checkpoint.json", "[1]")), INSPECT, "checkpoint.json is not what was wri"),
    "no checksums": (only_last(edit_body(files={})), INSPECT, "does not: KeyError: 'model.safetensors'"),
    "names that lead out": (only_last(edit_body(files={"../../x": {}})), INSPECT, "does not: KeyError: 'model.safetensors'"),
    "a later format": (only_last(edit_body(format=9)), RESUME, "checkpoint.json must be 1, got 9."),
    "a step that is none": (only_last(edit_body(step="x")), RESUME, "does not: invalid literal for int()"),
    "no state": (only_last(edit_body(state=None)), INSPECT, "must hold the state of a run, with 'resolved' of type"),
    "state of no form": (only_last(edit_body(state={"a": 1})), INSPECT, "must fit the options of its run, but it does not"),
    "no configuration": (without("config"), INSPECT, "must hold the state of a run, with 'config' of type dict, got None."),
    "a strange configuration": (state("config", {"data": 3}), RESUME, f"{FITS}data must be a str, got 3."),
    "strange options": (state("resolved", {"data": 3}), INSPECT, f"{FITS}KeyError: 'plugins'"),
    "no schema": (without("schema"), EVALUATE, "must hold the state of a run, with 'schema' of type dict, got None."),
    "an empty schema": (state("schema", {}), EVALUATE, FITS),
    "no curve": (without("curve"), INSPECT, "must hold the state of a run, with 'curve' of type list, got None."),
    "no best step": (state("stopping", {}), INSPECT, "must hold a best_step of type int, got None."),
    "no optimizer": (without("optimizers"), RESUME, f"{FITS}KeyError: 'optimizers'"),
    "optimizer of another model": (state("optimizers", [{"state": {}, "param_groups": []}]), RESUME, FITS),
    "no place in the data": (state("loader", {}), RESUME, FITS),
    "a place beyond the data": (rewrite(lambda c: c.state["loader"].update(position=10**6)), RESUME, f"{FITS}position m"),
    "no random numbers": (state("random", {}), RESUME, f"{FITS}KeyError: "),
    "other data's state": (state("data", "0" * 64), RESUME, "data must be the data set that the run began with, but"),
    "a weight missing": (weights(lambda model: model.pop("top.0.weight")), INSPECT, f"{FITS}Error(s) in loading state_dict"),
    "a weight too many": (weights(lambda model: model.update(x=torch.ones(1))), RESUME, FITS),
    "a weight of another shape": (weights(lambda m: m.update({"top.0.bias": torch.ones(3)})), EVALUATE, FITS),
    "pointers beyond the rows": (weights(lambda model: model["tables.tables.c0.assignments.pointers"].fill_(255)), RESUME, "tables.tables.c0.assignments.pointers: they must lie in [0, 20)."),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_runs(data, run, tmp_path, capsys, name):
    damage, words, message = DAMAGES[name]
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    damage(copy)
    folders = {"DATA": str(data), "RUN": str(copy), "LAST": str(copy / LAST)}
    before = fingerprint(tmp_path)
    assert exit_code([folders.get(word, word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert_one_line(err, message)
    assert fingerprint(tmp_path) == before
    assert (
        verify_run(copy).problems or words == RESUME or name == "no checkpoint"
    )  # what only the data, or a resumed run, can know


SALVAGED = {
    "log cut short": cut("metrics.jsonl", 5),
    "log with a bad line": lambda run: (run / "metrics.jsonl").write_text(
        "nonsense\n" + (run / "metrics.jsonl").read_text()
    ),
    "log binary": write("metrics.jsonl", b"\xff\n\x00\n"),
    "log gone": lambda run: (run / "metrics.jsonl").unlink(),
    "record cut short": cut("record.jsonl", 30),
    "newest checkpoint damaged": cut(f"{LAST}/training.safetensors", 1),
    "best checkpoint damaged": lambda run: [
        cut(f"{path.relative_to(run)}/model.safetensors", 1)(run)
        for path in (run / "checkpoints").iterdir()
        if path.name.endswith("9")
    ],
    "a kill's leftovers": lambda run: (run / "checkpoints" / "step-0000000012.part").mkdir(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SALVAGED)
def test_runs_that_go_on_in_spite_of_damage(data, run, tmp_path, capsys, name):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    SALVAGED[name](copy)
    problems = verify_run(copy).problems
    assert bool(problems) == (name not in ("log cut short", "log gone", "a kill's leftovers"))
    assert all(str(copy) in problem for problem in problems)
    assert main(["verify", str(copy)]) == (2 if problems else 0)
    assert_one_line("".join(capsys.readouterr()), str(copy))
    assert main(["train", "--resume", str(copy), "--max-steps", "13", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["curve"][-1]["step"] == 13
    assert verify_run(copy).problems == []


@pytest.mark.parametrize("text", ["about = 3 = 4", b"\xff", "[sweep]\nmethods = 3", "[[sweep]]\n", "[data]\nx = 1"])
def test_recipes(tmp_path, text):
    path = tmp_path / "recipe.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((TypeError, ValueError)) as raised:
        read_recipe(path)
    assert_one_line(str(raised.value), str(path))


def test_there_are_enough_of_them():
    assert len(RUNS) + len(WORDS) + len(DAMAGES) + len(SALVAGED) >= 115
