"""What preparing makes of columns, predicting makes of them too: scales and hashed ids."""

import numpy as np
import pytest
import torch

import cce
from helpers.raw_files import write_csv
from helpers.runs import tiny_config

pytestmark = pytest.mark.slow
HEADER = ("click", "user", "item", "history", "age", "price", "hour")
ROWS = [
    (
        n % 2,
        f"u{n % 9}",
        n % 7,
        "^".join(str(k % 7) for k in range(n % 5)),
        "" if n % 8 == 3 else n % 50,
        n % 31 / 4,
        "x",
    )
    for n in range(300)
]
TYPED = {
    "label": "click",
    "categorical": ["user", "item"],
    "multi_hot": ["history"],
    "separator": "^",
    "dense": ["age:standard", "price"],
}


@pytest.mark.parametrize("more", [{}, {"hash_ids": 7}], ids=["counted", "hashed"])
def test_raw_rows_are_predicted_as_the_prepared_ones(tmp_path, more):
    write_csv(tmp_path / "raw.csv", HEADER, ROWS)
    data = cce.prepare(tmp_path / "raw.csv", tmp_path / "data", split="order", progress=False, **TYPED, **more)
    config = tiny_config(tmp_path / "data", max_steps=6, epochs=1, model="mlp", model_options={"hidden": [8]})
    cce.training.Trainer(config, tmp_path / "run").run()
    run = cce.load_run(tmp_path / "run")
    with torch.no_grad():
        batches = data.loader("test", batch_size=16_384, shuffle=False)
        expected = torch.cat([torch.sigmoid(run.model(batch)) for batch in batches]).numpy()
    rows = [dict(zip(HEADER, map(str, row), strict=True)) for row in ROWS[-30:]]
    assert np.array_equal(run.predict(rows), expected)
    assert len(np.unique(expected)) > 20


@pytest.mark.parametrize("more", [{}, {"hash_ids": 7}], ids=["counted", "hashed"])
@pytest.mark.parametrize("values", [("a", "b", "c"), (5, 7, 9)], ids=["words", "integers"])
def test_unseen_and_missing_are_two_ids_everywhere(tmp_path, values, more):
    """In prepared rows, in new rows, and in vocabularies; "?" is no number, and unseen."""
    common, rare, _ = values
    rows = [(0, common), (1, common), (1, common), (0, ""), (1, ""), (0, rare)] * 4
    write_csv(tmp_path / "a.csv", ("y", "v"), rows)
    data = cce.prepare(
        *(tmp_path / "a.csv", tmp_path / "data"), label="y", categorical=["v"], split="order", progress=False, **more
    )
    ids = dict(
        zip([row[1] for row in rows], next(iter(data.loader("train", batch_size=24, shuffle=False))).ids, strict=False)
    )
    assert more or [ids[v].item() for v in (common, "", rare)] == [1, 2, 3]
    assert len({int(i) for i in ids.values()}) == 3
    cce.training.Trainer(
        tiny_config(tmp_path / "data", max_steps=2, epochs=1, model="mlp", model_options={}), tmp_path / "run"
    ).run()
    run = cce.load_run(tmp_path / "run")
    encoder = run.inputs.encoder(run.schema)
    new = [{"v": str(v)} for v in (common, "", rare, values[2], "?")]
    found = next(encoder.batches(new, batch_size=9)).ids[:, 0].tolist()
    assert found[:3] == [int(ids[v]) for v in (common, "", rare)]
    vocabulary = run.vocabularies["v"]
    assert vocabulary.find([""]).tolist() == found[1:2]
    if not more:
        assert found[3:] == [0, 0]
        assert vocabulary.values([0, 1, 2, 3]) == [None, str(common), "", str(rare)]


def test_a_missing_value_that_training_never_saw_is_unseen(tmp_path):
    write_csv(tmp_path / "a.csv", ("y", "v"), [(n % 2, f"v{n % 3}") for n in range(18)] + [(1, "")] * 2)
    data = cce.prepare(
        *(tmp_path / "a.csv", tmp_path / "data"), label="y", categorical=["v"], split="order", progress=False
    )
    assert data.schema.vocabulary_sizes == {"v": 4}
    assert next(iter(data.loader("test", batch_size=2, shuffle=False))).ids.tolist() == [[0], [0]]


def test_ids_that_are_hashes_have_no_values(tmp_path):
    write_csv(tmp_path / "raw.csv", HEADER, ROWS)
    cce.prepare(
        tmp_path / "raw.csv", tmp_path / "data", label="click", categorical=["user"], hash_ids=7, progress=False
    )
    cce.training.Trainer(
        tiny_config(tmp_path / "data", max_steps=2, epochs=1, model="mlp", model_options={}), tmp_path / "run"
    ).run()
    vocabulary = cce.load_run(tmp_path / "run").vocabularies["user"]
    assert (vocabulary.kind, len(vocabulary)) == ("hashed", 127)
    assert vocabulary.find(["u1", "never seen"]).min() > 0
    with pytest.raises(ValueError, match="ids of 'user' are hashes: what they stand for is not kept"):
        vocabulary.values([1])
