"""Tables that depend on the process or on its threads do not pass."""

import sys
from pathlib import Path

import pytest
import torch

from cce.testing.processes import find_module, load_and_look_up
from helpers import broken_tables as broken


def contract_in(folder, name):
    """A file that pytest alone could import, with a contract in it."""
    path = folder / "test_elsewhere.py"
    path.write_text(f"from helpers.broken_tables import {name}, contract_of\nTestIt = type(contract_of({name}))\n")
    return "no_package.test_elsewhere", str(path), "TestIt"


@pytest.fixture
def no_traces(monkeypatch):
    monkeypatch.delitem(sys.modules, "no_package.test_elsewhere", raising=False)
    yield
    sys.modules.pop("no_package.test_elsewhere", None)


@pytest.mark.usefixtures("no_traces")
@pytest.mark.parametrize(("name", "is_sound"), [("Sound", True), ("UnsavedState", False)])
def test_a_table_takes_over_a_state_from_a_file_unless_it_does_not_save_all(tmp_path, name, is_sound):
    contract = broken.contract_of(getattr(broken, name))
    table, ids = contract.make(), contract.ids(20)
    torch.save(table.state_dict(), tmp_path / "table.pt")
    found = load_and_look_up(contract_in(tmp_path, name), tmp_path / "table.pt", ids)
    assert torch.allclose(found, table(ids)) is is_sound


@pytest.mark.usefixtures("no_traces")
def test_a_module_is_found_by_name_or_by_file(tmp_path):
    assert find_module("helpers.broken_tables", None) is broken
    name, file, _ = contract_in(tmp_path, "Sound")
    found = find_module(name, file)
    assert Path(found.__file__) == Path(file)
    assert find_module(name, file) is found
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_module("no_such_module", None)


def test_a_module_whose_own_imports_fail_is_not_imported_twice(tmp_path):
    (tmp_path / "bad.py").write_text("import not_installed_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_at_all"):
        find_module("bad", str(tmp_path / "bad.py"))


@pytest.mark.slow
def test_a_table_that_follows_the_threads_fails(num_threads):
    num_threads(1)
    broken.contract_of(broken.Sound).test_any_number_of_threads_gives_the_same()
    with pytest.raises(AssertionError):
        broken.contract_of(broken.FollowsThreads).test_any_number_of_threads_gives_the_same()
