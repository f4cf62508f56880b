"""Import from `.npz` files and Minari datasets, and export to Minari."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from covshift.data.dataset import OTHER_COLUMNS, Dataset, Episode, open_dataset
from covshift.data.dataset_writer import write_dataset
from covshift.data.format import SHARD_TRANSITIONS
from covshift.errors import InputError

_KEPT = ("num_actions", "observation", "request")
"""Entries of the manifest that an export to Minari keeps in its description."""


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
        num_actions = int(actions[~ended].max(initial=0)) + 1
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
    kept = _kept_manifest(dataset)
    return write_dataset(
        out,
        _minari_episodes(dataset, OTHER_COLUMNS if kept else ()),
        request=kept["request"] if kept else {"source": name},
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
    minari = _minari()
    dataset = open_dataset(folder)
    if name in minari.list_local_datasets():
        raise InputError(
            f"there is a Minari dataset '{name}' already; name another one, or remove that one with "
            f"minari delete {name}"
        )
    shape, dtype = dataset.store.codec.shape, dataset.store.codec.dtype
    if dtype == np.bool_:
        observations: Any = spaces.MultiBinary(shape)
    else:
        limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        observations = spaces.Box(limits.min, limits.max, shape, dtype.type)
    with warnings.catch_warnings():
        # Minari warns of each optional field that is left out: permalink, author, e-mail, environment.
        warnings.simplefilter("ignore", UserWarning)
        try:
            minari.create_dataset_from_buffers(
                name,
                buffer=_buffers(dataset),
                observation_space=observations,
                action_space=spaces.Discrete(dataset.store.num_actions),
                data_format="hdf5",
                jpeg_encoding=False,
                algorithm_name="covshift",
                description=json.dumps({key: dataset.manifest[key] for key in _KEPT}),
            )
        except ValueError as error:
            raise InputError(f"Minari refuses the dataset '{name}': {error}") from error
    return name


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the file, all with as many rows as `observations`."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, TypeError, AttributeError, BadZipFile) as error:
        raise InputError(f"{path} cannot be read as .npz: {error}") from error
    needed = {"observations", "actions", "rewards", "terminated", "truncated"}
    if not needed <= set(arrays):
        raise InputError(f"{path} lacks {', '.join(sorted(needed - set(arrays)))}")
    size = len(arrays["observations"]) if arrays["observations"].ndim else 0
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
    for episode in dataset.iterate_episodes():
        infos = episode.infos or {}
        mu = infos.get("mu")
        yield Episode(
            np.asarray(episode.observations),
            np.asarray(episode.actions),
            np.asarray(episode.rewards, dtype=np.float64),
            None if mu is None else np.asarray(mu)[: len(episode.actions)],
            bool(episode.terminations[-1]),
            {name: np.asarray(infos[name]) for name in other},
        )


def _buffers(dataset: Dataset) -> Iterator[Any]:
    """Minari's episodes, one in memory at a time."""
    from minari.data_collector import EpisodeBuffer

    for number, episode in enumerate(dataset):
        is_last = np.arange(len(episode)) == len(episode) - 1
        yield EpisodeBuffer(
            id=number,
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=is_last & episode.terminated,
            truncations=is_last & episode.truncated,
            infos=episode.other | {"mu": np.append(np.asarray(episode.mu), np.float32(0))},
        )


def _kept_manifest(dataset: Any) -> dict[str, Any] | None:
    """What `export_minari` wrote into the description; None for other datasets."""
    try:
        kept = json.loads(dataset.storage.metadata.get("description") or "")
    except (TypeError, ValueError):
        return None
    return kept if isinstance(kept, dict) and set(kept) == set(_KEPT) else None


def _open_minari(name: str) -> Any:
    try:
        return _minari().load_dataset(name)
    except (ValueError, OSError) as error:
        raise InputError(f"the Minari dataset '{name}' cannot be opened: {error}") from error


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise InputError("Minari needs the extra: pip install 'covshift[minari]'") from error
    return minari
