"""compress: any torch model, its large tables swapped in place."""

import re

import pytest
import torch
from torch import nn

import cce
from cce.budget import FULL_SIZED
from cce.compression.swap_tables import LARGE


class SmallDLRM(nn.Module):
    """Bottom network, one table per feature, dot products, top network: with torch's own tables."""

    def __init__(self, vocabularies=(20_000, 9_000, 50), dim=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in vocabularies)
        self.bottom = nn.Sequential(nn.Linear(4, dim), nn.ReLU())
        num_pairs = (len(vocabularies) + 1) * len(vocabularies) // 2
        self.top = nn.Linear(dim + num_pairs, 1)

    def forward(self, dense, ids):
        vectors = [self.bottom(dense)] + [
            table(column.unsqueeze(1)) for table, column in zip(self.tables, ids.T, strict=True)
        ]
        stacked = torch.stack(vectors, dim=1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(len(vectors), len(vectors), offset=-1)
        return self.top(torch.cat([vectors[0], products[:, rows, columns]], dim=1)).squeeze(1)


def train_a_step(model, *inputs):
    cce.optim.Adam(model, lr=1e-3)  # int8 rows need one of ours
    loss = model(*inputs).square().mean()
    loss.backward()
    return loss


@pytest.mark.slow
def test_a_plain_dlrm_is_compressed_in_place_and_trains():
    model = SmallDLRM()
    before = sum(p.numel() for p in model.parameters())
    plan = cce.compress(model, method="cce-paper", compression=50, seed=0)
    assert [(t.name, t.method) for t in plan.tables] == [
        *(("tables.0", "cce-paper"), ("tables.1", "cce-paper"), ("tables.2", "nn.EmbeddingBag"))
    ]
    assert isinstance(model.tables[0], cce.embeddings.EmbeddingBag)
    assert isinstance(model.tables[0].table, cce.embeddings.ClusteredEmbedding)
    assert model.tables[0].mode == "sum"
    assert model.tables[0].table.sparse
    assert isinstance(model.tables[2], nn.EmbeddingBag)
    assert sum(p.numel() for p in model.parameters()) < before / 20
    dense, ids = torch.randn(32, 4), torch.randint(0, 50, (32, 3))
    train_a_step(model, dense, ids)
    assert model.tables[0].table.codebook.grad.is_sparse
    event = model.tables[0].table.cluster()
    assert event.num_ids == 20_000
    assert torch.isfinite(model(dense, ids)).all()


@pytest.mark.parametrize("method", [name for name in cce.embeddings.list_methods() if name not in FULL_SIZED])
def test_every_method_fits_into_a_model(method):
    model = nn.Sequential(nn.Embedding(8_000, 16), nn.Linear(16, 1))
    cce.compress(model, method=method, compression=6)
    assert model[0].method == method
    assert model[0].num_params <= 8_000 * 16 / 6 * 1.01
    train_a_step(model, torch.randint(0, 8_000, (64,)))


def test_a_dry_run_changes_nothing_and_prints_the_plan():
    model = SmallDLRM()
    kinds = [type(module) for module in model.modules()]
    plan = cce.compress(model, compression=50, dry_run=True)
    assert [type(module) for module in model.modules()] == kinds
    text = str(plan)
    assert "tables.0" in text
    assert "20,000" in text
    assert f"smaller than min_params={LARGE:,}" in text
    real = cce.compress(model, compression=50)
    assert [table.num_params for table in plan.tables] == [table.num_params for table in real.tables]
    assert [table.nbytes for table in plan.tables] == [table.nbytes for table in real.tables]


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_table = nn.Embedding(9_000, 16)
        self.item_table = nn.Embedding(9_000, 16)
        self.other = nn.Sequential(nn.Embedding(500, 16))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("user_table", {"user_table"}),
        ("*_table", {"user_table", "item_table"}),
        (re.compile("^item|0$"), {"item_table", "other.0"}),
        (["user*", re.compile("other")], {"user_table", "other.0"}),
        (None, {"user_table", "item_table"}),
    ],
)
def test_tables_are_chosen_by_size_by_pattern_or_by_regular_expression(names, expected):
    plan = cce.compress(Named(), method="hash", compression=10, names=names, dry_run=True)
    assert {table.name for table in plan.compressed} == expected


