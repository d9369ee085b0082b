"""A table in other circumstances: any number of threads, and a process that shares nothing but a file with this one."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cce.testing.base import ContractBase

POOL = pytest.StashKey[ProcessPoolExecutor]()


class ProcessTests(ContractBase):
    """Threads and processes."""

    @pytest.fixture
    def other_process(self, request: pytest.FixtureRequest) -> ProcessPoolExecutor:
        """One spawned process for all contracts of a test session."""
        stash = request.config.stash
        if POOL not in stash:
            stash[POOL] = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            request.config.add_cleanup(stash[POOL].shutdown)
        return stash[POOL]

    @pytest.fixture
    def threads_as_before(self) -> Iterator[None]:
        """Set torch's threads back after the test."""
        before = torch.get_num_threads()
        yield
        torch.set_num_threads(before)

    def test_state_dict_round_trip_in_a_new_process(self, other_process: ProcessPoolExecutor, tmp_path: Path) -> None:
        table, ids, contract = self.make(), self.ids(50), type(self)
        torch.save(table.state_dict(), tmp_path / "table.pt")
        file = getattr(sys.modules[contract.__module__], "__file__", None)
        where = contract.__module__, file, contract.__qualname__
        loaded = other_process.submit(load_and_look_up, where, tmp_path / "table.pt", ids).result()
        self.assert_same(loaded, table(ids).detach())

    @pytest.mark.usefixtures("threads_as_before")
    def test_any_number_of_threads_gives_the_same(self) -> None:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            table = self.make()
            gradients = self.gradients(table, self.ids(3000))
            results.append([*table.state_dict().values(), table.to_dense(), *gradients.values()])
        for others in results[1:]:
            for found, expected in zip(others, results[0], strict=True):
                self.assert_same(found, expected)


def load_and_look_up(where: tuple[str, str | None, str], path: Path, ids: torch.Tensor) -> torch.Tensor:
    """In another process: a table of another seed, made by the contract at `where`, takes over a saved state."""
    module, file, name = where
    contract: Any = reduce(getattr, name.split("."), find_module(module, file))
    table = contract().make(seed=99)
    table.load_state_dict(torch.load(path, weights_only=True))
    vectors: torch.Tensor = table(ids).detach()
    return vectors


def find_module(name: str, file: str | None) -> ModuleType:
    """A module by name, or by its file where the name cannot be imported: pytest imports tests by their files."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if file is None:
            raise
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
