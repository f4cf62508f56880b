"""Published estimators that learn w(s, a) = d_π(s, a)/d_μ(s, a), in closed form for linear functions.

All solve the flow equation Σ w(s, a) [ψ(s, a) - γψ̄(s')] = Σ ψ̄(s₀) for w = ψᵀβ, where w counts visits per
initial state. If weights and test functions share the same features, a constant among them, and there is no
ridge, all have the same solution, whose value is that of LSTDQ. They differ in the norm that measures the
error where there is no exact solution, and in the penalty they add.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.moments import PairMoments, outer, pair_features
from covshift.validation import Dense, Matrix, Vector

_REWEIGHTINGS = 20

MOST_PAIRS = 6000
"""The largest number of state-action features for a dense solve."""


class _Flow(NamedTuple):
    """The flow equation Fβ = b of mean sums, the Gram matrix, and the mass condition mᵀβ = 1.

    A table has no ridge, since even a tiny one biases the answer on a slowly mixing chain.
    """

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
    parts = _flow(experience, estimand)
    onto = _least_squares(_ridged(parts.gram, parts.ridge), parts.flow.T)
    beta = onto @ _least_squares(_ridged(parts.flow @ onto, parts.ridge), parts.right)
    return _answer(parts, beta, estimand)


def gradient_dice(experience: Experience, estimand: Estimand) -> float:
    """GradientDICE (Zhang et al., 2020): min_β ‖Fβ - b‖²_{G⁻¹} + (mᵀβ - 1)² + ridge ‖β‖²."""
    parts = _flow(experience, estimand)
    return _answer(parts, _regress(parts, _inverse_root(parts.gram)), estimand)


def gen_dice(experience: Experience, estimand: Estimand) -> float:
    """GenDICE (Zhang et al., 2020): GradientDICE in the norm of the weighted data, Σ τψψᵀ.

    Its χ² divergence weights the data by the estimate τ = ψᵀβ itself: min_β ‖Fβ - b‖² in the norm of
    (Σ max(τ, 0) ψψᵀ)⁻¹, plus (mᵀβ - 1)² + ridge ‖β‖². The weights are recomputed until the answer stays the same.
    """
    parts = _flow(experience, estimand)
    beta = _regress(parts, _inverse_root(parts.gram))
    answer = _answer(parts, beta, estimand)
    for _ in range(_REWEIGHTINGS):
        gram = _weighted_gram(experience, parts, beta)
        # A share of the plain Gram matrix keeps directions that get no weight.
        beta = _regress(parts, _inverse_root(gram + 1e-3 * parts.gram))
        before, answer = answer, _answer(parts, beta, estimand)
        if abs(answer - before) <= 1e-6 * max(1.0, abs(answer)):
            break
    return answer


def minimax_weights(experience: Experience, estimand: Estimand) -> float:
    """MWL (Uehara et al., 2020) with test functions ψᵀα, ‖α‖ ≤ 1: min_β ‖Fβ - b‖² + ridge ‖β‖².

    For the average reward (mᵀβ - 1)² is added, since w = 0 would solve the rest.
    """
    parts = _flow(experience, estimand)
    beta = _regress(parts, None, with_mass=estimand.is_average)
    return _answer(parts, beta, estimand)


def _flow(experience: Experience, estimand: Estimand) -> _Flow:
    table = experience.is_tabular
    moments = PairMoments.of_table(experience) if table else PairMoments.of(experience)
    seen = np.flatnonzero(moments.gram.diagonal() > 0)
    if len(seen) > MOST_PAIRS:
        raise InputError(
            f"{len(seen):,} state-action features are too many for a dense solve (at most {MOST_PAIRS:,}); "
            "use fqe or mis, which are sparse"
        )
    if estimand.is_average and experience.logs.has_episodes:
        moments = moments.restarted()
    discount = 1.0 if estimand.is_average else estimand.discount
    scale = moments.count if estimand.is_average else moments.starts
    gram = _dense(moments.gram, seen) / scale
    flow = gram - discount * _dense(moments.cross, seen).T / scale
    if estimand.is_average:
        right, mass = np.zeros(len(seen)), moments.total / scale
    else:
        right = moments.initial[seen] / scale
        mass = ((1.0 - discount) * moments.total + discount * moments.ended) / scale
    ridge = 0.0 if table else estimand.ridge
    return _Flow(flow, right, gram, mass[seen], moments.reward[seen] / scale, ridge, seen)


def _answer(parts: _Flow, beta: Vector, estimand: Estimand) -> float:
    """Σ w r per initial state, or for the average reward over Σ w, which is near N but not exactly N."""
    total = float(parts.reward @ beta)
    return total / float(parts.mass @ beta) if estimand.is_average else total


def _regress(parts: _Flow, root: Dense | None, *, with_mass: bool = True) -> Vector:
    """argmin_β ‖R(Fβ - b)‖² + (mᵀβ - 1)² + ridge ‖β‖², stacked so that condition numbers are not squared."""
    rows = [parts.flow if root is None else root @ parts.flow]
    right = [parts.right if root is None else root @ parts.right]
    if with_mass:
        rows.append(parts.mass[None, :])
        right.append(np.ones(1))
    if parts.ridge > 0.0:
        rows.append(np.sqrt(parts.ridge) * np.eye(len(parts.mass)))
        right.append(np.zeros(len(parts.mass)))
    return _least_squares(np.vstack(rows), np.concatenate(right))


def _inverse_root(gram: Dense) -> Dense:
    """R with RᵀR = gram⁻¹ on the directions in which the data vary."""
    if np.count_nonzero(gram - np.diag(np.diag(gram))) == 0:
        return np.diag(1.0 / np.sqrt(np.diag(gram)))
    values, vectors = np.linalg.eigh(gram)
    filled = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, filled] / np.sqrt(values[filled])).T)


def _least_squares(matrix: Dense, right: Dense) -> Dense:
    """Solved by a pivoted QR factorization, which is several times faster than singular values."""
    return np.asarray(scipy.linalg.lstsq(matrix, right, lapack_driver="gelsy")[0])


def _weighted_gram(experience: Experience, parts: _Flow, beta: Vector) -> Dense:
    """Σ max(τ, 0) ψψᵀ, in the scale of the Gram matrix."""
    if experience.is_tabular:
        return parts.gram * np.maximum(beta, 0.0)
    total: Dense = np.zeros((len(parts.seen), len(parts.seen)))
    plain = 0.0
    for sample in experience.samples():
        psi = pair_features(experience, sample)[0][:, parts.seen]
        tau = np.maximum(psi @ beta, 0.0)
        total = total + outer(psi, psi, sample.weight * tau)
        plain += float(sample.weight @ (psi**2).sum(axis=1))
    return total * float(np.trace(parts.gram)) / plain


def _dense(matrix: Matrix, seen: NDArray[np.int64]) -> Dense:
    if isinstance(matrix, sp.csr_array):
        return np.asarray(matrix[seen][:, seen].toarray())
    return np.asarray(matrix[np.ix_(seen, seen)])


def _ridged(matrix: Dense, ridge: float) -> Dense:
    return np.asarray(matrix + ridge * np.eye(len(matrix)))
