"""Logged data as users have them, brought into one form."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from covshift.data import Dataset
from covshift.data.import_export import has_mu, import_minari
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation.arrays import from_arrays, from_trajectories
from covshift.estimation.frames import from_frame
from covshift.estimation.logs import Logs
from covshift.theory.mdp import FiniteMDP
from covshift.theory.simulation import simulate
from covshift.validation import as_policy as as_policy_table

Data: TypeAlias = Any
"""`Logs`, a folder, a `Dataset`, a `Store`, `minari:NAME`, a frame, a mapping of arrays, or trajectories."""


def as_logs(data: Data, *, num_actions: int | None = None) -> Logs:
    """Turns anything that `estimate_ratio` and `evaluate_policy` accept into `Logs`.

    Args:
        data: `Logs`; a covshift dataset (its folder, a `Dataset` or a `Store`); `minari:NAME` for a local Minari dataset;
            a mapping of NumPy arrays (`from_arrays`); a pandas or Polars frame (`from_frame`); or an iterable
            of `Trajectory` (`from_trajectories`).
        num_actions: number of actions of the environment; by default the dataset's, or one more than the
            largest action in the data.
    """
    if isinstance(data, Logs):
        return data
    if isinstance(data, Store):
        return from_store(data)
    if isinstance(data, Dataset):
        return from_store(data.store)[data.is_chosen]
    if isinstance(data, str) and data.startswith("minari:"):
        return from_minari(data.removeprefix("minari:"))
    if isinstance(data, str | Path):
        return from_store(Store.open(data))
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return from_frame(data, num_actions=num_actions)
    if isinstance(data, Mapping):
        return from_arrays(**data, num_actions=num_actions)
    if isinstance(data, Iterable):
        return from_trajectories(data, num_actions=num_actions)
    raise InputError(
        f"data of the type {type(data).__name__} are not known; give a dataset's folder, a frame, arrays, "
        "or trajectories"
    )


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
