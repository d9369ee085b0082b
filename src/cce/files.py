"""Files that are written whole or not at all, and folders that one process at a time works in (no torch).

A lock belongs to the process that holds it: the system releases it when that process ends, however it ends. On a
shared file system it holds between machines where the system's `flock` does; without `flock` there is no lock.
"""

import errno
import importlib.util
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

LOCK = ".lock"
MAX_TRIES = 1000  # to make a folder that others remove meanwhile
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# -- atomic writing ----------------------------------------------------------------------------------------------------


def check_target(name: str, path: Path) -> None:
    """Reject a path that cannot become a file: a folder, a device, or a path below a file. `name` is the argument."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {str(path)!r}.")
    if path.exists() and not path.is_file():
        raise OSError(f"{name} must be a file, got the device {str(path)!r}.")
    above = no_folder(path.parent)
    if above is not None:
        raise NotADirectoryError(f"{name} must lie in a folder, got {str(path)!r}, above which is {above}.")


def no_folder(path: Path) -> str | None:
    """What is in the way of a folder, if anything: the first of the path and those above it that is no folder."""
    found = next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
    if found.is_dir():
        return None
    return f"the file {str(found)!r}" if found.exists() else f"a symbolic link to nothing, {str(found)!r}"


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a temporary file to write, which becomes `path` at the end of the block; an error leaves the old file.

    Folders above it are made if they are missing, and removed again after an error. One of a full disk names `path`.
    """
    made = _missing(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")  # two processes may write the same file
    try:
        with named_full_disk(path, temporary):
            yield temporary
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        _remove_empty(made)
        raise


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill, which becomes `path` at the end of the block; an error leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        with named_full_disk(path, temporary):
            yield temporary
        shutil.rmtree(path, ignore_errors=True)
        try:
            temporary.rename(path)
        except OSError:
            if not path.is_dir():  # or another process has just written it
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file; an interruption leaves the old file or the new one."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def named_full_disk(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let the error of a full disk name the file or folder that is written, if it names none or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def usual_permissions(path: Path) -> Iterator[None]:
    """Give a file that is written in the block the permissions of any new file; safetensors gives its owner's alone."""
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: Path) -> str:
    """The text of a file; one that is none is rejected by name."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, and it is not: {error.reason} at {error.start}.") from error


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
    made = _missing(folder) or ([folder] if temporary else [])
    with _acquire(folder, wait=wait) as file:
        since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
        file.flush()
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
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat()):
                return file
        file.close()  # the lock of a process that has just ended


def _open_lock(folder: Path) -> TextIO:
    """The lock file of a folder; both are made if missing, again if another process removes them in between."""
    last: OSError
    for _ in range(MAX_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / LOCK).open("a+", encoding="utf-8")
        except FileNotFoundError as error:
            last = error
        except (FileExistsError, NotADirectoryError) as error:
            last, other = error, no_folder(folder)
            if other is not None:
                raise NotADirectoryError(f"{folder} must be a folder, got {other}.") from None
    raise OSError(f"{folder} must be a folder that can be made, and it cannot: {last.strerror}.") from last


def _read_owner(file: TextIO) -> str:
    file.seek(0)
    try:
        owner = json.loads(file.read())
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # which has not written its name yet


def _missing(folder: Path) -> list[Path]:
    """Those of a folder and the folders above it that are not there, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that hold nothing, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
