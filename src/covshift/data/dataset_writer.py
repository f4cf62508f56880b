"""Writing a dataset from episodes that come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.data.codec import DICTIONARY_FRAMES, FrameCodec, encoding_of, train_dictionary
from covshift.data.dataset import Episode
from covshift.data.format import (
    EPISODES_PER_SHARD,
    MOST_ACTIONS,
    Rows,
    shard_name,
    stack_rows,
    write_shard,
)
from covshift.data.manifest import DICTIONARY, finish_dataset, make_manifest
from covshift.data.policies import Policy, parse_policy
from covshift.errors import InputError
from covshift.files import whole_folder

_SAMPLE_EPISODES = 20
"""The most episodes that the compression's dictionary is trained on."""


def write_dataset(
    out: Path,
    episodes: Iterator[Episode],
    *,
    request: dict[str, Any],
    num_actions: int,
    stack: int,
    policy: str | None,
    shard_transitions: int,
) -> Path:
    """Writes a dataset; the folder appears once it is complete. One shard is in memory at a time.

    Args:
        out: folder of the new dataset.
        episodes: the episodes in order.
        request: what the manifest says about how they were made; `policies` is added unless it is there.
        num_actions: number of actions of the environment.
        stack: how many of the newest observations make a state.
        policy: name of the behavior policy, which gives μ where the episodes have none.
        shard_transitions: a shard ends with the first episode after this many transitions.

    Raises:
        InputError: the folder is not empty, or an episode cannot be used.
    """
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} exists already and is not empty; name another folder")
    if not 1 <= num_actions <= MOST_ACTIONS:
        raise InputError(
            f"the number of actions must lie in [1, {MOST_ACTIONS:,}], but it is {num_actions}"
        )
    behavior = None if policy is None else parse_policy(policy, num_actions)
    named = {"policy": "as logged"} if behavior is None else behavior.description()
    checked = _checked(episodes, num_actions)
    with whole_folder(out.resolve()) as folder:
        sample = list(islice(checked, _SAMPLE_EPISODES))
        if not sample:
            raise InputError("there is no episode to import")
        first = sample[0].observations[0]
        codec = _make_codec(folder, sample)
        count = 0
        for parts in _shards(chain(sample, checked), codec, behavior, shard_transitions):
            write_shard(folder / shard_name(count), stack_rows(parts), codec)
            count += 1
        request = {"policies": [named]} | request
        manifest = make_manifest(request, num_actions, first.shape, first.dtype, stack)
        finish_dataset(folder, manifest, count)
    return out


def _checked(episodes: Iterator[Episode], num_actions: int) -> Iterator[Episode]:
    """The episodes with observations in native byte order, each checked by itself and beside the first."""
    first = None
    for number, episode in enumerate(episodes):
        observations = np.asarray(episode.observations)
        if observations.dtype.kind not in "biuf" or not observations.ndim:
            raise InputError(
                f"episode {number} has observations of the type {observations.dtype}, but numbers are needed"
            )
        observations = observations.astype(observations.dtype.newbyteorder("="), copy=False)
        _check_episode(episode, number, num_actions)
        kind = f"{observations.dtype} {observations.shape[1:]}"
        first = first or kind
        if kind != first:
            raise InputError(
                f"episode {number} has observations {kind}, but those of the first are {first}"
            )
        yield replace(episode, observations=observations)


def _check_episode(episode: Episode, number: int, num_actions: int) -> None:
    steps = len(episode)
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
    for name, values in (("rewards", episode.rewards), ("μ", episode.mu)):
        if values is not None and np.asarray(values).dtype.kind not in "biuf":
            raise InputError(f"{name} must be numbers, but they are {np.asarray(values).dtype}")
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(episode.rewards).astype(np.float32))
    if not finite.all():
        raise InputError(f"episode {number}: {int((~finite).sum())} rewards are not finite numbers")


def _make_codec(folder: Path, sample: list[Episode]) -> FrameCodec:
    """The codec of observations like these; a dictionary is written into the folder if they are compressed."""
    first, words = sample[0].observations[0], None
    if encoding_of(first.shape, first.dtype) == "zstd":
        frames = (frame.tobytes() for episode in sample for frame in episode.observations)
        words = train_dictionary(list(islice(frames, DICTIONARY_FRAMES)))
        (folder / DICTIONARY).write_bytes(words)
    return FrameCodec(first.shape, first.dtype, words)


def _shards(
    episodes: Iterator[Episode],
    codec: FrameCodec,
    behavior: Policy | None,
    shard_transitions: int,
) -> Iterator[list[Rows]]:
    """The rows of the episodes, one list for each shard."""
    first_number, parts, transitions = 0, list[Rows](), 0
    for index, episode in enumerate(episodes):
        mu = _probabilities(episode, index, behavior)
        parts.append(_episode_rows(episode, mu, first_number + len(parts), codec))
        transitions += len(episode)
        if transitions >= shard_transitions or len(parts) == EPISODES_PER_SHARD:
            yield parts
            first_number, parts, transitions = first_number + EPISODES_PER_SHARD, [], 0
    if parts:
        yield parts


def _probabilities(episode: Episode, index: int, behavior: Policy | None) -> NDArray[Any]:
    """μ(a|s) of the episode's actions: as logged, or else by the behavior policy."""
    mu = episode.mu
    if mu is None:
        if behavior is None:
            raise InputError("the data hold no μ(a|s); name the behavior policy that gives it")
        table = behavior.probabilities(episode.observations[:-1])
        mu = table[np.arange(len(episode)), episode.actions]
    bad = np.flatnonzero(~((mu > 0) & (mu <= 1)))
    if len(bad):
        raise InputError(
            f"episode {index}: {len(bad)} actions have no probability in (0, 1], the first is "
            f"step {bad[0]} with μ = {mu[bad[0]]:.6g}"
        )
    return mu


def _episode_rows(episode: Episode, mu: NDArray[Any], number: int, codec: FrameCodec) -> Rows:
    size = len(episode) + 1
    is_first, is_last = np.arange(size) == 0, np.arange(size) == size - 1
    columns: dict[str, NDArray[Any]] = {
        "action": np.append(episode.actions, -1).astype(np.int16),
        "mu": np.append(mu, np.nan).astype(np.float32),
        "policy": np.zeros(size, dtype=np.int16),
        "reward": np.concatenate([[0.0], episode.rewards]).astype(np.float32),
        "terminated": is_last & episode.terminated,
        "truncated": is_last & episode.truncated,
        "life_lost": np.zeros(size, dtype=bool),
        "is_initial": is_first,
        "episode": np.full(size, number, dtype=np.int64),
        "stream": np.zeros(size, dtype=np.int16),
    }
    columns |= {name: v.astype(columns[name].dtype) for name, v in episode.other.items()}
    return Rows(columns, [codec.encode(frame) for frame in episode.observations])
