"""Lemma 1, the remark after it, the simplex-projected iteration, and the errata on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative
from covshift.theory import (
    CopOperator,
    MarkovChain,
    ProjectedOperator,
    as_dense,
    fit_span,
    project_weighted_simplex,
    span_projection,
)
from covshift.theory.examples import dirichlet
from covshift.validation import Dense, Vector


@dataclass(frozen=True)
class SymmetricCase:
    """A chain reversible under d_μ², which is when Y is symmetric, and random features."""

    chain_pi: MarkovChain
    d_mu: Vector
    phi: Dense
    rng: np.random.Generator

    @property
    def y(self) -> Dense:
        """Y as an array."""
        return as_dense(CopOperator(self.chain_pi, self.d_mu).as_matrix())


def _symmetric(rng: np.random.Generator) -> SymmetricCase:
    size = int(rng.integers(3, 8))
    weights = rng.random((size, size))
    weights += weights.T
    total = weights.sum(axis=1)
    d_mu = np.sqrt(total) / np.sqrt(total).sum()
    phi = rng.standard_normal((size, int(rng.integers(1, size))))
    return SymmetricCase(MarkovChain(weights / total[:, None]), d_mu, phi, rng)


def _distance_from_one(matrix: Dense) -> float:
    return float(np.abs(np.linalg.eigvals(matrix) - 1.0).min())


def _lemma_1(case: SymmetricCase) -> float:
    """1e-9 minus the distance of the eigenvalues of ΠY from 1."""
    projection = span_projection(case.phi, np.ones(len(case.d_mu)))
    return 1e-9 - _distance_from_one(projection @ case.y)


def _symmetric_means(case: SymmetricCase) -> float:
    asymmetry = float(np.abs(case.y - case.y.T).max())
    square = case.d_mu**2 / (case.d_mu**2).sum()
    return max(asymmetry, float(np.abs(case.chain_pi.stationary() - square).max()))


def _equality_in_proof(case: SymmetricCase) -> float:
    """‖Π‖‖Yc‖ - ‖ΠYc‖, which the proof prints as 0."""
    projection = span_projection(case.phi, np.ones(len(case.d_mu)))
    image = case.y @ case.rng.standard_normal(len(case.d_mu))
    norm = float(np.linalg.norm(projection, 2) * np.linalg.norm(image))
    return norm - float(np.linalg.norm(projection @ image))


def _without_bias(case: Case) -> float:
    """1e-9 minus the distance of the largest modulus of an eigenvalue of Π_d Y from 1."""
    projected = ProjectedOperator(case.problem.cop, case.features(), case.weighting())
    return 1e-9 - abs(float(np.abs(np.linalg.eigvals(projected.on_weights())).max()) - 1.0)


def _bias_keeps_mean(case: Case) -> float:
    problem = case.problem
    projected = ProjectedOperator(problem.cop, case.features(bias=True), problem.d_mu)
    x = case.vector()
    mean = abs(float(problem.d_mu @ projected.apply(x) - problem.d_mu @ x))
    return max(mean, _distance_from_one(projected.on_weights()))


def _not_zero_nor_infinite(case: Case) -> float:
    """The size of the 3000th iterate of Π_{d_μ}Y with a bias, if it is bounded."""
    problem = case.problem
    matrix = ProjectedOperator(problem.cop, case.features(bias=True), problem.d_mu).as_matrix()
    iterate = np.linalg.matrix_power(matrix, 3000) @ np.ones(len(matrix))
    size = float(np.abs(iterate).max())
    return size if size < 1e3 else 0.0


@dataclass(frozen=True)
class TwoFeatures:
    """The simplex-projected iteration with two features, whose weights move on a line.

    Attributes:
        cop: Y.
        phi: states × 2, the first feature 1 everywhere.
        d: the weighting of the projection onto the span.
    """

    cop: CopOperator
    phi: Dense
    d: Vector

    def slope(self) -> float:
        """By how much a step along the line is stretched before it is clamped."""
        projected = ProjectedOperator(self.cop, self.phi, self.d)
        mean = self.cop.d_mu @ self.phi
        along = np.array([-mean[1], mean[0]]) / np.linalg.norm(mean)
        return float(along @ projected.on_weights() @ along)

    def iterates(self, num_steps: int) -> list[Vector]:
        """w, Π_Δ Π_d Y w, … by the quadratic program itself."""
        w = project_weighted_simplex([1.0, 0.5], self.phi, self.cop.d_mu)
        weights = [w]
        for _ in range(num_steps):
            moved = fit_span(self.cop.apply(self.phi @ w), self.phi, self.d)
            w = project_weighted_simplex(moved, self.phi, self.cop.d_mu)
            weights.append(w)
        return weights


def two_features(rng: np.random.Generator) -> TwoFeatures:
    """6 Dirichlet states (concentration 0.3), a bias and a normal feature, random d."""
    problem = dirichlet(rng, 6, 3, concentration=0.3)
    phi = np.column_stack([np.ones(6), rng.standard_normal(6)])
    return TwoFeatures(problem.cop, phi, rng.dirichlet(np.ones(6)))


def oscillating(rng: np.random.Generator) -> TwoFeatures:
    """Draws until a step along the line overshoots: slope below -1."""
    while True:
        case = two_features(rng)
        if case.slope() < -1.01:
            return case


def _keeps_moving(case: TwoFeatures) -> float:
    last = case.iterates(200)[-2:]
    return float(np.abs(last[1] - last[0]).max())


def _constraints_met(case: Case) -> float:
    problem, phi = case.problem, case.features(bias=True)
    w = project_weighted_simplex(case.rng.standard_normal(phi.shape[1]), phi, problem.d_mu)
    return max(abs(float(problem.d_mu @ phi @ w) - 1.0), -float((phi @ w).min()))


def _division_instead(case: Case) -> float:
    """How much farther division by the mean moves weights than the projection does."""
    problem, phi = case.problem, case.features(bias=True)
    w = case.rng.standard_normal(phi.shape[1])
    mean = float(problem.d_mu @ phi @ w)
    if abs(mean) < 0.1:
        return 0.0
    projected = project_weighted_simplex(w, phi, problem.d_mu)
    return relative(w / mean - projected, w)


RANDOM = cases.RANDOM + ", random features"

CLAIMS: list[Claim[Any]] = [
    Claim(
        "lemma-1",
        "With a symmetric Y and d_π/d_μ outside the span, 0 is the only solution of ΠYc = c.",
        "chains reversible under d_μ², random features",
        _symmetric,
        _lemma_1,
        tolerance=0.0,
        broken_by="E16-neither",
    ),
    Claim(
        "E11-symmetric",
        "Y is symmetric where P_π is reversible under d_μ², and then d_π ∝ d_μ².",
        "chains reversible under d_μ²",
        _symmetric,
        _symmetric_means,
    ),
    Claim(
        "E11-equality",
        "Refuted: ‖ΠYc‖ = ‖Π‖‖Yc‖. It is an inequality.",
        "chains reversible under d_μ², random c",
        _symmetric,
        _equality_in_proof,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "remark-zero-or-infinity",
        "Iterates of Π_d Y go to 0 or diverge: no eigenvalue has modulus 1.",
        RANDOM + ", random d",
        continuing,
        _without_bias,
        tolerance=0.0,
        broken_by="E16-neither",
    ),
    Claim(
        "E16-mean",
        "For d = d_μ with e ∈ span Φ, Π_d Y has eigenvalue 1 and preserves the mean.",
        RANDOM + " with a bias",
        continuing,
        _bias_keeps_mean,
    ),
    Claim(
        "E16-neither",
        "Refuted: iterates of Π_d Y go to 0 or diverge for every d.",
        RANDOM + " with a bias, d = d_μ",
        continuing,
        _not_zero_nor_infinite,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "simplex-constraints",
        "The projection onto W_{Φ,d_μ} has mean 1 under d_μ and no negative ratio.",
        RANDOM + " with a bias",
        continuing,
        _constraints_met,
        cases=200,
    ),
    Claim(
        "simplex-is-not-division",
        "Refuted: projecting onto W_{Φ,d_μ} is dividing by the mean.",
        RANDOM + " with a bias",
        continuing,
        _division_instead,
        refutes=True,
        tolerance=1e-2,
        cases=200,
    ),
    Claim(
        "E17-oscillation",
        "Refuted: the simplex-projected iteration converges. Some problems oscillate for ever.",
        "6 Dirichlet states, a bias and one feature; draws whose step overshoots",
        oscillating,
        _keeps_moving,
        refutes=True,
        tolerance=1e-2,
        cases=2,
    ),
]
