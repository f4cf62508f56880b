"""The manifest of a dataset: what it holds, how it was made, and which files belong to it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from covshift.data.codec import LARGEST, FrameCodec, encoding_of
from covshift.data.format import MOST_ACTIONS, count_shard, shard_name
from covshift.errors import InputError
from covshift.files import (
    DIGEST,
    ordinary_file,
    read_digest,
    write_checksums,
    write_json,
)
from covshift.schema import read_json

FORMAT_VERSION = 1
MANIFEST, DICTIONARY = "manifest.json", "dictionary.zstd"

_LARGEST_DICTIONARY = 2**24

Natural = Annotated[int, Field(ge=0)]


def _check_file(name: str) -> str:
    if not re.fullmatch(r"shard-[0-9]{5,9}\.arrow", name):
        raise ValueError(f"a shard is named like {shard_name(0)}, but it is {name[:60]!r}")
    return name


def _check_version(version: int) -> int:
    if version != FORMAT_VERSION:
        raise ValueError(
            f"it has format version {version}, but this version of covshift reads {FORMAT_VERSION}"
        )
    return version


def _check_observation(observation: Observation) -> Observation:
    shape = observation["shape"]
    try:
        dtype = np.dtype(observation["dtype"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"dtype {observation['dtype'][:60]!r} is no type of numbers") from error
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype must be a type of numbers, but it is {dtype.name!r}")
    if not 0 < math.prod(shape) * dtype.itemsize <= LARGEST:
        raise ValueError(
            f"an observation of shape {shape[:8]} and type {dtype.name} must have 1 to {LARGEST:,} bytes"
        )
    if observation["encoding"] != encoding_of(tuple(shape), dtype):
        raise ValueError(f"encoding {observation['encoding']!r} does not fit shape and dtype")
    return observation


class Observation(TypedDict):
    """An observation's shape and type, how it is stored, and how many of the newest make a state."""

    shape: list[Natural]
    dtype: str
    encoding: str
    stack: Annotated[int, Field(ge=1, le=256)]


class Request(TypedDict):
    """How a dataset was made: `env` and what follows for one that was collected, `source` for one that was imported."""

    policies: list[dict[str, str]]
    env: NotRequired[str]
    transitions: NotRequired[int]
    seed: NotRequired[int]
    envs: NotRequired[int]
    options: NotRequired[dict[str, int | float | None]]
    shard_transitions: NotRequired[int]
    shares: NotRequired[list[float]]
    source: NotRequired[str]


class Counts(TypedDict):
    """What a dataset holds in all."""

    rows: Natural
    transitions: Natural
    episodes: Natural


class Shard(Counts):
    """What a file holds."""

    file: Annotated[str, AfterValidator(_check_file)]


class Manifest(TypedDict):
    """The content of `manifest.json`; an unfinished dataset has no shards and no totals."""

    format_version: Annotated[int, AfterValidator(_check_version)]
    request: Request
    num_actions: Annotated[int, Field(ge=1, le=MOST_ACTIONS)]
    observation: Annotated[Observation, AfterValidator(_check_observation)]
    versions: NotRequired[dict[str, str]]
    shards: NotRequired[list[Shard]]
    totals: NotRequired[Counts]


class Kept(TypedDict):
    """The part of a manifest that an export to Minari keeps in its description."""

    request: Request
    num_actions: Annotated[int, Field(ge=1, le=MOST_ACTIONS)]
    observation: Annotated[Observation, AfterValidator(_check_observation)]


def make_manifest(
    request: dict[str, Any],
    num_actions: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    stack: int,
) -> dict[str, Any]:
    """The manifest of a dataset without its shards.

    Args:
        request: how the dataset is made, with an entry `policies`.
        num_actions: number of actions of the environment.
        shape: shape of an observation.
        dtype: type of its values.
        stack: how many of the newest observations make a state.
    """
    return {
        "format_version": FORMAT_VERSION,
        "request": request,
        "num_actions": num_actions,
        "observation": {
            "shape": list(shape),
            "dtype": dtype.name,
            "encoding": encoding_of(shape, dtype),
            "stack": stack,
        },
    }


def finish_dataset(folder: Path, manifest: dict[str, Any], num_shards: int) -> None:
    """Writes the manifest, with its shards and totals, and the checksums of all files of the dataset.

    The checksums of shards are those that were taken when they were written, so that damage since then shows.
    """
    names = [shard_name(index) for index in range(num_shards)]
    counts = [count_shard(folder / name) for name in names]
    shards = [{"file": name} | count for name, count in zip(names, counts, strict=True)]
    totals = {key: sum(count[key] for count in counts) for key in counts[0]}
    write_json(folder / MANIFEST, manifest | {"shards": shards, "totals": totals})
    if (folder / DICTIONARY).is_file():
        names.append(DICTIONARY)
    known = {name: digest for name in names if (digest := read_digest(folder / name))}
    write_checksums(folder, sorted([MANIFEST, *names]), known)
    remove_digests(folder)


def remove_digests(folder: Path) -> None:
    """Removes the hashes beside single files, which the checksums of a finished dataset replace."""
    for path in folder.glob(f"*{DIGEST}"):
        if path.with_suffix("").suffix in (".arrow", ".zstd"):
            path.unlink()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished dataset.

    Raises:
        InputError: there is no dataset, it is not finished, or its manifest cannot be used.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} is not a covshift dataset: it has no {MANIFEST}")
    manifest = parse_manifest(path)
    if not manifest.get("shards") or "totals" not in manifest:
        raise InputError(f"{folder} is not finished: run the command that made it again")
    return manifest


def parse_manifest(path: Path) -> dict[str, Any]:
    """The content of a manifest, finished or not.

    Raises:
        InputError: the content does not fit `Manifest`; the message names the file and the key.
    """
    return dict(read_json(path, Manifest))


def manifest_differences(there: dict[str, Any], here: dict[str, Any]) -> dict[str, str]:
    """The entries in which another manifest differs from this one, such as {"seed": "0 there, 1 here"}.

    Entries that only the other one has, such as its shards, do not count.
    """
    wanted = json.loads(json.dumps(here))
    theirs, ours = _flatten({key: there.get(key) for key in wanted}), _flatten(wanted)
    return {
        key.removeprefix(
            "request."
        ): f"{theirs.get(key, 'none')} there, {ours.get(key, 'none')} here"
        for key in sorted(theirs | ours)
        if theirs.get(key) != ours.get(key)
    }


def _flatten(value: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested entries by their dotted names, each as JSON."""
    flat: dict[str, str] = {}
    for key, entry in value.items():
        name = f"{prefix}{key}"
        flat |= (
            _flatten(entry, f"{name}.")
            if isinstance(entry, dict)
            else {name: json.dumps(entry, sort_keys=True)}
        )
    return flat


def read_codec(folder: Path, manifest: dict[str, Any]) -> FrameCodec:
    """The codec of a dataset's observations."""
    observation = manifest["observation"]
    shape, dtype = tuple(observation["shape"]), np.dtype(observation["dtype"])
    if encoding_of(shape, dtype) != "zstd":
        return FrameCodec(shape, dtype)
    dictionary = ordinary_file(folder / DICTIONARY)
    if dictionary.stat().st_size > _LARGEST_DICTIONARY:
        raise InputError(f"{dictionary} is too large for a dictionary of frames")
    return FrameCodec(shape, dtype, dictionary.read_bytes())