def test_a_name_is_the_whole_name():
    model = nn.ModuleDict({"item": nn.Embedding(9_000, 16), "cheap_item": nn.Embedding(9_000, 16)})
    plan = cce.compress(model, method="hash", compression=10, names="item")
    assert [table.name for table in plan.compressed] == ["item"]


def test_min_params_chooses_by_size():
    plan = cce.compress(Named(), method="hash", cap=4_000, min_params=500 * 16, dry_run=True)
    assert len(plan.compressed) == 3
    assert len(cce.compress(Named(), method="hash", cap=4_000, min_params=501 * 16, dry_run=True).compressed) == 2


def test_a_cap_keeps_tables_that_fit_under_it():
    plan = cce.compress(Named(), method="hash", cap=8_000, min_params=1)
    assert {table.name: table.num_params for table in plan.tables} == {
        "user_table": 8_000,
        "item_table": 8_000,
        "other.0": 8_000,
    }
    assert [table.reason for table in plan.tables if table.reason] == ["fits in full within cap=8000"]
    assert [table.method for table in plan.tables] == ["hash", "nn.Embedding", "hash"]


@pytest.mark.slow
def test_a_compression_is_of_all_tables_that_may_be_swapped():
    model = nn.ModuleDict({"user": nn.Embedding(100_000, 16), "item": nn.Embedding(20_000, 16)})
    model["kept"] = nn.Embedding(9_000, 16, max_norm=1.0)
    plan = cce.compress(model, method="hash", compression=100)
    found = {table.name: table.num_params for table in plan.compressed}
    assert found == {"user": 9_600, "item": 9_600}


def test_bytes_are_those_of_the_models_dtype():
    model = nn.ModuleDict({"user": nn.Embedding(50_000, 16), "item": nn.Embedding(20_000, 16)}).bfloat16()
    plan = cce.compress(model, method="hash", nbytes=100_000)
    assert 97_000 < plan.nbytes <= 100_000
    assert plan.nbytes == cce.summary(model).nbytes


def test_padding_dtype_training_mode_and_sparse_are_kept():
    model = nn.Sequential(nn.Embedding(9_000, 16, padding_idx=7, sparse=True, dtype=torch.float64)).eval()
    cce.compress(model, compression=10)
    table = model[0]
    assert table.padding_idx == 7
    assert table.sparse
    assert not table.training
    assert not any(module.training for module in table.modules())
    assert {p.dtype for p in table.parameters()} == {torch.float64}
    assert not table(torch.tensor([7])).any()


def test_a_table_on_another_device_is_replaced_there():
    """The meta device holds no numbers, but it is another device."""
    plan_for = nn.Sequential(nn.Embedding(9_000, 16, device="meta"))
    cce.compress(plan_for, method="hash", compression=10)
    assert plan_for[0].codebook.device.type == "meta"


def test_bags_keep_mode_and_last_offset_and_padding():
    model = nn.Sequential(nn.EmbeddingBag(9_000, 16, mode="max", include_last_offset=True, padding_idx=3))
    cce.compress(model, method="hash", compression=10)
    assert (model[0].mode, model[0].include_last_offset, model[0].padding_idx) == ("max", True, 3)
    ids, offsets = torch.tensor([3, 5, 6]), torch.tensor([0, 1, 3])
    pooled = model[0](ids, offsets)
    assert not pooled[0].any()
    dense = model[0].table.to_dense()
    assert torch.equal(pooled[1], torch.maximum(dense[5], dense[6]))


class Tied(nn.Module):
    def __init__(self, *, to_linear=False):
        super().__init__()
        self.encoder = nn.Embedding(9_000, 16)
        self.decoder = nn.Embedding(9_000, 16)
        self.decoder.weight = self.encoder.weight
        if to_linear:
            self.head = nn.Linear(16, 9_000, bias=False)
            self.head.weight = self.encoder.weight


def test_tables_tied_to_each_other_stay_tied():
    model = Tied()
    plan = cce.compress(model, compression=10)
    assert [table.name for table in plan.compressed] == ["encoder = decoder"]
    assert model.encoder is model.decoder
    assert [name for name, _ in model.named_parameters()] == ["encoder.anchor", "encoder.codebook"]


