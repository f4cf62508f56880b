"""The whole population of a finite problem as weighted data, for which estimators must be exact."""

from __future__ import annotations

import numpy as np

from covshift.estimation.arrays import from_arrays
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike, as_features
from covshift.estimation.policies import as_policy
from covshift.theory.examples import Problem


def population(problem: Problem, features: FeaturesLike = None) -> Experience:
    """One trajectory of one step for every (s, a, s'), weighted by its exact frequency under μ.

    An estimator that sums over transitions then gives its limit for infinite data, which for a consistent
    estimator is the truth up to rounding. A continuing problem starts from d_μ.
    """
    kernel = problem.mdp.dense_kernel()
    size, num_actions, _ = kernel.shape
    ends = np.maximum(1.0 - kernel.sum(axis=2, keepdims=True), 0.0)
    outcomes = np.concatenate([kernel, ends], axis=2)
    s, a, t = np.nonzero(outcomes > 1e-15)
    weight = problem.d_mu[s] * problem.mu[s, a] * outcomes[s, a, t]
    d_0 = problem.d_mu if problem.mdp.d_0 is None else problem.mdp.d_0
    starts = np.divide(d_0, problem.d_mu, where=problem.d_mu > 0, out=np.zeros(size))[s]
    # Each transition stands twice: as the first of its episode, and as a later one.
    weight = np.concatenate([weight * starts, weight * (1.0 - starts)])
    s, a, t = (np.tile(column, 2) for column in (s, a, t))
    logs = from_arrays(
        s,
        a,
        problem.mdp.r[s, a],
        t % size,
        t == size,
        trajectory=np.arange(len(s)),
        mu=problem.mu[s, a],
        is_initial=np.arange(len(s)) < len(s) // 2,
        num_actions=num_actions,
    )
    return Experience(
        logs,
        as_policy(problem.pi, num_actions),
        as_features(features, logs),
        weights=np.maximum(weight, 0.0) * len(weight),
    )


def true_value(problem: Problem, discount: float) -> float:
    """The exact value E_{d₀}[V^π]; a continuing problem starts from d_μ."""
    start = problem.d_mu if problem.mdp.d_0 is None else problem.mdp.d_0
    return float(start @ problem.mdp.value(problem.pi, discount))


def true_average(problem: Problem) -> float:
    """The exact average reward of π; where an episode ends, the next one starts."""
    again = problem.restart()
    return float(again.d_pi @ again.mdp.r_pi(problem.pi))
