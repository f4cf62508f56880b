"""What a step of the deep learners takes, gathered from a store."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.config.training import RatioOptions, ValueOptions
from covshift.data.store import Store


class TraceBatch(NamedTuple):
    """The steps after the first, for Retrace over at most n steps; step k of n - 1 is the first index.

    Attributes:
        a_window: the actions in s_t and in the states after it; 0 where there was no step.
        mu_window: μ(a|s) of them; 1 where there was no step.
        decay_window: λ; 0 where there was no step, since the episode had ended or was cut.
        return_window: Σ γⁱ R from the transition's first reward to that of the step.
        discount_window: γ to the number of steps, 0 where the episode had ended.
        s_window: the states that the steps led to.
    """

    a_window: NDArray[np.int64]
    mu_window: NDArray[np.float32]
    decay_window: NDArray[np.float32]
    return_window: NDArray[np.float32]
    discount_window: NDArray[np.float32]
    s_window: NDArray[Any]


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
        trace: the steps from there on, for Retrace; None without it.
    """

    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float32]
    return_t: NDArray[np.float32]
    discount_t: NDArray[np.float32]
    s_t: NDArray[Any]
    a_t: NDArray[np.int64] | None = None
    trace: TraceBatch | None = None


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
    walk = _Walk(store, ids, options)
    for _ in range(options.value_steps):
        walk.step()
    s_tm1, s_t = store.pairs(ids, walk.rows)
    a_t = None
    if options.bootstrap_action == "data":
        a_t = column["action"][walk.rows].astype(np.int64)
    return ValueBatch(
        s_tm1,
        column["action"][ids].astype(np.int64),
        column["mu"][ids],
        walk.total.astype(np.float32),
        walk.discount.astype(np.float32),
        s_t,
        a_t,
        _trace_batch(store, walk, options) if options.value_trace == "retrace" else None,
    )


class _Walk:
    """Steps ahead from rows as far as their episodes go, with the rewards on the way."""

    def __init__(self, store: Store, ids: NDArray[np.int64], options: ValueOptions) -> None:
        self._column, self._size, self._options = store.known, len(store), options
        self.rows = ids.copy()
        self.total = np.zeros(len(ids), dtype=np.float64)
        self.discount = np.ones(len(ids), dtype=np.float64)

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """Where a step follows that the value looks at."""
        has_action = self._column["action"][self.rows] >= 0
        return np.asarray(has_action & (self.rows < self._size) & (self.discount > 0))

    def step(self) -> None:
        """Takes a step wherever one follows."""
        column, options, goes_on = self._column, self._options, self.goes_on
        arrived = np.where(goes_on, self.rows + 1, self.rows)
        reward = column["reward"][arrived].astype(np.float64)
        if options.reward_clip > 0:
            reward = np.clip(reward, -options.reward_clip, options.reward_clip)
        self.total += np.where(goes_on, self.discount * reward, 0.0)
        ends = column["terminated"][arrived]
        if options.cut_at_life_loss:
            ends = ends | column["life_lost"][arrived]
        discounted = np.where(ends, 0.0, options.discount * self.discount)
        self.discount = np.where(goes_on, discounted, self.discount)
        self.rows = arrived


def _trace_batch(store: Store, walk: _Walk, options: ValueOptions) -> TraceBatch:
    column = store.known
    left, goes_on, arrived, totals, discounts = [], [], [], [], []
    for _ in range(options.trace_steps - 1):
        left.append(walk.rows)
        goes_on.append(walk.goes_on)
        walk.step()
        arrived.append(walk.rows)
        totals.append(walk.total.astype(np.float32))
        discounts.append(walk.discount.astype(np.float32))
    rows, is_step, to = np.stack(left), np.stack(goes_on), np.stack(arrived)
    flat = store.known_states(to.ravel())
    return TraceBatch(
        np.where(is_step, column["action"][rows], 0).astype(np.int64),
        np.where(is_step, column["mu"][rows], np.float32(1)),
        np.where(is_step, np.float32(options.trace_decay), np.float32(0)),
        np.stack(totals),
        np.stack(discounts),
        flat.reshape(to.shape + flat.shape[1:]),
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
