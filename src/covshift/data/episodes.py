"""A dataset from episodes that were made elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import (
    DICTIONARY,
    EPISODES_PER_SHARD,
    FORMAT_VERSION,
    MANIFEST,
    Rows,
    shard_name,
    stack_rows,
    write_shard,
)
from covshift.data.frames import FrameCodec, encoding_of, train_dictionary
from covshift.data.policies import parse_policy
from covshift.errors import InputError
from covshift.files import write_checksums, write_json

_SAMPLE_EPISODES, _SAMPLE_FRAMES = 20, 4_000
"""What the dictionary is trained on, at most."""


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
        extra: further columns with T + 1 entries each, from an export of ours.
    """

    observations: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    mu: NDArray[np.float64] | None
    terminated: bool
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Source:
    """What is known of all episodes.

    Attributes:
        request: what the manifest says of their making; with an entry `policies`, it tells the policies too.
        num_actions: of the environment.
        stack: how many newest observations make a state.
    """

    request: dict[str, Any]
    num_actions: int
    stack: int = 1


def write_episodes(
    out: Path,
    episodes: Iterator[Episode],
    source: Source,
    policy: str | None,
    shard_transitions: int,
) -> Path:
    """Writes a dataset whole or not at all: beside its place, and then moved there.

    What a call that was killed left beside it, the next one replaces. One shard is in memory at a time.

    Args:
        out: the new folder.
        episodes: one after the other.
        source: what is known of all of them.
        policy: gives μ where the episodes have none.
        shard_transitions: a shard ends with the first episode after this many.

    Raises:
        InputError: the folder exists, or an episode is not right.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"{out} exists already and is not empty; name another folder")
    place = out.resolve()
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write_folder(partial, episodes, source, policy, shard_transitions)
        partial.replace(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _write_folder(
    folder: Path,
    episodes: Iterator[Episode],
    source: Source,
    policy: str | None,
    shard_transitions: int,
) -> None:
    law = None if policy is None else parse_policy(policy, source.num_actions)
    checked = _checked(episodes, source.num_actions)
    sample = list(islice(checked, _SAMPLE_EPISODES))
    if not sample:
        raise InputError("there is no episode to import")
    first = sample[0].observations[0]
    words = None
    if encoding_of(first.shape, first.dtype) == "zstd":
        frames = (frame.tobytes() for episode in sample for frame in episode.observations)
        words = train_dictionary(list(islice(frames, _SAMPLE_FRAMES)))
        (folder / DICTIONARY).write_bytes(words)
    codec = FrameCodec(first.shape, first.dtype, words)

    shards: list[dict[str, Any]] = []
    parts: list[Rows] = []

    def seal() -> None:
        rows, name = stack_rows(parts), shard_name(len(shards))
        write_shard(folder / name, rows, codec)
        counts = {"rows": len(rows), "transitions": rows.num_transitions, "episodes": len(parts)}
        shards.append({"file": name} | counts)
        parts.clear()

    transitions = 0
    for number, episode in enumerate(chain(sample, checked)):
        if (
            episode.observations.shape[1:] != first.shape
            or episode.observations.dtype != first.dtype
        ):
            raise InputError(
                f"episode {number} has observations {episode.observations.dtype} "
                f"{episode.observations.shape[1:]}, but those of the first are {first.dtype} {first.shape}"
            )
        name = len(shards) * EPISODES_PER_SHARD + len(parts)
        parts.append(_episode_rows(episode, number, name, codec, law))
        transitions += len(episode.actions)
        if transitions >= shard_transitions or len(parts) == EPISODES_PER_SHARD:
            seal()
            transitions = 0
    if parts:
        seal()
    totals = {
        name: sum(shard[name] for shard in shards) for name in ("rows", "transitions", "episodes")
    }
    described = {"policy": "as logged"} if law is None else law.description()
    write_json(
        folder / MANIFEST,
        {
            "format_version": FORMAT_VERSION,
            "request": {"policies": [described]} | source.request,
            "num_actions": source.num_actions,
            "observation": {
                "shape": list(first.shape),
                "dtype": first.dtype.name,
                "encoding": codec.encoding,
                "stack": source.stack,
            },
            "shards": shards,
            "totals": totals,
        },
    )
    write_checksums(folder, sorted(path.name for path in folder.iterdir()))


def _checked(episodes: Iterator[Episode], num_actions: int) -> Iterator[Episode]:
    for number, given in enumerate(episodes):
        episode = _in_native_order(given)
        _check_episode(episode, number, num_actions)
        yield episode


def _in_native_order(episode: Episode) -> Episode:
    observations = np.asarray(episode.observations)
    native = observations.astype(observations.dtype.newbyteorder("="), copy=False)
    return replace(episode, observations=native)


def _check_episode(episode: Episode, number: int, num_actions: int) -> None:
    steps = len(episode.actions)
    if len(episode.observations) != steps + 1:
        raise InputError(
            f"episode {number} has {len(episode.observations)} observations for {steps} actions, "
            f"but {steps + 1} are needed"
        )
    if episode.actions.dtype.kind not in "iu":
        raise InputError(f"actions must be whole numbers, but they are {episode.actions.dtype}")
    top = min(num_actions - 1, np.iinfo(np.int16).max)
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


def _episode_rows(episode: Episode, number: int, name: int, codec: FrameCodec, law: Any) -> Rows:
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
        "episode": np.full(size, name, dtype=np.int64),
        "stream": np.zeros(size, dtype=np.int16),
    }
    columns |= {key: v.astype(columns[key].dtype) for key, v in episode.extra.items()}
    return Rows(columns, [codec.encode(frame) for frame in episode.observations])
