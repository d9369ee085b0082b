"""Any table: CSV, TSV and Parquet, one file or many, multi-hot columns, weights, and every way to split."""

import gzip
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cce
from cce.data import unseen_shares, verify_data
from cce.data.preparation.job import Columns, Reading, Splitting
from cce.data.sources.table import TABLE, table_job
from helpers.raw_files import log1p_or_zero, rows_of, run, vocabulary_of, write_csv

HEADER = ("click", "user", "tags", "age", "when", "fold", "weight")
ROWS = [
    (
        row % 2,
        f"u{row * row % 7}",
        "|".join(f"t{tag}" for tag in range(row % 3)),
        row,
        row % 50,
        "abc"[row % 3],
        row / 4,
    )
    for row in range(100)
]
ORDER = Splitting("order")


def columns(**more):
    return Columns("click", ("user",), ("age",), **more)


@pytest.mark.slow
def test_csv_tsv_and_parquet_give_the_same_data_set(tmp_path):
    write_csv(tmp_path / "a.csv", HEADER, ROWS)
    write_csv(tmp_path / "a.tsv", HEADER, ROWS, delimiter="\t")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    by_column = dict(zip(HEADER, zip(*ROWS, strict=True), strict=True))
    lists = [tags.split("|") if tags else [] for tags in by_column["tags"]]
    pq.write_table(pa.table(by_column), tmp_path / "a.parquet", row_group_size=30)
    pq.write_table(pa.table({**by_column, "tags": lists}), tmp_path / "lists.parquet")
    names = ("a.csv", "a.tsv", "a.csv.gz", "a.parquet", "lists.parquet")
    which = columns(multi_hot=("tags",), weight="weight")
    files = [run(table_job(tmp_path / name, which), tmp_path / f"{name}.out").manifest["files"] for name in names]
    for name in files[0]:
        if not name.startswith("vocabulary"):
            assert [some[name] for some in files] == [files[0][name]] * 5


def test_ids_labels_and_numbers_are_as_by_hand(tmp_path):
    job = table_job(write_csv(tmp_path / "a.csv", HEADER, ROWS), columns(), splitting=ORDER)
    data = run(job, tmp_path / "out")
    users = vocabulary_of([row[1] for row in ROWS[:80]])
    expected = [(row[0], pytest.approx([log1p_or_zero(row[3])]), [users.get(row[1], 0)]) for row in ROWS]
    assert [row for split in data.splits for row in rows_of(data, split)] == expected


def test_bags_and_weights_are_as_by_hand(tmp_path):
    which = columns(multi_hot=("tags",), weight="weight")
    data = run(table_job(write_csv(tmp_path / "a.csv", HEADER, ROWS), which, splitting=ORDER), tmp_path / "out")
    batch = next(iter(data.loader("train", batch_size=80, shuffle=False)))
    tags = vocabulary_of([tag for row in ROWS[:80] for tag in row[2].split("|") if tag])
    assert batch.weights.tolist() == [row[6] for row in ROWS[:80]]
    for index, row in enumerate(ROWS[:80]):
        bag = batch.ids[batch.offsets[80 + index] : batch.offsets[80 + index + 1]].tolist()
        assert bag == [tags[tag] for tag in row[2].split("|") if tag]
    assert data.schema.features[1].multi_hot


def test_the_time_says_the_split(tmp_path):
    path = write_csv(tmp_path / "a.csv", HEADER, ROWS)
    data = run(table_job(path, columns(timestamp="when"), splitting=Splitting("temporal")), tmp_path / "times")
    assert [row[0] for row in rows_of(data, "test")] == [row[0] for row in ROWS if row[4] >= 45]


def test_integers_keep_their_order_among_equals(tmp_path):
    write_csv(tmp_path / "a.csv", ("y", "n"), [(1, 10), (0, 9), (1, 9), (0, 10), (1, 100)])
    pq.write_table(pa.table({"y": [1, 0, 1, 0, 1], "n": [10, 9, 9, 10, 100]}), tmp_path / "a.parquet")
    none_out = Splitting("order", 0, 0)
    ids = [
        [
            row[2][0]
            for row in rows_of(
                run(table_job(tmp_path / name, Columns("y", ("n",)), splitting=none_out), tmp_path / out), "train"
            )
        ]
        for name, out in (("a.csv", "x"), ("a.parquet", "y"))
    ]
    assert ids == [[1, 2, 2, 1, 3], [2, 1, 1, 2, 3]]  # "10" comes before "9" by bytes, 9 before 10 by number


