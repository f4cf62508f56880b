"""The behavior policy μ where it was not logged: given, or estimated from the data themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.estimation.columns import as_column
from covshift.estimation.features import Features, FeaturesLike, as_features
from covshift.estimation.inputs import Data, as_logs
from covshift.estimation.logs import Logs
from covshift.estimation.policies import PolicyLike, as_policy
from covshift.validation import Dense, Vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BehaviorLike: TypeAlias = PolicyLike | None
"""None for the logged μ; a policy; one probability per transition; or 'estimate'."""

Predict: TypeAlias = Callable[[NDArray[Any]], Dense]
"""From features or state numbers to the probabilities of all actions."""

_MOST_ROWS = 200_000
"""The most transitions, evenly spread over the data, that a logistic regression is fitted to."""


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """Estimated probabilities beside observed frequencies, in bins of the estimate.

    Attributes:
        predicted: the mean estimate of each bin.
        observed: the share of the bin's state-action pairs in which the action was taken.
        count: the number of pairs in each bin.
        log_likelihood: mean log μ̂(a|s) of the actions taken, each by a fit that did not see it.
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
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.2, 4.0), layout="constrained")
        axes: Axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        spread = np.sqrt(self.observed * (1 - self.observed) / np.maximum(self.count, 1))
        axes.errorbar(self.predicted, self.observed, yerr=2 * spread, fmt="o", markersize=4)
        axes.set(xlabel="estimated μ(a|s)", ylabel="share in which a was taken")
        axes.set_title(f"Calibration error {self.error:.3f}")
        return figure


def with_behavior(
    logs: Logs, features: Features, behavior: BehaviorLike
) -> tuple[Logs, Calibration | None]:
    """Logs with μ(a|s) of every action, and how well μ is calibrated if it was estimated.

    Args:
        logs: the data.
        features: what an estimate of μ may know about the states.
        behavior: None takes the logged μ; 'estimate' fits it; a policy, or one probability per transition,
            gives it.
    """
    if behavior is None:
        if logs.mu is None:
            raise InputError(
                "the data hold no μ(a|s): add it as the column `propensity`, give the policy that took the actions as "
                "`behavior`, or say behavior='estimate'"
            )
        return logs, None
    if isinstance(behavior, str) and behavior == "estimate":
        return estimate_behavior(logs, features)
    if isinstance(behavior, np.ndarray | list) or hasattr(behavior, "to_numpy"):
        given = as_column("behavior", behavior)
        if given.ndim == 1 and given.dtype != object:
            if len(given) != logs.num_transitions:
                raise InputError(
                    f"behavior has {len(given)} entries, but {logs.num_transitions} are needed"
                )
            return replace(logs, mu=given.astype(np.float64)), None
    return replace(logs, mu=_taken_probabilities(logs, behavior)), None


def estimate_behavior(
    logs: Logs, features: Features, *, folds: int = 5, smoothing: float = 1.0
) -> tuple[Logs, Calibration]:
    """Estimates μ by counts in a table, or by multinomial logistic regression on features.

    Each trajectory is predicted by a fit to the other folds, so that no action is evidence for its own
    probability. Ratios and values inherit the uncertainty of an estimated μ, and a warning says how well it
    fits.

    Args:
        logs: the data, with or without μ.
        features: features of the states.
        folds: number of parts that the trajectories are divided into.
        smoothing: in a table, the count that every action starts with; in a logistic regression, the weight of
            the penalty ½‖w‖².
    """
    every = _predict_actions(logs, features, folds, smoothing)
    taken = logs.action.astype(np.int64)
    mu = every[np.arange(len(taken)), taken]
    calibration = _calibrate(every, taken, mu)
    warnings.warn(
        f"μ is estimated from the data: calibration error {calibration.error:.3f}, mean log-likelihood "
        f"{calibration.log_likelihood:.3f}; look at `calibration.plot()`",
        stacklevel=2,
    )
    return replace(logs, mu=mu), calibration


