"""Checkpoints: tensors as safetensors, the rest as JSON, written whole or not at all; nothing in them is code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
from safetensors import SafetensorError

from covshift.errors import InputError
from covshift.files import CHECKSUMS, PARTIAL, sha256, sync, write_checksums
from covshift.learners.deep import LearnerState

_TENSORS, _VALUES = "tensors.safetensors", "state.json"
_KEPT = 2


class Checkpoint(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        path: its folder.
        state: what it holds.
        damaged: newer checkpoints that were passed over, with what is wrong with them.
    """

    path: Path
    state: LearnerState
    damaged: list[str]


def write_checkpoint(folder: Path, update: int, state: LearnerState) -> None:
    """Writes a checkpoint, and removes all but the newest two."""
    path = folder / f"update-{update:09d}"
    partial = path.with_name(f"{path.name}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    safetensors.torch.save_file(state.tensors, partial / _TENSORS)
    (partial / _VALUES).write_text(json.dumps(state.values, indent=1, sort_keys=True) + "\n")
    write_checksums(partial, [_TENSORS, _VALUES])
    for written in (partial / _TENSORS, partial / _VALUES, partial / CHECKSUMS, partial):
        sync(written)
    if path.exists():
        # Saved twice at one update: the older checkpoint stays whole until the newer one replaces it.
        old = path.with_name(f"{path.name}.old{PARTIAL}")
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    partial.rename(path)
    sync(folder)
    for left in [*folder.glob(f"*{PARTIAL}"), *_listed(folder)[:-_KEPT]]:
        shutil.rmtree(left)


def has_checkpoint(folder: Path) -> bool:
    """Whether one was ever finished; a run that was killed before its first has none."""
    return bool(_listed(folder))


def read_checkpoint(folder: Path) -> Checkpoint:
    """The newest checkpoint that is whole.

    Raises:
        InputError: there is none; damaged ones are named.
    """
    damaged: list[str] = []
    for path in reversed(_listed(folder)):
        try:
            return Checkpoint(path, _read(path), damaged)
        except (InputError, OSError, ValueError, SafetensorError) as error:
            damaged.append(f"{path}: {error}")
    if damaged:
        raise InputError(f"no checkpoint is whole: {'; '.join(damaged)}")
    raise InputError(f"{folder} holds no checkpoint yet")


def _read(path: Path) -> LearnerState:
    checksums = (path / CHECKSUMS).read_text()
    for name in (_TENSORS, _VALUES):
        if f"{sha256(path / name)}  {name}\n" not in checksums:
            raise InputError(f"{name} does not have the hash that {CHECKSUMS} says")
    values = json.loads((path / _VALUES).read_text())
    return LearnerState(safetensors.torch.load_file(path / _TENSORS), values)


def _listed(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("update-*") if path.suffix != PARTIAL)
