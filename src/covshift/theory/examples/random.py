"""Generators of random problems."""

from __future__ import annotations

import numpy as np

from covshift.errors import InputError
from covshift.theory.examples.problem import Problem
from covshift.theory.mdp import FiniteMDP
from covshift.validation import Dense


def dirichlet(
    rng: np.random.Generator,
    num_states: int = 6,
    num_actions: int = 3,
    num_features: int | None = None,
    concentration: float = 1.0,
    discount: float = 0.99,
) -> Problem:
    """Each P(·|s, a), π(·|s) and μ(·|s) from a symmetric Dirichlet; rewards and features normal.

    A small `concentration` gives nearly deterministic kernels and policies.
    """
    p = rng.dirichlet(np.full(num_states, concentration), size=(num_states, num_actions))
    return _with_policies(p, rng, num_features, concentration, discount)


def garnet(
    rng: np.random.Generator,
    num_states: int = 6,
    num_actions: int = 3,
    branching: int = 2,
    num_features: int | None = None,
    discount: float = 0.99,
) -> Problem:
    """A Garnet MDP (Archibald et al., 1995): each action leads to `branching` states.

    The probabilities are the gaps between uniform points. Draws whose behavior chain does not visit
    every state are discarded.
    """
    if not 1 <= branching <= num_states:
        raise InputError(f"branching must lie in [1, {num_states}], but it is {branching}")
    for _ in range(1000):
        p = np.zeros((num_states, num_actions, num_states))
        for state in range(num_states):
            for action in range(num_actions):
                targets = rng.choice(num_states, size=branching, replace=False)
                cuts = np.sort(rng.random(branching - 1))
                p[state, action, targets] = np.diff(np.concatenate([[0.0], cuts, [1.0]]))
        problem = _with_policies(p, rng, num_features, 1.0, discount)
        classes = problem.chain_mu.recurrent_classes()
        if len(classes) == 1 and len(classes[0]) == num_states:
            return problem
    raise InputError(f"no irreducible Garnet MDP in 1000 draws with branching {branching}")


def episodic(
    rng: np.random.Generator,
    num_states: int = 5,
    num_actions: int = 2,
    *,
    single_start: bool = True,
    discount: float = 0.99,
) -> Problem:
    """A random episodic problem; each step ends the episode with some probability.

    With `single_start` the last state starts every episode and is never returned to, which is the
    paper's Assumption 1. Without it episodes start anywhere and starts are revisited.
    """
    p = rng.dirichlet(np.ones(num_states + 1), size=(num_states, num_actions))[:, :, :-1]
    if single_start:
        p[:, :, 0] += p[:, :, -1]
        p[:, :, -1] = 0.0
        d_0 = np.eye(num_states)[-1]
    else:
        d_0 = rng.dirichlet(np.ones(num_states))
    r = rng.standard_normal((num_states, num_actions))
    policies = [random_policy(rng, num_states, num_actions) for _ in range(2)]
    return Problem(FiniteMDP(p, r, d_0), policies[0], policies[1], discount)


def random_policy(
    rng: np.random.Generator, num_states: int, num_actions: int, concentration: float = 1.0
) -> Dense:
    """A Dirichlet draw for each state, kept away from 0 so that every policy covers every other."""
    policy = rng.dirichlet(np.full(num_actions, concentration), size=num_states)
    return 0.99 * policy + 0.01 / num_actions


def random_features(rng: np.random.Generator, num_states: int, num_features: int) -> Dense:
    """Independent standard normal features."""
    return rng.standard_normal((num_states, num_features))


def _with_policies(
    p: Dense,
    rng: np.random.Generator,
    num_features: int | None,
    concentration: float,
    discount: float,
) -> Problem:
    num_states, num_actions, _ = p.shape
    return Problem(
        FiniteMDP(p, rng.standard_normal((num_states, num_actions))),
        random_policy(rng, num_states, num_actions, concentration),
        random_policy(rng, num_states, num_actions, concentration),
        discount,
        None if num_features is None else random_features(rng, num_states, num_features),
    )
