"""Models of one's own, saved to folders and made again."""

import pytest
import torch
from torch import nn

import cce


class Mine(cce.PretrainedMixin, nn.Module):
    def __init__(self, sizes, *, dim=8, **further):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, dim) for size in sizes)
        self.further = further

    def forward(self, ids):
        return sum(table(ids) for table in self.tables)


class Other(Mine):
    pass


def test_a_compressed_model_is_made_again_from_its_folder(tmp_path):
    model = Mine([300, 200], dim=4, note="x")
    cce.compress(model, method="cce", cap=160, min_params=1, seed=0)
    model.save_pretrained(tmp_path / "a" / "model")
    again = Mine.from_pretrained(tmp_path / "a" / "model")
    assert torch.equal(again(torch.arange(200)), model(torch.arange(200)))
    assert again.further == {"note": "x"}
    assert sorted(path.name for path in (tmp_path / "a" / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert Mine.from_pretrained(tmp_path / "a" / "model", note="y").further == {"note": "y"}


def test_folders_of_another_kind_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must be a folder that save_pretrained wrote, got no config\.json"):
        Mine.from_pretrained(tmp_path)
    Mine([10]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"must hold a Other, got a Mine\.$"):
        Other.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"must be a table|must have the shape"):
        Mine.from_pretrained(tmp_path, dim=4)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config.json must be as save_pretrained wrote it, and it is not: 'class'\.$"):
        Mine.from_pretrained(tmp_path)


def test_arguments_that_no_file_can_hold_are_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"^arguments of Mine must be plain values to be saved: .*Tensor"):
        Mine([10], note=torch.zeros(1)).save_pretrained(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
