"""Files of arrays: written whole, mapped back."""

import numpy as np
import pytest

from cce.data.vocabulary import map_arrays, save_arrays


def test_a_file_that_cannot_be_written_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match=r"none/a could not be written: "):
        save_arrays(tmp_path / "none" / "a", {"x": np.zeros(1)}, {})


def test_empty_arrays_are_mapped_as_well(tmp_path):
    save_arrays(tmp_path / "a", {"x": np.zeros((0, 3), np.float32), "y": np.arange(3)}, {"z": "1"})
    arrays, metadata = map_arrays(tmp_path / "a")
    assert (arrays["x"].shape, arrays["y"].tolist(), metadata) == ((0, 3), [0, 1, 2], {"z": "1"})
