"""Budgets are shared out by rule, never exceeded, and weighed as the real tables weigh."""

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce.budget import FULL_SIZED, Budget
from cce.collection import EmbeddingCollection
from cce.collection.plan import plan_tables
from cce.embeddings import METHODS
from cce_lab.variants import VARIANTS, FirstRowsEmbedding
from helpers.final_form import finalize_table
from helpers.variants import registered  # noqa: F401

SIZES = {"user": 5000, "item": 800, "day": 7}
EXCESS = {"dhe": 1.01}  # it rounds, as its documentation says
OPTIONS = [
    *[(method, {}) for method in METHODS if method not in FULL_SIZED],
    ("hash", {"signed": True}),
    ("hash-embedding", {"weighted": True}),
    ("hash-embedding", {"num_hashes": 3}),
    ("ce-sum", {"split": "quotient-remainder"}),
    ("ce-concat", {"split": "quotient-remainder", "num_columns": 2}),
    ("ce-mult", {"num_tables": 3}),
    ("robe", {"block_size": 5}),
    ("pq", {"residual": True}),
    *((kind.method, {}) for kind in VARIANTS),
    ("cce", {"num_columns": 2}),
    ("mixed-dim", {"temperature": 0.5}),
]
every_option = pytest.mark.parametrize(("method", "options"), OPTIONS, ids=[f"{m} {o or ''}" for m, o in OPTIONS])


def finalized(model):
    """The compact form of tables of `cce`, all of whose ids have rows: that is what is planned."""
    for table in model.modules():
        if isinstance(table, cce.embeddings.CCEEmbedding):
            table.fit_to(
                torch.rand(table.num_embeddings, table.embedding_dim, generator=torch.Generator().manual_seed(0))
            )
            finalize_table(table)
    return model


@pytest.mark.slow
@every_option
@pytest.mark.parametrize("compression", [1.5, 10])
def test_tables_weigh_what_the_plan_says(method, options, compression):
    collection = finalized(
        EmbeddingCollection(SIZES, 16, method=method, options={method: options}, budget=Budget(compression=compression))
    )
    for table, planned in zip(collection.tables.values(), collection.plan.tables, strict=True):
        assert (table.method, table.num_params, table.pointer_nbytes, table.nbytes) == (
            planned.method, planned.num_params, planned.pointer_nbytes, planned.nbytes,
        )  # fmt: skip
    assert collection.nbytes == collection.plan.nbytes
    assert collection.num_params == collection.plan.num_params


@pytest.mark.parametrize("first_factor", [1, 15, 3_500])
def test_more_first_rows_are_weighed(first_factor):
    arguments = FirstRowsEmbedding.complete_options({"num_rows": 20, "first_factor": first_factor})
    table = FirstRowsEmbedding(1000, 8, num_rows=20, first_factor=first_factor)
    found = FirstRowsEmbedding.footprint(1000, 8, arguments)
    assert (found.num_params, found.pointer_nbytes) == (table.num_params, table.pointer_nbytes)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    dim=st.sampled_from([1, 3, 8, 16]),
    method=st.sampled_from([method for method in METHODS if method not in (*FULL_SIZED, "tt")]),
    measure=st.sampled_from(["num_params", "nbytes"]),
    share=st.floats(0.001, 1.5),
)
def test_a_total_is_never_exceeded(sizes, dim, method, measure, share):
    vocabularies = {f"f{index}": size for index, size in enumerate(sizes)}
    budget = max(1, int(sum(sizes) * dim * share * (4 if measure == "nbytes" else 1)))
    try:
        plan = plan_tables(vocabularies, dim, method=method, budget=Budget(**{measure: budget}))
    except ValueError as error:
        smallest = int(re.search(r"at least (\d+)", str(error))[1])
        assert smallest > budget
        assert (
            getattr(plan_tables(vocabularies, dim, method=method, budget=Budget(**{measure: smallest})), measure)
            <= smallest
        )
        return
    assert getattr(plan, measure) <= budget * (EXCESS.get(method, 1) if len(sizes) == 1 else 1)
    most = [table.full_params * EXCESS.get(method, 1) for table in plan.tables]
    assert all(table.num_params <= limit for table, limit in zip(plan.tables, most, strict=True))


