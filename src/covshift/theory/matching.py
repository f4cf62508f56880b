"""Ratios fitted by their matching loss: the divergence, the fit, and the iteration of fits (B7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import kl_div

from covshift.errors import InputError
from covshift.rules.matching import (
    EXPONENTIAL,
    Link,
    floored_ratio,
    matching_gradient,
    matching_loss,
)
from covshift.theory.operators import CopOperator
from covshift.theory.projections import project_span
from covshift.validation import (
    Dense,
    Vector,
    as_occupancy,
    as_table,
    as_vector,
    as_weights,
    check_count,
)

_MAX_NEWTON_STEPS = 200
_STILL = 1e-12
"""Largest change of a score in one iteration that counts as none."""


def kl_divergence(x: ArrayLike, y: ArrayLike, d: ArrayLike) -> float:
    """D(x‖y) = Σ_s d(s) [x log(x/y) - x + y], which is 0 for x = y alone; infinite where y = 0 < x."""
    first = as_table("x", x, (-1,))
    second = as_vector("y", y, len(first))
    return float(as_vector("d", d, len(first)) @ kl_div(first, second))


def fit_matching(
    target: ArrayLike, phi: ArrayLike, d: ArrayLike, link: Link = EXPONENTIAL
) -> Vector:
    """argmin_θ Σ_s d(s) [G(z) - T z] with z = Φθ; the smallest such θ where several fit equally.

    With the exponential link this is argmin_θ D(T‖exp(Φθ)). The problem is convex; Newton steps with a line search
    solve it. Where T is 0 at states whose score the features can lower alone, the minimum lies at infinity, and the
    answer is a θ that reaches it but for rounding.

    Args:
        target: T, one nonnegative target per state.
        phi: states × features.
        d: weights of the states.
        link: g with G' = g.

    Returns:
        One weight per feature.

    Raises:
        InputError: a target is negative, which no positive ratio fits.
    """
    family = _Family(as_table("phi", phi, (-1, -1)), _weights(d, len(np.asarray(phi))), link)
    return np.asarray(family.expand @ family.fit(_targets(target, len(family.d))))


def project_matching(
    target: ArrayLike, phi: ArrayLike, d: ArrayLike, link: Link = EXPONENTIAL
) -> Vector:
    """g(Φθ) for the θ that `fit_matching` finds: the ratio of the family that is nearest to T."""
    return np.asarray(
        link.ratio(np.asarray(phi, dtype=np.float64) @ fit_matching(target, phi, d, link))
    )


@final
@dataclass(frozen=True, eq=False)
class MatchingOperator:
    """c ↦ g(Φθ), where θ fits Y_γ̂ c by the matching loss: one exact fit to the targets of COP-TD.

    With `floored`, c = 1 - γ̂ + γ̂ g(Φθ), and g(Φθ) is fitted to what arrives by transitions, (Y_γ̂c - (1 - γ̂))/γ̂.
    Either way the mean of the targets is kept, since the features hold a bias.

    Args:
        operator: Y_γ̂.
        phi: states × features; some combination of them is 1 everywhere.
        link: g.
        floored: whether the ratio is built on the floor 1 - γ̂ that every exact one has.
        averaging: ω in (0, 1]; below 1 the targets are averaged with the ratio before, (1 - ω)c + ωY_γ̂c. That keeps the mean
            and the fixed points, and damps fits that overshoot.

    Raises:
        InputError: the features hold no bias, or visits are counted at γ̂ = 1.
    """

    operator: CopOperator
    phi: Dense
    link: Link = EXPONENTIAL
    floored: bool = False
    averaging: float = 1.0

    def __post_init__(self) -> None:
        d_mu = self.operator.d_mu
        if not 0.0 < self.averaging <= 1.0:
            raise InputError(f"averaging must lie in (0, 1], but it is {self.averaging}")
        object.__setattr__(self, "phi", as_table("phi", self.phi, (len(d_mu), -1)))
        gap = float(np.abs(project_span(np.ones(len(d_mu)), self.phi, d_mu) - 1.0).max())
        if gap > 1e-8:
            raise InputError(
                f"phi has no bias, so that fits do not keep the mean ratio: the combination nearest to 1 misses it by "
                f"{gap:.3g}; add a column of ones"
            )
        if self.operator.chain_pi.is_episodic and self.operator.ratio_discount == 1.0:
            raise InputError(
                "nothing bounds the mean of a fit that counts visits at ratio_discount = 1: use a ratio_discount below 1, "
                "or `restart()`"
            )

    def apply(self, x: Vector) -> Vector:
        """The fit to Y_γ̂ x."""
        return self._ratio(self._refit(x))

    def fixed_point(self, start: ArrayLike | None = None, max_steps: int = 1000) -> Vector:
        """The ratio at which iterates from `start` come to rest.

        A fixed point exists, but where the family does not hold the exact ratio there may be several, and the iteration
        may also cycle. Now and then Newton's method is tried from where the iteration is; what it finds counts only
        if it is stable and as near as the last step says.

        Args:
            start: a positive ratio; 1 everywhere if None.
            max_steps: how many fits are made before giving up.

        Raises:
            InputError: the iteration has not come to rest, as when it cycles.
        """
        size = len(self.operator.d_mu)
        x = np.ones(size) if start is None else as_weights("start", start, size)
        mean = float(self.operator.d_mu @ x)
        u = last = self._refit(x)
        for step in range(1, check_count("max_steps", max_steps) + 1):
            before, last, u = last, u, self._refit(self._ratio(u), u)
            change, over_two = (
                float(np.abs(self._family.basis @ (u - v)).max()) for v in (last, before)
            )
            if change < _STILL:
                return self._ratio(u)
            if over_two < 1e-6 * change:
                raise InputError(
                    f"the fits do not come to rest but alternate between two ratios, whose scores differ by {change:.3g}: "
                    "average the targets with the ratio before (averaging = 0.5)"
                )
            if step % 5 == 0 and (rest := self._rest_near(u, change, mean)) is not None:
                return self._ratio(rest)
        raise InputError(
            f"the fits have not come to rest after {max_steps} (the last changed a score by {change:.3g}): average the "
            "targets with the ratio before (averaging = 0.5), or use a smaller ratio_discount"
        )

    def on_weights(self, c: ArrayLike) -> Dense:
        """The derivative of one fit at a fixed point c, acting on θ: (ΦᵀWΦ)⁻¹ Φᵀ(γ̂P_π)ᵀWΦ, W = d_μ g'(z).

        It has the eigenvalues of γ̂Π_W P_π, by which TD(0) with the same features and discount γ̂ evaluates π from states
        weighted by W; with the exponential link W is the law d_μ c that the ratio stands for. Averaged targets make it
        (1 - ω)I plus ω times that. Iterates that start near c converge to it if the spectral radius is below 1.
        """
        u = self._family.fit(self._targets_of(np.asarray(c, dtype=np.float64)))
        derivative = self._derivative(u)
        return np.asarray(self._family.expand @ derivative @ np.linalg.pinv(self._family.expand))

    @cached_property
    def _family(self) -> _Family:
        return _Family(self.phi, self.operator.d_mu, self.link)

    def _targets_of(self, x: Vector) -> Vector:
        gamma = self.operator.ratio_discount
        if not self.floored:
            return (1.0 - self.averaging) * x + self.averaging * self.operator.apply(x)
        arrivals = CopOperator(self.operator.chain_pi, self.operator.d_mu).apply(x)
        if self.averaging == 1.0:  # Also at γ̂ = 0, where the ratio before says nothing of arrivals.
            return arrivals
        arrived = np.maximum(x - (1.0 - gamma), 0.0) / gamma
        return (1.0 - self.averaging) * arrived + self.averaging * arrivals

    def _refit(self, x: Vector, start: Vector | None = None) -> Vector:
        return self._family.fit(_targets(self._targets_of(x), len(x)), start)

    def _ratio(self, u: Vector) -> Vector:
        ratio = self.link.ratio(self._family.basis @ u)
        return floored_ratio(ratio, self.operator.ratio_discount) if self.floored else ratio

    def _derivative(self, u: Vector) -> Dense:
        basis, d = self._family.basis, self.operator.d_mu
        moved = self.link.slope(basis @ u)[:, None] * basis
        image = self.operator.as_matrix() @ moved
        derivative = np.linalg.solve((basis.T * d) @ moved, (basis.T * d) @ image)
        return np.asarray(self.averaging * derivative + (1.0 - self.averaging) * np.eye(len(u)))

    def _rest_near(self, u: Vector, change: float, mean: float) -> Vector | None:
        """A stable fixed point no farther away than the last change lets expect, by Newton's method."""
        basis, d = self._family.basis, self.operator.d_mu
        start, undiscounted = u, self.operator.ratio_discount == 1.0
        for _ in range(20):
            ratio = self._ratio(u)
            slope = self.link.slope(basis @ u)
            moved = slope[:, None] * basis
            gap = (basis.T * d) @ (self.link.ratio(basis @ u) - self._targets_of(ratio))
            system = (basis.T * d) @ (moved - self.operator.as_matrix() @ moved) * self.averaging
            if undiscounted:  # There are fixed points of every mean: keep the start's.
                system = np.vstack([system, d @ moved])
                gap = np.append(gap, d @ ratio - mean)
            step = np.linalg.lstsq(system, gap)[0]
            u = u - step
            away = float(np.abs(basis @ (u - start)).max())
            if not away < 1.0:
                return None
            if np.abs(basis @ step).max() < _STILL:
                break
        else:
            return None
        eigenvalues = np.linalg.eigvals(self._derivative(u))
        if undiscounted:  # The mean is kept, not contracted: one eigenvalue is 1.
            eigenvalues = np.delete(eigenvalues, np.argmin(np.abs(eigenvalues - 1.0)))
        radius = float(np.abs(eigenvalues).max(initial=0.0))
        return u if away * (1.0 - radius) <= 3.0 * change and radius < 1.0 else None


