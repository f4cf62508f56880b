"""Logged data as users have them, brought into one form."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from covshift.data import Dataset
from covshift.data.import_export import has_mu, import_minari
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation.arrays import check_num_actions, from_arrays, from_trajectories
from covshift.estimation.columns import has_columns
from covshift.estimation.frames import from_frame
from covshift.estimation.logs import Logs, Trajectory
from covshift.theory.mdp import FiniteMDP
from covshift.theory.simulation import simulate
from covshift.validation import as_policy as as_policy_table

Data: TypeAlias = Any
"""Whatever `as_logs` takes."""


def as_logs(
    data: Data,
    *,
    num_actions: int | None = None,
    action_labels: Sequence[Hashable] | None = None,
    **names: Any,
) -> Logs:
    """Turns anything that `estimate_ratio` and `evaluate_policy` accept into `Logs`.

    Args:
        data: `Logs`; a covshift dataset (its folder, a `Dataset` or a `Store`); `minari:NAME` for a local Minari dataset, or
            the Minari dataset itself; the path of a CSV or Parquet file or of a folder of Parquet files, a pandas or
            Polars frame, an Arrow table, a mapping from names to arrays, or a list of rows that are mappings
            (`from_frame`); a mapping of the arguments of `from_arrays`; a d3rlpy dataset, or episodes with `observations`, `actions`, `rewards` and `terminated`
            (`from_episodes`); or an iterable of `Trajectory` (`from_trajectories`).
        num_actions: number of actions of the environment; by default the dataset's, or one more than the
            largest action in the data.
        action_labels: the labels of all actions, if some were never taken; by default those in the data.
        names: names of columns, as the arguments of `from_frame`: `state`, `action`, `reward`, `terminated`, `next_state`,
            `trajectory`, `propensity`, `truncated`, `is_initial`.
    """
    if isinstance(data, Mapping) and "states" in data and not names:
        known = inspect.signature(from_arrays).parameters
        if unknown := [str(name) for name in data if name not in known]:
            raise InputError(
                f"from_arrays has no argument {', '.join(unknown)}; it has {', '.join(known)}"
            )
        needed = [name for name, one in known.items() if one.default is one.empty]
        if missing := [name for name in needed if name not in data]:
            raise InputError(f"the mapping lacks {', '.join(missing)}, which from_arrays needs")
        given = {"num_actions": num_actions, "action_labels": action_labels, **data}
        return from_arrays(**given)
    if has_columns(data) and not isinstance(data, Logs):
        return from_frame(data, num_actions=num_actions, action_labels=action_labels, **names)
    if names:
        raise InputError(
            f"{', '.join(names)} names columns of a table, but the data are {type(data).__name__} and have none"
        )
    actions: dict[str, Any] = {"num_actions": num_actions, "action_labels": action_labels}
    if isinstance(data, Iterator):
        data = list(data)
    if isinstance(data, Logs | Store | Dataset | str | Path) or hasattr(data, "iterate_episodes"):
        if action_labels is not None:
            raise InputError(
                "action_labels is for tables, arrays and trajectories: these data number their actions"
            )
        logs = _known_logs(data)
        if num_actions is None or num_actions == logs.num_actions:
            return logs
        return replace(logs, num_actions=check_num_actions(num_actions))
    if hasattr(data, "episodes"):
        return from_episodes(data.episodes, **actions)
    if isinstance(data, Sequence) and len(data) and hasattr(data[0], "observations"):
        return from_episodes(data, **actions)
    if isinstance(data, Iterable):
        return from_trajectories(data, **actions)
    raise InputError(
        f"data of the type {type(data).__name__} are not known; give a CSV or Parquet file, a dataset's folder, a frame, "
        "arrays by name, or trajectories"
    )


def _known_logs(data: Any) -> Logs:
    if isinstance(data, Logs):
        return data
    if isinstance(data, Store):
        return from_store(data)
    if isinstance(data, Dataset):
        return from_store(data.store)[data.is_chosen]
    if hasattr(data, "iterate_episodes"):
        return from_minari(data.spec.dataset_id)
    if str(data).startswith("minari:"):
        return from_minari(str(data).removeprefix("minari:"))
    if Path(data).is_file():
        raise InputError(
            f"{data} is not a CSV or Parquet file: its name must end in .csv, .tsv or .parquet"
        )
    return from_store(Store.open(data))


def from_episodes(episodes: Iterable[Any], **actions: Any) -> Logs:
    """Logs from objects with `observations`, `actions`, `rewards` and `terminated`, such as the episodes of a d3rlpy dataset.

    An episode of d3rlpy has as many observations as actions. If it did not terminate, the state after its last action
    is not known; then that action is no transition, as in d3rlpy itself. If an episode has one more observation than actions,
    as an `Episode` of covshift, every action is one. μ is taken from `mu`, if the episodes have it.

    Args:
        episodes: the episodes.
        actions: `num_actions` and `action_labels`, as in `from_arrays`.
    """
    made = []
    for episode in episodes:
        states = np.asarray(episode.observations)
        taken, rewards = (np.asarray(c) for c in (episode.actions, episode.rewards))
        if taken.ndim == 2 and taken.shape[1] == 1:
            taken = taken[:, 0]
        elif taken.ndim > 1:
            raise InputError(
                f"actions have the shape {taken.shape[1:]}, but discrete actions are needed"
            )
        mu, ended = getattr(episode, "mu", None), bool(episode.terminated)
        count = len(taken) if ended else min(len(taken), len(states) - 1)
        if count > 0:
            made.append(
                Trajectory(
                    states if ended else states[: count + 1],
                    taken[:count],
                    rewards.reshape(len(rewards), -1)[:count, 0],
                    ended,
                    None if mu is None else np.asarray(mu)[:count],
                )
            )
    return from_trajectories(made, **actions)


def from_store(store: Store) -> Logs:
    """The transitions of a covshift dataset, whose states stay on disk.

    An episode that is still running counts as cut off.
    """
    ids = np.flatnonzero(store.is_transition[: len(store) - 1])
    column = store.columns
    truncated = column["truncated"][ids + 1]
    if store.is_running:
        truncated[-1:] = ~column["terminated"][ids[-1:] + 1]
    return Logs(
        lambda rows: store.states(ids[rows]),
        lambda rows: store.states(ids[rows] + 1),
        column["action"][ids],
        column["mu"][ids],
        column["reward"][ids + 1],
        column["terminated"][ids + 1],
        truncated,
        column["is_initial"][ids],
        (np.cumsum(column["is_initial"], dtype=np.int32) - np.int32(1))[ids],
        store.num_actions,
    )


def from_minari(name: str, policy: str | None = None) -> Logs:
    """The transitions of a local Minari dataset with discrete actions.

    Args:
        name: the dataset's name.
        policy: name of the behavior policy, used if the dataset has no `infos["mu"]`; without it μ stays
            unknown.
    """
    unknown = policy is None and not has_mu(name)
    with tempfile.TemporaryDirectory() as folder:
        path = import_minari(name, Path(folder) / "dataset", "uniform" if unknown else policy)
        logs = from_store(Store.open(path))
        # The folder is about to be deleted, so the states move into memory.
        states, next_states = logs.states(), logs.next_states()
    return replace(
        logs,
        read_states=states.__getitem__,
        read_next_states=next_states.__getitem__,
        mu=None if unknown else logs.mu,
    )


def simulate_logs(
    mdp: FiniteMDP, mu: ArrayLike, num_steps: int, num_streams: int, rng: np.random.Generator
) -> Logs:
    """What a behavior policy would log in a finite MDP; rewards are the expected ones.

    A continuing MDP gives `num_streams` trajectories of `num_steps` transitions that start from d_μ. In an
    episodic MDP each stream gives whole episodes; its last one is cut off after `num_steps` in all.
    """
    table = as_policy_table("mu", mu, mdp.num_states, mdp.num_actions)
    blocks = simulate(mdp, table, num_steps, num_streams, rng)
    s_tm1, a_tm1, r_t, s_t, ended = (
        np.concatenate(columns).T.ravel() for columns in zip(*blocks, strict=True)
    )
    stream = np.repeat(np.arange(num_streams), num_steps)
    return from_arrays(
        s_tm1,
        a_tm1,
        r_t,
        s_t,
        ended,
        mu=table[s_tm1, a_tm1],
        truncated=np.append(np.diff(stream) > 0, True) & ~ended,
        num_actions=mdp.num_actions,
    )
