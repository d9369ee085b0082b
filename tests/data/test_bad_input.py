"""Bad input of every kind: one clear line that names the file or argument, the rule and the value; nothing is left.

Every case is a folder with some files, words after `cce`, and what the line must hold.
"""
# ruff: noqa: E501 - a case is a line

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.cli import main
from cce.data import PreparedData, raw_options, read_manifest
from helpers.raw_files import table_with_everything

GOOD = "y,user,item,age,time\n" + "".join(f"{n % 2},u{n % 5},{n % 3},{n},{n}\n" for n in range(40))
TABLE = ("prepare", "table", "a.csv", "out", "--label", "y", "--categorical", "user")
KAGGLE = ("prepare", "criteo-kaggle", "train.txt", "out")
DAYS = ("prepare", "criteo-terabyte", "days", "out")
ML = ("prepare", "movielens", "u.data", "out")
SYNTHETIC = ("prepare", "synthetic", "out", "--rows", "100")
PARQUET = ("prepare", "table", "a.parquet", "out", "--label", "y", "--categorical", "user")
VERIFY = ("verify", "data")


def with_line(line):
    """A good text and one line more, the 42nd."""
    return GOOD + line + "\n"


def parquet(path, **columns):
    values = {"y": [0, 1] * 5, "user": list("aabbccddee"), **columns}
    pq.write_table(pa.table({name: value for name, value in values.items() if value is not None}), path)


def kaggle_line(label="1", first="05db9164", count=26):
    return "\t".join([label, *["3"] * 13, first, *["68fd1e64"] * (count - 1)]) + "\n"


