"""Samples from a finite MDP: many independent streams of experience at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from covshift.theory.mdp import FiniteMDP
from covshift.validation import Vector, as_policy

_BLOCK = 1 << 16
"""Transitions of all streams together that `simulate` makes before it hands them over."""


class Transition(NamedTuple):
    """Transitions of many streams: fields are arrays over streams for one step, steps × streams for a block.

    Attributes:
        s_tm1: the state before.
        a_tm1: the action taken there.
        r_t: the expected reward R(s_tm1, a_tm1).
        s_t: the state after; where the episode ended, the next one's first state.
        is_initial_t: whether s_t starts an episode, that is, whether a_tm1 ended one.
    """

    s_tm1: NDArray[np.int64]
    a_tm1: NDArray[np.int64]
    r_t: Vector
    s_t: NDArray[np.int64]
    is_initial_t: NDArray[np.bool_]

    def steps(self) -> Iterator[Transition]:
        """The steps of a block, one after the other."""
        return map(Transition._make, zip(*self, strict=True))

    def part(self, start: int, stop: int) -> Transition:
        """A block's steps from `start` up to `stop`."""
        return Transition._make(field[start:stop] for field in self)

    def discount_t(self, discount: float) -> Vector:
        """The value's discount after each transition, 0 where the episode ended."""
        return np.where(self.is_initial_t, 0.0, discount)


def simulate(
    mdp: FiniteMDP, mu: ArrayLike, num_steps: int, num_streams: int, rng: np.random.Generator
) -> Iterator[Transition]:
    """`num_steps` transitions of `num_streams` independent streams under the behavior policy, in blocks.

    A continuing stream starts from the stationary distribution, an episodic one from `d_0`.
    """
    policy = as_policy("mu", mu, mdp.num_states, mdp.num_actions)
    start = mdp.chain(policy).stationary() if mdp.d_0 is None else mdp.d_0
    starts = np.cumsum(start)
    actions = np.cumsum(policy, axis=1)
    kernel = sp.csr_array(
        mdp.p if sp.issparse(mdp.p) else mdp.p.reshape(-1, mdp.num_states), copy=True
    )
    rows = np.asarray(kernel.sum(axis=1)).ravel()
    before = np.concatenate([[0.0], np.cumsum(rows)])
    within = np.cumsum(kernel.data)

    def step(s_tm1: NDArray[np.int64], uniforms: Vector) -> Transition:
        u_action, u_state, u_start = uniforms
        a_tm1 = (actions[s_tm1] <= u_action[:, None]).sum(axis=1)
        a_tm1 = np.minimum(a_tm1, mdp.num_actions - 1)
        row = s_tm1 * mdp.num_actions + a_tm1
        entry = np.searchsorted(within, before[row] + u_state, side="right")
        ended = (u_state >= rows[row]) & mdp.is_episodic
        s_t = _draw(starts, u_start)
        within_row = np.clip(entry, kernel.indptr[row], kernel.indptr[row + 1] - 1)[~ended]
        s_t[~ended] = kernel.indices[within_row]
        return Transition(s_tm1, a_tm1, mdp.r[s_tm1, a_tm1], s_t, ended)

    s_tm1 = _draw(starts, rng.random(num_streams))
    length = max(1, _BLOCK // num_streams)
    for first in range(0, num_steps, length):
        made = []
        for uniforms in rng.random((min(length, num_steps - first), 3, num_streams)):
            made.append(step(s_tm1, uniforms))
            s_tm1 = made[-1].s_t
        yield Transition._make(np.stack(fields) for fields in zip(*made, strict=True))


def _draw(cumulative: Vector, u: Vector) -> NDArray[np.int64]:
    """An index for each u by inversion; an entry of probability 0 is never drawn."""
    index = np.searchsorted(cumulative, u * cumulative[-1], side="right")
    return np.asarray(np.minimum(index, len(cumulative) - 1))
