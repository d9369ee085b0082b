"""Files of arrays that are mapped: those of nothing, and those that cannot be written."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from cce.data.vocabulary import Vocabulary, map_arrays
from cce.hashing import Texts


def test_what_cannot_be_written_is_told(tmp_path):
    vocabulary = Vocabulary.build("user", "words", Texts.of(["a", "b"]))
    with pytest.raises(OSError, match="a could not be written"):
        vocabulary.save(tmp_path / "none" / "a")


def test_arrays_of_nothing_are_mapped(tmp_path):
    save_file({"x": np.zeros((0, 3), np.float32), "y": np.arange(3)}, tmp_path / "a", {"z": "1"})
    arrays, metadata = map_arrays(tmp_path / "a")
    assert (arrays["x"].shape, arrays["y"].tolist(), metadata) == ((0, 3), [0, 1, 2], {"z": "1"})
