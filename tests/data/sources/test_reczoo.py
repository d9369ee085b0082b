"""The public CTR benchmarks, on generated files of exactly their form."""

import json
import math
import random
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cce.data.preparation.job import VocabularyRule
from cce.data.sources.reczoo import PUBLIC_SETS, RECZOO, reczoo_job
from helpers.raw_files import rows_of, run, vocabulary_of, write_csv

INTEGERS, WORDS = [f"I{n}" for n in range(1, 14)], [f"C{n}" for n in range(1, 27)]
AVAZU = [
    "id",
    "click",
    "hour",
    "C1",
    "banner_pos",
    "site_id",
    "site_domain",
    "site_category",
    "app_id",
    "app_domain",
    "app_category",
    "device_id",
    "device_ip",
    "device_model",
    "device_type",
    "device_conn_type",
    "C14",
    "C15",
    "C16",
    "C17",
    "C18",
    "C19",
    "C20",
    "C21",
]
DRAW = random.Random(0)


def word(n=9):
    return f"{DRAW.randrange(n):08x}"


def history(n=9, most=130):
    return "^".join(str(DRAW.randrange(n)) for _ in range(DRAW.randrange(most)))


def criteo_x1():
    return ["label", *INTEGERS, *WORDS], lambda n: [
        n % 2,
        *(DRAW.random() for _ in INTEGERS),
        *(DRAW.randrange(9) for _ in WORDS),
    ]


def criteo_x4():
    integers = lambda: [DRAW.choice(["", -1, 0, 1, 2, 3, 50, 9000]) for _ in INTEGERS]  # noqa: E731
    return ["Label", *INTEGERS, *WORDS], lambda n: [n % 2, *integers(), *(DRAW.choice(["", word()]) for _ in WORDS)]


def avazu_x4():
    return AVAZU, lambda n: [n, n % 2, f"1410{21 + n % 10}{n % 24:02d}", *(word() for _ in AVAZU[3:])]


def kuaivideo_x1():
    header = ["timestamp", "user_id", "item_id", "is_click", "is_like", "is_follow", "pos_items", "neg_items"]
    return header, lambda n: [n, n % 5, n % 9, n % 2, 0, 0, history(), history()]


def microvideo():
    header = ["user_id", "item_id", "cate_id", "is_click", "timestamp", "clicked_items", "clicked_categories"]
    return header, lambda n: [n % 5, n % 9, n % 3, n % 2, n, history(), history(3)]


def amazon():
    header = ["label", "user_id", "item_id", "cate_id", "item_history", "cate_history"]
    return header, lambda n: [n % 2, n % 5, n % 9, n % 3, history(), history(3)]


FORMS = {
    "Criteo_x1": criteo_x1,
    "Criteo_x4": criteo_x4,
    "Avazu_x4": avazu_x4,
    "KuaiVideo_x1": kuaivideo_x1,
    "MicroVideo1.7M_x1": microvideo,
    "AmazonElectronics_x1": amazon,
}
SIZES = {"train": 120, "valid": 30, "test": 40}


def write(folder, name):
    """Generated files; the rows of each split."""
    header, row = FORMS[name]()
    public = next(each for each in PUBLIC_SETS if each.name == name)
    rows = {file: [row(n) for n in range(SIZES[file.removesuffix(".csv")])] for file in dict.fromkeys(public.files)}
    for file, some in rows.items():
        write_csv(folder / file, header, some)
    return header, rows


def test_all_public_sets_are_tested():
    assert list(FORMS) == [each.name for each in PUBLIC_SETS]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_folder_becomes_what_its_published_setting_says(tmp_path, name):
    header, rows = write(tmp_path, name)
    public = next(each for each in PUBLIC_SETS if each.name == name)
    job = RECZOO.job(tmp_path, {})
    assert job.rule == VocabularyRule(public.min_count)
    data = run(job, tmp_path / "out")
    validation = SIZES["valid" if "valid.csv" in rows else "test"]
    assert {split: data.num_rows(split) for split in data.splits} == {
        "train": 120,
        "validation": validation,
        "test": 40,
    }
    assert [feature.name for feature in data.schema.features] == [*public.categorical, *public.multi_hot]
    labels = [float(label) for batch in data.loader("test", batch_size=7, shuffle=False) for label in batch.labels]
    assert labels == [row[header.index(public.label)] for row in rows["test.csv"]]


@pytest.mark.slow
def test_criteo_x1_takes_numbers_as_they_are(tmp_path):
    _, rows = write(tmp_path, "Criteo_x1")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    ids = [vocabulary_of([str(row[14 + n]) for row in rows["train.csv"]]) for n in range(26)]
    found = rows_of(data, "test")
    assert [row[1] for row in found] == [pytest.approx(row[1:14]) for row in rows["test.csv"]]
    assert [row[2] for row in found] == [
        [ids[n].get(str(row[14 + n]), 0) for n in range(26)] for row in rows["test.csv"]
    ]


