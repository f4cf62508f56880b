"""Files that are written whole or not at all, their hashes, and what must hold before one is read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covshift.errors import InputError

CHECKSUMS = "checksums.sha256"
"""The file of a folder that `sha256sum --check` reads."""

PARTIAL = ".partial"
"""How the names of unfinished files end."""

DIGEST = ".sha256"
"""How the name of the file ends that holds the hash of one file, until the folder has its checksums."""


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to; it becomes `path` if the block succeeds and is removed if it fails.

    Readers see the old file or the new one, never a part of it. The name is drawn at random, so that two writers
    never write to the same partial file.

    Args:
        path: the file to make or to replace.
        durable: also wait until the disk has it.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not error.filename:
            error.filename = str(path)  # A full disk is reported without the file.
        raise


@contextmanager
def whole_folder(path: Path, *, existing: bool = False) -> Iterator[Path]:
    """A new folder to fill; it becomes `path` if the block succeeds and is removed if it fails.

    Each writer fills a folder of its own. What a killed process left behind is removed.

    Args:
        path: the folder to make; it may exist if it is empty.
        existing: allow a folder that holds something. The new files are then moved into it one by one; each
            replaces the file of its name, and others stay.

    Raises:
        InputError: the folder holds something, it is a file, or another process is writing it.
        KeyboardInterrupt: with a message that nothing was written, if it came before the block had ended.
    """
    check_folder(path)
    # A folder of the user's may lie in one that the user cannot write to.
    home = path if existing and path.is_dir() else path.parent
    missing = [folder for folder in (home, *home.parents) if not folder.exists()]
    home.mkdir(parents=True, exist_ok=True)
    with locked(home):
        for left in _partial_folders(home, path.name):
            if is_locked(left):
                raise InputError(f"another process is writing {path}; wait for it, or end it")
            shutil.rmtree(left)
        partial = home / f".{path.name}.{secrets.token_hex(4)}{PARTIAL}"
        partial.mkdir()
        handle = os.open(partial, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        try:
            yield partial
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"interrupted; nothing was written to {path}") from stop
        if home == path:
            for file in partial.iterdir():
                file.replace(path / file.name)
        else:
            _move(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(handle)
        for folder in missing:
            with contextlib.suppress(OSError):  # It is in use if the block succeeded.
                folder.rmdir()


def check_folder(path: Path) -> None:
    """Refuses a path that is a file, or lies below one, where a folder is to be."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"{part} is a file; name a folder")


def _move(partial: Path, path: Path) -> None:
    try:
        partial.replace(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise InputError(f"{path} exists already and is not empty; name another folder") from error


def _partial_folders(home: Path, name: str) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(name)}(\.[0-9a-f]{{8}})?{re.escape(PARTIAL)}")
    return [entry for entry in home.iterdir() if pattern.fullmatch(entry.name)]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder for this process; waits for another process that has locked it.

    The lock is on the folder itself, so that no file is added to it, and ends with the process.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def ordinary_file(path: Path) -> Path:
    """The path of a file that lies in its folder: no pipe, no device, and no link that leads out of the folder.

    Raises:
        InputError: it is something else, or is not there.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} cannot be read: it is not an ordinary file")
    if path.resolve().parent != path.parent.resolve():
        raise InputError(
            f"{path} is a link that leads out of its folder; put the file itself there"
        )
    return path


def write_text(path: Path, text: str) -> None:
    """Writes a text file as UTF-8."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, its keys sorted."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_checksums(
    folder: Path, names: Iterable[str], known: Mapping[str, str] | None = None
) -> None:
    """Writes the checksums of some of a folder's files.

    Args:
        folder: the folder.
        names: names of the files.
        known: hashes that were taken when a file was written, by its name; other files are hashed now.
    """
    digests = {name: (known or {}).get(name) or sha256(folder / name) for name in names}
    write_text(folder / CHECKSUMS, "".join(f"{digests[name]}  {name}\n" for name in digests))


def read_checksums(folder: Path) -> dict[str, str]:
    """The checksums of a folder's files, by their names.

    Raises:
        InputError: there are none, or the file is damaged.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder} has no {CHECKSUMS}: it is not finished, or a file was removed")
    listed = {}
    for line in path.read_text(errors="replace").removesuffix("\n").split("\n"):
        if not re.fullmatch(r"[0-9a-f]{64}  [^/\x00-\x1f]+", line):
            raise InputError(f"{path} is damaged: '{line[:80]}'")
        listed[line[66:]] = line[:64]
    return listed


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_digest(path: Path, digest: str) -> None:
    """Records the hash that a file has or is about to have, beside it."""
    write_text(path.with_name(path.name + DIGEST), f"{digest}  {path.name}\n")


def read_digest(path: Path) -> str | None:
    """The hash that was recorded for a file: beside it, or else in its folder's checksums; None if there is none."""
    beside = path.with_name(path.name + DIGEST)
    if beside.is_file():
        return beside.read_text(errors="replace")[:64]
    try:
        return read_checksums(path.parent).get(path.name)
    except InputError:
        return None


def is_whole(path: Path) -> bool:
    """Whether a file is there and has the hash that was recorded for it."""
    return path.is_file() and sha256(path) == read_digest(path)


def sync(path: Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
