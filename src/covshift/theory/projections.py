"""Projections onto the span of features and onto the weighted simplex within it."""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from covshift.errors import InputError
from covshift.validation import Dense, Vector, as_table, as_vector


def fit_span(x: ArrayLike, phi: ArrayLike, d: ArrayLike) -> Vector:
    """argmin_w ‖Φw - x‖_d; the smallest such w if there are several."""
    vector = np.asarray(x, dtype=np.float64)
    features = as_table("phi", phi, (len(vector), -1))
    root = np.sqrt(as_vector("d", d, len(vector)))
    return np.asarray(np.linalg.lstsq(root[:, None] * features, root * vector)[0])


def project_span(x: ArrayLike, phi: ArrayLike, d: ArrayLike) -> Vector:
    """Π_d x = argmin_{y ∈ span Φ} ‖y - x‖_d."""
    return np.asarray(np.asarray(phi, dtype=np.float64) @ fit_span(x, phi, d))


def span_projection(phi: ArrayLike, d: ArrayLike) -> Dense:
    """The matrix of Π_d, which is Φ (ΦᵀDΦ)⁻¹ ΦᵀD where the inverse exists."""
    features = as_table("phi", phi, (-1, -1))
    root = np.sqrt(as_vector("d", d, len(features)))
    return np.asarray(features @ np.linalg.pinv(root[:, None] * features) * root[None, :])


def project_weighted_simplex(w: ArrayLike, phi: ArrayLike, d_mu: ArrayLike) -> Vector:
    """Projects weights onto those whose ratio Φu is a distribution over d_μ.

    argmin_u ‖u - w‖₂ subject to Σ_s d_μ(s) φ(s)ᵀu = 1 and φ(s)ᵀu ≥ 0 for every state.

    This quadratic program is not a division by the mean: it moves along the features' directions.
    If the solution without the inequalities satisfies them, it is the answer; otherwise an interior-point
    solver finds it.

    Args:
        w: a weight for each feature.
        phi: states × features.
        d_mu: weights of the states in the mean. For a sample, pass its rows as `phi` and equal weights.

    Raises:
        InputError: no weights meet the constraints.

    Reference: the set W_{Φ,d_μ} in "COP-TD with Linear Function Approximation".
    """
    features = as_table("phi", phi, (-1, -1))
    weights = as_vector("w", w, features.shape[1])
    mean = as_vector("d_mu", d_mu, features.shape[0]) @ features
    if not mean.any():
        raise InputError("the mean of the features under d_mu is 0, so no ratio can average 1")
    equality_only = weights + mean * (1.0 - mean @ weights) / (mean @ mean)
    if (features @ equality_only >= 0).all():
        return np.asarray(equality_only)
    return _solve_simplex_program(weights, features, mean)


def _solve_simplex_program(weights: Vector, features: Dense, mean: Vector) -> Vector:
    size = len(weights)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(
        sp.eye(size, format="csc"),
        -weights,
        sp.csc_matrix(np.vstack([mean, -features])),
        np.concatenate([[1.0], np.zeros(len(features))]),
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(len(features))],
        settings,
    ).solve()
    status = clarabel.SolverStatus
    if solution.status in (status.PrimalInfeasible, status.AlmostPrimalInfeasible):
        raise InputError("no combination of the features is nonnegative with mean 1 under d_mu")
    if solution.status not in (status.Solved, status.AlmostSolved):
        raise InputError(f"the projection was not found ({solution.status}): rescale the features")
    return np.asarray(solution.x)
