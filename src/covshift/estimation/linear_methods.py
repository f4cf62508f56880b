"""Ratios that are linear in features; least squares also on tables, as one-hot features."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from covshift.errors import InputError
from covshift.estimation.arrivals import arrivals
from covshift.estimation.moments import LossWeight, RatioMoments, solve
from covshift.estimation.problem import (
    LinearRatioFunction,
    RatioProblem,
    TableRatio,
    mean_over_data,
)
from covshift.learners.blocks import learn_ratio
from covshift.learners.schedules import robbins_monro
from covshift.rules import inverse_ratio_weight
from covshift.theory.chain import as_dense
from covshift.theory.projections import project_weighted_simplex
from covshift.validation import Dense, Matrix, Vector, check_count

Weighting: TypeAlias = Literal["uniform", "inverse"]


def fit_least_squares(
    problem: RatioProblem,
    *,
    ridge: float = 0.0,
    weighting: Weighting = "uniform",
    floor: float = 1e-2,
    iterations: int = 50,
    tolerance: float = 1e-8,
) -> TableRatio | LinearRatioFunction:
    """The fixed point of the projected equation, without a step size.

    Under `inverse` weighting (B1) the error at s has the weight 1/max(ĉ(s), floor), and the equation is solved
    repeatedly until ĉ does not change. Where E_μ[c] = 1 the result is rescaled to that mean, before its negative part is
    cut off. On a table every weighting has the same fixed point.

    Args:
        problem: what to estimate.
        ridge: added to the diagonal of the mean matrix.
        weighting: how errors are weighted.
        floor: smallest ĉ in the weights.
        iterations: most solves under `inverse` weighting.
        tolerance: change of the weights, relative to their size, at which the solves end.
    """
    w = _solve_ratio(problem, RatioMoments.of(problem.experience), ridge)
    if problem.experience.is_tabular:
        return TableRatio(w)
    if weighting == "uniform":
        return LinearRatioFunction(w)
    if weighting != "inverse":
        raise InputError(f"weighting must be uniform or inverse, but it is {weighting}")
    for _ in range(iterations):
        moments = RatioMoments.of(problem.experience, _inverse(LinearRatioFunction(w), floor))
        following = _solve_ratio(problem, moments, ridge)
        change = np.abs(following - w).max()
        # Half a step damps the cycle of two that full steps can fall into.
        w = 0.5 * (w + following)
        if change <= tolerance * max(1.0, np.abs(w).max()):
            break
    return _rescaled(problem, LinearRatioFunction(w))


def fit_semi_gradient(
    problem: RatioProblem,
    *,
    step_size: float = 0.1,
    halfway: float = 1000.0,
    passes: int = 5,
    weighting: Weighting = "uniform",
    floor: float = 1e-2,
    seed: int = 0,
) -> LinearRatioFunction:
    """Semi-gradient discounted COP-TD with features, transition by transition.

    Args:
        problem: what to estimate.
        step_size: the first step size, times the mean of ‖φ‖².
        halfway: updates after which the step size has halved.
        passes: how often to go through the data.
        weighting: how errors are weighted, as in `fit_least_squares`.
        floor: smallest ĉ in the weights.
        seed: for drawing trajectories, where they are weighted.
    """
    if problem.experience.is_tabular:
        raise InputError("semi-gradient needs features: give `features`, or use method='td'")
    check_count("passes", passes)
    samples = list(problem.experience.samples())
    x_tm1, x_t = (np.concatenate([getattr(s, name) for s in samples]) for name in ("x_tm1", "x_t"))
    phi = np.concatenate([x_tm1, x_t])
    steps = robbins_monro(step_size / float((x_tm1**2).sum(axis=1).mean()), halfway)
    w, mean_weight = _start_at_one(x_tm1)[None], np.zeros(1)
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(passes):
        moves = arrivals(problem, rng, by_row=True)
        sizes = steps(np.arange(count, count + len(moves.record)))
        learn_ratio(
            w, phi, *moves[:4], problem.ratio_discount, sizes,
            floor=floor if weighting == "inverse" else None, mean_weight=mean_weight, count=count,
        )  # fmt: skip
        count += len(sizes)
    found = LinearRatioFunction(w[0])
    scale_is_lost = weighting == "inverse" or problem.ratio_discount == 1.0
    return _rescaled(problem, found) if scale_is_lost else found


def fit_simplex(
    problem: RatioProblem, *, step_size: float = 0.5, iterations: int = 500, tolerance: float = 1e-9
) -> LinearRatioFunction:
    """Expected semi-gradient steps, each projected onto W_{Φ,d_μ}: ĉ ≥ 0 with mean 1 over the data.

    Some problems oscillate (E17); then the last weights are returned, and the diagnosed residual is large.

    Args:
        problem: what to estimate; `continuing` or `restart`, since E_μ[c] = 1 is imposed.
        step_size: step size times the largest eigenvalue of the features' Gram matrix.
        iterations: most projections, each a quadratic program over the distinct states.
        tolerance: change of the weights, relative to their size, at which the iterations end.
    """
    experience = problem.experience
    if experience.is_tabular:
        raise InputError("simplex needs features: give `features`, or use method='empirical'")
    if not problem.has_mean_one:
        raise InputError(
            "a ratio that counts visits has another mean than 1: use semantics='restart', or "
            "method='least-squares'"
        )
    moments = RatioMoments.of(experience)
    system, right = moments.equation(problem.semantics, problem.ratio_discount)
    rows = np.concatenate([sample.x_tm1 for sample in experience.samples()])
    weight = np.concatenate([sample.weight for sample in experience.samples()])
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(index.ravel(), weight) / weight.sum()
    largest = float(np.linalg.eigvalsh(np.asarray(moments.gram) / moments.count)[-1])
    w = project_weighted_simplex(_start_at_one(rows), distinct, share)
    for _ in range(iterations):
        moved = w + step_size / largest * (right - as_dense(system) @ w)
        following = project_weighted_simplex(moved, distinct, share)
        change = np.abs(following - w).max()
        w = following
        if change <= tolerance * max(1.0, np.abs(w).max()):
            break
    return LinearRatioFunction(w)


def _solve_ratio(problem: RatioProblem, moments: RatioMoments, ridge: float) -> Vector:
    """Weights of features, or the ratio of each state of a table; 1 where it has no data."""
    system, right = moments.equation(problem.semantics, problem.ratio_discount, problem.discount)
    if not problem.experience.is_tabular:
        return _solve_scaled(problem, system, right, moments.total / moments.count, ridge)
    seen = np.flatnonzero(moments.total > 0)
    kept = sp.csr_array(sp.csr_array(system)[seen][:, seen])
    mean = moments.total[seen] / moments.count
    table = np.ones(len(right))
    table[seen] = _solve_scaled(problem, kept, right[seen], mean, ridge)
    return table


def _solve_scaled(
    problem: RatioProblem, system: Matrix, right: Vector, mean: Vector, ridge: float
) -> Vector:
    """The solution, rescaled to mean 1 if the ratio has that mean.

    At γ̂ = 1 the equation determines the ratio only up to its scale. Below 1 it determines the scale from the difference
    between the means of ρĉ and ĉ, which is chance, and γ̂/(1 - γ̂) multiplies it. A mean that is not positive is left as
    it is, so that the diagnostics show it.
    """
    if not problem.has_mean_one:
        return solve(system, right, ridge)
    if problem.ratio_discount < 1.0:
        found = solve(system, right, ridge)
        total = float(mean @ found)
        return found / total if total > 0 else found
    stacked = np.vstack([as_dense(system) + ridge * np.eye(len(right)), mean])
    return np.asarray(np.linalg.lstsq(stacked, np.append(right, 1.0))[0])


def _inverse(ratio: LinearRatioFunction, floor: float) -> LossWeight:
    """1/max(ĉ, floor), the weight of the error at a state (B1)."""
    return lambda x: inverse_ratio_weight(ratio.at(x), floor)


def _rescaled(problem: RatioProblem, found: LinearRatioFunction) -> LinearRatioFunction:
    """ĉ rescaled to mean 1 if c has that mean; the 1/c weighting loses the scale (B1)."""
    if not problem.has_mean_one:
        return found
    mean = mean_over_data(problem.experience, found)
    return LinearRatioFunction(found.w / mean) if mean > 0 else found


def _start_at_one(phi: Dense) -> Vector:
    """Weights whose ratio is as near to 1 everywhere as the features allow."""
    return np.asarray(np.linalg.lstsq(phi, np.ones(len(phi)))[0])