WORD = st.text(st.characters(codec="utf-8", exclude_characters='\n\r"\0,'), max_size=3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("01"), WORD, WORD), min_size=1, max_size=40))
def test_any_words_come_back_from_the_vocabulary(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("table")
    lines = [",".join(row) for row in (("y", "a", "b"), *rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    job = table_job(folder / "a.csv", Columns("y", ("a", "b")), splitting=Splitting("order", 0, 0))
    data = run(job, folder / "out")
    for index in range(2):
        vocabulary = [None, *pq.read_table(folder / "out" / f"vocabulary/00{index}.parquet")["value"].to_pylist()]
        words = [vocabulary[row[2][index]] for row in rows_of(data, "train")]
        assert words == [row[1 + index] or None for row in rows]


@pytest.mark.slow
def test_real_clicks_are_prepared(real_data, tmp_path):
    which = Columns("label", tuple(f"c{n}" for n in range(26)), tuple(f"d{n}" for n in range(13)))
    data = run(
        table_job(real_data("criteo_dac80k.parquet"), which, reading=Reading(missing=("", "-1"))), tmp_path / "out"
    )
    assert sum(data.num_rows(split) for split in data.splits) == 80_000
    batch = next(iter(data.loader("train", batch_size=1000)))
    assert (batch.ids.shape, batch.dense.shape) == ((1000, 26), (1000, 13))
    assert bool(batch.dense.isfinite().all())


# -- what is typed -------------------------------------------------------------------------------------------------


def typed(raw, **options):
    """The job of `cce prepare table`, from what is typed."""
    return TABLE.job(raw, {"label": "click", "categorical": ["user"], **options})


def test_names_of_files_may_say_their_splits(tmp_path):
    (tmp_path / "raw" / "train").mkdir(parents=True)
    for name, rows in (("train/a", ROWS[:30]), ("train/b", ROWS[30:60]), ("valid", ROWS[60:70]), ("test", ROWS[70:])):
        write_csv(tmp_path / "raw" / f"{name}.csv", HEADER, rows)
    data = run(typed(tmp_path / "raw", split="files"), tmp_path / "out")
    assert {split: data.num_rows(split) for split in data.splits} == {"train": 60, "validation": 10, "test": 30}
    assert [row[0] for row in rows_of(data, "validation")] == [row[0] for row in ROWS[60:70]]
    write_csv(tmp_path / "raw" / "more.csv", HEADER, ROWS)
    with pytest.raises(ValueError, match=r"must begin with train, valid, test; got 'more.csv' in "):
        typed(tmp_path / "raw", split="files")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"raw": None}, "raw must be given for 'table': the path of a file or a folder"),
        ({"split": "files"}, "names of files to split by must begin with train, valid, test; got 'a.csv'"),
        ({"timestamp": "when"}, "timestamp must be left out with split 'random', got 'when'"),
        ({"hash_ids": 20, "min_count": 2}, "hash_ids counts nothing: leave out min_count and vocabulary_from"),
        ({"hash_ids": 0}, r"hash_ids must lie in \[1, 49\), got 0"),
        ({"open": True, "min_count": 2}, "open counts nothing: leave out min_count and vocabulary_from"),
        ({"open": True, "hash_ids": 20}, "open must be left out with hash_ids=20: open ids have all 64 bits"),
    ],
)
def test_what_is_typed_wrong_is_rejected(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", HEADER, ROWS)
    with pytest.raises(ValueError, match=message):
        typed(**({"raw": tmp_path / "a.csv"} | options))


def test_times_of_iso_8601_split_as_their_seconds_do(tmp_path):
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=37 * row % 101) for row in range(100)]
    write_csv(
        tmp_path / "a.csv", ("click", "user", "when"), [(r % 2, f"u{r}", t.timestamp()) for r, t in enumerate(times)]
    )
    texts = [t.isoformat() if r % 2 else t.strftime("%Y-%m-%d %H:%M:%S") for r, t in enumerate(times)]
    write_csv(tmp_path / "b.csv", ("click", "user", "when"), [(r % 2, f"u{r}", text) for r, text in enumerate(texts)])
    clicks = {"click": [r % 2 for r in range(100)], "user": [f"u{r}" for r in range(100)], "when": times}
    pq.write_table(pa.table(clicks), tmp_path / "c.parquet")
    options = {"split": "temporal", "timestamp": "when"}
    found = [
        run(typed(tmp_path / name, **options), tmp_path / f"{name}.out") for name in ("a.csv", "b.csv", "c.parquet")
    ]
    assert len({json.dumps(data.manifest["files"]["test.rows"]) for data in found}) == 1
    write_csv(tmp_path / "d.csv", ("click", "user", "when"), [(0, "u", "2024-01-01"), (1, "u", "noon")])
    with pytest.raises(ValueError, match=r"line 3: when must be a number or a time of ISO 8601, got nothing"):
        run(typed(tmp_path / "d.csv", **options), tmp_path / "d")


