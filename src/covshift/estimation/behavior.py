"""The behavior policy where it was not logged: given, or estimated from the data themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import scipy.optimize
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.features import Features
from covshift.estimation.logs import Logs, check_mu
from covshift.estimation.policies import PolicyLike, as_policy
from covshift.validation import Dense, Vector

Predict: TypeAlias = Callable[[NDArray[Any]], Dense]
"""From features, or state numbers, to probabilities of actions."""

_ROWS = 200_000
"""Transitions that a logistic regression is fitted to at most, evenly spread over the data."""


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """Estimated probabilities against what was done, in bins of the estimate.

    Attributes:
        predicted: mean estimate of each bin.
        observed: share of the bin's action-state pairs in which the action was taken.
        count: pairs in each bin.
        log_likelihood: mean log μ̂(a|s) of the actions taken, each from the folds that did not see it.
    """

    predicted: Vector
    observed: Vector
    count: Vector
    log_likelihood: float

    @property
    def error(self) -> float:
        """Mean |predicted - observed| over pairs, the expected calibration error."""
        return float((self.count * np.abs(self.predicted - self.observed)).sum() / self.count.sum())

    def plot(self) -> Figure:
        """Observed against estimated shares; a calibrated estimate lies on the diagonal."""
        figure = Figure(figsize=(4.2, 4.0), layout="constrained")
        axes: Axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        spread = np.sqrt(self.observed * (1 - self.observed) / np.maximum(self.count, 1))
        axes.errorbar(self.predicted, self.observed, yerr=2 * spread, fmt="o", markersize=4)
        axes.set(xlabel="estimated μ(a|s)", ylabel="share in which a was taken")
        axes.set_title(f"Calibration error {self.error:.3f}")
        return figure


@final
@dataclass(frozen=True, eq=False)
class Behavior:
    """Logs with μ(a|s) of every action, and the calibration if it was estimated."""

    logs: Logs
    calibration: Calibration | None = None


def with_behavior(
    logs: Logs,
    features: Features,
    behavior: PolicyLike | NDArray[np.float64] | None,
    *,
    folds: int = 5,
    smoothing: float = 1.0,
) -> Behavior:
    """Logs in which every action has its μ(a|s).

    Args:
        logs: the data.
        features: what an estimate may use of the states.
        behavior: None takes what was logged; 'estimate' fits it; a policy or one probability a transition
            gives it.
        folds: parts of the trajectories; each is predicted from the others.
        smoothing: of the estimate: pseudo-counts of each action in a table, the weight of ½‖w‖² in a
            logistic regression.
    """
    if behavior is None:
        if logs.mu is None:
            raise InputError(
                "the data hold no μ(a|s): add it as `mu`, give the policy that took the actions as "
                "`behavior`, or say behavior='estimate'"
            )
        return Behavior(logs)
    if isinstance(behavior, str) and behavior == "estimate":
        return estimate_behavior(logs, features, folds=folds, smoothing=smoothing)
    if isinstance(behavior, np.ndarray) and behavior.ndim == 1:
        if len(behavior) != len(logs):
            raise InputError(f"behavior has {len(behavior)} entries, but {len(logs)} are needed")
        return Behavior(logs.with_mu(behavior.astype(np.float64)))
    policy = as_policy(behavior, logs.num_actions)
    parts = [
        policy.probabilities(block.s_tm1)[np.arange(len(block.a_tm1)), block.a_tm1]
        for block in logs.blocks()
    ]
    mu = np.concatenate(parts)
    check_mu(mu)
    return Behavior(logs.with_mu(mu))


def estimate_behavior(
    logs: Logs, features: Features, *, folds: int = 5, smoothing: float = 1.0
) -> Behavior:
    """μ̂(a|s) by counts in a table, or by multinomial logistic regression on features.

    Each trajectory is predicted from a fit to the other folds, so that an action does not vouch for itself.
    An estimated μ makes ratios and values as uncertain as itself, which the warning says.
    """
    count = min(folds, logs.num_trajectories)
    if count < 2:
        raise InputError(
            "one trajectory cannot be split to estimate μ: give `behavior`, or `split` it"
        )
    fold = np.arange(logs.num_trajectories) % count
    every = np.empty((len(logs), logs.num_actions))
    for held_out in range(count):
        test = fold[logs.trajectory] == held_out
        train = logs.select(fold != held_out)
        fit = _fit_counts if features.is_tabular else _fit_logistic
        predict = fit(train, features, smoothing)
        rows = np.flatnonzero(test)
        for part in np.array_split(rows, -(-len(rows) // (1 << 18))):
            every[part] = predict(features(logs.block(part).s_tm1))
    mu = every[np.arange(len(logs)), logs.action]
    calibration = _calibrate(every, logs.action.astype(np.int64), mu)
    warnings.warn(
        f"μ is estimated from the data: calibration error {calibration.error:.3f}, mean log-likelihood "
        f"{calibration.log_likelihood:.3f}; look at `calibration.plot()`",
        stacklevel=2,
    )
    return Behavior(logs.with_mu(mu), calibration)


def _fit_counts(logs: Logs, features: Features, smoothing: float) -> Predict:
    counts = np.full((features.size, logs.num_actions), smoothing)
    for block in logs.blocks():
        np.add.at(counts, (features(block.s_tm1), block.a_tm1), 1.0)
    table = counts / counts.sum(axis=1, keepdims=True)
    return lambda states: table[states]


def _fit_logistic(logs: Logs, features: Features, smoothing: float) -> Predict:
    rows = np.unique(np.linspace(0, len(logs) - 1, min(len(logs), _ROWS)).astype(np.int64))
    block = logs.block(rows)
    x, taken = features(block.s_tm1), block.a_tm1
    shape = (x.shape[1], logs.num_actions)
    chosen = np.eye(logs.num_actions)[taken]

    def loss(flat: Vector) -> tuple[float, Vector]:
        w = flat.reshape(shape)
        log_p = _log_softmax(x @ w)
        gradient = x.T @ (np.exp(log_p) - chosen) + smoothing * w
        value = -log_p[np.arange(len(taken)), taken].sum() + 0.5 * smoothing * (flat @ flat)
        return float(value) / len(taken), gradient.ravel() / len(taken)

    found = scipy.optimize.minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B")
    w = np.asarray(found.x).reshape(shape)
    return lambda phi: np.exp(_log_softmax(phi @ w))


def _log_softmax(logits: Dense) -> Dense:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _calibrate(
    every: Dense, action: NDArray[np.int64], mu: Vector, num_bins: int = 10
) -> Calibration:
    taken = np.zeros(every.shape, dtype=bool)
    taken[np.arange(len(action)), action] = True
    bins = np.minimum((every * num_bins).astype(int), num_bins - 1).ravel()
    count = np.bincount(bins, minlength=num_bins).astype(float)
    filled = count > 0
    predicted = np.bincount(bins, weights=every.ravel(), minlength=num_bins)[filled]
    observed = np.bincount(bins, weights=taken.ravel(), minlength=num_bins)[filled]
    return Calibration(
        predicted / count[filled],
        observed / count[filled],
        count[filled],
        float(np.log(mu).mean()),
    )
