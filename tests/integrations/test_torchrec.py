"""TorchRec's bags, compressed: the same as its own with the dense tables as weights."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import cce

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchrec = pytest.importorskip(
        "torchrec", reason="torchrec is not installed: see docs/integrations.md", exc_type=ImportError
    )
    from cce.integrations.torchrec import CompressedEmbeddingBagCollection

pytestmark = pytest.mark.filterwarnings("ignore")
TESTS = Path(__file__).resolve().parents[1]


def configs(num_items=500, num_users=300):
    return [
        torchrec.EmbeddingBagConfig(
            name="item_table", embedding_dim=8, num_embeddings=num_items, feature_names=["seen", "item"]
        ),
        torchrec.EmbeddingBagConfig(
            name="user_table",
            embedding_dim=4,
            num_embeddings=num_users,
            feature_names=["user"],
            pooling=torchrec.PoolingType.MEAN,
        ),
    ]


def features(weighted):
    lengths = torch.tensor([2, 0, 3, 1, 1, 1, 0, 1, 2])  # three features, three rows, empty bags among them
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(300, (int(lengths.sum()),), generator=g)
    weights = torch.rand(len(ids), generator=g) if weighted else None
    return torchrec.KeyedJaggedTensor(["seen", "item", "user"], ids, lengths=lengths, weights=weights)


@pytest.mark.parametrize("method", ["cce", "hash", "full"])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_torchrecs_own_with_the_dense_tables(method, weighted):
    tables = configs() if not weighted else configs()[:1]
    made = CompressedEmbeddingBagCollection(tables, weighted, method=method, cap=200, seed=0)
    own = torchrec.EmbeddingBagCollection(tables, weighted)
    for name, bag in made.embedding_bags.items():
        own.embedding_bags[name].weight.data.copy_(bag.table.to_dense())
    cce.optim.Adam(made, lr=0.1)
    got, expected = made(features(weighted)), own(features(weighted))
    assert got.keys() == expected.keys()
    assert got.length_per_key() == expected.length_per_key()
    torch.testing.assert_close(got.values(), expected.values())
    got.values().sum().backward()
    parameters = dict(made.named_parameters())
    assert all(each.grad is not None for name, each in parameters.items() if method != "cce" or "anchor" in name)


def test_compress_swaps_the_tables_of_an_existing_model():
    model = torch.nn.ModuleDict({"bags": torchrec.EmbeddingBagCollection(configs())})
    cce.compress(model, method="cce", cap=200, min_params=0, seed=0)
    assert model["bags"](features(weighted=False)).values().shape == (3, 20)
    assert cce.summary(model).total.num_params <= 400


def test_bags_of_int8_rows_train_and_are_finalized():
    made = CompressedEmbeddingBagCollection(configs(5_000, 4_000), seed=0)
    with pytest.raises(RuntimeError, match=r"^table '(item|user)_table' trains as int8 rows, which no optimizer moves"):
        made(features(weighted=False)).values().sum().backward()
    tables = [bag.table for bag in made.embedding_bags.values()]
    assert not any(table.is_final for table in tables)
    optimizer, losses = cce.optim.Adam(made, lr=0.05), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (made(features(weighted=False)).values() - 1).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    cce.finalize(made, num_columns=2, num_rows=8, seed=0)
    assert all(table.is_final for table in tables)
    assert made(features(weighted=False)).values().shape == (3, 20)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["replicates", "shards"])
def test_a_distributed_model_has_the_same_tables_on_all_ranks_or_a_share_of_them_on_each(tmp_path, job):
    paths = os.pathsep.join([str(TESTS), *sys.path])
    processes = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "helpers" / "torchrec_ranks.py"), str(tmp_path), str(rank), job],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for out, error in said:
        assert out.strip() == "equal", error[-3000:]


def test_two_tables_of_one_name_are_rejected():
    with pytest.raises(ValueError, match="tables must have different names, got 'item_table' twice"):
        CompressedEmbeddingBagCollection([configs()[0], configs()[0]], cap=200)
