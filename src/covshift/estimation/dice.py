"""Published estimators that learn w(s, a) = d_π(s, a)/d_μ(s, a), in closed form for linear functions.

All solve the flow equation Σ w(s, a) [ψ(s, a) - γψ̄(s')] = Σ ψ̄(s₀) for w = ψᵀβ, where w counts visits per
initial state. If weights and test functions share the same features, a constant among them, and there is no
ridge, all have the same solution, whose value is that of LSTDQ. They differ in the norm that measures the
error where there is no exact solution, and in the penalty they add.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.moments import PairMoments, outer, pair_features, solve
from covshift.validation import Dense, Vector

_REWEIGHTINGS = 20

MOST_PAIRS = 6000
"""The largest number of state-action features for a dense solve."""


class _Flow(NamedTuple):
    """The flow equation Fβ = b of mean sums over features, the Gram matrix, and the mass condition mᵀβ = 1."""

    flow: Dense
    right: Vector
    gram: Dense
    mass: Vector
    reward: Vector
    ridge: float
    seen: NDArray[np.int64]


def dual_dice(experience: Experience, estimand: Estimand) -> float:
    """DualDICE (Nachum et al., 2019) with ν = ψᵀα and ζ = ψᵀβ.

    min_α max_β E[(ν - γν')ζ - ζ²/2] - (1 - γ)E_{d₀}[ν]: the inner maximum is at β = G⁻¹Fᵀα, so that
    α solves (F G⁻¹ Fᵀ + ridge) α = b. F = Σ (ψ - γψ̄')ψᵀ, G = Σ ψψᵀ.
    """
    if experience.is_tabular:
        return _table_answer(experience, estimand)
    parts = _flow(experience, estimand)
    onto = _solve_definite(_ridged(parts.gram, parts.ridge), parts.flow.T)
    beta = onto @ _solve_definite(_ridged(parts.flow @ onto, parts.ridge), parts.right)
    return _answer(parts, beta, estimand)


def gradient_dice(experience: Experience, estimand: Estimand) -> float:
    """GradientDICE (Zhang et al., 2020): min_β ‖Fβ - b‖²_{G⁻¹} + (mᵀβ - 1)² + ridge ‖β‖²."""
    if experience.is_tabular:
        return _table_answer(experience, estimand)
    beta = _regress(_flow(experience, estimand), _plain_root(experience.origin, estimand))
    return _answer(_flow(experience, estimand), beta, estimand)


def gen_dice(experience: Experience, estimand: Estimand) -> float:
    """GenDICE (Zhang et al., 2020): GradientDICE in the norm of the weighted data, Σ τψψᵀ.

    Its χ² divergence weights the data by the estimate τ = ψᵀβ itself: min_β ‖Fβ - b‖² in the norm of
    (Σ max(τ, 0) ψψᵀ)⁻¹, plus (mᵀβ - 1)² + ridge ‖β‖². The weights are recomputed until the answer stays the same.
    """
    if experience.is_tabular:
        return _table_answer(experience, estimand)
    beta = _regress(_flow(experience, estimand), _weighted_root(experience.origin, estimand))
    return _answer(_flow(experience, estimand), beta, estimand)


def minimax_weights(experience: Experience, estimand: Estimand) -> float:
    """MWL (Uehara et al., 2020) with test functions ψᵀα, ‖α‖ ≤ 1: min_β ‖Fβ - b‖² + ridge ‖β‖².

    For the average reward (mᵀβ - 1)² is added, since w = 0 would solve the rest.
    """
    if experience.is_tabular:
        return _table_answer(experience, estimand)
    parts = _flow(experience, estimand)
    beta = _regress(parts, None, with_mass=estimand.is_average)
    return _answer(parts, beta, estimand)


def _table_answer(experience: Experience, estimand: Estimand) -> float:
    """The answer of all of them on a table, where the flow equation has an exact solution in every norm.

    There is no ridge, since even a tiny one biases the answer on a slowly mixing chain.
    """
    asked = estimand.objective, estimand.discount
    return experience.once(("flow of a table", *asked), lambda: _solve_table(experience, estimand))


def _solve_table(experience: Experience, estimand: Estimand) -> float:
    moments = PairMoments.of_table(experience)
    seen = np.flatnonzero(moments.total > 0)
    discount = 1.0 if estimand.is_average else estimand.discount
    flow: Any = sp.csr_array(moments.gram - discount * sp.csr_array(moments.cross).T)[seen][:, seen]
    right, mass, reward = (v[seen] for v in (moments.initial, moments.total, moments.reward))
    if not estimand.is_average:
        return float(reward @ solve(flow, right)) / moments.starts
    if experience.logs.has_episodes:
        beta = solve(flow, right)
    else:
        # The weights are determined up to a factor; a border that fixes their sum makes the matrix regular.
        border = sp.csr_array(mass[:, None] / moments.count)
        flow = sp.block_array([[flow, border], [border.T, None]])
        beta = solve(flow, np.append(np.zeros(len(seen)), 1.0))[:-1]
    return float(reward @ beta) / float(mass @ beta)


def _flow(experience: Experience, estimand: Estimand) -> _Flow:
    """The equation on features, once for all estimators that ask."""
    asked = estimand.objective, estimand.discount, estimand.ridge
    return experience.once((_Flow, *asked), lambda: _make_flow(experience, estimand))


def _make_flow(experience: Experience, estimand: Estimand) -> _Flow:
    moments = PairMoments.of(experience)
    seen = np.flatnonzero(PairMoments.of(experience.origin).gram.diagonal() > 0)
    if len(seen) > MOST_PAIRS:
        raise InputError(
            f"{len(seen):,} state-action features are too many for a dense solve (at most {MOST_PAIRS:,}); "
            "use fewer features"
        )
    if estimand.is_average and experience.logs.has_episodes:
        moments = moments.restarted()
    discount = 1.0 if estimand.is_average else estimand.discount
    scale = moments.count if estimand.is_average else moments.starts
    gram = np.asarray(moments.gram)[np.ix_(seen, seen)] / scale
    flow = gram - discount * np.asarray(moments.cross)[np.ix_(seen, seen)].T / scale
    if estimand.is_average:
        right, mass = np.zeros(len(seen)), moments.total / scale
    else:
        right = moments.initial[seen] / scale
        mass = ((1.0 - discount) * moments.total + discount * moments.ended) / scale
    reward = moments.reward[seen] / scale
    return _Flow(flow, right, gram, mass[seen], reward, estimand.ridge, seen)


def _answer(parts: _Flow, beta: Vector, estimand: Estimand) -> float:
    """Σ w r per initial state, or for the average reward over Σ w, which is near N but not exactly N."""
    total = float(parts.reward @ beta)
    return total / float(parts.mass @ beta) if estimand.is_average else total


def _regress(parts: _Flow, root: Dense | None, *, with_mass: bool = True) -> Vector:
    """argmin_β ‖R(Fβ - b)‖² + (mᵀβ - 1)² + ridge ‖β‖².

    Without a ridge the rows are stacked, so that condition numbers are not squared.
    """
    rows = parts.flow if root is None else root @ parts.flow
    right = parts.right if root is None else root @ parts.right
    if with_mass:
        rows = np.vstack([rows, parts.mass])
        right = np.append(right, 1.0)
    if parts.ridge > 0.0:
        return _solve_definite(_ridged(rows.T @ rows, parts.ridge), rows.T @ right)
    return _least_squares(rows, right)


def _plain_root(origin: Experience, estimand: Estimand) -> Dense:
    """The root of G⁻¹ for all weightings of a batch, so that they differ in the equation and not in the norm."""
    asked = estimand.objective, estimand.discount, estimand.ridge
    return origin.once(("plain root", *asked), lambda: _inverse_root(_flow(origin, estimand).gram))


def _weighted_root(origin: Experience, estimand: Estimand) -> Dense:
    """The root of (Σ max(τ, 0) ψψᵀ)⁻¹ at GenDICE's solution, for all weightings of a batch."""

    def find() -> Dense:
        parts, root = _flow(origin, estimand), _plain_root(origin, estimand)
        answer = float("inf")
        for _ in range(_REWEIGHTINGS):
            beta = _regress(parts, root)
            before, answer = answer, _answer(parts, beta, estimand)
            if abs(answer - before) <= 1e-6 * max(1.0, abs(answer)):
                break
            # A share of the plain Gram matrix keeps directions that get no weight.
            root = _inverse_root(_weighted_gram(origin, parts, beta) + 1e-3 * parts.gram)
        return root

    asked = estimand.objective, estimand.discount, estimand.ridge
    return origin.once(("weighted root", *asked), find)


def _inverse_root(gram: Dense) -> Dense:
    """R with RᵀR = gram⁻¹ on the directions in which the data vary."""
    values, vectors = np.linalg.eigh(gram)
    filled = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, filled] / np.sqrt(values[filled])).T)


