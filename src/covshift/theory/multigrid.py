"""Large sparse systems I - βP by algebraic multigrid; every solution is checked by its residual.

Elimination fills in: its time grows as n^1.4 on planar graphs and faster on others. Multigrid takes time in proportion to
n where it converges, and says so where it does not, so that the caller can eliminate instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from covshift.validation import Vector

TOLERANCE = 1e-14
"""Largest residual of a solution, beside the sum of the magnitudes that it is the difference of."""

_NEARLY_SYMMETRIC = 0.1
_MOST_CYCLES, _KEPT, _PATIENCE = 80, 20, 10
"""The most cycles of a solution, directions kept, and cycles in which the residual must fall to a tenth."""

Done = Callable[[Vector, Vector], bool]
"""Whether a solution and its residual are good enough."""


@final
class Multigrid:
    """A hierarchy of ever smaller systems that serves I - βP and its transpose.

    A diffusive chain, which is nearly symmetric, gets Ruge and Stüben's method; one with a drift gets approximate ideal
    restriction (Manteuffel, Ruge and Southworth, 2018). The transposed hierarchy, with restriction and prolongation
    exchanged, converges at the same rate for the transposed system. Cycles are combined so that the residual is
    least (generalized conjugate residuals), which needs no more than products with the system.

    Args:
        system: I - βP.

    Attributes:
        is_diffusive: whether the system is nearly symmetric.
    """

    def __init__(self, system: sp.csr_array) -> None:
        self._system = system
        self._hierarchy: Any = None
        self._sides: dict[bool, tuple[sp.csr_array, sp.csr_array, Callable[[Vector], Vector]]] = {}
        self.is_diffusive = asymmetry(system) <= _NEARLY_SYMMETRIC

    def solve(self, b: Vector, *, transposed: bool) -> Vector | None:
        """x with (I - βP) x = b, or (I - βPᵀ) x = b if `transposed`; None where multigrid does not converge.

        Values are as exact as their largest: max |b - Ax| ≤ 1e-14 max(|A||x| + |b|). Distributions, which the
        transposed system has, are divided by one another, so that this holds for each entry by itself.
        """
        if b.ndim != 1 or not self._is_ready(transposed):
            return None
        magnitudes = self._side(transposed)[1]
        scale = float(np.sqrt(magnitudes.sum(axis=0).max() * magnitudes.sum(axis=1).max()))

        def is_exact(x: Vector, residual: Vector) -> bool:
            # The norms decide most cases without another product.
            most = scale * np.linalg.norm(x) + np.linalg.norm(b)
            if not np.linalg.norm(residual) <= TOLERANCE * most:
                return False
            limit = TOLERANCE * (magnitudes @ np.abs(x) + np.abs(b))
            return bool((np.abs(residual) <= (limit if transposed else limit.max())).all())

        return self._iterate(b, transposed, is_exact)

    def visits_bound(self) -> float:
        """A bound on ‖(I - βPᵀ)⁻¹‖_∞ at most three times too large; infinity where multigrid does not converge.

        The inverse has no negative entry. So if |1 - Ay| ≤ ½ everywhere, then A⁻¹1 lies between ⅔y and 2y.
        """
        ones = np.ones(self._system.shape[0])
        if not self._is_ready(transposed=True):
            return float("inf")
        y = self._iterate(ones, True, lambda _, residual: bool(np.abs(residual).max() <= 0.5))
        return float("inf") if y is None else 2.0 * float(y.max())

    def _iterate(self, b: Vector, transposed: bool, is_done: Done) -> Vector | None:
        """Combines cycles until the solution is good enough, or returns None if they hardly help."""
        system, _, cycle = self._side(transposed)
        x, residual = np.zeros_like(b), b.copy()
        if not b.any():
            return x
        directions: list[tuple[Vector, Vector]] = []
        norms = [float(np.linalg.norm(b))]
        with np.errstate(all="ignore"):
            for _ in range(_MOST_CYCLES):
                step = cycle(residual)
                image = system @ step
                for earlier, its_image in directions:
                    share = its_image @ image
                    image -= share * its_image
                    step -= share * earlier
                norm = float(np.linalg.norm(image))
                if not 0.0 < norm < np.inf:
                    return None
                image /= norm
                step /= norm
                length = image @ residual
                x += length * step
                residual -= length * image
                directions.append((step, image))
                norms.append(float(np.linalg.norm(residual)))
                if norms[-1] < 1e-7 * norms[-len(directions) - 1] or len(directions) == _KEPT:
                    # The updated residual drifts from the true one.
                    residual, directions = b - system @ x, []
                if is_done(x, residual):
                    residual, directions = b - system @ x, []
                    if is_done(x, residual):
                        return x
                if len(norms) > _PATIENCE and not norms[-1] <= 0.1 * norms[-_PATIENCE - 1]:
                    return None
        return None

    def _is_ready(self, transposed: bool) -> bool:
        """Makes what a side needs; False where no hierarchy can be made."""
        # The library warns, and fails in several ways, where a level turns out singular.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                self._side(transposed)
            except (ArithmeticError, RuntimeError, ValueError):
                return False
        return True

    def _side(
        self, transposed: bool
    ) -> tuple[sp.csr_array, sp.csr_array, Callable[[Vector], Vector]]:
        """The system, the magnitudes of its entries, and one cycle of the hierarchy."""
        if transposed not in self._sides:
            # Imported here, since only large problems need it.
            from pyamg.relaxation.smoothing import change_smoothers

            if self._hierarchy is None:
                self._hierarchy = _hierarchy(self._system, self.is_diffusive)
            hierarchy = _transposed(self._hierarchy) if transposed else self._hierarchy
            before, after = _smoothers(self.is_diffusive, transposed)
            change_smoothers(hierarchy, before, after)
            system = hierarchy.levels[0].A
            cycle = partial(_cycle, hierarchy, before is not None, 0)
            self._sides[transposed] = system, abs(system), cycle
        return self._sides[transposed]


def asymmetry(matrix: sp.csr_array) -> float:
    """Σ |A - Aᵀ| over that of the entries off the diagonal: 0 for a symmetric matrix, 1 if no two entries are a pair."""
    pairs = abs(matrix).sum() - np.abs(matrix.diagonal()).sum()
    return float(abs(matrix - matrix.T).sum() / max(2.0 * pairs, 1e-300))


def _hierarchy(system: sp.csr_array, is_diffusive: bool) -> Any:
    import pyamg

    if is_diffusive:
        return pyamg.ruge_stuben_solver(system, coarse_solver="lu")
    # Degree 1 has a third of the set-up time of the library's 2 and converges nearly as well.
    restrict = ("air", {"theta": 0.05, "degree": 1})
    return pyamg.air_solver(system, restrict=restrict, coarse_solver="lu")


def _cycle(hierarchy: Any, smooths_first: bool, depth: int, b: Vector) -> Vector:
    """One V-cycle from 0; the library's own takes two more products to know its residual."""
    level = hierarchy.levels[depth]
    if depth == len(hierarchy.levels) - 1:
        return np.asarray(hierarchy.coarse_solver(level.A, b))
    x, residual = np.zeros_like(b), b
    if smooths_first:
        level.presmoother(level.A, x, b)
        residual = b - level.A @ x
    x += level.P @ _cycle(hierarchy, smooths_first, depth + 1, level.R @ residual)
    level.postsmoother(level.A, x, b)
    return x


def _smoothers(is_diffusive: bool, transposed: bool) -> tuple[Any, Any]:
    """What is done before and after the correction; for the transposed cycle each step's transpose, in reverse."""
    if is_diffusive:
        return ("gauss_seidel", {"sweep": "forward"}), ("gauss_seidel", {"sweep": "backward"})
    sweeps = {"omega": 1.0, "iterations": 1, "withrho": False, "f_iterations": 2, "c_iterations": 1}
    return (("cf_jacobi", sweeps), None) if transposed else (None, ("fc_jacobi", sweeps))


def _transposed(hierarchy: Any) -> Any:
    from pyamg import MultilevelSolver

    levels = []
    for level in hierarchy.levels:
        other = MultilevelSolver.Level()
        other.A = sp.csr_array(level.A.T)
        if hasattr(level, "P"):
            other.P, other.R = sp.csr_array(level.R.T), sp.csr_array(level.P.T)
            other.splitting = level.splitting
        levels.append(other)
    return MultilevelSolver(levels, coarse_solver="lu")
