"""The small problems of the literature on which off-policy learning fails."""

from __future__ import annotations

import numpy as np

from covshift.theory.examples.problem import Problem
from covshift.theory.mdp import FiniteMDP
from covshift.validation import Dense


def bairds_star(discount: float = 0.99) -> Problem:
    """Baird's star with seven states, in the form of Sutton & Barto (2018), Example 11.1.

    Action 0 goes to one of the first six states, action 1 to the seventh. π always takes 1, μ takes
    it with probability 1/7, so that d_μ is uniform and d_π is the seventh state. All rewards are 0
    and the eight features can represent V^π = 0 exactly; off-policy TD diverges nevertheless.
    """
    p = np.zeros((7, 2, 7))
    p[:, 0, :6] = 1.0 / 6.0
    p[:, 1, 6] = 1.0
    phi = np.zeros((7, 8))
    phi[np.arange(6), np.arange(6)] = 2.0
    phi[:6, 7] = 1.0
    phi[6, 6], phi[6, 7] = 1.0, 2.0
    mdp = FiniteMDP(p, np.zeros((7, 2)))
    return Problem(mdp, _rows(7, [0.0, 1.0]), _rows(7, [6.0 / 7.0, 1.0 / 7.0]), discount, phi)


def tsitsiklis_van_roy(discount: float = 0.99) -> Problem:
    """The two-state chain of Tsitsiklis & Van Roy (1997): features 1 and 2, V^π = 0.

    Action a goes to state a; π always takes 1, μ is uniform, so d_μ = (½, ½) and off-policy TD
    diverges for γ > 5/6.
    """
    phi = np.array([[1.0], [2.0]])
    return Problem(_go_where_told(np.zeros((2, 2))), _rows(2, [0, 1]), _rows(2), discount, phi)


def kolter_chain(
    mass_on_first: float = 0.7, epsilon: float = 1e-3, discount: float = 0.99
) -> Problem:
    """The two-state chain of Kolter (2011), on which the off-policy error has no bound.

    π is uniform over the two states, μ puts `mass_on_first` on the first. V^π = (1, 1.05) and the one
    feature is (1, 1.05 + epsilon), so V^π is almost in the span, yet at one value of `mass_on_first`
    the projected equation has a pole.
    """
    value = np.array([1.0, 1.05])
    p_pi = np.full((2, 2), 0.5)
    reward = value - discount * p_pi @ value
    mdp = _go_where_told(np.repeat(reward[:, None], 2, axis=1))
    mu = _rows(2, [mass_on_first, 1.0 - mass_on_first])
    return Problem(mdp, _rows(2), mu, discount, np.array([[1.0], [1.05 + epsilon]]))


def boyan_chain(length: int = 12, mu_short: float = 0.7, discount: float = 1.0) -> Problem:
    """Boyan's chain (2002): episodes walk down from `length` by one or two; V^π(s) = -2s.

    State s of the chain (1 … length) is row s - 1; state 0 is the end. A step costs 3, the last one
    from state 1 costs 2. π steps by one or two with equal probability, μ by one with `mu_short`.
    The four features interpolate between states a third of the chain apart.
    """
    p = np.zeros((length, 2, length))
    for state in range(2, length + 1):
        for action in (0, 1):
            if state - 1 - action > 0:
                p[state - 1, action, state - 2 - action] = 1.0
    r = np.full((length, 2), -3.0)
    r[0] = -2.0
    d_0 = np.eye(length)[-1]
    knots = np.linspace(length, 0, 4)
    states = np.arange(1, length + 1)
    phi = np.maximum(0.0, 1.0 - np.abs(states[:, None] - knots) / (knots[0] - knots[1]))
    mu = _rows(length, [mu_short, 1.0 - mu_short])
    return Problem(FiniteMDP(p, r, d_0), _rows(length), mu, discount, phi)


def _go_where_told(r: Dense) -> FiniteMDP:
    return FiniteMDP(np.tile(np.eye(2), (2, 1, 1)), r)


def _rows(num_states: int, probabilities: list[float] | None = None) -> Dense:
    return np.tile([0.5, 0.5] if probabilities is None else probabilities, (num_states, 1))
