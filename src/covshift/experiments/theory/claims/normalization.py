"""Theorem 5 and the errata on it, by enumerating all batches of a small case."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.rules import (
    leave_one_out_residual,
    normalization_gradient,
    normalization_loss,
    one_sided_residual,
)
from covshift.validation import Dense, Vector


@dataclass(frozen=True)
class LinearCase:
    """A linear ratio c = Φw, so that ∇c(s) = φ(s), over few states; m samples a batch."""

    phi: Dense
    w: Vector
    d_mu: Vector
    batch_size: int

    @property
    def c(self) -> Vector:
        """The ratio of each state."""
        return np.asarray(self.phi @ self.w)

    def gradient(self) -> Vector:
        """The exact gradient, eq. (8)."""
        return normalization_gradient(self.d_mu @ self.c, self.d_mu @ self.phi)

    def batches(self) -> tuple[Dense, Vector]:
        """Every batch of independent draws, as states, and its probability."""
        states = np.array(list(product(range(len(self.c)), repeat=self.batch_size)))
        return states, self.d_mu[states].prod(axis=1)

    def averaged(self, states: Dense) -> Dense:
        """Theorem 5's estimate for each batch."""
        residual = leave_one_out_residual(self.c[states])
        return np.asarray((residual[:, :, None] * self.phi[states]).mean(axis=1))

    def one_sided(self, states: Dense) -> Dense:
        """The estimate with the first sample's gradient only."""
        return np.asarray(one_sided_residual(self.c[states])[:, None] * self.phi[states[:, 0]])

    def variance(self, estimates: Dense, probabilities: Vector) -> float:
        """Total variance over the coordinates."""
        return float(probabilities @ ((estimates - self.gradient()) ** 2).sum(axis=1))


def linear_case(rng: np.random.Generator) -> LinearCase:
    """4 states, 2 normal features, normal weights, batches of 2 to 4."""
    phi = rng.standard_normal((4, 2))
    d_mu = rng.dirichlet(np.ones(4))
    return LinearCase(phi, rng.standard_normal(2), d_mu, int(rng.integers(2, 5)))


def _bias(case: LinearCase, kind: str) -> float:
    states, probabilities = case.batches()
    estimates = getattr(case, kind)(states)
    return float(np.abs(probabilities @ estimates - case.gradient()).max())


def _without_replacement(case: LinearCase) -> float:
    """Bias where a batch never holds a state twice."""
    states = np.array(list(permutations(range(len(case.c)), case.batch_size)))
    probabilities = np.ones(len(states))
    for batch, row in enumerate(states):
        left = 1.0
        for state in row:
            probabilities[batch] *= case.d_mu[state] / left
            left -= case.d_mu[state]
    return float(np.abs(probabilities @ case.averaged(states) - case.gradient()).max())


def _single_sample(case: LinearCase) -> float:
    return float(np.abs(case.d_mu @ ((case.c - 1.0)[:, None] * case.phi) - case.gradient()).max())


def _printed_end(case: LinearCase) -> float:
    """∇E[(c - 1)²] = 2 E[(c - 1)∇c] against ∇ℒ."""
    printed = 2.0 * case.d_mu @ ((case.c - 1.0)[:, None] * case.phi)
    return float(np.abs(printed - case.gradient()).max())


def _gradient_of_loss(case: LinearCase) -> float:
    """Eq. (8) against central differences of eq. (7), relative."""
    step = 1e-5
    numeric = np.array(
        [
            (
                normalization_loss(case.d_mu @ case.phi @ (case.w + step * axis))
                - normalization_loss(case.d_mu @ case.phi @ (case.w - step * axis))
            )
            / (2 * step)
            for axis in np.eye(2)
        ]
    )
    return float(np.abs(numeric - case.gradient()).max())


def _variance_order(case: LinearCase) -> float:
    states, probabilities = case.batches()
    averaged = case.variance(case.averaged(states), probabilities)
    return averaged - case.variance(case.one_sided(states), probabilities)


RANDOM = "4 states, 2 features, all batches of 2 to 4 enumerated"

CLAIMS = [
    Claim(
        "equation-8", "Eq. (8) is the gradient of eq. (7).", RANDOM, linear_case, _gradient_of_loss
    ),
    Claim(
        "theorem-5",
        "The leave-one-out estimate is unbiased for ∇ℒ, for independent draws from d_μ.",
        RANDOM,
        linear_case,
        lambda case: _bias(case, "averaged"),
        broken_by="theorem-5-needs-independence",
    ),
    Claim(
        "theorem-5-needs-independence",
        "Refuted: it is unbiased for draws without replacement.",
        RANDOM,
        linear_case,
        _without_replacement,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "one-sided",
        "The one-sided estimate is unbiased too.",
        RANDOM,
        linear_case,
        lambda case: _bias(case, "one_sided"),
        broken_by="single-sample",
    ),
    Claim(
        "one-sided-variance",
        "Theorem 5's average has at most the variance of the one-sided estimate.",
        RANDOM,
        linear_case,
        _variance_order,
    ),
    Claim(
        "single-sample",
        "Refuted: E[(c - 1)∇c] is ∇ℒ (the double-sampling problem).",
        "4 states, 2 features",
        linear_case,
        _single_sample,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "E12-printed-end",
        "Refuted: the estimate's mean is ∇E[(c - 1)²]. It is ∇½(E[c] - 1)².",
        "4 states, 2 features",
        linear_case,
        _printed_end,
        refutes=True,
        tolerance=1e-2,
    ),
]
