"""Verification sees a wrong program, also where only rare ids go wrong."""

import pytest
import torch

import cce
from cce.data import PreparedData
from cce.serving.exporting import SWEPT, sweep, verify
from cce.serving.program import ServedModel
from helpers.frozen import finalized, make_batch, make_schema
from helpers.runs import tiny_config, tiny_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return PreparedData.open(tiny_data(tmp_path_factory.mktemp("verified") / "data"))


def make(data):
    torch.manual_seed(0)
    tables = finalized(cce.EmbeddingCollection(data.schema.vocabulary_sizes, 8, cap=320, seed=0))
    return cce.models.DLRM(data.schema, tables, **tiny_config(data.path).model_options).eval()


def test_a_right_program_passes_with_equal_scores(data):
    model = make(data)
    found = verify(ServedModel(cce.freeze(model), data.schema), model, data, data.schema)
    assert found.difference <= 1e-5
    assert (found.split, found.num_rows, found.num_swept) == ("test", 100, 121)
    for part in ("largest difference of a logit", "100 rows of test", "121 over all ids"):
        assert part in str(found)


def test_one_id_that_no_row_has_is_enough_to_fail(data):
    model = make(data)
    served = ServedModel(cce.freeze(model), data.schema)

    def program(inputs):
        return served(inputs) + 0.5 * (inputs["ids"][:, 0] == 120)

    assert not any((batch.ids[:, 0] == 120).any() for batch in data.loader("test", batch_size=50, shuffle=False))
    with pytest.raises(ValueError, match=r"verification failed: tolerance is 0.0001, got largest .* logit 0\.5"):
        verify(program, model, data, data.schema)


def test_logits_that_are_no_numbers_fail(data):
    with pytest.raises(ValueError, match="logits must be finite"):
        verify(lambda inputs: inputs["dense"][:, 0] * float("nan"), make(data), data, data.schema)


@pytest.mark.parametrize("multi_hot", [False, True])
def test_a_sweep_goes_from_the_first_id_to_the_last(multi_hot):
    schema = make_schema(multi_hot=multi_hot)
    batches = list(sweep(make_batch(schema, 5), schema))
    for place, feature in enumerate(schema.features):
        columns = [b.ids[:, place] if b.offsets is None else b.ids.view(2, -1)[place] for b in batches]
        assert set(torch.cat(columns).tolist()) == set(range(feature.num_embeddings))


def test_a_sweep_of_a_large_vocabulary_ends_at_its_last_id():
    schema = cce.schema.Schema((cce.schema.Feature("user", 10**9), cce.schema.Feature("item", 7)), ("age", "price"))
    ids = torch.cat([batch.ids for batch in sweep(make_batch(make_schema(multi_hot=False), 5), schema)])
    assert len(ids) == SWEPT
    assert (int(ids[0, 0]), int(ids[-1, 0])) == (0, 10**9 - 1)
    assert ids[:, 1].unique().tolist() == list(range(7))
