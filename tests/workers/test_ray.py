"""Ray: the same results in the same order, and the same data set as in this process."""

import importlib.util
import re
from dataclasses import replace

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.data.preparation.pipeline import prepare_data
from cce.data.sources.criteo import criteo_terabyte_job
from cce.text import install_hint
from cce.workers import open_engine
from helpers.raw_files import run

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `ray`")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@needs_ray
def test_a_local_ray_gives_what_this_process_gives(tmp_path):
    def square(number):
        return number * number

    def fail(number):
        raise ValueError(f"number must be even, got {number}.")

    for day in range(3):
        write_criteo_text(tmp_path / "days" / f"day_{day}", 300, seed=day)
    job = replace(criteo_terabyte_job(tmp_path / "days"), block_bytes=30_000)
    with open_engine("ray", 2) as engine:
        assert list(engine.map(square, range(20))) == [number * number for number in range(20)]
        with pytest.raises(ValueError, match="number must be even, got 0"):
            list(engine.map(fail, range(3)))
        manifest = prepare_data(job, tmp_path / "ray", engine=engine, progress=False)
    assert manifest["files"] == run(job, tmp_path / "local").manifest["files"]


def test_without_ray_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape(f"engine ray needs Ray: {install_hint('ray')}")):
        open_engine("ray")
