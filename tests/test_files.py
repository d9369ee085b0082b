"""Files are written whole or not at all, and one process at a time works in a folder."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cce.files import (
    FolderInUseError,
    check_target,
    clear_folder,
    lock_folder,
    read_text,
    replace_file,
    replace_folder,
    usual_permissions,
    write_atomic,
)
from helpers.files import small_files

HOLDER = """
import sys, time
from pathlib import Path
from cce.files import lock_folder
with lock_folder(Path(sys.argv[1]), wait=True):
    print("locked", flush=True)
    time.sleep(60)
"""
COUNTER = """
import sys
from pathlib import Path
from cce.files import lock_folder
folder, count = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(100):
    with lock_folder(folder / "deep" / "folder", wait=True):
        count.write_text(str(int(count.read_text()) + 1))
"""


def python(code, *options):
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120)


# -- atomic writing ----------------------------------------------------------------------------------------------------


def test_what_cannot_become_a_file_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_text("x")
    for path in ("old", "new", "deep/er/new"):
        check_target("out", Path(path))
    with pytest.raises(IsADirectoryError, match=r"^out must be a file, got the folder '\.'\.$"):
        check_target("out", Path())
    with pytest.raises(OSError, match=rf"^out must be a file, got the device '{os.devnull}'\.$"):
        check_target("out", Path(os.devnull))
    with pytest.raises(
        NotADirectoryError, match=r"^out must lie in a folder, got 'old/a/b', above which is the file .*old'\.$"
    ):
        check_target("out", Path("old/a/b"))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("contents", [("a long first text", "2nd é"), (b"\x00\xff bytes", b"")])
def test_a_file_replaces_the_old_one_and_nothing_else_is_left(tmp_path, contents):
    for content in contents:
        write_atomic(tmp_path / "deep" / "report.md", content)
        expected = content if isinstance(content, bytes) else content.encode("utf-8")
        assert (tmp_path / "deep" / "report.md").read_bytes() == expected
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.md"]


@pytest.mark.parametrize("old", ["old", None])
def test_a_failure_half_way_leaves_the_old_file_and_no_temporary_one(tmp_path, old):
    path = tmp_path / "report.md"
    if old is not None:
        path.write_text(old)
    with pytest.raises(UnicodeEncodeError), replace_file(path) as temporary:
        temporary.write_text("new \ud800", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == ([("report.md", old)] if old else [])


@pytest.mark.slow
@pytest.mark.parametrize("old", ["old", None])
def test_a_disk_that_is_full_half_way_leaves_the_old_file_or_none(tmp_path, old):
    path = tmp_path / "report.md"
    if old is not None:
        path.write_text(old)
    result = python(
        "import pathlib, resource\n"
        "from cce.files import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"write_atomic(pathlib.Path({str(path)!r}), 'x' * 100_000)"
    )
    assert f"File too large: {str(path)!r}" in result.stderr
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == ([("report.md", old)] if old else [])


def test_a_folder_replaces_the_old_one_or_leaves_it(tmp_path):
    folder = tmp_path / "inputs"
    for content in ("one", "two"):
        with replace_folder(folder) as temporary:
            (temporary / content).write_text(content)
        assert [path.name for path in folder.iterdir()] == [content]
    with (
        small_files(10),
        pytest.raises(OSError, match=r"File too large: '.*inputs'$"),
        replace_folder(folder) as temporary,
    ):
        (temporary / "three").write_text("x" * 100)
    assert [path.name for path in tmp_path.rglob("*")] == ["inputs", "two"]


def test_what_is_no_text_is_told_by_name(tmp_path):
    (tmp_path / "a").write_bytes(b"abc\xff")
    with pytest.raises(ValueError, match=r"a must be text in UTF-8, and it is not: invalid start byte at 3\.$"):
        read_text(tmp_path / "a")


def test_text_is_utf8_whatever_the_locale(tmp_path):
    result = python(
        f"import pathlib\nfrom cce.files import write_atomic\nwrite_atomic(pathlib.Path({str(tmp_path / 'a')!r}), 'é')",
        *("-X", "warn_default_encoding", "-W", "error::EncodingWarning"),
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9"


# -- locks -------------------------------------------------------------------------------------------------------------


def test_who_comes_second_is_told_who_is_at_work(tmp_path):
    message = (
        rf"{re.escape(str(tmp_path))} is in use by process {os.getpid()} on {re.escape(socket.gethostname())} since "
    )
    with (
        lock_folder(tmp_path),
        pytest.raises(FolderInUseError, match=message + r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\+00:00\.$"),
        lock_folder(tmp_path),
    ):
        raise AssertionError
    with lock_folder(tmp_path), lock_folder(tmp_path / "another"):
        pass


def test_a_lock_whose_owner_cannot_be_read_still_holds(tmp_path):
    with lock_folder(tmp_path):
        (tmp_path / ".lock").write_text("{")
        with pytest.raises(FolderInUseError, match=r"is in use by another process\.$"), lock_folder(tmp_path):
            raise AssertionError


def test_another_process_holds_it_until_it_ends_however_it_ends(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(FolderInUseError, match=f"process {holder.pid} "), lock_folder(tmp_path / "run"):
            raise AssertionError
        holder.kill()
        started = time.monotonic()
        with lock_folder(tmp_path / "run", wait=True):
            assert time.monotonic() - started < 30
    with lock_folder(tmp_path / "run"):
        pass


def test_a_waiting_thread_gets_it_when_it_is_released(tmp_path):
    order = []

    def wait():
        with lock_folder(tmp_path, wait=True):
            order.append("second")

    with lock_folder(tmp_path):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.slow
def test_processes_that_make_and_remove_the_folder_exclude_each_other(tmp_path):
    count = tmp_path / "count"
    count.write_text("0")
    command = [sys.executable, "-c", COUNTER, str(tmp_path / "folder"), str(count)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert count.read_text() == "300"
    assert list(tmp_path.rglob(".lock")) == []


def test_folders_that_it_made_are_removed_if_they_are_empty(tmp_path):
    with lock_folder(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with lock_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]
    (tmp_path / "mine").mkdir()
    with lock_folder(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()


def test_a_temporary_folder_is_removed_when_it_is_empty_even_if_it_was_there(tmp_path):
    (tmp_path / "out.part").mkdir()
    with lock_folder(tmp_path / "out.part", temporary=True):
        (tmp_path / "out.part" / "file").touch()
    assert (tmp_path / "out.part" / "file").exists()
    with lock_folder(tmp_path / "out.part", temporary=True):
        clear_folder(tmp_path / "out.part")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_cleared_of_everything_but_its_lock(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").touch()
    folder = tmp_path / "folder"
    with lock_folder(folder):
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "link").symlink_to(tmp_path / "target")
        clear_folder(folder)
        assert [path.name for path in folder.iterdir()] == [".lock"]
        with pytest.raises(FolderInUseError), lock_folder(folder):
            raise AssertionError
    assert (tmp_path / "target" / "kept").exists()
    clear_folder(tmp_path / "absent")


def test_a_file_in_its_stead_is_told(tmp_path):
    (tmp_path / "run").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, what in (
        ("run", "the file"),
        ("run/deep", "the file"),
        ("link", "a symbolic"),
        ("link/a/b", "a symbolic"),
    ):
        message = rf"{name} must be a folder, got {what} .*'{re.escape(str(tmp_path / name.split('/')[0]))}'\.$"
        with pytest.raises(NotADirectoryError, match=message), lock_folder(tmp_path / name):
            raise AssertionError
    message = r"^out must lie in a folder, got '.*', above which is a symbolic link to nothing, '.*link'\.$"
    with pytest.raises(NotADirectoryError, match=message):
        check_target("out", tmp_path / "link" / "a")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_a_folder_that_cannot_be_made_is_told():
    message = r"^/proc/run must be a folder that can be made, and it cannot: No such file or directory\.$"
    with pytest.raises(OSError, match=message), lock_folder(Path("/proc/run")):
        raise AssertionError


def test_a_system_without_locks_does_without(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with lock_folder(tmp_path), lock_folder(tmp_path):
        assert os.listdir(tmp_path) == []


def test_a_file_that_a_library_writes_for_its_owner_alone_gets_the_usual_permissions(tmp_path):
    def write(path):
        (tmp_path / "new").touch(mode=0o600)
        os.replace(tmp_path / "new", path)

    (tmp_path / "plain").touch()
    with usual_permissions(tmp_path / "file"):
        write(tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