def balanced_behavior(
    data: Data,
    policies: Sequence[PolicyLike],
    which: ArrayLike,
    *,
    features: FeaturesLike = None,
) -> Vector:
    """The balanced denominator μ̄(a|s) = Σ_k w_k(s) μ_k(a|s) of data that several known policies logged.

    w_k(s) is the probability that policy k is the one that acted in s. It is estimated as an action is by 'estimate': counts in a table, logistic
    regression on features, each trajectory by a fit to the others. Give the result as `behavior`. With μ̄ in place of each
    row's own μ_k, ρ = π/μ̄ varies less (B9, data of several policies), and it is enough that one of the policies takes what π takes. Do not use it
    with products of ρ: within a trajectory the policy stays the same, which μ̄ does not know.

    Args:
        data: anything that `as_logs` accepts.
        policies: the policies that logged the data.
        which: for each trajectory the number of its policy, from 0.
        features: what the estimate of w_k may know about the states, as in `estimate_ratio`.

    Returns:
        One probability per transition.

    Reference: Chen et al., Infinite-horizon off-policy policy evaluation with multiple behavior policies (2020).

    Example:
        >>> from covshift.estimation import balanced_behavior, evaluate_policy, simulate_logs
        >>> from covshift.theory.examples import random_walk
        >>> walk = random_walk()
        >>> logs = simulate_logs(walk.mdp, walk.mu, 100, 20, np.random.default_rng(0))
        >>> mu = balanced_behavior(logs, [walk.mu, walk.pi], np.zeros(len(logs), dtype=int))
        >>> bool(np.abs(mu - np.asarray(logs.mu)).max() < 0.05)  # nearly all weight is on the policy that acted
        True
    """
    logs = as_logs(data)
    numbers = np.asarray(which)
    if numbers.shape != (len(logs),) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"which must hold a whole number for each of {len(logs)} trajectories, but it has shape {numbers.shape} and "
            f"type {numbers.dtype}"
        )
    if not len(policies) or numbers.min() < 0 or numbers.max() >= len(policies):
        raise InputError(
            f"which names the policies {numbers.min()} … {numbers.max()}, but {len(policies)} are given"
        )
    owners = replace(logs, action=numbers[logs.trajectory], num_actions=len(policies), mu=None)
    weights = _predict_actions(owners, as_features(features, logs))
    total = np.zeros(logs.num_transitions)
    for policy, weight in zip(policies, weights.T, strict=True):
        total += weight * _taken_probabilities(logs, policy)
    return total


def _taken_probabilities(logs: Logs, policy: PolicyLike) -> Vector:
    """The probability that a policy gives to each action taken."""
    made = as_policy(policy, logs.num_actions, logs)
    parts = [
        made.probabilities(logs.states(rows))[np.arange(len(rows)), logs.action[rows]]
        for rows in logs.blocks()
    ]
    return np.concatenate(parts)


def _predict_actions(
    logs: Logs, features: Features, folds: int = 5, smoothing: float = 1.0
) -> Dense:
    """The probabilities of all actions in each state, each trajectory by a fit to the other folds."""
    count = min(folds, len(logs))
    if count < 2:
        raise InputError(
            "one trajectory cannot be split to estimate μ: give `behavior`, or `split` it"
        )
    fold = np.arange(len(logs)) % count
    every = np.empty((logs.num_transitions, logs.num_actions))
    for held_out in range(count):
        fit = _fit_counts if features.is_tabular else _fit_logistic
        predict = fit(logs[fold != held_out], features, smoothing)
        rows = np.flatnonzero(fold[logs.trajectory] == held_out)
        for part in np.array_split(rows, -(-len(rows) // (1 << 18))):
            every[part] = predict(features(logs.states(part)))
    return every


def _fit_counts(logs: Logs, features: Features, smoothing: float) -> Predict:
    counts = np.full((features.size, logs.num_actions), smoothing)
    for rows in logs.blocks():
        np.add.at(counts, (features(logs.states(rows)), logs.action[rows]), 1.0)
    table = counts / counts.sum(axis=1, keepdims=True)
    return lambda states: table[states]


def _fit_logistic(logs: Logs, features: Features, smoothing: float) -> Predict:
    # scikit-learn's regression has no column for an action that a fold lacks, whose μ̂ would then be 0, and
    # penalizes two actions twice as much as three.
    size = logs.num_transitions
    rows = np.unique(np.linspace(0, size - 1, min(size, _MOST_ROWS)).astype(np.int64))
    x, taken = features(logs.states(rows)), logs.action[rows].astype(np.int64)
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
