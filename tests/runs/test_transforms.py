"""What preparing makes of columns, predicting makes of them too: scales, bins, shared and hashed ids."""

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
    "max_length": 3,
    "share_ids": ["history=item"],
    "dense": ["age:standard", "price:bins=6"],
}


@pytest.mark.parametrize("more", [{}, {"hash_ids": 7}], ids=["counted", "hashed"])
def test_raw_rows_are_predicted_as_the_prepared_ones(tmp_path, more):
    write_csv(tmp_path / "raw.csv", HEADER, ROWS)
    data = cce.prepare(tmp_path / "raw.csv", tmp_path / "data", split="order", progress=False, **TYPED, **more)
    config = tiny_config(tmp_path / "data", max_steps=6, epochs=1, model="mlp", model_options={"hidden": [8]})
    cce.Trainer(config, tmp_path / "run").run()
    run = cce.load_run(tmp_path / "run")
    with torch.no_grad():
        batches = data.loader("test", batch_size=16_384, shuffle=False)
        expected = torch.cat([torch.sigmoid(run.model(batch)) for batch in batches]).numpy()
    rows = [dict(zip(HEADER, map(str, row), strict=True)) for row in ROWS[-30:]]
    assert np.array_equal(run.predict(rows), expected)
    assert len(np.unique(expected)) > 20


def test_ids_that_are_hashes_have_no_values(tmp_path):
    write_csv(tmp_path / "raw.csv", HEADER, ROWS)
    cce.prepare(
        tmp_path / "raw.csv", tmp_path / "data", label="click", categorical=["user"], hash_ids=7, progress=False
    )
    cce.Trainer(
        tiny_config(tmp_path / "data", max_steps=2, epochs=1, model="mlp", model_options={}), tmp_path / "run"
    ).run()
    vocabulary = cce.load_run(tmp_path / "run").vocabularies["user"]
    assert (vocabulary.kind, len(vocabulary)) == ("hashed", 127)
    assert vocabulary.find(["u1", "never seen"]).min() > 0
    with pytest.raises(ValueError, match="ids of 'user' are hashes: what they stand for is not kept"):
        vocabulary.values([1])