def test_tied_tables_stay_tied_when_they_are_finalized_and_loaded():
    model, other, ids = Tied(), Tied(), torch.arange(300)
    for each in (model, other):
        cce.compress(each, seed=0)
    optimizer = cce.optim.Adam(model)
    (model.encoder(ids) * model.decoder(ids.flip(0))).sum().backward()
    optimizer.step()
    assert [table.name for table in cce.finalize(model).tables] == ["encoder"]
    other.load_state_dict(model.state_dict())
    for each in (model, other):
        assert each.decoder is each.encoder
        assert torch.equal(each.decoder(ids), model.encoder(ids))
    assert other.decoder.is_final
    assert model.encoder(ids).any()


def test_one_name_of_a_tied_pair_brings_the_other():
    model = Tied()
    cce.compress(model, compression=10, names="decoder")
    assert model.encoder is model.decoder


def test_a_table_tied_to_a_linear_layer_is_kept_and_the_reason_told():
    with pytest.raises(ValueError, match="its weight is tied to head \\(Linear\\)"):
        cce.compress(Tied(to_linear=True), compression=10)


def test_a_module_used_twice_is_replaced_in_both_places():
    shared = nn.Embedding(9_000, 16)
    model = nn.ModuleDict({"a": nn.Sequential(shared), "b": shared})
    cce.compress(model, compression=10)
    assert model["a"][0] is model["b"]
    assert isinstance(model["b"], cce.embeddings.CCEEmbedding)


class Scaled(nn.Embedding):
    def forward(self, ids):
        return 2 * super().forward(ids)


def hooked():
    table = nn.Embedding(9_000, 16)
    table.register_forward_hook(lambda *_: None)
    return table


def frozen():
    table = nn.Embedding(9_000, 16)
    table.weight.requires_grad_(False)
    return table


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (Scaled(9_000, 16), "Scaled is a subclass and may do more than look up"),
        (nn.Embedding(9_000, 16, max_norm=1.0), "max_norm is not supported"),
        (nn.Embedding(9_000, 16, scale_grad_by_freq=True), "scale_grad_by_freq is not supported"),
        (hooked(), "it has hooks, which would be lost"),
        (frozen(), "it is frozen: compress it with start='trained'"),
        (nn.Embedding(90, 16), "smaller than min_params=20,000"),
    ],
)
def test_what_cannot_be_swapped_is_kept_with_a_reason(table, reason):
    model = nn.Sequential(table)
    with pytest.raises(ValueError, match=re.escape(reason)):
        cce.compress(model, compression=10)
    assert model[0] is table


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["tt", "low-rank", "mixed-dim", "collide", "pq", "cce"],
)
def test_starting_from_trained_weights_comes_nearer_than_chance(method):
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(20, 16, generator=g)
    weight = centres[torch.randint(0, 20, (2_000,), generator=g)] + 0.1 * torch.randn(2_000, 16, generator=g)
    model = nn.Sequential(nn.Embedding.from_pretrained(weight.clone(), freeze=False))
    cce.compress(model, method=method, compression=4, start="trained", min_params=1, seed=0)
    error = (model[0].to_dense() - weight).square().mean() / weight.square().mean()
    assert error < 0.9
    if method in ("pq", "cce"):
        assert error < 0.05  # clusters are what these can find


def test_weights_that_are_not_finite_are_told_with_their_table():
    model = nn.ModuleDict({name: nn.Embedding(20_000, 8) for name in ("good", "bad")})
    with torch.no_grad():
        model["bad"].weight[7] = float("nan")
    with pytest.raises(
        ValueError, match=r"^bad cannot start as trained: weight must be finite, got NaN or inf in 1 rows"
    ):
        cce.compress(model, method="low-rank", compression=4, start="trained")
    assert type(model["good"]) is nn.Embedding


@pytest.mark.slow
def test_a_frozen_table_stays_frozen_when_it_starts_from_its_weights():
    model = nn.Sequential(frozen())
    cce.compress(model, compression=10, start="trained")
    assert not any(p.requires_grad for p in model.parameters())


def test_seeds_make_it_repeatable():
    tables = []
    for _ in range(2):
        model = Named()
        counts = {name: torch.full((9_000,), 2) for name in ("user_table", "item_table")}
        cce.compress(model, compression=10, seed=3, counts=counts)
        tables.append(model)
    assert torch.equal(tables[0].user_table.to_dense(), tables[1].user_table.to_dense())
    assert not torch.equal(tables[0].user_table.to_dense(), tables[0].item_table.to_dense())