# Of each case: the files, the words, and what the one line holds.
RAW_TEXT = {
    "no file": ({}, TABLE, ["a.csv must be a file", "there is none"]),
    "a folder without files": ({"a.csv/x.log": ""}, TABLE, ["a.csv must hold files that end in .csv, .tsv"]),
    "an empty file": ({"a.csv": ""}, TABLE, ["a.csv must hold rows", "it is empty"]),
    "only a header": ({"a.csv": "y,user\n"}, TABLE, ["a.csv must hold rows", "no row of it can be used"]),
    "an unknown kind of file": ({"a.csv/a.csv": GOOD, "a.xls": GOOD}, (*TABLE[:2], "a.xls", *TABLE[3:]), ["a.xls must end in .csv"]),
    "latin-1": ({"a.csv": with_line("1,José,1,1,1").encode("latin-1")}, TABLE, ["a.csv, line 42", "UTF-8", "0xe9"]),
    "latin-1 in the header": ({"a.csv": GOOD.replace("item", "prénom").encode("latin-1")}, TABLE, ["header of", "a.csv must be UTF-8", "0xe9"]),
    "binary bytes": ({"a.csv": with_line("1,\x00\x01,1,1,1")}, TABLE, ["a.csv, line 42", "must be text", "0x00"]),
    "a picture": ({"a.csv": GOOD.encode() + b"\x89PNG\r\n\x1a\n\xff\xfe\x00"}, TABLE, ["a.csv, line 42", "UTF-8", "0x89"]),
    "only carriage returns": ({"a.csv": GOOD.replace("\n", "\r")}, TABLE, ["lines of", "a.csv must end in \\n or \\r\\n", "got \\r alone"]),
    "the same header twice": ({"a.csv": GOOD.replace("item", "user")}, TABLE, ["a.csv must have one column 'user', got 2"]),
    "too few columns": ({"a.csv": with_line("1,u")}, TABLE, ["max_bad_rows=0, got 1", "line 42: expected 5 columns, got 2"]),
    "an open quote": ({"a.csv": with_line('1,"u,1,1,1')}, TABLE, ["a.csv, line 42: expected 5 columns, got 2"]),
    "a blank line": ({"a.csv": with_line("")}, TABLE, ["line 42: expected 5 columns, got a blank line"]),
    "more bad rows than allowed": ({"a.csv": with_line("1,u\n2,u\n3,u")}, (*TABLE, "--max-bad-rows", "2"), ["max_bad_rows=2, got 3"]),
    "a gzip that is none": ({"a.csv.gz": GOOD}, (*TABLE[:2], "a.csv.gz", *TABLE[3:]), ["a.csv.gz must be a whole compressed file", "damaged"]),
    "a gzip cut short": ({"a.csv.gz": gzip.compress(GOOD.encode())[:-20]}, (*TABLE[:2], "a.csv.gz", *TABLE[3:]), ["a.csv.gz was cut short"]),
    "files with other columns": ({"d/a.csv": GOOD, "d/b.csv": "y,user\n1,u\n"}, (*TABLE[:2], "d", *TABLE[3:]), ["same columns", "b.csv has others than"]),
    "another delimiter": ({"a.csv": GOOD.replace(",", ";")}, TABLE, ["a.csv must have a column 'y'", "y;user;item"]),
}  # fmt: skip
LABELS = {
    "a label of words": ({"a.csv": with_line("yes,u,1,1,1")}, TABLE, ["line 42: y must be a number, got 'yes'"]),
    "no label": ({"a.csv": with_line(",u,1,1,1")}, TABLE, ["line 42: y must be a number, got nothing"]),
    "a label that is not a number": ({"a.csv": with_line("nan,u,1,1,1")}, TABLE, ["line 42: y must be a number"]),
    "stars without a threshold": ({"a.csv": with_line("5,u,1,1,1")}, TABLE, ["line 42: y must be 0 or 1 without a threshold, got 5"]),
    "a threshold of nan": ({"a.csv": GOOD}, (*TABLE, "--threshold", "nan"), ["threshold must be a finite number, got nan"]),
    "a threshold of words": ({"a.csv": GOOD}, (*TABLE, "--threshold", "low"), ["argument --threshold: invalid float value: 'low'"]),
    "a negative weight": ({"a.csv": with_line("1,u,1,-2,1")}, (*TABLE, "--weight", "age"), ["line 42: age must be in [0,", "got -2"]),
    "no weight": ({"a.csv": with_line("1,u,1,,1")}, (*TABLE, "--weight", "age"), ["line 42: age must be a number, got nothing"]),
    "a weight beyond float32": ({"a.csv": with_line("1,u,1,1e300,1")}, (*TABLE, "--weight", "age"), ["line 42: age must be in [0, 3.4e+38], got 1e+300"]),
    "a dense number beyond float32": ({"a.csv": with_line("1,u,1,-1e300,1")}, (*TABLE, "--dense", "age:identity"), ["line 42: age must be in [-3.4e+38, 3.4e+38], got -1e+300"]),
    "a dense number beyond float32, as a logarithm": ({"a.csv": with_line("1,u,1,1e39,1")}, (*TABLE, "--dense", "age"), ["line 42: age must be in [-3.4e+38, 3.4e+38], got 1e+39"]),
    "a dense number of words": ({"a.csv": with_line("1,u,1,old,1")}, (*TABLE, "--dense", "age"), ["line 42: age must be a number, got 'old'"]),
}  # fmt: skip
COLUMNS = {
    "no label column": ({"a.csv": GOOD}, (*TABLE[:5], "click", *TABLE[6:]), ["a.csv must have a column 'click'; it has y, user, item"]),
    "no categorical column": ({"a.csv": GOOD}, (*TABLE, "film"), ["a.csv must have a column 'film'"]),
    "no timestamp column": ({"a.csv": GOOD}, (*TABLE, "--split", "temporal", "--timestamp", "t"), ["a.csv must have a column 't'"]),
    "no feature": ({"a.csv": GOOD}, TABLE[:6], ["categorical must name at least one column, got none"]),
    "the label as a feature": ({"a.csv": GOOD}, (*TABLE, "y"), ["label must be no feature", "got 'y'"]),
    "the label as a weight": ({"a.csv": GOOD}, (*TABLE, "--weight", "y"), ["label must be no feature, dense column or weight", "'y'"]),
    "a feature twice": ({"a.csv": GOOD}, (*TABLE, "user"), ["must name a column once, got 'user' twice"]),
    "a feature that is dense as well": ({"a.csv": GOOD}, (*TABLE, "--dense", "user"), ["must name a column once, got 'user' twice"]),
    "an empty separator": ({"a.csv": GOOD}, (*TABLE, "--multi-hot", "item", "--separator", ""), ["separator must have at least one character"]),
    "no label option": ({"a.csv": GOOD}, TABLE[:4], ["label must be given for 'table'"]),
}  # fmt: skip
SPLITS = {
    "an unknown split": ({"a.csv": GOOD}, (*TABLE, "--split", "half"), ["split must be one of random, temporal, order, files, none; got 'half'"]),
    "time without a timestamp": ({"a.csv": GOOD}, (*TABLE, "--split", "temporal"), ["timestamp must name a column to split 'temporal', got none"]),
    "a timestamp without time": ({"a.csv": GOOD}, (*TABLE, "--timestamp", "time"), ["timestamp must be left out with split 'random', got 'time'"]),
    "a share of nan": ({"a.csv": GOOD}, (*TABLE, "--validation", "nan"), ["validation and test must be shares", "got nan and 0.1"]),
    "a negative share": ({"a.csv": GOOD}, (*TABLE, "--test", "-0.1"), ["validation and test must be shares", "got 0.1 and -0.1"]),
    "shares of everything": ({"a.csv": GOOD}, (*TABLE, "--validation", "0.5", "--test", "0.5"), ["leave rows to train on, got 0.5 and 0.5"]),
    "a seed without chance": ({"a.csv": GOOD}, (*TABLE, "--split", "order", "--seed", "3"), ["seed must be left out with split 'order', got 3"]),
    "a negative seed": ({"a.csv": GOOD}, (*TABLE, "--seed", "-1"), ["seed must lie in [0, 2**63), got -1"]),
    "a share of the last day": ({"days/day_0": kaggle_line() * 9, "days/day_1": kaggle_line() * 9}, (*DAYS, "--validation", "0.2"), ["validation must be left out with split 'last-file', got 0.2"]),
    "a seed of the last ratings": ({"u.data": "1\t2\t5\t9\n2\t2\t1\t9\n"}, (*ML, "--seed", "3"), ["seed must be left out with split 'last-two', got 3"]),
}  # fmt: skip
OPTIONS = {
    "a count of none": ({"a.csv": GOOD}, (*TABLE, "--min-count", "0"), ["min_count must lie in [1, 2**63), got 0"]),
    "fewer bad rows than none": ({"a.csv": GOOD}, (*TABLE, "--max-bad-rows", "-1"), ["max_bad_rows must lie in [0, 2**63), got -1"]),
    "no jobs": ({"a.csv": GOOD}, (*TABLE, "--jobs", "0"), ["jobs must lie in [1, 2**16), got 0"]),
    "a trillion jobs": ({"a.csv": GOOD}, (*TABLE, "--jobs", str(10**12)), ["jobs must lie in [1, 2**16), got 1000000000000"]),
    "an unknown engine": ({"a.csv": GOOD}, (*TABLE, "--engine", "spark"), ["engine must be local, ray or ray://host:port, got 'spark'"]),
    "an unknown source of vocabularies": ({"a.csv": GOOD}, (*TABLE, "--vocabulary-from", "test"), ["argument --vocabulary-from: invalid choice: 'test'"]),
    "a result that is there": ({"a.csv": GOOD, "out/x": ""}, TABLE, ["out must not exist already"]),
    "a result below a file": ({"a.csv": GOOD}, (*TABLE[:3], "a.csv/out", *TABLE[4:]), ["a.csv/out must lie in a folder, got the file", "a.csv' above it"]),
    "a file where the work goes": ({"a.csv": GOOD, "out.part": ""}, TABLE, ["out.part must be a folder, got the file"]),
    "a result in folders that are not there": ({"a.csv": "y\n1\n"}, (*TABLE[:3], "new/deep/out", *TABLE[4:]), ["a.csv must have a column 'user'"]),
    "no kind": ({}, ("prepare",), ["the following arguments are required: KIND, RAW OUT"]),
    "an unknown kind": ({}, ("prepare", "avazu", "a", "b"), ["kind must be one of criteo-kaggle, criteo-terabyte, movielens, recbole, reczoo, table, synthetic; got 'avazu'"]),
    "no out": ({}, ("prepare", "criteo-kaggle", "a"), ["raw must be given for 'criteo-kaggle'"]),
    "an unknown option": ({"a.csv": GOOD}, (*TABLE, "--labels", "y"), ["unrecognized arguments: --labels y"]),
}  # fmt: skip
CRITEO = {
    "three paths": ({"train.txt": kaggle_line()}, (*KAGGLE[:3], "train.txt", "out"), ["RAW and OUT must be two paths at most, got 3"]),
    "no train.txt": ({}, KAGGLE, ["train.txt must be a file"]),
    "a folder without train.txt": ({"train.txt/x": ""}, KAGGLE, ["train.txt/train.txt must be a file"]),
    "one column less": ({"train.txt": kaggle_line() + kaggle_line(count=25)}, KAGGLE, ["train.txt, line 2: expected 40 columns, got 39"]),
    "a word that is not hexadecimal": ({"train.txt": kaggle_line() + kaggle_line(first="xyz")}, KAGGLE, ["train.txt", "hexadecimal word of at most 8 digits", "xyz"]),
    "a word of nine digits": ({"train.txt": kaggle_line(first="123456789")}, KAGGLE, ["train.txt", "at most 8 digits, got '123456789'"]),
    "a header": ({"train.txt": kaggle_line("label") + kaggle_line()}, KAGGLE, ["train.txt, line 1: label must be a number, got 'label'"]),
    "a label of 2": ({"train.txt": kaggle_line() + kaggle_line("2")}, KAGGLE, ["train.txt, line 2: label must be 0 or 1", "got 2"]),
    "latin-1 in Criteo's text": ({"train.txt": kaggle_line().encode() + kaggle_line(first="é").encode("latin-1")}, KAGGLE, ["train.txt, line 2", "UTF-8", "0xe9"]),
    "only carriage returns in Criteo's text": ({"train.txt": kaggle_line().replace("\n", "\r") * 3}, KAGGLE, ["train.txt must end in", "\\r alone"]),
    "a folder without days": ({"days/x": ""}, DAYS, ["days must hold files day_0, day_1"]),
    "no folder of days": ({}, DAYS, ["days must be a file"]),
    "nothing kept": ({"days/day_0": kaggle_line()}, (*DAYS, "--sample", "rows", "--keep", "0"), ["keep must lie in (0, 1], got 0.0"]),
    "a share kept of all": ({"days/day_0": kaggle_line()}, (*DAYS, "--keep", "0.5"), ["keep must be left out unless sample is rows or negatives, got 0.5"]),
    "a modulus of 0": ({"days/day_0": kaggle_line()}, (*DAYS, "--modulus", "0"), ["modulus must lie in [1, 2**32), got 0"]),
    "the last of one file": ({"days/day_0": kaggle_line() * 9}, (*DAYS, "--split", "last-file"), ["split must leave rows to train on"]),
}  # fmt: skip
MOVIELENS = {
    "no ratings": ({}, ML, ["u.data must be a file"]),
    "a zip": ({"ml.zip": "PK"}, ("prepare", "movielens", "ml.zip", "out"), ["ml.zip must be or hold one of u.data, ratings.dat, ratings.csv", "unpack it first"]),
    "an empty file of ratings": ({"u.data": ""}, ML, ["u.data must hold rows", "empty"]),
    "a rating of words": ({"u.data": "1\t2\tgood\t9\n"}, ML, ["u.data, line 1: rating must be a number, got 'good'"]),
    "ratings of three columns": ({"u.data": "1\t2\t5\n"}, ML, ["u.data, line 1: expected 4 columns, got 3"]),
    "a user of words": ({"u.data": "bob\t2\t5\t1\n"}, ML, ["u.data, line 1: user must be a number, got 'bob'"]),
    "only ratings of 3": ({"u.data": "1\t2\t3\t9\n"}, ML, ["must hold rows", "no row of it can be used"]),
}  # fmt: skip
PARQUETS = {
    "a text called Parquet": ({"a.parquet": GOOD}, PARQUET, ["a.parquet must be a whole Parquet file", "damaged"]),
    "a Parquet file cut short": ({"a.parquet": lambda path: (parquet(path), path.write_bytes(path.read_bytes()[:-9]))}, PARQUET, ["a.parquet must be a whole Parquet file"]),
    "damaged pages": ({"a.parquet": lambda path: (parquet(path), path.write_bytes(b"PAR1" + bytes(150) + path.read_bytes()[154:]))}, PARQUET, ["a.parquet must be a whole Parquet file"]),
    "no rows": ({"a.parquet": lambda path: parquet(path, y=pa.array([], pa.int8()), user=pa.array([], pa.string()))}, PARQUET, ["a.parquet must hold rows"]),
    "an absent column": ({"a.parquet": lambda path: parquet(path, user=None)}, PARQUET, ["a.parquet must have a column 'user'; it has y"]),
    "labels of words": ({"a.parquet": lambda path: parquet(path, y=list("abcdefghij"))}, PARQUET, ["a.parquet", "column 'y' must hold numbers, got string"]),
    "labels of 2": ({"a.parquet": lambda path: parquet(path, y=[2] * 10)}, PARQUET, ["a.parquet, line 1: y must be 0 or 1", "got 2"]),
    "labels that are null": ({"a.parquet": lambda path: parquet(path, y=[None, 1] * 5)}, PARQUET, ["a.parquet, line 1: y must be a number, got nothing"]),
    "a feature of lists": ({"a.parquet": lambda path: parquet(path, user=[[1]] * 10)}, PARQUET, ["a.parquet", "column 'user' must hold strings or integers, got list"]),
    "bags of numbers": ({"a.parquet": lambda path: parquet(path, tags=[1] * 10)}, (*PARQUET, "--multi-hot", "tags"), ["a.parquet", "multi-hot column 'tags' must hold lists or text, got int64"]),
    "dense words": ({"a.parquet": lambda path: parquet(path, age=list("abcdefghij"))}, (*PARQUET, "--dense", "age"), ["a.parquet", "column 'age' must hold numbers, got string"]),
    "a column twice": ({"a.parquet": lambda path: pq.write_table(pa.table([pa.array([1]), pa.array([1]), pa.array(["u"])], names=["y", "y", "user"]), path)}, PARQUET, ["a.parquet must have one column 'y', got 2"]),
}  # fmt: skip
MADE = {
    "no rows": ({}, (*SYNTHETIC[:4], "0"), ["num_rows must lie in [100, 2**63), got 0"]),
    "a feature of no ids": ({}, (*SYNTHETIC, "--vocabulary-sizes", "9", "0"), ["vocabulary_sizes must lie in [1, 2**31), got 0"]),
    "a feature of a trillion ids": ({}, (*SYNTHETIC, "--vocabulary-sizes", str(10**12)), ["vocabulary_sizes must lie in [1, 2**31), got 1000000000000"]),
    "no clusters": ({}, (*SYNTHETIC, "--clusters", "0"), ["num_clusters must lie in [1, 2**31), got 0"]),
    "fewer dense columns than none": ({}, (*SYNTHETIC, "--num-dense", "-1"), ["num_dense must lie in [0, 2**31), got -1"]),
    "a negative seed": ({}, (*SYNTHETIC, "--seed", "-1"), ["seed must lie in [0, 2**63), got -1"]),
    "a data set that is there": ({"out/x": ""}, SYNTHETIC, ["out must not exist already"]),
}  # fmt: skip


