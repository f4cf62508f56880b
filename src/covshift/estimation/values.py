"""`evaluate_policy` and `compare_estimators`: what a policy is worth, with intervals."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimators import ESTIMATORS, find_estimator
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike
from covshift.estimation.intake import Data
from covshift.estimation.policies import PolicyLike
from covshift.estimation.question import Objective, Question
from covshift.report.plots import COLORS, house_style, panels
from covshift.theory.validation import Vector, check_count


@final
@dataclass(frozen=True, eq=False)
class ValueEstimate:
    """An estimated value with its interval.

    Attributes:
        estimator: its name.
        value: the estimate.
        low: lower end of the interval; NaN where none was asked for.
        high: upper end.
        level: of the interval.
        question: what was asked.
        replicates: the estimates of the bootstrap.
        seconds: how long it took.
    """

    estimator: str
    value: float
    low: float
    high: float
    level: float
    question: Question
    replicates: Vector
    seconds: float

    @property
    def standard_error(self) -> float:
        """Spread of the bootstrap."""
        return float(self.replicates.std(ddof=1)) if len(self.replicates) > 1 else float("nan")

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "estimator": self.estimator,
            "objective": self.question.objective,
            "estimand": self.question.describe(),
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "standard_error": self.standard_error,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        interval = "" if np.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.estimator}: {self.value:.4g}{interval}"


@final
@dataclass(frozen=True, eq=False)
class Comparison:
    """Several estimates of one value, some of which may have failed.

    Attributes:
        estimates: what came of each estimator that could answer.
        failures: why the others could not, by name.
        truth: the true value, where it is known.
    """

    estimates: list[ValueEstimate]
    failures: dict[str, str]
    truth: float | None = None

    def __getitem__(self, name: str) -> ValueEstimate:
        for estimate in self.estimates:
            if estimate.estimator == name:
                return estimate
        raise InputError(self.failures.get(name, f"'{name}' was not among the estimators"))

    def plot(self) -> Figure:
        """A row an estimator: its estimate, its interval, and the true value where it is known."""
        with house_style():
            height = 1.2 + 0.32 * len(self.estimates)
            figure, (axes,) = panels(1, width=7.5, height=height)
            rows = np.arange(len(self.estimates))[::-1]
            for row, estimate in zip(rows, self.estimates, strict=True):
                color = "0.55" if estimate.estimator == "behavior" else COLORS[0]
                if not np.isnan(estimate.low):
                    axes.plot([estimate.low, estimate.high], [row, row], color=color, linewidth=2)
                axes.plot(estimate.value, row, "o", color=color)
            if self.truth is not None:
                axes.axvline(self.truth, color=COLORS[1], label="true value")
                axes.legend(loc="lower right")
            axes.set_yticks(rows, [ESTIMATORS[e.estimator].title for e in self.estimates])
            axes.set_xlim(*_limits(self))
            asked = self.estimates[0].question.describe() if self.estimates else ""
            axes.set(xlabel=asked, ylim=(-0.7, len(rows) - 0.3))
        return figure

    def write_csv(self, path: Path | str) -> Path:
        """A line an estimator."""
        place = Path(path)
        rows = [estimate.record() for estimate in self.estimates]
        with place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=[*rows[0], "truth"] if rows else ["truth"])
            writer.writeheader()
            writer.writerows(row | {"truth": self.truth} for row in rows)
        return place


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
        objective: `discounted` or `average`; see `Question`.
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
    question = Question(
        objective, discount, ratio_discount, ratio_method, ratio_options or {}, ridge
    )
    return evaluate_experience(experience, question, estimator, interval, replicates, seed)


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
) -> Comparison:
    """Asks many estimators the same question; where they disagree, none should be believed alone.

    Args:
        estimators: their names; by default all that can answer.
        truth: the true value, where it is known, for the picture.
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
    question = Question(objective, discount, ratio_discount, ridge=ridge)
    names = (
        [name for name, e in ESTIMATORS.items() if objective in e.needs]
        if estimators is None
        else list(estimators)
    )
    estimates, failures = [], {}
    for name in names:
        try:
            estimates.append(
                evaluate_experience(experience, question, name, interval, replicates, seed)
            )
        except InputError as error:
            if estimators is not None and name not in ESTIMATORS:
                raise
            failures[name] = str(error)
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
    question: Question,
    estimator: str,
    interval: float | None = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> ValueEstimate:
    """`evaluate_policy` on data that were brought into form before, for many questions about them."""
    chosen = find_estimator(estimator, question)
    question.check(experience)
    started = time.perf_counter()
    value = chosen.estimate(experience, question)
    if not np.isfinite(value):
        raise InputError(f"{estimator} is not a finite number on these data")
    low = high = float("nan")
    found = np.empty(0)
    if interval is not None:
        found = _replicate(experience, question, estimator, interval, replicates, seed)
        tail = 50.0 * (1.0 - interval)
        low, high = (float(end) for end in np.percentile(found, [tail, 100.0 - tail]))
    return ValueEstimate(
        estimator,
        float(value),
        low,
        high,
        float("nan") if interval is None else interval,
        question,
        found,
        time.perf_counter() - started,
    )


def _replicate(
    experience: Experience,
    question: Question,
    estimator: str,
    interval: float,
    replicates: int,
    seed: int,
) -> Vector:
    if not 0.0 < interval < 1.0:
        raise InputError(f"interval must lie in (0, 1), but it is {interval}")
    check_count("replicates", replicates)
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
    return np.array([estimate(experience.reweighted(w), question) for w in weights])


def _limits(comparison: Comparison) -> tuple[float, float]:
    """Of the axis: an estimator gone wild may leave it, so that the others can be told apart."""
    ends = [
        end
        for estimate in comparison.estimates
        for end in (estimate.low, estimate.high, estimate.value)
        if np.isfinite(end)
    ]
    if comparison.truth is not None:
        ends.append(comparison.truth)
    values = np.array(ends) if ends else np.zeros(1)
    first, last = np.percentile(values, [5, 95])
    room = 0.6 * max(last - first, 1e-9, 0.05 * abs(last))
    return float(max(values.min(), first - room) - 0.1 * room), float(
        min(values.max(), last + room) + 0.1 * room
    )
