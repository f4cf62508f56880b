"""The manifest of a dataset: what it holds, how it was made, and which files belong to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from covshift.data.codec import FrameCodec, encoding_of
from covshift.data.format import count_shard, shard_name
from covshift.errors import InputError
from covshift.files import write_checksums, write_json

FORMAT_VERSION = 1
MANIFEST, DICTIONARY = "manifest.json", "dictionary.zstd"


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
    """Writes the manifest, with its shards and totals, and the checksums of all files of the dataset."""
    names = [shard_name(index) for index in range(num_shards)]
    counts = [count_shard(folder / name) for name in names]
    shards = [{"file": name} | count for name, count in zip(names, counts, strict=True)]
    totals = {key: sum(count[key] for count in counts) for key in counts[0]}
    write_json(folder / MANIFEST, manifest | {"shards": shards, "totals": totals})
    if (folder / DICTIONARY).is_file():
        names.append(DICTIONARY)
    write_checksums(folder, sorted([MANIFEST, *names]))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished dataset.

    Raises:
        InputError: there is no dataset, it is not finished, or its manifest cannot be used.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} is not a covshift dataset: it has no {MANIFEST}")
    manifest = parse_manifest(path)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {manifest.get('format_version')}, but this version of covshift "
            f"reads {FORMAT_VERSION}"
        )
    if "shards" not in manifest:
        raise InputError(f"{folder} is not finished: run the command that made it again")
    missing = {"request", "observation", "num_actions", "totals"} - set(manifest)
    if missing:
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    return manifest


def parse_manifest(path: Path) -> dict[str, Any]:
    """The content of a manifest, finished or not.

    Raises:
        InputError: the file is not a JSON object.
    """
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{path} is not a manifest: it holds {type(manifest).__name__}")
    return manifest


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
            _flatten(entry, f"{name}.") if isinstance(entry, dict) else {name: json.dumps(entry)}
        )
    return flat


def read_codec(folder: Path, manifest: dict[str, Any]) -> FrameCodec:
    """The codec of a dataset's observations."""
    observation = manifest["observation"]
    dictionary = folder / DICTIONARY
    return FrameCodec(
        tuple(observation["shape"]),
        np.dtype(observation["dtype"]),
        dictionary.read_bytes() if dictionary.is_file() else None,
    )
