"""`evaluate_policy` and `compare_estimators`: what a policy is worth, with intervals."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.comparison import Comparison, ValueEstimate
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.estimators import ESTIMATORS, estimators_of, find_estimator
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike
from covshift.estimation.inputs import Data
from covshift.estimation.policies import PolicyLike
from covshift.validation import Vector, check_count, check_seed


def evaluate_policy(
    data: Data,
    policy: PolicyLike,
    *,
    estimator: str = "dr",
    objective: Objective = "discounted",
    discount: float = 0.99,
    ratio_discount: float = 1.0,
    ratio_method: str | None = None,
    ratio_options: dict[str, Any] | None = None,
    features: FeaturesLike = None,
    behavior: PolicyLike | NDArray[np.float64] | None = None,
    ridge: float = 1e-6,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> ValueEstimate:
    """Estimates what a policy is worth from data that another policy logged.

    The interval is the middle of a Bayesian bootstrap over trajectories: each replicate weighs every
    trajectory by a Dirichlet draw, so that none is left out and what the whole data determine each replicate
    does too. It says how the estimate varies with the data, not how far it is from the truth where the
    features or the ratio's discount bias it.

    Args:
        data: anything that `as_logs` takes.
        policy: the policy π to evaluate.
        estimator: one of `ESTIMATORS`.
        objective: `discounted` or `average`; see `Estimand`.
        discount: γ of the value.
        ratio_discount: γ̂ of estimators with a ratio, for the average reward.
        ratio_method: how they estimate the ratio.
        ratio_options: of that method.
        features: as in `estimate_ratio`.
        behavior: μ where it was not logged.
        ridge: of estimators on features.
        interval: its level, or None for none.
        replicates: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        The estimate with its interval.

    Example:
        >>> from covshift.estimation import evaluate_policy, simulate_logs
        >>> from covshift.theory.examples import random_walk
        >>> walk = random_walk()
        >>> logs = simulate_logs(walk.mdp, walk.mu, 1000, 10, np.random.default_rng(0))
        >>> found = evaluate_policy(logs, walk.pi, discount=1.0)
        >>> truth = float(walk.mdp.d_0 @ walk.mdp.value(walk.pi, 1.0))
        >>> found.low < truth < found.high
        True
    """
    experience = Experience.of(data, policy, features=features, behavior=behavior)
    estimand = Estimand(
        objective, discount, ratio_discount, ratio_method, ratio_options or {}, ridge
    )
    return evaluate_experience(experience, estimand, estimator, interval, replicates, seed)


def compare_estimators(
    data: Data,
    policy: PolicyLike,
    *,
    estimators: Sequence[str] | None = None,
    objective: Objective = "discounted",
    discount: float = 0.99,
    ratio_discount: float = 1.0,
    features: FeaturesLike = None,
    behavior: PolicyLike | NDArray[np.float64] | None = None,
    ridge: float = 1e-6,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
    truth: float | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> Comparison:
    """Asks many estimators the same estimand; where they disagree, none should be believed alone.

    Args:
        estimators: their names; by default all that can answer.
        truth: the true value, where it is known, for the picture.
        progress: is told how many more estimators are done.
        data: as in `evaluate_policy`, and so are the others.
        policy: π.
        objective: `discounted` or `average`.
        discount: γ.
        ratio_discount: γ̂.
        features: of the states.
        behavior: μ where it was not logged.
        ridge: of linear estimators.
        interval: its level, or None.
        replicates: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        All estimates, and why some could not answer.
    """
    experience = Experience.of(data, policy, features=features, behavior=behavior)
    estimand = Estimand(objective, discount, ratio_discount, ridge=ridge)
    _check_bootstrap(interval, replicates, seed)
    names = estimators_of(objective) if estimators is None else list(estimators)
    estimates, failures = [], {}
    for name in names:
        try:
            estimates.append(
                evaluate_experience(experience, estimand, name, interval, replicates, seed)
            )
        except InputError as error:
            if estimators is not None and name not in ESTIMATORS:
                raise
            failures[name] = str(error)
        progress(1)
    return Comparison(estimates, failures, truth)


def bootstrap_weights(
    num_trajectories: int, replicates: int, rng: np.random.Generator
) -> Iterator[Vector]:
    """n · Dirichlet(1, …, 1), a draw a replicate."""
    for _ in range(replicates):
        draw = rng.standard_exponential(num_trajectories)
        yield num_trajectories * draw / draw.sum()


def evaluate_experience(
    experience: Experience,
    estimand: Estimand,
    estimator: str,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> ValueEstimate:
    """`evaluate_policy` on data that were brought into form before, for many questions about them."""
    _check_bootstrap(interval, replicates, seed)
    chosen = find_estimator(estimator, estimand)
    estimand.check(experience)
    started = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        value = chosen.estimate(experience, estimand)
    if not np.isfinite(value):
        raise InputError(
            f"{estimator} is not a finite number on these data: its weights grow beyond all numbers"
        )
    low = high = float("nan")
    found = np.empty(0)
    if interval is not None:
        found = _replicate(experience, estimand, estimator, replicates, seed)
        tail = 50.0 * (1.0 - interval)
        low, high = (float(end) for end in np.percentile(found, [tail, 100.0 - tail]))
    return ValueEstimate(
        estimator,
        float(value),
        low,
        high,
        float("nan") if interval is None else interval,
        estimand,
        found,
        time.perf_counter() - started,
    )


def _check_bootstrap(interval: float | None, replicates: int, seed: int) -> None:
    if interval is not None and not 0.0 < interval < 1.0:
        raise InputError(f"interval must lie in (0, 1), but it is {interval}")
    check_count("replicates", replicates)
    check_seed(seed)


def _replicate(
    experience: Experience,
    estimand: Estimand,
    estimator: str,
    replicates: int,
    seed: int,
) -> Vector:
    count = experience.logs.num_trajectories
    if count < 2:
        raise InputError(
            "1 trajectory gives no interval: say interval=None, or cut a long record of a continuing problem "
            "into segments with `Logs.split`"
        )
    if count < 10:
        warnings.warn(f"an interval from {count} trajectories is a rough one", stacklevel=4)
    rng = np.random.default_rng(seed)
    estimate = ESTIMATORS[estimator].estimate
    weights = bootstrap_weights(count, replicates, rng)
    return np.array([estimate(experience.reweighted(w), estimand) for w in weights])
