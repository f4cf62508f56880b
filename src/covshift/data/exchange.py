"""Import from `.npz` arrays and Minari datasets, and export to Minari."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import (
    DICTIONARY,
    EPISODES_PER_SHARD,
    FORMAT_VERSION,
    MANIFEST,
    Rows,
    read_manifest,
    shard_name,
    stack_rows,
    write_checksums,
    write_json,
    write_shard,
)
from covshift.data.frames import FrameCodec, encoding_of, train_dictionary
from covshift.data.policies import parse_policy
from covshift.data.store import Store
from covshift.errors import InputError

_EXTRA = ("policy", "life_lost", "stream")
"""Columns that a foreign dataset need not have."""

_KEPT = ("num_actions", "observation", "request")
"""What an export keeps of the manifest."""


@final
@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps.

    Attributes:
        observations: T + 1 of them.
        actions: T.
        rewards: T.
        mu: T probabilities of the actions taken, or None where a policy gives them.
        terminated: whether it ended; else it was cut off.
        extra: further columns with T + 1 entries each: policy, life_lost, stream.
    """

    observations: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    mu: NDArray[np.float64] | None
    terminated: bool
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)


def import_npz(
    path: Path, out: Path, policy: str | None = None, num_actions: int | None = None
) -> Path:
    """A dataset from arrays `observations` (T + 1 rows an episode), `actions`, `rewards`, `terminated`,
    `truncated` (a row each; those of an episode's last row are not used but for its end) and `mu`.

    Args:
        path: the file.
        out: the new folder.
        policy: gives μ where the file has no `mu`.
        num_actions: of the environment; by default one more than the largest action in the data.
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
    return _write(out, _npz_episodes(arrays, ended), {"source": path.name}, policy, num_actions)


def import_minari(name: str, out: Path, policy: str | None = None) -> Path:
    """A dataset from a local Minari dataset; μ from `infos["mu"]`, else from a policy."""
    dataset = _minari().load_dataset(name)
    num_actions = int(dataset.action_space.n)
    kept = _described(dataset)
    source = kept["request"] if kept else {"source": name}
    stack = kept["observation"]["stack"] if kept else 1
    return _write(out, _minari_episodes(dataset), source, policy, num_actions, stack)


def export_minari(folder: Path, name: str) -> str:
    """A local Minari dataset (HDF5) with the same episodes; μ and the other columns are in infos.

    What the manifest says of policies, actions and stacks is in the description, so that an import gives
    the same dataset again.
    """
    minari = _minari()
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    manifest, store = read_manifest(folder), Store.open(folder)
    column = store.columns
    buffers = []
    starts = np.flatnonzero(column["is_initial"])
    for number, (start, stop) in enumerate(
        zip(starts, [*starts[1:].tolist(), len(store)], strict=True)
    ):
        steps, arrivals = slice(start, stop - 1), slice(start + 1, stop)
        infos = {key: column[key][start:stop] for key in _EXTRA}
        infos["mu"] = np.nan_to_num(column["mu"][start:stop])
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=_frames(store, np.arange(start, stop)),
                actions=column["action"][steps].astype(np.int64),
                rewards=column["reward"][arrivals].astype(np.float64),
                terminations=column["terminated"][arrivals],
                truncations=column["truncated"][arrivals],
                infos=infos,
            )
        )
    shape, dtype = (
        tuple(manifest["observation"]["shape"]),
        np.dtype(manifest["observation"]["dtype"]),
    )
    if dtype == np.bool_:
        observations: Any = spaces.MultiBinary(shape)
    else:
        limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        observations = spaces.Box(limits.min, limits.max, shape, dtype.type)
    with warnings.catch_warnings():
        # Minari warns of each optional field that is left out: permalink, author, e-mail, environment.
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers(
            name,
            buffer=buffers,
            observation_space=observations,
            action_space=spaces.Discrete(store.num_actions),
            data_format="hdf5",
            jpeg_encoding=False,
            algorithm_name="covshift",
            description=json.dumps({key: manifest[key] for key in _KEPT}),
        )
    return name


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


def _minari_episodes(dataset: Any) -> Iterator[Episode]:
    for episode in dataset.iterate_episodes():
        infos = episode.infos or {}
        mu = infos.get("mu")
        yield Episode(
            np.asarray(episode.observations),
            np.asarray(episode.actions),
            np.asarray(episode.rewards, dtype=np.float64),
            None if mu is None else np.asarray(mu)[: len(episode.actions)],
            bool(episode.terminations[-1]),
            {key: np.asarray(infos[key]) for key in _EXTRA if key in infos},
        )


def _write(
    out: Path,
    episodes: Iterator[Episode],
    source: dict[str, Any],
    policy: str | None,
    num_actions: int | None,
    stack: int = 1,
) -> Path:
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"{out} exists already and is not empty; name another folder")
    listed = [_in_native_order(episode) for episode in episodes]
    if len(listed) > EPISODES_PER_SHARD:
        raise InputError(
            f"{len(listed)} episodes are more than the {EPISODES_PER_SHARD} of a shard"
        )
    for number, episode in enumerate(listed):
        _check_episode(episode, number, num_actions)
    if num_actions is None:
        num_actions = 1 + max(int(episode.actions.max()) for episode in listed)
    first = listed[0].observations[0]
    sample = [frame.tobytes() for episode in listed[:20] for frame in episode.observations][:4000]
    needs_words = encoding_of(first.shape, first.dtype) == "zstd"
    words = train_dictionary(sample) if needs_words else None
    codec = FrameCodec(first.shape, first.dtype, words)
    law = None if policy is None else parse_policy(policy, num_actions)
    parts = [_episode_rows(episode, k, codec, law) for k, episode in enumerate(listed)]
    out.mkdir(parents=True, exist_ok=True)
    names = [MANIFEST, shard_name(0)]
    if words is not None:
        (out / DICTIONARY).write_bytes(words)
        names.append(DICTIONARY)
    rows = stack_rows(parts)
    write_shard(out / shard_name(0), rows, codec)
    totals = {"rows": len(rows), "transitions": rows.num_transitions, "episodes": len(listed)}
    described = {"policy": "as logged"} if law is None else law.description()
    write_json(
        out / MANIFEST,
        {
            "format_version": FORMAT_VERSION,
            "request": {"policies": [described]} | source,
            "num_actions": num_actions,
            "observation": {
                "shape": list(first.shape),
                "dtype": first.dtype.name,
                "encoding": codec.encoding,
                "stack": stack,
            },
            "shards": [{"file": shard_name(0)} | totals],
            "totals": totals,
        },
    )
    write_checksums(out, sorted(names))
    return out


def _in_native_order(episode: Episode) -> Episode:
    observations = np.asarray(episode.observations)
    native = observations.astype(observations.dtype.newbyteorder("="), copy=False)
    return replace(episode, observations=native)


def _check_episode(episode: Episode, number: int, num_actions: int | None) -> None:
    steps = len(episode.actions)
    if len(episode.observations) != steps + 1:
        raise InputError(
            f"episode {number} has {len(episode.observations)} observations for {steps} actions, "
            f"but {steps + 1} are needed"
        )
    if episode.actions.dtype.kind not in "iu":
        raise InputError(f"actions must be whole numbers, but they are {episode.actions.dtype}")
    top = np.iinfo(np.int16).max if num_actions is None else num_actions - 1
    bad = np.flatnonzero((episode.actions < 0) | (episode.actions > top))
    if len(bad):
        raise InputError(
            f"episode {number}: {len(bad)} actions lie outside 0 … {top}, the first is "
            f"{episode.actions[bad[0]]} at step {bad[0]}"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(episode.rewards).astype(np.float32))
    if not finite.all():
        raise InputError(f"episode {number}: {int((~finite).sum())} rewards are not finite numbers")


def _episode_rows(episode: Episode, number: int, codec: FrameCodec, law: Any) -> Rows:
    steps = len(episode.actions)
    mu = episode.mu
    if mu is None:
        if law is None:
            raise InputError("the data hold no μ(a|s); name the behavior policy that gives it")
        table = law.probabilities(episode.observations[:-1])
        mu = table[np.arange(steps), episode.actions]
    bad = np.flatnonzero(~((mu > 0) & (mu <= 1)))
    if len(bad):
        raise InputError(
            f"episode {number}: {len(bad)} actions have no probability in (0, 1], the first is "
            f"step {bad[0]} with μ = {mu[bad[0]]:.6g}"
        )
    size = steps + 1
    last = np.arange(size) == steps
    columns: dict[str, NDArray[Any]] = {
        "action": np.append(episode.actions, -1).astype(np.int16),
        "mu": np.append(mu, np.nan).astype(np.float32),
        "policy": np.zeros(size, dtype=np.int16),
        "reward": np.concatenate([[0.0], episode.rewards]).astype(np.float32),
        "terminated": last & episode.terminated,
        "truncated": last & (not episode.terminated),
        "life_lost": np.zeros(size, dtype=bool),
        "is_initial": np.arange(size) == 0,
        "episode": np.full(size, number % EPISODES_PER_SHARD, dtype=np.int64),
        "stream": np.zeros(size, dtype=np.int16),
    }
    columns |= {key: v.astype(columns[key].dtype) for key, v in episode.extra.items()}
    return Rows(columns, [codec.encode(frame) for frame in episode.observations])


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise InputError("Minari needs the extra: pip install 'covshift[minari]'") from error
    return minari
