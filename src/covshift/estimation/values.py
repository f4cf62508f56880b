"""`evaluate_policy` and `compare_estimators`: what a policy is worth, with intervals."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from covshift.errors import InputError
from covshift.estimation.behavior import BehaviorLike
from covshift.estimation.comparison import Comparison, Difference, ValueEstimate
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.estimators import (
    ESTIMATORS,
    estimators_of,
    find_estimator,
    two_opinions,
)
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike
from covshift.estimation.inputs import Data
from covshift.estimation.intervals import (
    bootstrap_interval,
    empirical_likelihood_interval,
)
from covshift.estimation.policies import PolicyLike
from covshift.estimation.selection import select
from covshift.estimation.value_diagnostics import diagnose_value
from covshift.validation import Dense, Vector, check_count, check_seed

MOST_REPLICATES = 1_000_000
"""The most bootstrap replicates: beyond a million a typing error is likelier than a wish, and would run without end."""

_BATCH_NUMBERS = 60_000_000
"""Numbers that a batch of replicates may hold."""

_MOST_FAILED = 0.5
"""Share of the replicates that may have no answer before there is no interval."""


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
    behavior: BehaviorLike = None,
    ridge: float = 1e-6,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
    held_out: float = 0.25,
) -> ValueEstimate:
    """Estimates what a policy is worth from data that another policy logged.

    The interval holds the middle of a Bayesian bootstrap over trajectories, widened where they are few. Each replicate weights
    every trajectory by a Dirichlet draw, so that none is left out and a replicate has an answer wherever the whole
    data have one. Estimators that are means of independent terms (`pdis`, `wis`, `behavior`) have intervals by empirical
    likelihood. The interval says how the estimate varies with the data, not how far it is from the truth if
    the features or the ratio's discount bias it.

    Args:
        data: anything that `as_logs` accepts.
        policy: the policy π to evaluate.
        estimator: a name in `ESTIMATORS`, or `auto` to choose estimator, features and γ̂ by cross-validation; see
            `covshift.estimation.selection.select`.
        objective: `discounted` or `average`; see `Estimand`.
        discount: γ of the value.
        ratio_discount: γ̂ of the ratio, for estimators of the average reward that use one.
        ratio_method: the method to estimate that ratio.
        ratio_options: options of that method.
        features: features of the states, as in `estimate_ratio`.
        behavior: μ if it was not logged, as in `estimate_ratio`.
        ridge: ridge of estimators on features.
        interval: confidence level, or None for no interval.
        replicates: number of bootstrap replicates, at most a million.
        seed: seed of the bootstrap.
        held_out: share of the trajectories to hold out for the checks of the ratio, as in `estimate_ratio`; 0 skips them.

    Returns:
        The estimate with its interval, its diagnostics, and a verdict in words.

    Example:
        >>> from covshift.estimation import evaluate_policy, simulate_logs
        >>> from covshift.theory.examples import random_walk
        >>> walk = random_walk()
        >>> logs = simulate_logs(walk.mdp, walk.mu, 1000, 10, np.random.default_rng(0))
        >>> found = evaluate_policy(logs, walk.pi, estimator="mis-sn", discount=1.0)
        >>> truth = float(walk.mdp.d_0 @ walk.mdp.value(walk.pi, 1.0))
        >>> found.low < truth < found.high
        True
    """
    estimand = Estimand(
        objective, discount, ratio_discount, ratio_method, ratio_options or {}, ridge
    )
    selection = None
    if estimator == "auto":
        experience, estimand, selection = select(
            data, policy, estimand, features=features, behavior=behavior, seed=seed
        )
        estimator = selection.chosen.estimator
    else:
        experience = Experience.of(data, policy, features=features, behavior=behavior)
    found = evaluate_experience(
        experience, estimand, estimator, interval, replicates, seed, held_out
    )
    return replace(found, selection=selection)


def compare_estimators(
    data: Data,
    policy: PolicyLike,
    *,
    estimators: Sequence[str] | None = None,
    objective: Objective = "discounted",
    discount: float = 0.99,
    ratio_discount: float = 1.0,
    features: FeaturesLike = None,
    behavior: BehaviorLike = None,
    ridge: float = 1e-6,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
    held_out: float = 0.25,
    truth: float | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> Comparison:
    """Estimates the same value with many estimators; if they disagree, trust none of them alone.

    `estimators` are names in `ESTIMATORS`, by default all but `dr-cf` that can answer for the objective. `truth` is the true
    value, if it is known, for the picture. `progress` is called with 1 after each estimator. The other
    arguments are those of `evaluate_policy`.

    Returns:
        All estimates, and why some estimators could not answer.
    """
    experience = Experience.of(data, policy, features=features, behavior=behavior)
    estimand = Estimand(objective, discount, ratio_discount, ridge=ridge)
    names = estimators_of(objective) if estimators is None else list(estimators)
    if unknown := [name for name in names if name not in ESTIMATORS]:
        find_estimator(unknown[0], estimand)
    found = _evaluate_all(
        experience, estimand, names, interval, replicates, seed, held_out, progress
    )
    estimates = [one for one in found.values() if not isinstance(one, InputError)]
    failures = {name: str(one) for name, one in found.items() if isinstance(one, InputError)}
    return Comparison(estimates, failures, truth)


def compare_policies(
    data: Data,
    new: PolicyLike,
    old: PolicyLike | None = None,
    *,
    estimator: str = "dr",
    objective: Objective = "discounted",
    discount: float = 0.99,
    ratio_discount: float = 1.0,
    features: FeaturesLike = None,
    behavior: BehaviorLike = None,
    ridge: float = 1e-6,
    interval: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> Difference:
    """Estimates by how much a new policy is better than an old one, with a paired interval and a verdict in words.

    `old` is the policy to compare with; by default it is the policy that logged the data, whose value is that of the
    logs. If the flag of one of the two estimates is not `ok`, the verdict warns. The other
    arguments are those of `evaluate_policy`.

    Returns:
        The difference, new minus old, which holds both estimates.

    Example:
        >>> from covshift.estimation import compare_policies, simulate_logs
        >>> from covshift.theory.examples import random_walk
        >>> walk = random_walk()
        >>> logs = simulate_logs(walk.mdp, walk.mu, 1000, 100, np.random.default_rng(0))
        >>> print(compare_policies(logs, walk.mu, discount=1.0).verdict[:50])
        The data do not tell which policy is better: the d
    """
    estimand = Estimand(objective, discount, ratio_discount, ridge=ridge)

    def estimate(policy: PolicyLike, by: str) -> ValueEstimate:
        experience = Experience.of(data, policy, features=features, behavior=behavior)
        return evaluate_experience(experience, estimand, by, interval, replicates, seed)

    before = estimate(new, "behavior") if old is None else estimate(old, estimator)
    return estimate(new, estimator).difference(before)


def evaluate_experience(
    experience: Experience,
    estimand: Estimand,
    estimator: str,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
    held_out: float = 0.25,
) -> ValueEstimate:
    """`evaluate_policy` for prepared data, so that several questions can share them."""
    all_found = _evaluate_all(
        experience, estimand, [estimator], interval, replicates, seed, held_out
    )
    if isinstance(found := all_found[estimator], InputError):
        raise found
    return found


def _evaluate_all(
    experience: Experience,
    estimand: Estimand,
    names: Sequence[str],
    interval: float | None,
    replicates: int,
    seed: int,
    held_out: float,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, ValueEstimate | InputError]:
    """The estimates by name, or why there is none. All estimators see each batch of replicates, so that they share its fits."""
    _check_bootstrap(interval, replicates, seed)
    values: dict[str, float | InputError] = {}
    seconds: dict[str, float] = {}
    for name in names:
        started = time.perf_counter()
        values[name] = _attempt(name, experience, estimand)
        seconds[name] = time.perf_counter() - started
    answering = [name for name, value in values.items() if not isinstance(value, InputError)]
    compares = any(ESTIMATORS[name].trusts in ("ratio", "value", "either") for name in answering)
    draws: dict[str, list[float]] = {name: [] for name in answering}
    opinions = []
    if interval is not None and answering:
        _check_trajectories(len(experience.logs))
        opinions = [two_opinions(experience, estimand)] if compares else []
        weights = bootstrap_weights(len(experience.logs), replicates, np.random.default_rng(seed))
        size = _batch_size(experience)
        with warnings.catch_warnings():
            # What there is to warn of was said for the whole data.
            warnings.simplefilter("ignore", UserWarning)
            while batch := list(islice(weights, size)):
                members = experience.batch(batch)
                for name in answering:
                    started = time.perf_counter()
                    for member in members:
                        value = _attempt(name, member, estimand)
                        draws[name].append(np.nan if isinstance(value, InputError) else value)
                    seconds[name] += time.perf_counter() - started
                opinions += [two_opinions(member, estimand) for member in members if compares]
    found: dict[str, ValueEstimate | InputError] = {}
    for name, value in values.items():
        found[name] = value if isinstance(value, InputError) else _finish(
            experience, estimand, name, value, np.array(draws[name]), np.array(opinions), interval,
            seed, held_out, seconds[name],
        )  # fmt: skip
        progress(1)
    return found


def _attempt(name: str, experience: Experience, estimand: Estimand) -> float | InputError:
    """The number, or why there is none."""
    try:
        estimate = find_estimator(name, estimand).estimate
        estimand.check(experience)
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(estimate(experience, estimand))
    except InputError as error:
        return error
    if not np.isfinite(value):
        return InputError(
            f"{name} is not a finite number on these data: its weights grow beyond all numbers"
        )
    return value


def _finish(
    experience: Experience,
    estimand: Estimand,
    name: str,
    value: float,
    draws: Vector,
    opinions: Dense,
    interval: float | None,
    seed: int,
    held_out: float,
    seconds: float,
) -> ValueEstimate | InputError:
    """The estimate with an interval from the replicates that have an answer, and with its diagnostics."""
    low = high = level = float("nan")
    count, failed = len(experience.logs), int(np.isnan(draws).sum())
    if interval is not None:
        if failed > _MOST_FAILED * len(draws):
            return InputError(
                f"{failed} of {len(draws)} bootstrap replicates have no answer, so that there is no interval: use "
                "interval=None, other features or a ridge"
            )
        level, terms = interval, ESTIMATORS[name].terms
        if terms is None:
            low, high = bootstrap_interval(draws, level, count)
        else:
            low, high = empirical_likelihood_interval(*terms(experience, estimand), level)
    diagnostics = diagnose_value(experience, estimand, name, held_out)
    if diagnostics.trusts not in ("products", "data") and len(opinions):
        diagnostics = diagnostics.compared(opinions, 0.5 * (high - low))
    return ValueEstimate(
        name, value, low, high, level, estimand, draws, seconds, (count, seed), diagnostics
    )


def _batch_size(experience: Experience) -> int:
    """How many replicates fit into memory at once, with their weights and sums."""
    numbers = len(experience.logs)
    if not experience.is_tabular:
        numbers += 3 * (experience.features.size * experience.num_actions) ** 2
    return max(1, _BATCH_NUMBERS // numbers)


def bootstrap_weights(
    num_trajectories: int, replicates: int, rng: np.random.Generator
) -> Iterator[Vector]:
    """Draws n · Dirichlet(1, …, 1), once per replicate."""
    for _ in range(replicates):
        draw = rng.standard_exponential(num_trajectories)
        yield num_trajectories * draw / draw.sum()


def _check_bootstrap(interval: float | None, replicates: int, seed: int) -> None:
    if interval is not None and not 0.0 < interval < 1.0:
        raise InputError(f"interval must lie in (0, 1), but it is {interval}")
    check_count("replicates", replicates, MOST_REPLICATES)
    check_seed(seed)


def _check_trajectories(count: int) -> None:
    if count < 2:
        raise InputError(
            "1 trajectory gives no interval: say interval=None, or cut a long record of a continuing problem "
            "into segments with `Logs.split`"
        )
    if count < 10:
        warnings.warn(f"an interval from {count} trajectories is a rough one", stacklevel=4)
