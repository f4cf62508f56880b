"""Import from `.npz` files and Minari datasets, and export to Minari."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from covshift.data.array_files import read_arrays
from covshift.data.dataset import OTHER_COLUMNS, Episode
from covshift.data.dataset_writer import write_dataset
from covshift.data.format import MOST_ACTIONS, SHARD_TRANSITIONS
from covshift.data.manifest import Kept
from covshift.data.minari_export import write_apart
from covshift.errors import InputError
from covshift.extras import require
from covshift.schema import parse_json

_NAMESPACE = "namespace_metadata.json"
"""Minari's own file in each folder of datasets."""


def import_npz(
    path: Path,
    out: Path,
    policy: str | None = None,
    num_actions: int | None = None,
    shard_transitions: int = SHARD_TRANSITIONS,
) -> Path:
    """Makes a dataset from arrays `observations`, `actions`, `rewards`, `terminated`, `truncated` and `mu`.

    Each array has T + 1 rows per episode of T steps. The action and μ of an episode's last row are not used,
    and neither is the reward of its first.

    Args:
        path: the `.npz` file.
        out: folder of the new dataset.
        policy: name of the behavior policy, which gives μ if the file has no `mu`.
        num_actions: number of actions; by default one more than the largest action in the data.
        shard_transitions: a shard ends with the first episode after this many transitions.
    """
    arrays = _read_npz(path)
    ended = arrays["terminated"].astype(bool) | arrays["truncated"].astype(bool)
    if not len(ended) or not ended[-1]:
        raise InputError(f"{path}: the last row must end an episode: terminated or truncated")
    if num_actions is None:
        actions = arrays["actions"]
        if actions.dtype.kind not in "iu":
            raise InputError(f"{path}: actions must be whole numbers, but they are {actions.dtype}")
        num_actions = min(int(actions[~ended].max(initial=0)) + 1, MOST_ACTIONS)
    return write_dataset(
        out,
        _npz_episodes(arrays, ended),
        request={"source": path.name},
        num_actions=num_actions,
        stack=1,
        policy=policy,
        shard_transitions=shard_transitions,
    )


def import_minari(
    name: str,
    out: Path,
    policy: str | None = None,
    shard_transitions: int = SHARD_TRANSITIONS,
) -> Path:
    """Makes a dataset from a local Minari dataset, one episode in memory at a time.

    Args:
        name: name of the Minari dataset.
        out: folder of the new dataset.
        policy: name of the behavior policy, which gives μ if the dataset has no `infos["mu"]`.
        shard_transitions: a shard ends with the first episode after this many transitions.
    """
    dataset = _open_minari(name)
    if dataset.observation_space.shape is None:
        raise InputError(
            f"'{name}' has the observations {dataset.observation_space}, but arrays of one shape are needed"
        )
    if not isinstance(dataset.action_space, spaces.Discrete):
        raise InputError(
            f"'{name}' has the actions {dataset.action_space}, but Discrete(n) is needed"
        )
    kept = _kept_manifest(dataset, name)
    return write_dataset(
        out,
        _minari_episodes(dataset, OTHER_COLUMNS if kept else ()),
        request=dict(kept["request"]) if kept else {"source": name},
        num_actions=int(dataset.action_space.n),
        stack=kept["observation"]["stack"] if kept else 1,
        policy=policy,
        shard_transitions=shard_transitions,
    )


def has_mu(name: str) -> bool:
    """Whether a local Minari dataset holds μ(a|s), in `infos["mu"]` of its first episode."""
    first = next(iter(_open_minari(name).iterate_episodes()), None)
    return first is not None and "mu" in (first.infos or {})


