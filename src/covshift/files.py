"""Files that are written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKSUMS = "checksums.sha256"
"""The file of a folder that `sha256sum --check` reads."""

PARTIAL = ".partial"
"""How the names of unfinished files end."""


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to; it becomes `path` if the block succeeds and is removed if it fails.

    Readers see the old file or the new one, never a part of it. The name holds the process id, so that two
    processes never write to the same partial file.

    Args:
        path: the file to make or to replace.
        durable: also wait until the disk has it.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill; it becomes `path` if the block succeeds and is removed if it fails.

    What a killed process left behind is replaced.

    Args:
        path: the folder to make; it may exist if it is empty.
    """
    partial = path.with_name(f".{path.name}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file as UTF-8."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, its keys sorted."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Writes the checksums of some of a folder's files."""
    write_text(folder / CHECKSUMS, "".join(f"{sha256(folder / name)}  {name}\n" for name in names))


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
