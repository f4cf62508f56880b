"""The empirical model: the MDP that a table of counts describes, solved exactly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.theory.chain import MarkovChain
from covshift.theory.ratios import c_star
from covshift.validation import Dense, Vector

THIN_CLASS, THIN_SHARE = 300.0, 0.05
"""Transitions, and share of the data, in a class of states that π never leaves; if both are smaller, it is doubted."""

SETTLING = 0.99
"""γ̂ in place of 1 where the data lead into such a class."""


@final
@dataclass(frozen=True, eq=False)
class EmpiricalModel:
    """P̂(s'|s, a) = N(s, a, s')/N(s, a), r̂(s, a), d̂₀ and d̂_μ over the states with a logged action.

    Where π takes an action that was never logged in a state, π is renormalized over those that were;
    `unsupported_mass` says how much of π this concerns. A transition to a state without a logged action leads
    to d̂_μ instead.

    Attributes:
        states: numbers of the states with a logged action; the other arrays are in this order.
        pairs: N(s, a), states × actions.
        arrivals: N(s, a, s'), (states · actions) × states.
        lost: states × actions, weight of the transitions to states without a logged action.
        reward: mean reward, states × actions; 0 where the pair was never seen.
        starts: N₀(s), how often an episode started in each state.
        pi: the target policy over the pairs that were seen.
        unsupported_mass: share of the data in which π takes actions that were never logged there.
    """

    states: NDArray[np.int64]
    pairs: Dense
    arrivals: sp.csr_array
    lost: Dense
    reward: Dense
    starts: Vector
    pi: Dense
    unsupported_mass: float

    @classmethod
    def of(cls, experience: Experience) -> EmpiricalModel:
        """Counts the transitions in one pass over the data, once for all estimators that ask."""
        return experience.once(cls, lambda: cls._count(experience))

    @classmethod
    def _count(cls, experience: Experience) -> EmpiricalModel:
        size, num_actions = experience.features.size, experience.num_actions
        out, reward = np.zeros(size * num_actions), np.zeros(size * num_actions)
        starts, pi = np.zeros(size), np.zeros((size, num_actions))
        arrivals: Any = sp.csr_array((size * num_actions, size))
        for sample in experience.merged():
            pair = sample.x_tm1 * num_actions + sample.a_tm1
            out += np.bincount(pair, sample.weight, minlength=len(out))
            reward += np.bincount(pair, sample.weight * sample.r_t, minlength=len(out))
            first = sample.is_initial_tm1
            starts += np.bincount(sample.x_tm1[first], sample.weight[first], minlength=size)
            pi[sample.x_tm1] = sample.pi_tm1
            stays = ~sample.terminated_t
            arrivals = arrivals + _count_arrivals(
                pair[stays], sample.x_t[stays], sample.weight[stays], arrivals.shape
            )
        pairs = out.reshape(size, num_actions)
        known = np.flatnonzero(pairs.sum(axis=1) > 0)
        return cls._compact(known, pairs, arrivals, reward, starts, pi)

    @classmethod
    def _compact(
        cls,
        known: NDArray[np.int64],
        pairs: Dense,
        arrivals: sp.csr_array,
        reward: Dense,
        starts: Vector,
        pi: Dense,
    ) -> EmpiricalModel:
        num_actions = pairs.shape[1]
        rows = (known[:, None] * num_actions + np.arange(num_actions)).ravel()
        here = arrivals[rows]
        kept = sp.csr_array(here[:, known])
        lost = np.asarray(here.sum(axis=1)).ravel() - np.asarray(kept.sum(axis=1)).ravel()
        counts, target = pairs[known], pi[known]
        seen = counts > 0
        supported = (target * seen).sum(axis=1)
        share = counts.sum(axis=1) / counts.sum()
        nowhere = supported <= 0
        # Where π takes none of the logged actions, the behavior policy stands in for it.
        target = np.where(nowhere[:, None], counts, target * seen)
        total = reward.reshape(pairs.shape)[known]
        return cls(
            known,
            counts,
            kept,
            np.where(np.abs(lost) < 1e-12, 0.0, lost).reshape(counts.shape),
            np.divide(total, counts, where=seen, out=np.zeros_like(counts)),
            starts[known],
            target / target.sum(axis=1, keepdims=True),
            float(share @ (1.0 - np.minimum(supported, 1.0))),
        )

    @property
    def d_mu(self) -> Vector:
        """The share of transitions that leave each state."""
        visits = self.pairs.sum(axis=1)
        return np.asarray(visits / visits.sum())

    @property
    def d_0(self) -> Vector:
        """The share of each state among the initial states."""
        if self.starts.sum() <= 0:
            raise InputError(
                "no state is marked is_initial, so the start distribution is not known"
            )
        return np.asarray(self.starts / self.starts.sum())

    @property
    def visits(self) -> Vector:
        """d_μ of the semantics `visits`: visits to each state per initial state logged."""
        return np.asarray(self.pairs.sum(axis=1) / self.starts.sum())

    @cached_property
    def p_pi(self) -> sp.csr_array:
        """P̂_π, whose rows fall short of 1 by the probability that the episode ends."""
        share = np.divide(self.pi, self.pairs, where=self.pairs > 0, out=np.zeros_like(self.pi))
        size, num_actions = share.shape
        columns, starts = np.arange(share.size), np.arange(0, share.size + 1, num_actions)
        pick = sp.csr_array((share.ravel(), columns, starts), shape=(size, share.size))
        p = sp.csr_array(pick @ self.arrivals)
        to_data = (share * self.lost).sum(axis=1)
        if to_data.any():
            p = sp.csr_array(p + sp.csr_array(to_data[:, None]) @ sp.csr_array(self.d_mu[None, :]))
        p.eliminate_zeros()
        # Rounding may lift the sum of a row above 1, which the chain would refuse.
        excess = np.maximum(np.asarray(p.sum(axis=1)).ravel(), 1.0)
        return sp.csr_array(sp.diags_array(1.0 / excess) @ p)

    @property
    def r_pi(self) -> Vector:
        """r̂_π, the mean reward of π in each state."""
        return np.asarray((self.pi * self.reward).sum(axis=1))

    def chain(self, semantics: EpisodeSemantics, discount: float = 1.0) -> MarkovChain:
        """P̂_π as a chain of `theory`; an episode continues with probability `discount` at every step."""
        if semantics == "continuing":
            return MarkovChain(self._stochastic())
        chain = MarkovChain(sp.csr_array(discount * self.p_pi), self.d_0)
        return chain.restart() if semantics == "restart" else chain

    def ratio(
        self, semantics: EpisodeSemantics, ratio_discount: float, discount: float = 1.0
    ) -> Vector:
        """The exact ratio d̂_π/d̂_μ of this model, by `theory.c_star`.

        Raises:
            InputError: at γ̂ = 1 the ratio of this model is not unique, or episodes never end.
        """
        chain = self.chain(semantics, discount)
        if ratio_discount == 1.0:
            self._check_unique(chain)
            ratio_discount = self.settling_discount(chain)
        d_mu = self.visits if semantics == "visits" else self.d_mu
        return c_star(chain, d_mu, ratio_discount)

    def settling_discount(self, chain: MarkovChain) -> float:
        """The γ̂ to use where 1 is asked for: 1, unless the chain ends in states that hold too little of the data.

        In a class of states that the counted chain never leaves, π stays forever. If few transitions say so, a way out
        may only be missing from the data: n transitions cannot exclude that one in n/3 leaves. Then γ̂ is
        `SETTLING`, which leaves every state for d_μ in one of 100 steps, and a warning says so.
        """
        if chain.is_episodic:
            return 1.0
        visits = self.pairs.sum(axis=1)
        thin = [states for states in chain.recurrent_classes() if self._is_thin(states)]
        if not thin:
            return 1.0
        count = sum(len(states) for states in thin)
        inside = sum(float(visits[states].sum()) for states in thin)
        warnings.warn(
            f"under the target policy the data lead into {count} of {len(visits):,} states and never out, but only "
            f"{inside:.0f} of {visits.sum():.0f} transitions are there; a ratio_discount of {SETTLING:g} is used in place of 1",
            stacklevel=2,
        )
        return SETTLING

    def _is_thin(self, states: NDArray[np.int64]) -> bool:
        """Whether too few transitions lie in these states to believe that no other leads out of them."""
        visits = self.pairs.sum(axis=1)
        limit = min(THIN_CLASS, THIN_SHARE * float(visits.sum()))
        return float(visits[states].sum()) < limit

    def value(self, discount: float) -> Vector:
        """V̂ = (I - γP̂_π)⁻¹ r̂_π of the states with a logged action."""
        chain = self.chain("visits")
        if discount == 1.0:
            self._check_unique(chain)
        return chain.resolvent(discount).solve(self.r_pi)

    def q_values(self, v: Vector, discount: float) -> Dense:
        """Q̂ = r̂ + γ P̂ v, states × actions; 0 where the pair was never seen."""
        inflow = (self.arrivals @ v).reshape(self.pairs.shape) + self.lost * float(self.d_mu @ v)
        mean = np.divide(inflow, self.pairs, where=self.pairs > 0, out=np.zeros_like(self.pairs))
        return np.asarray(self.reward + discount * mean)

    def end_share(self) -> Dense:
        """The share of each pair's transitions that ended an episode."""
        went = np.asarray(self.arrivals.sum(axis=1)).reshape(self.pairs.shape) + self.lost
        share = np.divide(went, self.pairs, where=self.pairs > 0, out=np.ones_like(self.pairs))
        return np.maximum(1.0 - share, 0.0)

    def scatter(self, values: Vector, size: int, fill: float) -> Vector:
        """Values of these states in a table of all states; `fill` elsewhere."""
        table = np.full((size, *values.shape[1:]), fill)
        table[self.states] = values
        return table

    def _stochastic(self) -> sp.csr_array:
        sums = np.asarray(self.p_pi.sum(axis=1)).ravel()
        return sp.csr_array(sp.diags_array(1.0 / sums) @ self.p_pi)

    def _check_unique(self, chain: MarkovChain) -> None:
        classes = chain.recurrent_classes()
        visits = self.pairs.sum(axis=1)
        if chain.is_episodic and classes:
            stuck = sum(int(visits[states].sum()) for states in classes)
            raise InputError(
                f"from {stuck:,} of {int(visits.sum()):,} logged transitions no episode ever ends under the "
                "target policy, so a discount of 1 has no answer: use one below 1"
            )
        if sum(not self._is_thin(states) for states in classes) > 1:
            largest = max(int(visits[states].sum()) for states in classes)
            raise InputError(
                f"under the target policy the data fall into {len(classes)} classes of states that never meet "
                f"({int(visits.sum()) - largest:,} of {int(visits.sum()):,} transitions lie outside the "
                "largest), so the ratio at γ̂ = 1 is not unique: use ratio_discount below 1"
            )


def _count_arrivals(
    pair: NDArray[np.int64], arrived: NDArray[np.int64], weight: Vector, shape: tuple[int, int]
) -> sp.csr_array:
    """N(s, a, s') of one batch, counted in a dense table if that is not much larger."""
    if shape[0] * shape[1] <= 4 * len(pair):
        flat = np.bincount(pair * shape[1] + arrived, weight, minlength=shape[0] * shape[1])
        return sp.csr_array(flat.reshape(shape))
    return sp.csr_array((weight, (pair, arrived)), shape=shape)