@pytest.mark.slow
def test_criteo_x4_cuts_integers_into_buckets_and_leaves_rare_values_out(tmp_path):
    _, rows = write(tmp_path, "Criteo_x4")

    def bucket(value):
        number = 0 if value == "" else value
        return str(math.floor(math.log(number) ** 2) if number > 2 else number).replace(
            "0", "", 1 if number == 0 else 0
        )

    translated = {file: [[*map(bucket, row[1:14]), *row[14:]] for row in some] for file, some in rows.items()}
    ids = [vocabulary_of([row[n] for row in translated["train.csv"]], min_count=10) for n in range(39)]
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    found = [row[2] for row in rows_of(data, "validation")]
    assert found == [[ids[n].get(row[n] or None, 0) for n in range(39)] for row in translated["valid.csv"]]
    assert data.schema.dense == ()


def test_avazu_x4_has_hour_weekday_and_weekend(tmp_path):
    _, rows = write(tmp_path, "Avazu_x4")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    names = [feature.name for feature in data.schema.features]
    assert names == ["hour", *AVAZU[3:], "weekday", "weekend"]

    def parts(row):
        day = date(2014, int(row[2][2:4]), int(row[2][4:6]))
        return row[2][6:8], day.strftime("%w"), str(int(day.weekday() >= 5))

    ids = [vocabulary_of(column, min_count=2) for column in zip(*map(parts, rows["train.csv"]), strict=True)]
    found = [[row[2][names.index(name)] for name in ("hour", "weekday", "weekend")] for row in rows_of(data, "test")]
    assert found == [[ids[n].get(part, 0) for n, part in enumerate(parts(row))] for row in rows["test.csv"]]


def test_histories_share_the_ids_of_items_and_keep_their_last_hundred(tmp_path):
    header, rows = write(tmp_path, "KuaiVideo_x1")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    train = [dict(zip(header, row, strict=True)) for row in rows["train.csv"]]
    last = {name: [row[name].split("^")[-100:] for row in train] for name in ("pos_items", "neg_items")}
    counted = [str(row["item_id"]) for row in train] + [item for bags in last.values() for bag in bags for item in bag]
    ids = vocabulary_of(counted, min_count=10)
    assert set(list(data.schema.vocabulary_sizes.values())[1:]) == {1 + len(ids)}
    batch = next(iter(data.loader("train", batch_size=120, shuffle=False)))
    start = batch.offsets[2 * 120].item()
    assert batch.ids[start : start + len(last["pos_items"][0])].tolist() == [ids[item] for item in last["pos_items"][0]]
    assert (batch.offsets[1:] - batch.offsets[:-1]).max() == 100


def test_other_files_and_folders_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must be a folder with train\.csv and test\.csv, or with feature_map"):
        reczoo_job(tmp_path / "nowhere")
    write_csv(tmp_path / "train.csv", ("y", "a"), [(1, 2)])
    with pytest.raises(
        ValueError, match=r"must have the columns of one of Criteo_x1, .*AmazonElectronics_x1; it has y, a"
    ):
        reczoo_job(tmp_path)
    write(tmp_path, "Criteo_x1")
    with pytest.raises(ValueError, match=r"validation must be left out with split 'files', got 0\.2"):
        RECZOO.job(tmp_path, {"validation": 0.2})


def test_new_rows_get_the_same_ids(tmp_path):
    from cce.data.preparing import reuse_job

    write(tmp_path, "Avazu_x4")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    new = run(reuse_job(tmp_path / "out", tmp_path / "test.csv"), tmp_path / "new")
    assert rows_of(new, "test") == rows_of(data, "test")


def test_a_cache_with_a_feature_map_is_read(tmp_path):
    specs = [
        {"user_id": {"type": "meta"}},
        {"item": {"type": "categorical", "vocab_size": 9}},
        {"history": {"type": "sequence", "share_embedding": "item", "max_len": 3}},
        {"price": {"type": "numeric"}},
    ]
    (tmp_path / "feature_map.json").write_text(json.dumps({"dataset_id": "x", "labels": ["click"], "features": specs}))
    columns = {
        "user_id": [7, 7],
        "item": [3, 1],
        "history": [[0, 3, 3], [0, 0, 8]],
        "price": [0.5, -2.0],
        "click": [1.0, 0.0],
    }
    for name in ("train/part_0.parquet", "train/part_1.parquet", "valid.parquet", "test.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / name)
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    assert {split: data.num_rows(split) for split in data.splits} == {"train": 4, "validation": 2, "test": 2}
    assert data.schema.vocabulary_sizes == {"item": 4, "history": 4}
    batch = next(iter(data.loader("test", batch_size=2, shuffle=False)))
    assert batch.dense.tolist() == [[0.5], [-2.0]]
    assert batch.ids.tolist() == [1, 2, 1, 1, 3]  # padding is no value
    assert batch.offsets.tolist() == [0, 1, 2, 4, 5]