AT_FIRST = EXCESS | {"cce-first-rows": 4}  # until its first clustering


@every_option
def test_a_cap_holds_for_every_table_that_can_be_so_small(method, options):
    cap = 200_000 if method in ("collide", "low-rank", "mixed-dim") or "split" in options else 10_000
    plan = plan_tables({"a": 100_000, "b": 50}, 16, method=method, options={method: options}, cap=cap)
    assert plan.tables[0].num_params <= cap * AT_FIRST.get(method, 1) or method in FULL_SIZED
    assert plan.tables[1].method == "full"


@every_option
def test_a_cap_below_the_smallest_table_is_rejected_with_the_least_that_works(method, options):
    def plan(cap):
        return plan_tables({"a": 100_000, "b": 500}, 16, method=method, options={method: options}, cap=cap)

    try:
        assert plan(1).tables[0].num_params == 1 or method in FULL_SIZED
    except ValueError as error:
        least = int(
            re.search(r"^cap must be at least (\d+) for method '.*' of the table of '[ab]', got 1\.$", str(error))[1]
        )
        assert max(table.num_params for table in plan(least).tables) <= least * AT_FIRST.get(method, 1)
        with pytest.raises(ValueError, match=f"cap must be at least {least} for method"):
            plan(least - 1)


def test_without_a_budget_tables_are_of_their_usual_size_or_full():
    plan = plan_tables(SIZES, 16)
    assert [table.method for table in plan.tables] == ["cce", "cce", "full"]
    assert [table.num_params for table in plan.tables] == [256 * 16, 256 * 16, 7 * 16]
    full = plan_tables(SIZES, 16, method="hash")
    assert full.num_params == sum(SIZES.values()) * 16
    assert str(full).count("no budget was given") == len(SIZES)
    assert "no budget" not in str(plan_tables(SIZES, 16, method="full"))
    assert "no budget" not in str(plan_tables(SIZES, 16, method="hash", compression=1))


def test_a_total_gives_every_table_the_same_most():
    sizes = {"a": 10**6, "b": 10**4}
    cap = plan_tables(sizes, 16, method="hash", num_params=100_000).tables
    assert cap[0].num_params == cap[1].num_params
    assert sum(table.num_params for table in cap) > 99_000


def test_methods_by_name_and_by_rule():
    by_name = plan_tables(SIZES, 16, method={"user": "cce", "item": "hash", "day": "robe"}, cap=1000)
    assert [table.method for table in by_name.tables] == ["cce", "hash", "full"]
    by_rule = plan_tables(SIZES, 16, method=lambda name, size: "hash" if size > 1000 else "pq", cap=1000)
    assert [table.method for table in by_rule.tables] == ["hash", "pq", "full"]


def test_it_prints_a_row_for_each_table_and_one_for_all():
    plan = plan_tables(SIZES, 16, cap=1000)
    lines = str(plan).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == list(SIZES)
    assert lines[5].startswith("all tables")
    assert lines[6].startswith("largest table: user, 80")
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["all_tables"]["nbytes"] == plan.nbytes == sum(table["nbytes"] for table in data["tables"])
    assert data["largest_table"]["compression"] == pytest.approx(80, rel=0.02)


@pytest.mark.slow
def test_a_plan_of_huge_vocabularies_allocates_nothing():
    plan = plan_tables({f"f{i}": 10**9 for i in range(26)}, 128, nbytes=200 * 2**30)
    assert plan.nbytes <= 200 * 2**30


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_vocabulary_too_small_for_a_method_keeps_its_full_table(method):
    assert plan_tables({"a": 1, "b": 2}, 16, method=method, cap=10**6).num_params == 48


