"""Weighted norms of vectors and of matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from covshift.theory.chain import as_dense
from covshift.validation import Matrix, as_vector, as_weights


def weighted_norm(x: ArrayLike, d: ArrayLike) -> float:
    """‖x‖_d = √(Σ d(s) x(s)²)."""
    vector = np.asarray(x, dtype=np.float64)
    return float(np.sqrt(as_vector("d", d, len(vector)) @ vector**2))


def induced_norm(matrix: Matrix, d: ArrayLike) -> float:
    """‖A‖_d = max ‖Ax‖_d/‖x‖_d, the largest singular value of D^½ A D^-½; d must be positive."""
    root = np.sqrt(as_weights("d", d, matrix.shape[0]))
    return float(np.linalg.norm(root[:, None] * as_dense(matrix) / root[None, :], 2))


def spectral_radius(matrix: Matrix) -> float:
    """The largest modulus of an eigenvalue: below 1 exactly if the powers of A vanish."""
    return float(np.abs(np.linalg.eigvals(as_dense(matrix))).max())
