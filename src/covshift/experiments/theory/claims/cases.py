"""Random cases that several claims share, and enumeration of paths for exact expectations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from covshift.theory import FiniteMDP
from covshift.theory.examples import Problem, dirichlet, episodic, garnet
from covshift.validation import Dense, Vector


@dataclass(frozen=True)
class Case:
    """A problem, γ̂, a number of steps n, and the generator for whatever else a claim draws."""

    problem: Problem
    ratio_discount: float
    num_steps: int
    rng: np.random.Generator

    @property
    def c(self) -> Vector:
        """The exact ratio at γ̂."""
        return self.problem.c_star(self.ratio_discount)

    def vector(self) -> Vector:
        """A random vector over states."""
        return self.rng.standard_normal(self.problem.mdp.num_states)

    def features(self, *, bias: bool = False) -> Dense:
        """Random features, fewer than states; with `bias` the first one is 1 everywhere."""
        size = self.problem.mdp.num_states
        phi = self.rng.standard_normal((size, int(self.rng.integers(1, size))))
        if bias:
            phi[:, 0] = 1.0
        return phi

    def weighting(self) -> Vector:
        """A random distribution over states."""
        return self.rng.dirichlet(np.ones(self.problem.mdp.num_states))


def continuing(rng: np.random.Generator) -> Case:
    """An aperiodic irreducible MDP of 2 to 8 states, Dirichlet or Garnet, and γ̂ < 1."""
    while True:
        num_states, num_actions = int(rng.integers(2, 9)), int(rng.integers(2, 5))
        if rng.random() < 0.5:
            problem = dirichlet(rng, num_states, num_actions)
        else:
            branching = int(rng.integers(2, num_states + 1))
            problem = garnet(rng, num_states, num_actions, branching)
        if problem.chain_pi.mixing_rate() < 0.999:
            return Case(problem, _ratio_discount(rng), int(rng.integers(1, 6)), rng)


def with_transient(rng: np.random.Generator) -> Case:
    """As `continuing`, but in half of the cases π never enters the last state, which μ does.

    Only the last action leads there, and π never takes it.
    """
    case = continuing(rng)
    if rng.random() < 0.5:
        return case
    kernel = case.problem.mdp.dense_kernel().copy()
    kernel[:, :, -1] = 0.0
    kernel[:, :, 0] += 1.0 - kernel.sum(axis=2)
    kernel[:, -1] = 0.0
    kernel[:, -1, -1] = 1.0
    kernel[-1, :, :] = 0.0
    kernel[-1, :, 0] = 1.0
    kernel[0, 0] = np.append(np.full(kernel.shape[0] - 1, 1.0 / (kernel.shape[0] - 1)), 0.0)
    pi = case.problem.pi.copy()
    pi[:, 0] += pi[:, -1]
    pi[:, -1] = 0.0
    problem = replace(case.problem, mdp=FiniteMDP(kernel, case.problem.mdp.r), pi=pi)
    if problem.chain_pi.mixing_rate() > 0.999 or len(problem.chain_mu.recurrent_classes()) > 1:
        return with_transient(rng)
    return replace(case, problem=problem) if (problem.d_mu > 1e-9).all() else with_transient(rng)


def skewed(rng: np.random.Generator) -> Case:
    """6 Dirichlet(0.2) states, 3 actions: nearly deterministic, so that π and μ are far apart."""
    return Case(dirichlet(rng, 6, 3, concentration=0.2), 0.99, 1, rng)


def small(rng: np.random.Generator) -> Case:
    """A problem of 3 states and 2 actions, small enough to enumerate paths; γ̂ < 1."""
    problem = dirichlet(rng, 3, 2)
    return Case(problem, _ratio_discount(rng), int(rng.integers(1, 4)), rng)


def one_start(rng: np.random.Generator) -> Case:
    """An episodic MDP of 3 to 6 states under the paper's Assumption 1."""
    return _episodic(rng, single_start=True)


def any_start(rng: np.random.Generator) -> Case:
    """An episodic MDP of 3 to 6 states with any start distribution."""
    return _episodic(rng, single_start=False)


def paths(problem: Problem, num_steps: int) -> Iterator[tuple[float, list[int], list[int]]]:
    """Every path of `num_steps` actions under μ as (probability, states, actions)."""
    kernel = problem.mdp.dense_kernel()
    start = problem.d_mu
    num_states, num_actions = problem.mdp.num_states, problem.mdp.num_actions
    for states in product(range(num_states), repeat=num_steps + 1):
        for actions in product(range(num_actions), repeat=num_steps):
            probability = float(start[states[0]])
            for s_tm1, a_tm1, s_t in zip(states, actions, states[1:], strict=False):
                probability *= problem.mu[s_tm1, a_tm1] * kernel[s_tm1, a_tm1, s_t]
            if probability > 0:
                yield probability, list(states), list(actions)


RANDOM = "random MDPs (Dirichlet and Garnet, 2–8 states)"
ONE_START = "random episodic MDPs under Assumption 1 (one start, never revisited)"
ANY_START = "random episodic MDPs, any start distribution"
SKEWED = "6 Dirichlet(0.2) states, 3 actions"


def relative(difference: ArrayLike, scale: ArrayLike) -> float:
    """The largest entry of a difference over the largest entry of what it is measured against."""
    return float(np.abs(difference).max() / max(1.0, float(np.abs(scale).max())))


def _ratio_discount(rng: np.random.Generator) -> float:
    """γ̂ between 0.1 and 0.9999, even in the logarithm of 1 - γ̂."""
    return float(1.0 - 10.0 ** rng.uniform(-4.0, np.log10(0.9)))


def _episodic(rng: np.random.Generator, *, single_start: bool) -> Case:
    num_states, num_actions = int(rng.integers(3, 7)), int(rng.integers(2, 4))
    problem = episodic(rng, num_states, num_actions, single_start=single_start)
    return Case(problem, _ratio_discount(rng), 1, rng)
