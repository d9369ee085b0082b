"""Calibration on the held-out rows, beside bins that are counted by hand."""

import shutil

import numpy as np
import pytest

from cce.runs import calibrate, load_run, pack_run
from helpers.raw_runs import held_out_rows
from helpers.runs import tiny_data


@pytest.mark.slow
def test_bins_hold_the_mean_predictions_and_labels_of_the_test_rows(trained):
    run, rows = load_run(trained), held_out_rows()
    found = calibrate(run)
    predicted = run.predict(rows).astype(float)
    labels = np.array([float(row["click"]) for row in rows])
    bins = np.minimum((predicted * 15).astype(int), 14)
    chosen = [bins == each for each in sorted(set(bins))]
    wanted = [(predicted[rows].mean(), labels[rows].mean(), rows.sum()) for rows in chosen]
    assert (found.split, found.num_rows) == ("test", len(rows))
    assert np.allclose(found.bins, wanted, atol=1e-5)
    gaps = sum(weight * abs(mean - label) for mean, label, weight in wanted)
    assert found.error == pytest.approx(gaps / len(rows), abs=1e-5)


@pytest.mark.slow
def test_a_pack_is_calibrated_where_its_data_set_is_and_on_no_other(trained, tmp_path):
    pack_run(trained, tmp_path / "one.ccez")
    run = load_run(tmp_path / "one.ccez")
    shutil.copytree(trained.parent / "data", tmp_path / "moved")
    assert calibrate(run, tmp_path / "moved") == calibrate(load_run(trained))
    with pytest.raises(FileNotFoundError, match=r"the data set is not at .*nowhere.*: --data says where it is"):
        calibrate(run, tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"data must be the data set that .* was trained on, but .* is another"):
        calibrate(run, tiny_data(tmp_path / "other"))