# -- one meaning -------------------------------------------------------------------------------------------------------


def two_tables():
    return torch.nn.ModuleDict({"user": torch.nn.Embedding(100_000, 16), "item": torch.nn.Embedding(20_000, 16)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [*({"compression": 100}, {"num_params": 30_000}, {"cap": 4_000}, {"nbytes": 600_000}, {"nbytes": 3_000_000})],
)
@pytest.mark.parametrize("method", ["cce", "hash", "pq"])
def test_a_budget_means_the_same_in_a_plan_a_collection_and_a_compressed_model(method, budget):
    sizes, limit = {"user": 100_000, "item": 20_000}, Budget(**budget)
    planned = plan_tables(sizes, 16, method=method, budget=limit)
    collection = finalized(EmbeddingCollection(sizes, 16, method=method, budget=limit))
    compressed = cce.summary(collection)
    model = two_tables()
    cce.compress(model, method=method, budget=limit, min_params=1)
    finalized(model)
    expected = [(table.num_params, table.nbytes) for table in planned.tables]
    assert [(table.num_params, table.nbytes) for table in compressed.tables] == expected
    assert [(table.num_params, table.nbytes) for table in cce.summary(model).tables] == expected
    if "rule" not in budget:
        shorthand = plan_tables(sizes, 16, method=method, **budget)
        assert shorthand == planned


@pytest.mark.parametrize("budget", [{"compression": 100}, {"num_params": 5_000}, {"nbytes": 50_000}, {"cap": 5_000}])
def test_a_budget_of_one_table_means_the_same_by_itself(budget):
    planned = plan_tables({"user": 10_000}, 16, **budget)
    table = cce.create_embedding("cce", 10_000, 16, **budget)
    table.fit_to(torch.rand(10_000, 16))
    finalize_table(table)
    assert (table.num_params, table.nbytes) == (planned.num_params, planned.nbytes)


def test_a_compression_is_of_all_tables_together_and_each_may_have_the_same_most():
    plan = plan_tables({"user": 100_000, "item": 20_000, "day": 7}, 16, method="hash", compression=100)
    assert [table.num_params for table in plan.tables] == [9_536, 9_536, 112]
    assert plan.total.compression == pytest.approx(100, rel=0.01)


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "num_rows"), [(50_000, 2), (100_000, 8), (110_500, 16), (162_000, 40), (215_000, 128), (10**6, 256)]
)
def test_bytes_of_cce_are_spent_on_the_width_of_pointers_and_then_on_rows(nbytes, num_rows):
    (table,) = plan_tables({"user": 50_000}, 16, nbytes=nbytes).tables
    assert table.nbytes <= nbytes
    assert table.num_params == num_rows * 16


def test_bytes_are_those_of_the_dtype():
    single = EmbeddingCollection({"user": 5_000}, 16, method="hash", budget=Budget(nbytes=40_000))
    half = EmbeddingCollection({"user": 5_000}, 16, method="hash", budget=Budget(nbytes=40_000), dtype=torch.bfloat16)
    assert half.num_params == pytest.approx(2 * single.num_params, rel=0.01)
    assert half.nbytes == half.plan.nbytes <= 40_000


@pytest.mark.parametrize(("cap", "num_rows"), [(500, 15), (2_400, 75)])
def test_first_rows_do_not_change_what_a_cap_gives_after_the_first_clustering(cap, num_rows):
    method = FirstRowsEmbedding.method
    (table,) = plan_tables({"user": 6_000}, 16, method=method, cap=cap).tables
    assert table.sizes["num_rows"] == num_rows
    assert table.num_params == 4 * num_rows * 2 * 16  # until then
    assert cce.create_embedding(method, 6_000, 16, num_params=cap).later_shape.num_rows == num_rows
