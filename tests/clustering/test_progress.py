"""Long work in plain torch says at once how long it may take, and shows that it goes on."""

import os
import subprocess
import sys
import time

import pytest
import torch

from cce.clustering import kmeans, progress
from cce.clustering.progress import Progress

BIG = """
import torch
from cce import ClusteredEmbedding
table = ClusteredEmbedding(200_000, 16, num_rows=4_000, num_columns=4, generator=torch.Generator().manual_seed(0))
table.cluster(generator=torch.Generator().manual_seed(0))
"""


@pytest.mark.slow
def test_a_clustering_of_many_ids_in_plain_torch_says_why_and_how_long_and_shows_progress():
    environment = {**os.environ, "CCE_COMPILED": "0"}
    with subprocess.Popen([sys.executable, "-c", BIG], stderr=subprocess.PIPE, env=environment) as process:
        seen = b""
        try:
            deadline = time.monotonic() + 120
            while b"more" not in seen and time.monotonic() < deadline:
                seen += os.read(process.stderr.fileno(), 4096)
        finally:
            process.kill()
    text = seen.decode()
    assert text.count("cce runs in plain torch, many times slower than compiled loops: CCE_COMPILED=0 is set.") == 1
    work = "4 times k-means of 200,000 points and 4,000 clusters"
    assert f"{work} in plain torch may take up to " in text
    assert "(CCE_COMPILED=0 is set)" in text
    assert f"{work}:   0% |" in text


def test_the_estimate_is_what_is_left_at_the_speed_so_far(monkeypatch):
    monkeypatch.setattr(progress, "MEASURED", 0.0)
    many = progress.MANY
    with Progress("work", many) as work, pytest.warns(UserWarning, match=r"work in plain torch may take up to 2\d s"):
        work.add(many // 10, 2.0)


def test_small_work_is_silent_however_busy_the_machine_is(capsys):
    with Progress("work", progress.MANY - 1) as work:
        work.add(10, 60.0)
    assert work._bar is None
    assert capsys.readouterr().err == ""


def test_short_work_is_silent(capsys):
    with Progress("work", 100) as work:
        work.add(50, 3.0)
        work.add(50)
    assert work.num_done == 100
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "text"), [(12, "12 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")])
def test_times_are_readable(seconds, text):
    assert progress._readable(seconds) == text


@pytest.mark.filterwarnings("ignore:two fits in plain torch")
def test_a_progress_that_is_given_goes_on_over_several_fits(monkeypatch):
    monkeypatch.setattr(progress, "MEASURED", 0.0)
    monkeypatch.setattr(progress, "LONG", 0.0)
    monkeypatch.setattr(progress, "MANY", 0)
    points = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    with Progress("two fits", 2 * 500 * 4 * 3) as shared:
        for num_fits in (1, 2):
            kmeans(points, 4, init=points[:4], max_iter=3, backend="torch", progress=shared)
            assert shared.num_done == num_fits * 500 * 4 * 3
            assert not shared._bar.disable  # a bar that was closed is disabled
    assert shared._bar.disable
