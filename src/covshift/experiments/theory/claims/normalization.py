"""Theorem 5 and the errata on it, by enumerating all batches of a small case."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from covshift.experiments.theory.claims.chapter import Chapter
from covshift.rules import (
    leave_one_out_residual,
    normalization_gradient,
    normalization_loss,
    one_sided_residual,
)
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = "4 states, 2 features, all batches of 2 to 4 enumerated"


@dataclass(frozen=True)
class LinearCase:
    """A linear ratio c = Φw, so that ∇c(s) = φ(s), over few states, and batches of m samples."""

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

    def single_sample(self) -> Vector:
        """E[(c - 1)∇c], the mean of the product of one sample with itself."""
        return np.asarray(self.d_mu @ ((self.c - 1.0)[:, None] * self.phi))

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


def _bias(case: LinearCase, estimates: Dense, probabilities: Vector) -> float:
    return float(np.abs(probabilities @ estimates - case.gradient()).max())


@theorem("equation-8", RANDOM, linear_case)
def _equation_8(case: LinearCase) -> float:
    """Eq. (8) is the gradient of eq. (7)."""
    step = 1e-5
    above, below = (
        np.array(
            [
                normalization_loss(case.d_mu @ case.phi @ (case.w + sign * step * axis))
                for axis in np.eye(2)
            ]
        )
        for sign in (1.0, -1.0)
    )
    return float(np.abs((above - below) / (2 * step) - case.gradient()).max())


@theorem("theorem-5", RANDOM, linear_case, broken_by="theorem-5-needs-independence")
def _theorem_5(case: LinearCase) -> float:
    """The leave-one-out estimate of ∇ℒ is unbiased for independent draws from d_μ."""
    states, probabilities = case.batches()
    return _bias(case, case.averaged(states), probabilities)


@refuted("theorem-5-needs-independence", RANDOM, linear_case)
def _without_replacement(case: LinearCase) -> float:
    """the leave-one-out estimate is unbiased for draws without replacement."""
    states = np.array(list(permutations(range(len(case.c)), case.batch_size)))
    probabilities = np.ones(len(states))
    for batch, row in enumerate(states):
        left = 1.0
        for state in row:
            probabilities[batch] *= case.d_mu[state] / left
            left -= case.d_mu[state]
    return _bias(case, case.averaged(states), probabilities)


@theorem("one-sided", RANDOM, linear_case, broken_by="single-sample")
def _one_sided(case: LinearCase) -> float:
    """The one-sided estimate, with the gradient of the first sample only, is unbiased too."""
    states, probabilities = case.batches()
    return _bias(case, case.one_sided(states), probabilities)


@theorem("one-sided-variance", RANDOM, linear_case)
def _variance_order(case: LinearCase) -> float:
    """Theorem 5's average has at most the variance of the one-sided estimate."""
    states, probabilities = case.batches()
    averaged = case.variance(case.averaged(states), probabilities)
    return averaged - case.variance(case.one_sided(states), probabilities)


@refuted("single-sample", "4 states, 2 features", linear_case)
def _single_sample(case: LinearCase) -> float:
    """E[(c - 1)∇c] is ∇ℒ, so that one sample is enough (the double-sampling problem)."""
    return float(np.abs(case.single_sample() - case.gradient()).max())


@refuted("E12-printed-end", "4 states, 2 features", linear_case)
def _printed_end(case: LinearCase) -> float:
    """the mean of Theorem 5's estimate is ∇E[(c - 1)²], as its proof ends. It is ∇½(E[c] - 1)²."""
    return float(np.abs(2.0 * case.single_sample() - case.gradient()).max())