def test_dense_columns_are_scaled_by_training_rows(tmp_path):
    rows = [(r % 2, "u", "" if r == 3 else r, r) for r in range(100)]
    write_csv(tmp_path / "a.csv", ("click", "user", "age", "price"), rows)
    data = run(typed(tmp_path / "a.csv", dense=["age:standard", "price:identity"], split="order"), tmp_path / "out")
    train = np.array([r for r in range(80) if r != 3], float)
    expected = [0.0 if r == 3 else (r - train.mean()) / train.std() for r in range(100)]
    found = [row[1] for split in data.splits for row in rows_of(data, split)]
    assert [row[0] for row in found] == pytest.approx(expected, abs=1e-5)
    assert [row[1] for row in found] == list(range(100))


def test_ids_may_be_hashes_that_no_count_decides(tmp_path):
    write_csv(tmp_path / "a.csv", HEADER, ROWS)
    options = {"multi_hot": ["tags"], "hash_ids": 12, "split": "order"}
    data = run(typed(tmp_path / "a.csv", **options), tmp_path / "out")
    assert data.schema.vocabulary_sizes == {"user": 4096, "tags": 4096}
    batch = next(iter(data.loader("train", batch_size=80, shuffle=False)))
    by_user = {row[1]: id_ for row, id_ in zip(ROWS, batch.ids[:80].tolist(), strict=False)}
    assert len(set(by_user.values())) == len(by_user) == 4
    assert min(by_user.values()) > 0
    assert by_user["u1"] == 1 + int(cce.hashing.hash_ids(["u1"]).view(np.uint64)[0]) % 4095


def test_a_folder_of_compressed_files_is_one_table(tmp_path):
    (tmp_path / "raw" / "day=1").mkdir(parents=True)
    for name, rows in (("raw/day=1/1.csv", ROWS[:40]), ("raw/day=1/2.csv", ROWS[40:]), ("a.csv", ROWS)):
        write_csv(tmp_path / name, HEADER, rows)
    for name in ("raw/day=1/1.csv", "raw/day=1/2.csv"):
        path = tmp_path / name
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    both, one = (run(typed(tmp_path / name, split="order"), tmp_path / f"{name}.out") for name in ("raw", "a.csv"))
    assert both.manifest["files"] == one.manifest["files"]


def test_open_ids_are_hashes_of_values_whatever_their_type(tmp_path):
    rows = [(row % 2, f"u{row % 7}", row % 3 or None, ["a", "b"][: row % 3]) for row in range(60)]
    names = ("click", "user", "shop", "tags")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), tmp_path / "a.parquet")
    texts = [(click, user, shop or "", "|".join(tags)) for click, user, shop, tags in rows]
    write_csv(tmp_path / "a.csv", names, texts)
    columns = {"categorical": ["user", "shop"], "multi_hot": ["tags"], "open": True, "split": "none"}
    found = [run(typed(tmp_path / name, **columns), tmp_path / f"{name}.out") for name in ("a.parquet", "a.csv")]
    assert found[0].schema.vocabulary_sizes == {"user": None, "shop": None, "tags": None}
    assert found[0].splits == ("train", "validation", "test")
    assert found[0].num_rows("train") == 60
    batches = [next(iter(data.loader("train", batch_size=60, shuffle=False))) for data in found]
    assert torch.equal(batches[0].ids, batches[1].ids)
    values = [user for _, user, *_ in rows] + [str(shop or "") for _, _, shop, _ in rows]
    values += [tag for *_, tags in rows for tag in tags]
    assert batches[0].ids.tolist() == cce.hash_ids(values).tolist()
    assert verify_data(tmp_path / "a.csv.out").problems == []
    assert unseen_shares(found[0]) == {split: {} for split in found[0].splits}
