"""Models by name, and from a user's own file."""

import pytest
import torch
from torch import nn

from cce.collection import EmbeddingCollection
from cce.models import DLRM, GMF, MODELS, create_model, model_note
from cce.models.registry import find_model
from cce.schema import Batch, Feature, Schema

SCHEMA = Schema((Feature("a", 9), Feature("b", 7)))

MINE = """
from torch import nn

class Sum(nn.Module):
    def __init__(self, schema, tables, scale=1.0):
        super().__init__()
        self.tables, self.scale = tables, scale

    def forward(self, batch):
        return self.scale * self.tables(batch.ids, batch.offsets).sum((1, 2))

def number(schema, tables):
    return 3
"""


def tables():
    return EmbeddingCollection(SCHEMA.vocabulary_sizes, 4, method="full", seed=0)


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return f"{tmp_path / 'mine.py'}:"


def test_models_have_names():
    assert isinstance(create_model("dlrm", SCHEMA, tables(), top=[3]), DLRM)
    assert isinstance(create_model("gmf", SCHEMA, tables()), GMF)


def test_one_is_told_that_dlrm_sees_dot_products_only():
    note = model_note("dlrm", SCHEMA, {})
    assert note.startswith("without dense features model 'dlrm' sees dot products of vectors and nothing else")
    assert model_note("dlrm", SCHEMA, {"concatenate": True}) is None
    assert model_note("dlrm", Schema(SCHEMA.features, ("x",)), {}) is None
    assert [name for name in MODELS if model_note(name, SCHEMA, {})] == ["dlrm"]


def test_a_class_in_a_file_is_a_model(mine):
    model = create_model(mine + "Sum", SCHEMA, tables(), scale=2.0)
    assert isinstance(model, nn.Module)
    batch = Batch(torch.empty(1, 0), torch.tensor([[1, 2]]), torch.zeros(1))
    torch.testing.assert_close(model(batch), 2 * model.tables(batch.ids).sum((1, 2)))


def test_a_wrong_content_of_the_file_is_rejected(mine):
    with pytest.raises(ValueError, match=r"model names 'Product', but .*mine.py has no such class or function"):
        create_model(mine + "Product", SCHEMA, tables())
    with pytest.raises(TypeError, match="must make a torch module, got int"):
        create_model(mine + "number", SCHEMA, tables())
    with pytest.raises(TypeError, match=r"could not be made with options {'colour': 1}"):
        create_model(mine + "Sum", SCHEMA, tables(), colour=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def model(:\n", "SyntaxError in line 1: "),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
    ],
)
def test_a_file_that_cannot_be_run_is_named_with_the_reason(tmp_path, text, reason):
    (tmp_path / "mine.py").write_text(text)
    message = rf"^model must name a Python file that can be run, got '.*mine\.py': {reason}.*\.$"
    with pytest.raises(ValueError, match=message):
        find_model(f"{tmp_path / 'mine.py'}:Mine")
