"""Lemma 1, the remark after it, the simplex-projected iteration, and the errata on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.theory import (
    CopOperator,
    MarkovChain,
    ProjectedOperator,
    as_dense,
    fit_span,
    project_weighted_simplex,
    span_projection,
    spectral_radius,
)
from covshift.theory.examples import dirichlet
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = cases.RANDOM + ", random features"
REVERSIBLE = "chains reversible under d_μ²"


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


def _distance_from_one(matrix: Dense) -> float:
    """The distance of the eigenvalue nearest to 1 from it."""
    return float(np.abs(np.linalg.eigvals(matrix) - 1.0).min())


@theorem(
    "lemma-1",
    REVERSIBLE + ", random features",
    _symmetric,
    tolerance=0.0,
    broken_by="E16-neither",
)
def _lemma_1(case: SymmetricCase) -> float:
    """With a symmetric Y and d_π/d_μ outside the span, 0 is the only solution of ΠYc = c."""
    projection = span_projection(case.phi, np.ones(len(case.d_mu)))
    return 1e-9 - _distance_from_one(projection @ case.y)


@theorem("E11-symmetric", REVERSIBLE, _symmetric)
def _symmetric_y(case: SymmetricCase) -> float:
    """Y is symmetric where P_π is reversible under d_μ², and then d_π ∝ d_μ²."""
    asymmetry = float(np.abs(case.y - case.y.T).max())
    square = case.d_mu**2 / (case.d_mu**2).sum()
    return max(asymmetry, float(np.abs(case.chain_pi.stationary() - square).max()))


@refuted("E11-equality", REVERSIBLE + ", random c", _symmetric)
def _equality_in_proof(case: SymmetricCase) -> float:
    """‖ΠYc‖ = ‖Π‖‖Yc‖, as Lemma 1's proof says. It is an inequality."""
    projection = span_projection(case.phi, np.ones(len(case.d_mu)))
    image = case.y @ case.rng.standard_normal(len(case.d_mu))
    norm = float(np.linalg.norm(projection, 2) * np.linalg.norm(image))
    return norm - float(np.linalg.norm(projection @ image))


@theorem(
    "remark-zero-or-infinity",
    RANDOM + ", random d",
    continuing,
    tolerance=0.0,
    broken_by="E16-neither",
)
def _without_bias(case: Case) -> float:
    """Iterates of Π_d Y go to 0 or diverge: the spectral radius is not 1."""
    projected = ProjectedOperator(case.problem.cop, case.features(), case.weighting())
    return 1e-9 - abs(spectral_radius(projected.on_weights()) - 1.0)


@theorem("E16-mean", RANDOM + " with a bias", continuing)
def _bias_keeps_mean(case: Case) -> float:
    """For d = d_μ with e ∈ span Φ, Π_d Y has eigenvalue 1 and preserves the mean."""
    problem = case.problem
    projected = ProjectedOperator(problem.cop, case.features(bias=True), problem.d_mu)
    x = case.vector()
    mean = abs(float(problem.d_mu @ projected.apply(x) - problem.d_mu @ x))
    return max(mean, _distance_from_one(projected.on_weights()))


@refuted("E16-neither", RANDOM + " with a bias, d = d_μ", continuing)
def _neither_zero_nor_infinite(case: Case) -> float:
    """iterates of Π_d Y go to 0 or diverge for every d."""
    problem = case.problem
    matrix = ProjectedOperator(problem.cop, case.features(bias=True), problem.d_mu).as_matrix()
    iterate = np.linalg.matrix_power(matrix, 3000) @ np.ones(len(matrix))
    size = float(np.abs(iterate).max())
    return size if size < 1e3 else 0.0


@theorem("simplex-constraints", RANDOM + " with a bias", continuing, cases=200)
def _constraints_met(case: Case) -> float:
    """The projection onto W_{Φ,d_μ} has mean 1 under d_μ and no negative ratio."""
    problem, phi = case.problem, case.features(bias=True)
    w = project_weighted_simplex(case.rng.standard_normal(phi.shape[1]), phi, problem.d_mu)
    return max(abs(float(problem.d_mu @ phi @ w) - 1.0), -float((phi @ w).min()))


@refuted("simplex-is-not-division", RANDOM + " with a bias", continuing, cases=200)
def _division_instead(case: Case) -> float:
    """projecting weights onto W_{Φ,d_μ} is dividing them by the mean."""
    problem, phi = case.problem, case.features(bias=True)
    w = case.rng.standard_normal(phi.shape[1])
    mean = float(problem.d_mu @ phi @ w)
    if abs(mean) < 0.1:
        return 0.0
    projected = project_weighted_simplex(w, phi, problem.d_mu)
    return relative(w / mean - projected, w)


@refuted(
    "E17-oscillation",
    "6 Dirichlet states, a bias and one feature; problems whose step overshoots",
    oscillating,
    cases=2,
)
def _keeps_moving(case: TwoFeatures) -> float:
    """the simplex-projected iteration converges. On some problems it oscillates for ever."""
    last = case.iterates(200)[-2:]
    return float(np.abs(last[1] - last[0]).max())
