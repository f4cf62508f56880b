"""Every method and estimator converges to the exact answer, at the rate 1/√N.

Errors are medians over seeds at 10² … 10⁵ transitions, since at 10² a sampled operator can be nearly singular. The
slope of log error over log N must be -½, within what so few seeds allow, and the error at 10⁵ must be small.
Bootstrapping with decreasing step sizes may converge more slowly.
"""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from covshift.estimation import ESTIMATORS, Logs, simulate_logs
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.population import true_average, true_value
from covshift.estimation.problem import RatioProblem
from covshift.theory.examples import Problem, episodic, garnet

SIZES = (100, 1_000, 10_000, 100_000)
STEPS = {100: 10, 1_000: 20, 10_000: 100, 100_000: 1_000}
LONGEST = 100
CONTINUING = garnet(np.random.default_rng(1), 6, 3, 2)
_EPISODIC = episodic(np.random.default_rng(3), 5, 2, single_start=False)
# Products of ρ converge as 1/√N only where their variance is finite.
EPISODIC = replace(_EPISODIC, pi=0.25 * _EPISODIC.pi + 0.75 * _EPISODIC.mu)


@cache
def logs_of(problem: Problem, size: int, seed: int) -> Logs:
    """About `size` transitions; of an episodic problem whole episodes, each the first of its stream."""
    rng = np.random.default_rng(seed)
    if not problem.mdp.is_episodic:
        return simulate_logs(problem.mdp, problem.mu, STEPS[size], size // STEPS[size], rng)
    count = round(size / problem.d_mu.sum())
    logs = simulate_logs(problem.mdp, problem.mu, LONGEST, count, rng)
    first = np.zeros(logs.num_trajectories, dtype=bool)
    first[logs.trajectory[::LONGEST]] = True
    return logs[first]


def slope(errors: list[float]) -> float:
    return float(np.polyfit(np.log(SIZES), np.log(errors), 1)[0])


def seeds(size: int) -> range:
    return range({100: 20, 1_000: 20, 10_000: 8, 100_000: 3}[size])


@pytest.mark.parametrize(
    ("method", "problem", "semantics", "ratio_discount", "options"),
    [
        ("empirical", CONTINUING, "continuing", 0.9, {}),
        ("empirical", CONTINUING, "continuing", 1.0, {}),
        ("empirical", EPISODIC, "visits", 1.0, {}),
        ("empirical", EPISODIC, "restart", 0.9, {}),
        ("least-squares", CONTINUING, "continuing", 0.9, {}),
        ("least-squares", EPISODIC, "visits", 1.0, {}),
        ("td", CONTINUING, "continuing", 0.9, {}),
        ("td", EPISODIC, "visits", 0.9, {"num_steps": 3}),
        ("td", EPISODIC, "restart", 0.9, {}),
    ],
)
def test_ratios_converge(
    method: str,
    problem: Problem,
    semantics: EpisodeSemantics,
    ratio_discount: float,
    options: dict[str, int],
) -> None:
    exact = (problem.restart() if semantics == "restart" else problem).c_star(ratio_discount)
    d_mu = problem.d_mu / problem.d_mu.sum()
    errors = []
    for size in SIZES:
        squares = []
        for seed in seeds(size):
            experience = Experience.of(logs_of(problem, size, seed), problem.pi)
            asked = RatioProblem(experience, ratio_discount, semantics)
            found = fit_ratio(asked, method, **options)
            here = np.arange(experience.features.size)
            squares.append(d_mu[here] @ (found.at(here) - exact[here]) ** 2)
        errors.append(float(np.sqrt(np.median(squares))))
    assert errors[-1] < (0.08 if method == "td" else 0.03), errors
    assert -0.75 < slope(errors) < (-0.2 if method == "td" else -0.35), errors


def test_short_records_do_not_bias_methods_that_count_states_acted_in() -> None:
    """60 000 transitions in records of three; a ratio that counted the last states of records would be off by 0.3."""
    logs = simulate_logs(_EPISODIC.mdp, _EPISODIC.mu, 3, 20_000, np.random.default_rng(0))
    experience = Experience.of(logs, _EPISODIC.pi)
    truth = true_value(_EPISODIC, 0.9)
    estimand = Estimand("discounted", 0.9)
    for name in ("mis", "fqe", "mwl"):
        assert ESTIMATORS[name].estimate(experience, estimand) == pytest.approx(truth, abs=0.1)
    by_rows = replace(estimand, ratio_method="td")
    assert abs(ESTIMATORS["mis"].estimate(experience, by_rows) - truth) > 0.2


@pytest.mark.parametrize("objective", ["discounted", "average"])
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("behavior", "wis")])
def test_values_converge(name: str, objective: str) -> None:
    if objective not in ESTIMATORS[name].objectives:
        return
    estimand = Estimand("average" if objective == "average" else "discounted", 0.9)
    truth = true_average(EPISODIC) if estimand.is_average else true_value(EPISODIC, 0.9)
    errors = []
    for size in SIZES:
        found = []
        for seed in seeds(size):
            experience = Experience.of(logs_of(EPISODIC, size, seed), EPISODIC.pi)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found.append(ESTIMATORS[name].estimate(experience, estimand))
        errors.append(float(np.median(np.abs(np.array(found) - truth))))
    assert errors[-1] < 0.02, errors
    assert -0.85 < slope(errors) < -0.3, errors
