"""Error against the number of transitions, for every ratio method and every estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from covshift.errors import InputError
from covshift.estimation import ESTIMATORS, Logs, simulate_logs
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.population import true_value
from covshift.estimation.problem import RatioProblem
from covshift.theory.examples import Problem, episodic

RATIO_DISCOUNT, DISCOUNT = 0.9, 0.9
LONGEST = 100
LINEAR = ("semi-gradient", "simplex")
RATIOS = ("empirical", "least-squares", "matching", "td", *LINEAR)


class Point(NamedTuple):
    """The median error of one method at one size."""

    kind: str
    name: str
    transitions: int
    error: float


def convergence(sizes: tuple[int, ...], seeds: int) -> Iterator[Point]:
    """Errors of ratios (with restarts, γ̂ = 0.9, in the d_μ-norm) and of discounted values (γ = 0.9).

    The problem is random and episodic. π is a quarter of the way from μ to another random policy, so that products of ρ have finite variance.
    """
    drawn = episodic(np.random.default_rng(3), 5, 2, single_start=False)
    problem = replace(drawn, pi=0.25 * drawn.pi + 0.75 * drawn.mu)
    restarting = problem.restart()
    exact, truth = restarting.c_star(RATIO_DISCOUNT), true_value(problem, DISCOUNT)
    states = np.arange(problem.mdp.num_states)
    for size in sizes:
        errors: dict[tuple[str, str], list[float]] = {}
        for seed in range(seeds):
            logs = _whole_episodes(problem, size, np.random.default_rng([seed, size]))
            table = Experience.of(logs, problem.pi, features=None)
            one_hot = Experience.of(logs, problem.pi, features=np.eye(len(states)))
            for method in RATIOS:
                if method == "semi-gradient" and size > 10_000:
                    continue  # a loop over transitions that takes minutes
                experience = one_hot if method in LINEAR else table
                question = RatioProblem(experience, RATIO_DISCOUNT, "restart")
                options = {"passes": 1} if method == "semi-gradient" else {}
                try:
                    found = fit_ratio(question, method, **options)
                except InputError:
                    continue
                seen = states[: experience.features.size]
                c = found.at(np.eye(len(states)) if method in LINEAR else seen)
                distance = float(np.sqrt(restarting.d_mu[seen] @ (c[seen] - exact[seen]) ** 2))
                errors.setdefault(("ratio", method), []).append(distance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                for name, estimator in ESTIMATORS.items():
                    if name != "behavior":
                        value = estimator.estimate(table, Estimand("discounted", DISCOUNT))
                        errors.setdefault(("value", name), []).append(abs(value - truth))
        for (kind, name), values in errors.items():
            yield Point(kind, name, size, float(np.median(values)))


def _whole_episodes(problem: Problem, size: int, rng: np.random.Generator) -> Logs:
    """The first episode of each of many streams, so that none is cut off."""
    count = max(2, round(size / problem.d_mu.sum()))
    logs = simulate_logs(problem.mdp, problem.mu, LONGEST, count, rng)
    first = np.zeros(logs.num_trajectories, dtype=bool)
    first[logs.trajectory[::LONGEST]] = True
    return logs[first]
