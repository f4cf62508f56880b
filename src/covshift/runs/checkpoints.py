"""Checkpoints: tensors as safetensors, the rest as JSON, written whole or not at all; nothing in them is code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, NotRequired

import safetensors.torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor
from typing_extensions import TypedDict

from covshift.errors import InputError
from covshift.files import CHECKSUMS, PARTIAL, ordinary_file, sha256, sync, write_checksums
from covshift.learners.deep import LearnerState
from covshift.schema import read_json

_TENSORS, _VALUES = "tensors.safetensors", "state.json"
_KEPT = 2


Natural = Annotated[int, Field(ge=0)]


class GeneratorWords(TypedDict):
    """The two numbers of 128 bits of a generator PCG64."""

    state: Natural
    inc: Natural


class GeneratorState(TypedDict):
    """The state of a NumPy generator."""

    bit_generator: Literal["PCG64"]
    state: GeneratorWords
    has_uint32: Natural
    uinteger: Natural


class SamplerState(TypedDict):
    """The state of a sampler, without its priorities."""

    window: Annotated[list[Natural], Field(min_length=2, max_length=2)]
    rng: GeneratorState
    tempering: NotRequired[float]


class ListSamplerState(TypedDict):
    """What a sampler of a list of rows saves."""

    rng: GeneratorState


class Values(TypedDict):
    """The content of `state.json`: all of a run that is not a tensor.

    Attributes:
        shards: number of shards of the agent's own data that it has taken in; runs on other data have none.
        metrics_size: bytes of `metrics.csv`, with their hash `metrics_sha256`.
    """

    update: Natural
    mean_weight: float | None
    sums: list[float]
    count: Natural
    value_sampler: SamplerState
    ratio_sampler: SamplerState | None
    end_sampler: NotRequired[ListSamplerState | None]
    new_priority: float | None
    shards: NotRequired[Natural]
    metrics_size: Natural
    metrics_sha256: NotRequired[str]
    state_shape: list[Annotated[int, Field(ge=1, le=2**26)]]
    num_actions: Annotated[int, Field(ge=1, le=2**15)]


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
    try:
        partial.mkdir(parents=True)
        _write_tensors(partial / _TENSORS, state.tensors)
        (partial / _VALUES).write_text(json.dumps(state.values, indent=1, sort_keys=True) + "\n")
        # safetensors lets nobody else read its file.
        shutil.copymode(partial / _VALUES, partial / _TENSORS)
        write_checksums(partial, [_TENSORS, _VALUES])
        for written in (partial / _TENSORS, partial / _VALUES, partial / CHECKSUMS, partial):
            sync(written)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        # Saved twice at one update: the older checkpoint stays whole until the newer one replaces it.
        old = path.with_name(f"{path.name}.old{PARTIAL}")
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    partial.rename(path)
    sync(folder)
    for left in [*folder.glob(f"*{PARTIAL}"), *_listed(folder)[:-_KEPT]]:
        shutil.rmtree(left)


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        safetensors.torch.save_file(tensors, path)
    except SafetensorError as error:  # As on a full disk.
        raise OSError(f"{path} cannot be written: {error}") from error


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
        except (InputError, OSError, ValueError, KeyError, SafetensorError) as error:
            damaged.append(f"{path}: {error}")
    if damaged:
        raise InputError(f"no checkpoint is whole: {'; '.join(damaged)}")
    raise InputError(f"{folder} holds no checkpoint yet")


def _read(path: Path) -> LearnerState:
    checksums = ordinary_file(path / CHECKSUMS).read_text()
    for name in (_TENSORS, _VALUES):
        ordinary_file(path / name)
        if f"{sha256(path / name)}  {name}\n" not in checksums:
            raise InputError(f"{name} does not have the hash that {CHECKSUMS} says")
    # Losses may be infinite, and a generator's state has numbers of 128 bits.
    values = read_json(path / _VALUES, Values, finite=False, largest=2**128)
    return LearnerState(safetensors.torch.load_file(path / _TENSORS), dict(values))


def _listed(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("update-*") if path.suffix != PARTIAL)