def export_minari(folder: Path, name: str) -> str:
    """Writes a local Minari dataset (HDF5) with the same episodes; μ and further columns are in its infos.

    Its description keeps the policies, actions and stack of the manifest, so that importing it gives the same
    dataset again.
    """
    _minari()
    _check_name(name)
    home = Path(importlib.import_module("minari.storage").get_dataset_path(name))
    if home.exists():
        raise InputError(
            f"there is a Minari dataset '{name}' already; name another one, or remove that one with "
            f"minari delete {name}, or its folder {home} if it is unfinished"
        )
    new = [parent for parent in home.parents[: name.count("/")] if not parent.exists()]
    try:
        write_apart(folder, name)
    except BaseException:
        # Minari leaves an unfinished folder behind, which breaks every later listing.
        shutil.rmtree(home, ignore_errors=True)
        for namespace in new:
            # It may hold another dataset by now.
            if {path.name for path in namespace.glob("*")} <= {_NAMESPACE}:
                shutil.rmtree(namespace, ignore_errors=True)
        raise
    return name


def _check_name(name: str) -> None:
    """Refuses names that Minari does not know, before it makes folders, which it would do anywhere."""
    if not re.fullmatch(r"([\w-]+/)*[\w-]+-v[0-9]+", name):
        raise InputError(
            f"'{name}' is no name of a Minari dataset; it is made of letters, digits and - and ends in a version, such "
            "as mine/pong-random-v0"
        )


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the file, all with as many rows as `observations`."""
    needed = {"observations", "actions", "rewards", "terminated", "truncated"}
    arrays = read_arrays(path, needed | {"mu"})
    if not needed <= set(arrays):
        raise InputError(f"{path} lacks {', '.join(sorted(needed - set(arrays)))}")
    if arrays["observations"].ndim == 0:
        raise InputError(f"{path}: observations is a single number, but it needs a row per state")
    size = len(arrays["observations"])
    for name, values in arrays.items():
        if name != "observations" and values.ndim != 1:
            raise InputError(f"{path}: {name} has shape {values.shape}, but one axis is needed")
        if len(values) != size:
            raise InputError(f"{path}: {name} has {len(values)} rows, but observations has {size}")
    return arrays


def _npz_episodes(arrays: dict[str, NDArray[Any]], ended: NDArray[np.bool_]) -> Iterator[Episode]:
    start = 0
    for end in np.flatnonzero(ended).tolist():
        if end == start:
            raise InputError(f"row {end} is an episode without a step")
        yield Episode(
            arrays["observations"][start : end + 1],
            arrays["actions"][start:end],
            arrays["rewards"][start + 1 : end + 1],
            arrays["mu"][start:end] if "mu" in arrays else None,
            bool(arrays["terminated"][end]),
        )
        start = end + 1


def _minari_episodes(dataset: Any, other: tuple[str, ...]) -> Iterator[Episode]:
    for number, episode in enumerate(dataset.iterate_episodes()):
        infos = episode.infos or {}
        if missing := set(other) - set(infos):
            raise InputError(f"episode {number} lacks the infos {', '.join(sorted(missing))}")
        mu = infos.get("mu")
        yield Episode(
            np.asarray(episode.observations),
            np.asarray(episode.actions),
            np.asarray(episode.rewards, dtype=np.float64),
            None if mu is None else np.asarray(mu)[: len(episode.actions)],
            bool(episode.terminations[-1]),
            {name: np.asarray(infos[name]) for name in other},
        )


def _kept_manifest(dataset: Any, name: str) -> Kept | None:
    """What `export_minari` wrote into the description; None for other datasets, which may say anything there."""
    text = dataset.storage.metadata.get("description")
    try:
        is_ours = set(json.loads(text or "")) == set(Kept.__annotations__)
    except (TypeError, ValueError, RecursionError):
        return None
    return parse_json(text, Kept, f"the description of '{name}'") if is_ours else None


def _open_minari(name: str) -> Any:
    try:
        return _minari().load_dataset(name)
    except (ValueError, OSError) as error:
        raise InputError(f"the Minari dataset '{name}' cannot be opened: {error}") from error


def _minari() -> Any:
    require("minari")
    import minari

    return minari
