"""Files that are written whole or not at all, and folders that one process at a time works in (no torch).

A lock belongs to the process that holds it: the system releases it when that process ends, however it ends. On a
shared file system it holds between machines where the system's `flock` does; without `flock` there is no lock.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "FolderInUseError",
    "check_target",
    "clear_folder",
    "lock_folder",
    "replace_file",
    "usual_permissions",
    "write_atomic",
]

LOCK = ".lock"


# -- atomic writing ----------------------------------------------------------------------------------------------------


def check_target(name: str, path: Path) -> None:
    """Reject a path that cannot become a file: a folder, a device, or a place below a file. `name` is the argument."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {str(path)!r}.")
    if path.exists() and not path.is_file():
        raise OSError(f"{name} must be a file, got the device {str(path)!r}.")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise NotADirectoryError(f"{name} must lie in a folder, got {str(path)!r}, above which is a file.")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a temporary file to write, which becomes `path` at the end of the block; an error leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")  # two processes may write the same file
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file; an interruption leaves the old file or the new one."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def usual_permissions(path: Path) -> Iterator[None]:
    """Give a file that is written in the block the permissions of any new file; safetensors gives its owner's alone."""
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


# -- locks -------------------------------------------------------------------------------------------------------------


class FolderInUseError(OSError):
    """Another process works in the folder; the message names it."""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False, temporary: bool = False) -> Iterator[None]:
    """Work in a folder alone. If another process does, wait for it, or raise a `FolderInUseError` that names it.

    The folder is made if it is missing, and removed again if nothing is left in it. One that was there already is
    removed only if it is `temporary`.
    """
    if importlib.util.find_spec("fcntl") is None:  # Windows
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()] or ([folder] if temporary else [])
    with _acquire(folder, wait=wait) as file:
        _write_owner(file)
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)  # while it is ours: who waits for it finds it gone and tries again
            _remove_empty(made)


def clear_folder(folder: Path) -> None:
    """Remove everything in a folder but its lock."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _acquire(folder: Path, *, wait: bool) -> TextIO:
    """The lock file, locked."""
    import fcntl

    while True:
        file = _open_lock(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            with file:
                raise FolderInUseError(f"{folder} is in use by {_read_owner(file)}.") from None
        except BaseException:
            file.close()
            raise
        if _is_same_file(file, folder / LOCK):
            return file
        file.close()  # the lock of a process that has just ended


def _open_lock(folder: Path) -> TextIO:
    """The lock file of a folder; both are made if missing, again if another process removes them in between."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / LOCK).open("a+", encoding="utf-8")
        except FileNotFoundError:
            continue
        except FileExistsError:
            if folder.exists():
                raise NotADirectoryError(f"{folder} must be a folder, got a file.") from None


def _is_same_file(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write_owner(file: TextIO) -> None:
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    file.truncate(0)
    file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
    file.flush()


def _read_owner(file: TextIO) -> str:
    file.seek(0)
    try:
        owner = json.loads(file.read())
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # which has not written its name yet


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that hold nothing, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