def changed(*keys, value):
    """A change of the manifest: the value at these keys; `...` removes it."""

    def damage(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        target = manifest
        for key in keys[:-1]:
            target = target[key]
        if value is ...:
            del target[keys[-1]]
        else:
            target[keys[-1]] = value
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


def cut(name, kept=0.5):
    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * kept)])

    return damage


def replaced(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def set_value(name, dtype, index, value):
    """Change one number of a file."""

    def damage(folder):
        numbers = np.fromfile(folder / name, dtype)
        numbers[index] = value
        numbers.tofile(folder / name)

    return damage


MANIFESTS = {  # rejected by whoever opens the data set
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), ["data must be a data set made by `cce prepare`"]),
    "cut short": (cut("manifest.json"), ["manifest.json must be JSON", "damaged"]),
    "empty": (replaced("manifest.json", b""), ["manifest.json must be JSON", "damaged"]),
    "binary": (replaced("manifest.json", b"\x89\xff\x00"), ["manifest.json must be JSON", "damaged"]),
    "a list": (replaced("manifest.json", b"[]"), ["manifest.json must be as", "it must be an object of format 2"]),
    "of another format": (changed("format", value=1), ["manifest.json", "it must be an object of format 2; prepare the data again"]),
    "of no format": (changed("format", value=...), ["manifest.json", "it must be an object of format 2"]),
    "without a kind": (changed("kind", value=...), ["manifest.json", "kind must be a str, got None"]),
    "without a schema": (changed("schema", value=...), ["manifest.json", "schema must be a dict, got None"]),
    "without features": (changed("schema", "features", value=...), ["manifest.json", "schema must have 'features', got ['dense', 'has_weights']"]),
    "features of words": (changed("schema", "features", value="user"), ["manifest.json", "features must be a list, got 'user'"]),
    "a feature without its size": (changed("schema", "features", 0, value={"name": "user"}), ["manifest.json", "feature must have multi_hot, name, num_embeddings, got {'name': 'user'}"]),
    "a feature of no ids": (changed("schema", "features", 0, "num_embeddings", value=0), ["manifest.json", "num_embeddings of feature 'user' must lie in", "got 0"]),
    "a feature of words": (changed("schema", "features", 0, "num_embeddings", value="9"), ["manifest.json", "num_embeddings of feature 'user' must be an int, got '9'"]),
    "a feature with a number for a name": (changed("schema", "features", 0, "name", value=3), ["manifest.json", "name of a feature must be a str, got 3"]),
    "two features of one name": (changed("schema", "features", 0, "name", value="tags"), ["manifest.json", "got 'tags' twice"]),
    "multi-hot as a word": (changed("schema", "features", 0, "multi_hot", value="no"), ["manifest.json", "multi_hot of feature 'user' must be True or False, got 'no'"]),
    "dense numbers": (changed("schema", "dense", value=[1]), ["manifest.json", "every one of dense must be a str, got 1"]),
    "weights as a word": (changed("schema", "has_weights", value="yes"), ["manifest.json", "has_weights must be True or False, got 'yes'"]),
    "without splits": (changed("splits", value=...), ["manifest.json", "splits must be a dict, got None"]),
    "no split": (changed("splits", value={}), ["manifest.json", "splits must name at least one split"]),
    "a split outside": (changed("splits", "../../x", value=3), ["manifest.json", "splits must have whole numbers of train, validation, test rows, got 3 of '../../x'"]),
    "a negative split": (changed("splits", "test", value=-1), ["manifest.json", "splits must have whole numbers of train, validation, test rows, got -1 of 'test'"]),
    "half a row": (changed("splits", "test", value=0.5), ["manifest.json", "splits must have whole numbers", "got 0.5 of 'test'"]),
    "more rows than the file": (changed("splits", "test", value=999), ["manifest.json", "bytes of file test.rows must be 15984 for its rows, got"]),
    "without files": (changed("files", value=...), ["manifest.json", "files must be a dict, got None"]),
    "no file": (changed("files", value={}), ["manifest.json", "files must list train.rows, got none"]),
    "a file not listed": (changed("files", "test.rows", value=...), ["manifest.json", "files must list test.rows"]),
    "bags not listed": (changed("files", "test.1.offsets", value=...), ["manifest.json", "files must list test.1.offsets"]),
    "a file outside": (changed("files", "../../etc/passwd", value={"bytes": 1, "sha256": "0" * 64}), ["manifest.json", "files must lie within the data set's folder, got '../../etc/passwd'"]),
    "a file at the root": (changed("files", "/etc/passwd", value={"bytes": 1, "sha256": "0" * 64}), ["manifest.json", "files must lie within", "got '/etc/passwd'"]),
    "a file without a checksum": (changed("files", "test.rows", "sha256", value=...), ["manifest.json", "sha256 of file test.rows must have 64 hexadecimal digits, got None"]),
    "a checksum of words": (changed("files", "test.rows", "sha256", value="right"), ["manifest.json", "sha256 of file test.rows", "got 'right'"]),
    "a file without its size": (changed("files", "test.rows", value={}), ["manifest.json", "bytes of file test.rows must be a whole number"]),
    "a missing file": (lambda folder: (folder / "test.rows").unlink(), ["test.rows", "missing"]),
    "a missing vocabulary": (lambda folder: (folder / "vocabulary" / "000.parquet").unlink(), ["vocabulary/000.parquet", "missing"]),
    "a file cut short": (cut("train.rows"), ["train.rows must have 512 bytes, got 256"]),
    "a file that grew": (replaced("test.rows", bytes(999)), ["test.rows must have", "got 999"]),
    "a folder in a file's stead": (lambda folder: ((folder / "test.rows").unlink(), (folder / "test.rows").mkdir()), ["test.rows", "missing"]),
}  # fmt: skip
CONTENTS = {  # found by whoever reads all of it
    "a changed byte": (set_value("train.rows", "u1", 7, 1), ["train.rows must have the SHA-256"]),
    "a changed vocabulary": (set_value("vocabulary/000.parquet", "u1", 9, 255), ["vocabulary/000.parquet must have the SHA-256"]),
}  # fmt: skip
OPTIONS_OF_DATA = {  # rejected where raw rows are read as those of the data set
    "a synthetic one": (changed("kind", value="synthetic"), ["data must have been made from raw rows, got a synthetic data set"]),
    "without options": (changed("options", value=...), ["options of", "manifest.json must be as `cce prepare` wrote them"]),
    "without columns": (changed("options", "columns", value=...), ["options of", "manifest.json must be as", "columns"]),
    "with other columns": (changed("options", "columns", "colour", value=1), ["options of", "manifest.json must be as", "colour"]),
    "with columns of words": (changed("options", "columns", value="y"), ["options of", "manifest.json must be as"]),
}  # fmt: skip
GROUPS = (RAW_TEXT, LABELS, COLUMNS, SPLITS, OPTIONS, CRITEO, MOVIELENS, PARQUETS, MADE)
CASES = [case for group in GROUPS for case in group.values()]
NAMES = [name for group in GROUPS for name in group]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A data set with every kind of file."""
    folder = tmp_path_factory.mktemp("good")
    table_with_everything(folder)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def exit_code(words):
    try:
        return main(list(words))
    except SystemExit as stop:  # the parser's
        return stop.code


def told(words, capsys):
    """The one line of an input that is rejected, by a verb or by the parser of its words."""
    assert exit_code(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith((f"cce {words[0]}: ", f"cce {' '.join(words[:2])}: ", "cce: unrecognized arguments: "))
    assert len(err.splitlines()) == 1, err
    assert "Errno" not in err
    return err


def check(words, fragments, folder, capsys):
    before = snapshot(folder)
    line = told(words, capsys)
    assert [fragment for fragment in fragments if fragment not in line] == [], line
    assert snapshot(folder) == before


def test_there_are_many_cases():
    assert len(CASES) + len(MANIFESTS) + len(CONTENTS) + len(OPTIONS_OF_DATA) >= 145
    assert len(set(NAMES)) >= len(NAMES) - 3  # few have the name of another


@pytest.mark.slow
@pytest.mark.parametrize(("files", "words", "fragments"), CASES, ids=NAMES)
def test_it_is_rejected_with_one_clear_line_and_nothing_is_left(files, words, fragments, here, capsys):
    write_files(here, files)
    check(words, fragments, here, capsys)


@pytest.mark.parametrize("name", ["no manifest", "cut short", "a negative split"])
def test_a_damaged_manifest_is_rejected(name, good, here, capsys):
    shutil.copytree(good, here, dirs_exist_ok=True)
    damage, fragments = MANIFESTS[name]
    damage(here / "data")
    check(VERIFY, fragments, here, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "fragments"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_damaged_manifest_cannot_be_opened(damage, fragments, good, here):
    shutil.copytree(good, here, dirs_exist_ok=True)
    damage(here / "data")
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        PreparedData.open("data")
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("damage", "fragments"), CONTENTS.values(), ids=CONTENTS)
def test_damaged_values_are_found(damage, fragments, good, here, capsys):
    shutil.copytree(good, here, dirs_exist_ok=True)
    damage(here / "data")
    check(VERIFY, fragments, here, capsys)


@pytest.mark.parametrize(("damage", "fragments"), OPTIONS_OF_DATA.values(), ids=OPTIONS_OF_DATA)
def test_a_data_set_whose_options_cannot_be_followed_is_rejected(damage, fragments, good, here):
    shutil.copytree(good, here, dirs_exist_ok=True)
    damage(here / "data")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        raw_options(Path("data/manifest.json"), read_manifest(Path("data")))
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []


def test_only_folders_are_verified(here, capsys):
    (here / "a.csv").write_text("y,user\n1,u\n")
    check(("verify", "a.csv"), ["must be a folder, got 'a.csv'"], here, capsys)
    check(("verify", "nothing"), ["must be a folder, got 'nothing'"], here, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["latin-1", "stars without a threshold", "only carriage returns", "a trillion jobs"])
def test_the_same_holds_in_a_process_of_its_own(name, here):
    files, words, fragments = CASES[NAMES.index(name)]
    write_files(here, files)
    before = snapshot(here)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    command = [sys.executable, "-m", "cce", *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert [fragment for fragment in fragments if fragment not in ended.stderr] == []
    assert snapshot(here) == before


@pytest.mark.slow
def test_bad_rows_that_other_processes_read_are_told_as_well(here, capsys):
    write_criteo_text(here / "days" / "day_0", 300)
    (here / "days" / "day_1").write_text(kaggle_line() * 5 + kaggle_line("7"))
    check((*DAYS, "--jobs", "2"), ["day_1, line 6: label must be 0 or 1", "got 7"], here, capsys)