@final
@dataclass(frozen=True, eq=False)
class _Family:
    """The ratios g(Φθ), in coordinates u in which the features are orthonormal under d.

    Attributes:
        phi: states × features.
        d: weights of the states.
        link: g.
    """

    phi: Dense
    d: Vector
    link: Link

    @cached_property
    def expand(self) -> Dense:
        """θ = expand · u, the smallest θ of that score."""
        _, sizes, rows = np.linalg.svd(np.sqrt(self.d)[:, None] * self.phi, full_matrices=False)
        rank = int((sizes > sizes[0] * 1e-12).sum())
        return np.asarray(rows[:rank].T / sizes[:rank])

    @cached_property
    def basis(self) -> Dense:
        """z = basis · u."""
        return np.asarray(self.phi @ self.expand)

    def fit(self, target: Vector, start: Vector | None = None) -> Vector:
        """argmin_u Σ d [G(z) - T z] by Newton's method with a line search."""
        basis, d, mass = self.basis, self.d, float(self.d @ target)
        u = np.zeros(basis.shape[1]) if start is None else start
        z = basis @ u
        loss = self._loss(z, target)
        for _ in range(_MAX_NEWTON_STEPS):
            gradient = (d * matching_gradient(z, target, self.link)) @ basis
            curvature = (basis.T * (d * self.link.slope(z))) @ basis
            # A little ridge: where T is 0 the curvature vanishes along with the gradient.
            curvature.flat[:: len(u) + 1] += 1e-16 * np.trace(curvature)
            step = np.linalg.solve(curvature, gradient)
            decrease = float(gradient @ step)
            if decrease < 1e-18 * mass:  # The last step squares what is left.
                return np.asarray(u - step)
            length, along = 1.0, basis @ step
            while (
                new_loss := self._loss(z - length * along, target)
            ) > loss - 1e-4 * length * decrease:
                if decrease < 1e-12 * max(mass, abs(loss)):  # Lost in the rounding of the loss.
                    break
                length /= 2.0
            u, z, loss = u - length * step, z - length * along, new_loss
        raise InputError(
            f"the matching loss was not minimized in {_MAX_NEWTON_STEPS} Newton steps: rescale the features"
        )

    def _loss(self, z: Vector, target: Vector) -> float:
        try:
            return float(self.d @ matching_loss(z, target, self.link))
        except InputError:  # A step too long for the exponential.
            return np.inf


def _weights(d: ArrayLike, size: int) -> Vector:
    return as_occupancy("d", d, size, episodic=True)


def _targets(target: ArrayLike, size: int) -> Vector:
    vector = as_vector("target", target, size)
    if (vector < 0).any():
        state = int(np.argmin(vector))
        raise InputError(
            f"target[{state}] = {vector[state]:.6g} is negative, and no positive ratio fits it; compute targets from "
            "a positive ratio"
        )
    if not vector.any():
        raise InputError(
            "every target is 0, which no positive ratio fits; compute targets from a positive ratio"
        )
    return vector
