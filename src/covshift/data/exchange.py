"""Import from `.npz` arrays and Minari datasets, and export to Minari."""

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

from covshift.data.episodes import Episode, Source, write_episodes
from covshift.data.format import SHARD_TRANSITIONS, read_manifest
from covshift.data.store import Store
from covshift.errors import InputError

_EXTRA = ("policy", "life_lost", "stream", "episode")
"""Columns that a foreign dataset does not have."""

_KEPT = ("num_actions", "observation", "request")
"""What an export keeps of the manifest."""


def import_npz(
    path: Path,
    out: Path,
    policy: str | None = None,
    num_actions: int | None = None,
    shard_transitions: int = SHARD_TRANSITIONS,
) -> Path:
    """A dataset from arrays `observations` (T + 1 rows an episode), `actions`, `rewards`, `terminated`,
    `truncated` (a row each; those of an episode's last row are not used but for its end) and `mu`.

    Args:
        path: the file.
        out: the new folder.
        policy: gives μ where the file has no `mu`.
        num_actions: of the environment; by default one more than the largest action in the data.
        shard_transitions: a shard ends with the first episode after this many.
    """  # noqa: D205
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
    ended = arrays["terminated"].astype(bool) | arrays["truncated"].astype(bool)
    if not size or not ended[-1]:
        raise InputError(f"{path}: the last row must end an episode: terminated or truncated")
    if num_actions is None:
        num_actions = _largest_action(path, arrays["actions"], ended) + 1
    source = Source({"source": path.name}, num_actions)
    return write_episodes(out, _npz_episodes(arrays, ended), source, policy, shard_transitions)


def import_minari(
    name: str,
    out: Path,
    policy: str | None = None,
    shard_transitions: int = SHARD_TRANSITIONS,
) -> Path:
    """A dataset from a local Minari dataset, an episode at a time; μ from `infos["mu"]`, else from a policy."""
    dataset = _open_minari(name)
    if dataset.observation_space.shape is None:
        raise InputError(
            f"'{name}' has the observations {dataset.observation_space}, but arrays of one shape are needed"
        )
    if not isinstance(dataset.action_space, spaces.Discrete):
        raise InputError(
            f"'{name}' has the actions {dataset.action_space}, but Discrete(n) is needed"
        )
    kept = _described(dataset)
    source = Source(
        kept["request"] if kept else {"source": name},
        int(dataset.action_space.n),
        kept["observation"]["stack"] if kept else 1,
    )
    episodes = _minari_episodes(dataset, _EXTRA if kept else ())
    return write_episodes(out, episodes, source, policy, shard_transitions)


def has_mu(name: str) -> bool:
    """Whether a local Minari dataset holds μ(a|s), in `infos["mu"]` of its first episode."""
    first = next(iter(_open_minari(name).iterate_episodes()), None)
    return first is not None and "mu" in (first.infos or {})


def export_minari(folder: Path, name: str) -> str:
    """A local Minari dataset (HDF5) with the same episodes; μ and the other columns are in infos.

    What the manifest says of policies, actions and stacks is in the description, so that an import gives
    the same dataset again.
    """
    minari = _minari()
    manifest, store = read_manifest(folder), Store.open(folder)
    if name in minari.list_local_datasets():
        raise InputError(
            f"there is a Minari dataset '{name}' already; name another one, or remove that one with "
            f"minari delete {name}"
        )
    shape = tuple(manifest["observation"]["shape"])
    dtype = np.dtype(manifest["observation"]["dtype"])
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
                buffer=_buffers(store),
                observation_space=observations,
                action_space=spaces.Discrete(store.num_actions),
                data_format="hdf5",
                jpeg_encoding=False,
                algorithm_name="covshift",
                description=json.dumps({key: manifest[key] for key in _KEPT}),
            )
        except ValueError as error:
            raise InputError(f"Minari refuses the dataset '{name}': {error}") from error
    return name


def _buffers(store: Store) -> Iterator[Any]:
    """Minari's episodes, one in memory at a time."""
    from minari.data_collector import EpisodeBuffer

    column = store.columns
    starts = np.flatnonzero(column["is_initial"]).tolist()
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(store)], strict=True)):
        steps, arrivals = slice(start, stop - 1), slice(start + 1, stop)
        infos = {key: column[key][start:stop] for key in _EXTRA}
        infos["mu"] = np.nan_to_num(column["mu"][start:stop])
        yield EpisodeBuffer(
            id=number,
            observations=_frames(store, np.arange(start, stop)),
            actions=column["action"][steps].astype(np.int64),
            rewards=column["reward"][arrivals].astype(np.float64),
            terminations=column["terminated"][arrivals],
            truncations=column["truncated"][arrivals],
            infos=infos,
        )


def _described(dataset: Any) -> dict[str, Any] | None:
    """What an export of ours wrote into the description; None for other datasets."""
    try:
        kept = json.loads(dataset.storage.metadata.get("description") or "")
    except (TypeError, ValueError):
        return None
    return kept if isinstance(kept, dict) and set(kept) == set(_KEPT) else None


def _frames(store: Store, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Single observations, also where states are stacks."""
    states = store.states(rows)
    return np.asarray(states[:, -1] if store.stack > 1 else states)


def _npz_episodes(arrays: dict[str, NDArray[Any]], ended: NDArray[np.bool_]) -> Iterator[Episode]:
    start = 0
    for end in np.flatnonzero(ended).tolist():
        steps, arrivals = slice(start, end), slice(start + 1, end + 1)
        if end == start:
            raise InputError(f"row {end} is an episode of no step")
        yield Episode(
            arrays["observations"][start : end + 1],
            arrays["actions"][steps],
            arrays["rewards"][arrivals],
            arrays["mu"][steps] if "mu" in arrays else None,
            bool(arrays["terminated"][end]),
        )
        start = end + 1


def _largest_action(path: Path, actions: NDArray[Any], ended: NDArray[np.bool_]) -> int:
    if actions.dtype.kind not in "iu":
        raise InputError(f"{path}: actions must be whole numbers, but they are {actions.dtype}")
    return int(actions[~ended].max(initial=0))


def _minari_episodes(dataset: Any, extra: tuple[str, ...]) -> Iterator[Episode]:
    for episode in dataset.iterate_episodes():
        infos = episode.infos or {}
        mu = infos.get("mu")
        yield Episode(
            np.asarray(episode.observations),
            np.asarray(episode.actions),
            np.asarray(episode.rewards, dtype=np.float64),
            None if mu is None else np.asarray(mu)[: len(episode.actions)],
            bool(episode.terminations[-1]),
            {key: np.asarray(infos[key]) for key in extra},
        )


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