def test_a_failure_part_way_changes_nothing():
    """The second table's vectors cannot be cut; the first must not have been swapped by then."""
    model = nn.Sequential(nn.Embedding(9_000, 16), nn.Embedding(7_000, 60))
    with pytest.raises(ValueError, match="embedding_dim must be a multiple of num_columns, got embedding_dim=60"):
        cce.compress(model, cap=1_000, min_params=1, num_columns=8)
    assert [type(module) for module in model] == [nn.Embedding, nn.Embedding]


@pytest.mark.slow
def test_a_text_classifier_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=6_000, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    model = transformers.BertForSequenceClassification(config).eval()
    plan = cce.compress(model, compression=20, seed=0)
    assert [table.name for table in plan.compressed] == ["bert.embeddings.word_embeddings"]
    words = model.bert.embeddings.word_embeddings
    assert words.padding_idx == config.pad_token_id
    ids = torch.randint(1, 6_000, (4, 12))
    optimizer = cce.optim.Adam(model, lr=1e-3)
    for _ in range(2):
        output = model(input_ids=ids, labels=torch.tensor([0, 1, 0, 1]))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert words.rows.num_rows - 1 == len(ids.unique())
    assert str(cce.finalize(model)).count("bert.embeddings.word_embeddings") == 1
    assert model(input_ids=ids).logits.shape == (4, 2)


def test_a_recommender_of_torch_rechub():
    features = pytest.importorskip("torch_rechub.basic.features")
    ranking = pytest.importorskip("torch_rechub.models.ranking")
    sparse = [features.SparseFeature(name, vocab_size=8_000, embed_dim=16) for name in ("user", "item")]
    dense = [features.DenseFeature("age")]
    model = ranking.WideDeep(sparse, sparse + dense, mlp_params={"dims": [16], "dropout": 0, "activation": "relu"})
    plan = cce.compress(model, compression=10, seed=0)
    assert len(plan.compressed) == 2
    batch = {"user": torch.randint(0, 8_000, (32,)), "item": torch.randint(0, 8_000, (32,)), "age": torch.rand(32)}
    train_a_step(model, batch)
    tables = [module for module in model.modules() if isinstance(module, cce.embeddings.CCEEmbedding)]
    assert len(tables) == 2
    assert all(table.anchor.grad is not None for table in tables)


# -- int8 rows ---------------------------------------------------------------------------------------------------------


def test_without_a_budget_large_tables_train_as_int8_rows_and_are_finalized():
    model = SmallDLRM()
    plan = cce.compress(model, seed=0)
    assert [(table.name, table.method) for table in plan.compressed] == [("tables.0", "cce"), ("tables.1", "cce")]
    optimizer = cce.optim.SGD(model, lr=1e-3)  # the small table has sparse gradients
    dense, ids = torch.randn(32, 4), torch.randint(0, 50, (32, 3))
    for _ in range(2):  # after two occurrences ids have rows
        model(dense, ids).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    report = cce.finalize(model)
    assert [table.name for table in report.tables] == ["tables.0.table", "tables.1.table"]
    assert [table.num_ids for table in report.tables] == [len(ids[:, 0].unique()), len(ids[:, 1].unique())]
    assert torch.isfinite(model(dense, ids)).all()


def test_counts_give_rows_from_the_start_and_are_of_tables_that_are_swapped():
    model, counts = Named(), torch.arange(9_000)
    cce.compress(model, counts={"user_table": counts}, seed=0)
    assert (model.user_table.rows.num_rows - 1, model.item_table.rows.num_rows - 1) == (8_999, 0)
    assert not model.user_table(torch.tensor([0])).any()
    assert model.user_table(torch.tensor([1])).any()
    with pytest.raises(ValueError, match="a name in counts must be one of user_table, item_table; got 'shop'"):
        cce.compress(Named(), counts={"shop": counts})
    kept = Named()
    with pytest.raises(ValueError, match=r"counts must have shape \(9000,\), got \(3,\)"):
        cce.compress(kept, counts={"user_table": counts[:3]})
    assert type(kept.user_table) is nn.Embedding
