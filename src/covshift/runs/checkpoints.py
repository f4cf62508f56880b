"""Checkpoints: tensors as safetensors, the rest as JSON, written whole or not at all; nothing in them is code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from covshift.errors import InputError
from covshift.files import CHECKSUMS, sha256, sync, write_checksums

_TENSORS, _STATE = "tensors.safetensors", "state.json"
_KEPT = 2


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        path: its folder.
        tensors: by name.
        state: plain values.
        damaged: newer checkpoints that were passed over, with what is wrong with them.
    """

    path: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    damaged: list[str]


def write_checkpoint(
    folder: Path, update: int, tensors: dict[str, Tensor], state: dict[str, Any]
) -> Path:
    """Writes a checkpoint, and removes all but the newest two."""
    place = folder / f"update-{update:09d}"
    partial = folder / f"{place.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    safetensors.torch.save_file(tensors, partial / _TENSORS)
    (partial / _STATE).write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    write_checksums(partial, [_TENSORS, _STATE])
    for path in (partial / _TENSORS, partial / _STATE, partial / CHECKSUMS, partial):
        sync(path)
    if place.exists():
        # Saved twice at one update; the older one stays whole until the newer one is in its place.
        old = folder / f"{place.name}.old.partial"
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    partial.rename(place)
    sync(folder)
    for left in folder.glob("*.partial"):
        shutil.rmtree(left)
    for old in _listed(folder)[:-_KEPT]:
        shutil.rmtree(old)
    return place


def has_checkpoint(folder: Path) -> bool:
    """Whether one was ever finished; a run that was killed before its first has none."""
    return bool(_listed(folder))


def read_checkpoint(folder: Path) -> Checkpoint:
    """The newest checkpoint that is whole.

    Raises:
        InputError: there is none; damaged ones are named.
    """
    damaged: list[str] = []
    for place in reversed(_listed(folder)):
        try:
            tensors, state = _read(place)
        except (InputError, OSError, ValueError, SafetensorError) as error:
            damaged.append(f"{place}: {error}")
            continue
        return Checkpoint(place, tensors, state, damaged)
    if damaged:
        raise InputError(f"no checkpoint is whole: {'; '.join(damaged)}")
    raise InputError(f"{folder} holds no checkpoint yet")


def tensors_under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names start with the prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _read(place: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    said = (place / CHECKSUMS).read_text()
    for name in (_TENSORS, _STATE):
        if f"{sha256(place / name)}  {name}\n" not in said:
            raise InputError(f"{name} does not have the hash that {CHECKSUMS} says")
    return safetensors.torch.load_file(place / _TENSORS), json.loads((place / _STATE).read_text())


def _listed(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("update-*") if path.suffix != ".partial")
