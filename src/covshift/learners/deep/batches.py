"""What a step of the deep learners takes, gathered from a store."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.config.training import RatioOptions, ValueOptions
from covshift.data.store import Store


class ValueBatch(NamedTuple):
    """Transitions for the value, over one or several steps.

    Attributes:
        s_tm1: the states whose values are predicted.
        a_tm1: the actions taken there.
        mu_tm1: μ(a|s) of these actions.
        return_t: Σ γⁱ R over the steps, rewards clipped.
        discount_t: γⁿ, 0 where the episode ended on the way.
        s_t: the states to bootstrap from.
        a_t: the actions taken there, -1 where the episode was cut; None where targets take the greedy action.
    """

    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float32]
    return_t: NDArray[np.float32]
    discount_t: NDArray[np.float32]
    s_t: NDArray[Any]
    a_t: NDArray[np.int64] | None = None


class EndBatch(NamedTuple):
    """States after which no state of their episode follows, drawn uniformly among such states.

    Attributes:
        s_tm1: the states.
        a_tm1: the actions taken there; 0 where there was none.
        mu_tm1: μ(a|s) of these actions.
        is_cut: whether there was no action, since the episode was truncated there.
        share: share of the data's states that are of this kind.
        initial_share: share of the data's states that start an episode.
    """

    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float32]
    is_cut: NDArray[np.bool_]
    share: float
    initial_share: float


class RatioBatch(NamedTuple):
    """States for the ratio, each with the n steps that led to it; step k of n is the first index.

    Attributes:
        s_t: the states whose ratio is predicted.
        is_trained_t: which of them have a target.
        s_window: n × batch: the states that the steps left, oldest first.
        a_window: the actions there.
        mu_window: μ(a|s) of them; 1 where there was no step.
        is_initial_window: whether the state that a step led to starts an episode, so that there was none.
        is_source_initial: whether the window's first state starts an episode.
        ends: states that end an episode, for the mass closure; None without it.
    """

    s_t: NDArray[Any]
    is_trained_t: NDArray[np.bool_]
    s_window: NDArray[Any]
    a_window: NDArray[np.int64]
    mu_window: NDArray[np.float32]
    is_initial_window: NDArray[np.bool_]
    is_source_initial: NDArray[np.bool_]
    ends: EndBatch | None = None


def value_batch(store: Store, ids: NDArray[np.int64], options: ValueOptions) -> ValueBatch:
    """The transitions that start at these rows.

    A lost life cuts the discount if the options say so. A truncation does not: the state there is
    bootstrapped from, after fewer steps.
    """
    column = store.known
    rows = ids.copy()
    total = np.zeros(len(ids), dtype=np.float64)
    discount = np.ones(len(ids), dtype=np.float64)
    for _ in range(options.value_steps):
        goes_on = (column["action"][rows] >= 0) & (rows < len(store)) & (discount > 0)
        arrived = np.where(goes_on, rows + 1, rows)
        reward = column["reward"][arrived].astype(np.float64)
        if options.reward_clip > 0:
            reward = np.clip(reward, -options.reward_clip, options.reward_clip)
        total += np.where(goes_on, discount * reward, 0.0)
        ends = column["terminated"][arrived]
        if options.cut_at_life_loss:
            ends = ends | column["life_lost"][arrived]
        discount = np.where(goes_on, np.where(ends, 0.0, options.discount * discount), discount)
        rows = arrived
    s_tm1, s_t = store.pairs(ids, rows)
    return ValueBatch(
        s_tm1,
        column["action"][ids].astype(np.int64),
        column["mu"][ids],
        total.astype(np.float32),
        discount.astype(np.float32),
        s_t,
        column["action"][rows].astype(np.int64) if options.bootstrap_action == "data" else None,
    )


def ratio_batch(store: Store, ids: NDArray[np.int64], options: RatioOptions) -> RatioBatch:
    """The states at these rows with the steps that led to them.

    Under `restart`, and where 1 is read as the ratio of initial *sources*, a state without a predecessor has
    no target. Rows that are terminal have none either: c is a function of states one can be in.
    """
    restart = options.semantics == "restart"
    rows, newer_first = ids, []
    for _ in range(options.ratio_steps):
        before, none = store.predecessors(rows, restart=restart)
        known = np.where(none, rows, before)
        newer_first.append((known, none))
        rows = known
    steps = newer_first[::-1]
    window = np.stack([known for known, _ in steps])
    initial = np.stack([none for _, none in steps])
    trained = store.is_state[ids]
    if restart or options.initial_rule == "source":
        trained = trained & ~initial.any(axis=0) if restart else trained & ~initial[-1]
    if options.ratio_steps == 1:  # Stacks of frames that overlap are read once.
        s_tm1, s_t = store.pairs(window[0], ids)
        s_window = s_tm1[None]
    else:
        s_t = store.states(ids)
        flat = store.states(window.ravel())
        s_window = flat.reshape(window.shape + flat.shape[1:])
    return RatioBatch(
        s_t,
        trained,
        s_window,
        np.where(initial, 0, store.columns["action"][window]).astype(np.int64),
        np.where(initial, np.float32(1), store.columns["mu"][window]),
        initial,
        store.columns["is_initial"][window[0]],
    )


def end_batch(store: Store, ids: NDArray[np.int64], share: float, initial_share: float) -> EndBatch:
    """The states at these rows, after which no state of their episode follows; the shares are those of `EndBatch`."""
    action = store.columns["action"][ids].astype(np.int64)
    is_cut = action < 0
    return EndBatch(
        store.states(ids),
        np.where(is_cut, 0, action),
        np.where(is_cut, np.float32(1), store.columns["mu"][ids]),
        is_cut,
        share,
        initial_share,
    )


def ring_batch(
    observations: NDArray[Any],
    actions: NDArray[Any],
    mu: NDArray[Any],
    is_initial: NDArray[np.bool_],
    ids: NDArray[np.int64],
    num_envs: int = 1,
) -> RatioBatch:
    """States of your own replay, whose arrays hold one step after the other.

    Row t is the state that was acted in, row t - `num_envs` the step before it in the same environment (the last
    row comes before the first, as in a ring).

    Args:
        observations: the state of each row.
        actions: the action taken in each row.
        mu: μ(a|s) of these actions.
        is_initial: whether each row starts an episode.
        ids: rows of the batch; leave out the oldest row of a full ring, whose predecessor was overwritten.
        num_envs: number of environments, whose steps take turns in the rows.

    Example:
        >>> observations = np.arange(4.0)[:, None]
        >>> starts = np.array([True, False, False, False])
        >>> batch = ring_batch(observations, np.zeros(4), np.full(4, 0.5), starts, np.array([0, 2]))
        >>> batch.s_window[0, :, 0].tolist(), batch.is_initial_window[0].tolist()
        ([3.0, 1.0], [True, False])
    """
    before = ids - num_envs
    initial = is_initial[ids]
    return RatioBatch(
        observations[ids],
        np.ones(len(ids), dtype=bool),
        observations[before][None],
        np.asarray(actions)[before].astype(np.int64)[None],
        np.where(initial, np.float32(1), np.asarray(mu)[before].astype(np.float32))[None],
        initial[None],
        is_initial[before],
    )
