"""Recommended items and similar values, beside probabilities and cosines that are computed one by one."""

import numpy as np
import pytest
import torch

import cce
from cce.runs import load_run, similar
from cce.runs import vectors as neighbours
from helpers.raw_files import write_csv
from helpers.runs import tiny_config

HEADER = ("y", "user", "item", "tags", "age")
ROWS = [(n % 2, f"u{n % 7}", f"i{n * n % 11}" if n % 9 else "", "|".join("abc"[: n % 4]), n % 31) for n in range(300)]


def train(folder, **columns):
    write_csv(folder / "log.csv", HEADER, ROWS)
    cce.prepare(folder / "log.csv", folder / "data", label="y", split="order", progress=False, **columns)
    options = {"max_steps": 9, "epochs": 1, "model": "mlp", "model_options": {"hidden": [8]}}
    cce.training.Trainer(tiny_config(folder / "data", **options), folder / "run").run()
    return load_run(folder / "run")


@pytest.mark.slow
def test_items_of_a_user_are_those_of_the_highest_probability(tmp_path):
    run = train(tmp_path, categorical=["user", "item"])
    items = sorted({row[2] for row in ROWS if row[2]})
    scores = run.predict([{"user": "u3", "item": item} for item in items])
    expected = sorted(zip(items, scores.tolist(), strict=True), key=lambda pair: -pair[1])[:4]
    found = run.recommend("u3", 4)
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-6)
    assert dict(found) == pytest.approx(dict(expected), abs=1e-6)
    assert run.recommend({"user": "u3"}, 4) == found
    assert len(run.recommend("never seen", 99)) == len(items)  # neither unseen nor missing is an item
    assert [user for user, _ in run.recommend("i1", 2, item="user")] != []


@pytest.mark.slow
def test_a_row_may_have_more_columns_and_bags(tmp_path):
    run = train(tmp_path, categorical=["user", "item"], multi_hot=["tags"], dense=["age"])
    row = {"user": "u3", "tags": "a|b", "age": 7}
    found = run.recommend(row, 3, item="item")
    predicted = run.predict([{**row, "item": item} for item, _ in found])
    assert [score for _, score in found] == pytest.approx(predicted.tolist(), abs=1e-6)
    for user, options, error, message in (
        (row, {}, ValueError, "item must name the feature to recommend, one of user, item, tags"),
        ("u3", {"item": "item"}, TypeError, "user must be a dictionary of the columns of a row"),
        ({"usr": 1}, {"item": "item"}, ValueError, "a column of the row must be one of .*; got 'usr'"),
        (row, {"item": "tags"}, ValueError, "item must be one of user, item; got 'tags'"),
    ):
        with pytest.raises(error, match=message):
            run.recommend(user, 3, **options)


@pytest.mark.slow
@pytest.mark.parametrize("among", [None, 9])
def test_similar_values_have_the_greatest_cosine(trained, among, monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", 7)
    run = load_run(trained)
    vocabulary, vectors = run.vocabularies["item"], run.vectors("item")
    names = vocabulary.values(range(1, (among or len(vocabulary)) + 1))
    units = neighbours._unit(vectors(torch.arange(1, len(names) + 1)))
    for index, near in enumerate(similar(run, "item", names[:4], 5, among=among)):
        cosines = {name: float(units[index] @ unit) for name, unit in zip(names, units, strict=True)}
        cosines.pop(names[index])
        assert [cosine for _, cosine in near] == pytest.approx(sorted(cosines.values(), reverse=True)[:5], abs=1e-6)
        assert [cosines[name] for name, _ in near] == pytest.approx([cosine for _, cosine in near], abs=1e-6)
    assert run.similar(names[0], 5, feature="item") == similar(run, "item", names[:1], 5)[0]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [{}, {"multi_hot": ["tags"], "dense": ["age"]}])
def test_an_unseen_value_may_have_the_average_vector(tmp_path, columns):
    run = train(tmp_path, categorical=["user", "item"], **columns)
    vectors, users = run.vectors("user"), torch.arange(1, len(run.vocabularies["user"]) + 1)
    average = vectors(users).mean(axis=0)
    row = {"user": "nobody", "tags": "a|b", "age": 7} if columns else "nobody"
    (name, score), *_ = run.recommend(row, 1, item="item", unseen="average")
    (other, shared), *_ = run.recommend(row, 1, item="item")
    (weight,) = vectors.table.parameters()
    weight.data[0] = torch.from_numpy(average)  # what unseen values read
    wanted = {"item": name} | (row if columns else {"user": row})
    assert run.predict([wanted])[0] == pytest.approx(score, abs=1e-6)
    assert (other, shared) != (name, score)
    known, average = run.vocabularies["user"].values(users.numpy()), torch.from_numpy(average)
    near = {value: float(torch.cosine_similarity(torch.from_numpy(vectors(torch.tensor([i]))[0]), average, dim=0))
            for i, value in enumerate(known, 1)}  # fmt: skip
    assert dict(run.similar("nobody", 9, feature="user", unseen="average")) == pytest.approx(near, abs=1e-5)
    with pytest.raises(ValueError, match="unseen must be one of shared, average; got 'none'"):
        run.recommend(row, item="item", unseen="none")


@pytest.mark.slow
def test_unknown_values_and_features_are_one_line(trained):
    run = load_run(trained)
    with pytest.raises(ValueError, match=r"n must lie in \[1, 2\*\*31\), got 0\."):
        run.similar("i1", 0, feature="item")
    with pytest.raises(ValueError, match="feature must be one of user, item, tags; got 'itm'"):
        run.similar("i1", feature="itm")
    with pytest.raises(ValueError, match="value must be one that training rows have, got 'nobody' of 'item'"):
        run.similar("nobody", feature="item")


def test_a_vector_of_zeros_has_cosine_zero():
    assert np.array_equal(neighbours._unit(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0, 0], [0.6, 0.8]])
