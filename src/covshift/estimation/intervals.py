"""Confidence intervals from bootstrap replicates, and from independent terms."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.stats

from covshift.validation import Vector


def percentile_interval(replicates: Vector, level: float) -> tuple[float, float]:
    """The middle of the replicates that holds this share of them; those without an answer are left out."""
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(replicates[np.isfinite(replicates)], [tail, 100.0 - tail])
    return float(low), float(high)


def bootstrap_interval(
    replicates: Vector, level: float, num_trajectories: int
) -> tuple[float, float]:
    """The percentile interval, widened to what Student's t asks of so few trajectories.

    The mean of n terms under weights n · Dirichlet(1, …, 1) has the variance of the terms over n + 1, and Student's interval
    is wider than the normal one. So the percentiles are taken at Φ(±t √((n + 1)/(n - 1))), where t is the quantile of
    Student's law with n - 1 degrees of freedom.

    Reference: Hesterberg, What teachers should know about the bootstrap (2015), section 3.2: the expanded percentile interval.
    """
    n = num_trajectories
    t = scipy.stats.t.isf(0.5 * (1.0 - level), n - 1) * np.sqrt((n + 1) / (n - 1))
    return percentile_interval(replicates, float(1.0 - 2.0 * scipy.stats.norm.sf(t)))


def empirical_likelihood_interval(
    numerators: Vector, denominators: Vector, level: float
) -> tuple[float, float]:
    """An interval for θ = E[a]/E[b] from independent pairs (a_i, b_i) with b_i ≥ 0, by empirical likelihood.

    θ is in it if some weights p_i of the pairs with Σ p_i (a_i - θb_i) = 0 are nearly as likely as equal ones:
    -2 Σ log(n p_i) ≤ the quantile of F(1, n - 1). The interval need not be symmetric: it reaches further to the side of the
    larger terms, and never beyond the largest and the smallest a_i/b_i.

    Reference: Owen, Empirical Likelihood (2001), sections 2.6 and 2.11.
    """
    kept = denominators > 0
    ratios = numerators[kept] / denominators[kept]
    estimate = float(numerators.sum() / denominators.sum())
    limit = float(scipy.stats.f.ppf(level, 1, max(len(numerators) - 1, 1)))

    def excess(theta: float) -> float:
        return _minus_twice_log(numerators - theta * denominators) - limit

    def end(extreme: float) -> float:
        # At the extreme itself all weight would lie on one pair, which is infinitely unlikely.
        inside = extreme + 1e-9 * (estimate - extreme)
        if abs(estimate - extreme) <= 1e-12 * max(1.0, abs(estimate)) or excess(inside) <= 0.0:
            return extreme
        return float(scipy.optimize.brentq(excess, estimate, inside))

    return end(float(ratios.min())), end(float(ratios.max()))


def _minus_twice_log(g: Vector) -> float:
    """-2 log of the largest Π n p_i with Σ p_i = 1 and Σ p_i g_i = 0: p_i = 1/(n(1 + λg_i))."""
    low, high = float(g.min()), float(g.max())
    if not low < 0.0 < high:
        return 0.0 if low == high == 0.0 else np.inf
    most = 1.0 - 1.0 / len(g)  # Since every p_i ≤ 1.
    tilt = scipy.optimize.brentq(
        lambda t: float((g / (1.0 + t * g)).sum()), -most / high, -most / low
    )
    return float(2.0 * np.log1p(tilt * g).sum())