def _solve_definite(matrix: Dense, right: Dense) -> Dense:
    """The solution for a symmetric matrix, by Cholesky's factors where it is positive definite."""
    try:
        return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), right))
    except np.linalg.LinAlgError:
        return _least_squares(matrix, right)


def _least_squares(matrix: Dense, right: Dense) -> Dense:
    """Solved by a pivoted QR factorization, which is several times faster than singular values."""
    return np.asarray(scipy.linalg.lstsq(matrix, right, lapack_driver="gelsy")[0])


def _weighted_gram(experience: Experience, parts: _Flow, beta: Vector) -> Dense:
    """Σ max(τ, 0) ψψᵀ, in the scale of the Gram matrix."""
    total: Dense = np.zeros((len(parts.seen), len(parts.seen)))
    plain = 0.0
    for sample in experience.samples():
        psi = pair_features(experience, sample)[0][:, parts.seen]
        tau = np.maximum(psi @ beta, 0.0)
        total = total + outer(psi, psi, sample.weight * tau)
        plain += float(sample.weight @ (psi**2).sum(axis=1))
    return total * float(np.trace(parts.gram)) / plain


def _ridged(matrix: Dense, ridge: float) -> Dense:
    return np.asarray(matrix + ridge * np.eye(len(matrix)))
