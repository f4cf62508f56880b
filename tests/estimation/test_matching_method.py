"""The method `matching` against exact fits of the theory, exact ratios and the promises about sign and mean."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    Logs,
    RatioEstimate,
    estimate_ratio,
    evaluate_policy,
    experience,
    from_arrays,
    simulate_logs,
)
from covshift.estimation.diagnostics import projected_residual
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.matching import _Equation, _Features, _Table, fit_matching
from covshift.estimation.moments import RatioMoments
from covshift.estimation.population import population
from covshift.estimation.problem import MatchedRatioFunction, RatioProblem
from covshift.rules import LINKS, floored_ratio
from covshift.theory import CopOperator, MatchingOperator, mean_ratio_bounds
from covshift.theory.examples import Problem, episodic, garnet, random_walk
from covshift.validation import Dense, Vector

LinkName = Literal["exponential", "safe"]
CONTINUING = garnet(np.random.default_rng(1), 6, 3, 2)
EPISODIC = episodic(np.random.default_rng(3), 5, 2, single_start=False)
CASES: list[tuple[Problem, EpisodeSemantics]] = [
    (CONTINUING, "continuing"),
    (EPISODIC, "visits"),
    (EPISODIC, "restart"),
    (random_walk(revisits_start=True), "visits"),
]


def features(size: int, seed: int = 0) -> Dense:
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(size), rng.standard_normal((size, 2))])


def log(problem: Problem, seed: int = 0, length: int = 50, count: int = 8) -> Logs:
    return simulate_logs(problem.mdp, problem.mu, length, count, np.random.default_rng(seed))


def mean_of(asked: RatioProblem, found: Any) -> tuple[float, float]:
    """Mean and smallest ratio over the data."""
    samples = list(asked.experience.samples())
    weight = np.concatenate([s.weight for s in samples])
    c = np.concatenate([found.at(s.x_tm1) for s in samples])
    return float(weight @ c / weight.sum()), float(c.min())


@pytest.mark.parametrize("ratio_discount", [0.0, 0.9, 0.99, 1.0])
@pytest.mark.parametrize(("problem", "semantics"), CASES)
@pytest.mark.parametrize("link", ["exponential", "safe"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_tables_and_one_hot_features_are_exact_on_the_population(
    problem: Problem, semantics: EpisodeSemantics, ratio_discount: float, link: LinkName, one_hot: bool,
) -> None:  # fmt: skip
    size = problem.mdp.num_states
    asked = RatioProblem(
        population(problem, np.eye(size) if one_hot else None), ratio_discount, semantics
    )
    if semantics == "visits" and ratio_discount == 1.0:
        with pytest.raises(InputError, match=r"ratio_discount = 1: use a ratio_discount below 1"):
            fit_matching(asked, link=link)
        return
    found = fit_matching(asked, link=link)
    exact = (problem.restart() if semantics == "restart" else problem).c_star(ratio_discount)
    np.testing.assert_allclose(found.at(np.eye(size) if one_hot else np.arange(size)), exact, atol=1e-7)  # fmt: skip
    assert projected_residual(asked, found) < 1e-7


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("link", ["exponential", "safe"])
def test_on_the_population_it_is_the_fixed_point_of_exact_fits(link: LinkName, seed: int) -> None:
    rng = np.random.default_rng(seed)
    semantics: EpisodeSemantics = ("continuing", "visits", "restart")[seed % 3]
    problem = garnet(rng, 8, 3, 3) if semantics == "continuing" else episodic(rng, 8, 3)
    phi, ratio_discount = features(8, seed), (0.5, 0.9, 0.99)[seed % 4 % 3]
    asked = RatioProblem(population(problem, phi), ratio_discount, semantics)
    same = problem.restart() if semantics == "restart" else problem
    operator = CopOperator(same.chain_pi, same.d_mu, ratio_discount)
    fits = MatchingOperator(operator, phi, LINKS[link], floored=True, averaging=0.5)
    np.testing.assert_allclose(
        fit_matching(asked, link=link).at(phi), fits.fixed_point(), atol=1e-6
    )


@pytest.mark.parametrize("discount", [0.5, 0.95])
@pytest.mark.parametrize("problem", [CONTINUING, EPISODIC])
@pytest.mark.parametrize("ratio_discount", [0.9, 1.0])
def test_discounted_visits_are_exact(
    problem: Problem, discount: float, ratio_discount: float
) -> None:
    size = problem.mdp.num_states
    for phi in (None, np.eye(size)):
        asked = RatioProblem(population(problem, phi), ratio_discount, "visits", discount)
        expected = fit_ratio(asked, "least-squares")
        states = np.arange(size) if phi is None else phi
        np.testing.assert_allclose(fit_matching(asked).at(states), expected.at(states), atol=1e-7)


@pytest.mark.parametrize(("problem", "semantics"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_one_hot_features_give_the_table_of_a_sample(
    problem: Problem, semantics: EpisodeSemantics, weighted: bool
) -> None:
    """Also where a state was arrived in but never left, and for a replicate of the bootstrap."""
    logs, size = log(problem), problem.mdp.num_states + 1
    joined = from_arrays(
        np.append(logs.states(), 0),
        np.append(logs.action, 0),
        np.append(logs.reward, 0.0),
        np.append(logs.next_states(), size - 1),
        np.append(logs.terminated, False),
        trajectory=np.append(logs.trajectory, len(logs)),
        mu=np.append(np.asarray(logs.mu), problem.mu[0, 0]),
        num_actions=problem.mdp.num_actions,
    )
    pi = np.vstack([problem.pi, problem.pi[:1]])
    found = []
    for phi in (None, np.eye(size)):
        data = Experience.of(joined, pi, features=phi)
        if weighted:
            data = data.reweighted(np.random.default_rng(1).dirichlet(np.ones(len(joined))) * 9)
        asked = RatioProblem(data, 0.9, semantics)
        found.append(fit_matching(asked).at(np.arange(size) if phi is None else phi))
        mean, lowest = mean_of(asked, fit_matching(asked))
        assert lowest >= 0.1 - 1e-12
        if asked.has_mean_one:
            assert mean == pytest.approx(1.0)
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)
    assert found[0][-1] == 1.0
    assert np.ptp(found[0]) > 0.1


@pytest.mark.parametrize(("problem", "semantics"), CASES[:3])
@pytest.mark.parametrize("seed", range(4))
def test_sign_and_mean_hold_on_every_sample(
    problem: Problem, semantics: EpisodeSemantics, seed: int
) -> None:
    """Of 200 transitions at γ̂ = 0.99, where chance in ρ moves least squares far from both."""
    logs = log(problem, seed, 50, 4)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(logs))) * len(logs)
    for phi in (None, features(problem.mdp.num_states)):
        data = Experience.of(logs, problem.pi, features=phi).reweighted(weights)
        asked = RatioProblem(data, 0.99, semantics)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            mean, lowest = mean_of(asked, fit_matching(asked))
        assert lowest >= 0.01 - 1e-12
        if asked.has_mean_one:
            assert mean == pytest.approx(1.0, abs=1e-7)
        else:
            samples = list(data.samples())
            total = sum(s.weight.sum() for s in samples)
            starts = sum(s.weight @ s.is_initial_tm1 for s in samples) / total
            low, high = mean_ratio_bounds(0.99, starts)
            assert low - 1e-7 <= mean <= high + 1e-7


def test_a_table_is_never_negative() -> None:
    """Also at γ̂ = 1 in states from which records start and to which nothing leads."""
    for seed in range(20):
        data = Experience.of(log(CONTINUING, seed, 3, 4), CONTINUING.pi)
        found = fit_matching(RatioProblem(data, 1.0, "continuing"))
        assert found.at(np.arange(data.features.size)).min() >= 0.0


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize(("problem", "semantics"), CASES[:3])
@pytest.mark.parametrize("table", [False, True])
def test_steps_follow_the_derivative_of_the_equation(
    problem: Problem, semantics: EpisodeSemantics, table: bool, discount: float
) -> None:
    """Central differences of the error against its slopes, at a ratio that solves nothing."""
    if discount < 1.0 and semantics != "visits":
        return
    data = Experience.of(
        log(problem), problem.pi, features=None if table else features(problem.mdp.num_states)
    )
    asked = RatioProblem(data, 0.9, semantics, discount)
    moments = RatioMoments.of(data)
    family: Any = (
        _Table.of(asked, moments) if table else _Features.of(asked, moments, "exponential")
    )
    equation = _Equation(asked, moments, family, 0.0 if table else 0.3)
    u = family.start + 0.1 * np.arange(len(family.start))
    here = equation.at(u)
    slope = here.here_slope - here.moved_slope - here.rows @ here.columns
    for k, unit in enumerate(np.eye(len(u))):
        ahead, behind = (equation.at(u + h * unit).error for h in (1e-5, -1e-5))
        np.testing.assert_allclose((ahead - behind) / 2e-5, np.asarray(slope)[:, k], atol=1e-6)


def test_a_table_finds_the_positive_solution_among_several() -> None:
    """25 transitions of six states: longer steps lead to a solution with negative ratios."""
    rng = np.random.default_rng(65)
    problem = garnet(rng, 6, 3, 2)
    logs = simulate_logs(problem.mdp, problem.mu, 5, 5, rng)
    for ratio_discount in (0.9, 1.0):
        asked = RatioProblem(Experience.of(logs, problem.pi), ratio_discount, "continuing")
        np.testing.assert_allclose(
            fit_matching(asked).at(np.unique(logs.states())), fits_by_hand(asked, logs), atol=1e-6
        )


def fits_by_hand(asked: RatioProblem, logs: Logs) -> Vector:
    """Fits in the states acted in, each positive because the one before is."""
    states, s = np.unique(logs.states(), return_inverse=True)
    size, t = len(states), np.searchsorted(states, logs.next_states())
    inside = np.isin(logs.next_states(), states)
    rho = np.concatenate([sample.rho_tm1 for sample in asked.experience.samples()])
    visits, c = np.bincount(s), np.ones(size)
    for _ in range(3000):
        arrives = np.bincount(t[inside], (rho * c[s])[inside], minlength=size)
        arrivals = arrives / visits * (visits.sum() / arrives.sum())
        c = floored_ratio(arrivals, asked.ratio_discount)
    return np.asarray(c)


def slow_fits(asked: RatioProblem, phi: Dense, logs: Logs) -> Vector:
    """Averaged fits to the targets of each transition, by hand, on counted visits of a table's states."""
    s, t, ended, starts = logs.states(), logs.next_states(), logs.terminated, logs.is_initial
    rho = np.concatenate([sample.rho_tm1 for sample in asked.experience.samples()])
    visits = np.bincount(s, minlength=len(phi)).astype(float)
    w = np.zeros(phi.shape[1])
    for _ in range(3000):
        x = np.exp(phi @ w)
        c = 0.1 + 0.9 * x
        flow = rho * c[s] * (c[s].sum() / (rho @ c[s]))
        arrives = np.bincount(t[~ended], flow[~ended], minlength=len(phi))
        if asked.semantics == "visits":
            arrives += np.bincount(s[starts], minlength=len(phi))
        elif asked.semantics == "restart":
            arrives += flow[ended].sum() * np.bincount(s[starts], minlength=len(phi)) / starts.sum()
        aim = phi.T @ (0.5 * visits * x + 0.5 * arrives)
        for _ in range(4):
            x = np.exp(phi @ w)
            w = w - np.linalg.solve((phi.T * visits * x) @ phi, phi.T @ (visits * x) - aim)
    return 0.1 + 0.9 * np.exp(phi @ w)


@pytest.mark.parametrize(("problem", "semantics"), CASES[:3])
def test_on_a_sample_it_is_where_averaged_fits_come_to_rest(
    problem: Problem, semantics: EpisodeSemantics
) -> None:
    logs, phi = log(problem, count=20), features(problem.mdp.num_states)
    asked = RatioProblem(Experience.of(logs, problem.pi, features=phi), 0.9, semantics)
    np.testing.assert_allclose(fit_matching(asked).at(phi), slow_fits(asked, phi, logs), atol=1e-6)


def test_streamed_data_give_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    phi = features(6)
    asked = {"ratio_discount": 0.9, "method": "matching", "features": phi, "held_out": 0.0}
    logs = log(CONTINUING, length=100, count=30)
    whole = estimate_ratio(logs, CONTINUING.pi, **asked)  # type: ignore[arg-type]
    monkeypatch.setattr(experience, "_KEPT_NUMBERS", 0)
    monkeypatch.setattr(experience, "BLOCK", 256)
    streamed = estimate_ratio(logs, CONTINUING.pi, **asked)  # type: ignore[arg-type]
    np.testing.assert_allclose(streamed.ratio(np.arange(6)), whole.ratio(np.arange(6)), rtol=1e-9)


def test_a_ridge_shrinks_the_scores_and_keeps_the_mean() -> None:
    asked = RatioProblem(population(CONTINUING, np.eye(6)), 0.9, "continuing")
    spread = []
    for ridge in (0.0, 0.1, 10.0):
        found = fit_matching(asked, ridge=ridge)
        w = found.arrays()["w"]
        spread.append(float(np.ptp(w)))
        assert mean_of(asked, found)[0] == pytest.approx(1.0)
    assert spread[0] > 1.02 * spread[1] > 2.0 * spread[2] > 0.0
    # By hand: the loss's gradient is d_μ(x - arrivals) + ridge · (centered Gram matrix) w.
    d_mu, x = CONTINUING.d_mu, np.exp(w)
    y = CopOperator(CONTINUING.chain_pi, d_mu, 1.0).as_matrix()
    left = d_mu * (x - y @ (0.1 + 0.9 * x)) + 10.0 * d_mu * (w - d_mu @ w)
    np.testing.assert_allclose(left, 0.0, atol=1e-8)


def test_the_ridge_is_raised_where_fits_do_not_come_to_rest() -> None:
    """30 transitions for 7 features."""
    rng = np.random.default_rng(21)
    problem = garnet(rng, 10, 3, 2)
    phi = np.column_stack([np.ones(10), rng.standard_normal((10, 6))])
    data = Experience.of(log(problem, 21, 5, 6), problem.pi, features=phi)
    asked = RatioProblem(data, 0.99, "continuing")
    with pytest.warns(UserWarning, match=r"ridge 0, so that it was raised to 1\.9e-06:"):
        found = fit_matching(asked)
    # It solves the equation with that ridge, 2⁻¹⁹.
    moments = RatioMoments.of(data)
    family = _Features.of(asked, moments, "exponential")
    u = np.linalg.lstsq(family.expand, found.arrays()["w"])[0]
    assert _Equation(asked, moments, family, 2.0**-19).at(u).norm < 1e-7
    mean, lowest = mean_of(asked, found)
    assert mean == pytest.approx(1.0)
    assert lowest >= 0.01
    with pytest.raises(InputError, match=r"no ratio solves.* at ratio_discount = 0\.99: use"):
        fit_matching(asked, ridge=0.0, iterations=1)


def test_it_answers_for_values() -> None:
    logs, phi = log(EPISODIC, count=200), np.eye(5)
    asked: dict[str, Any] = {"discount": 0.9, "interval": None, "features": phi}
    table = evaluate_policy(logs, EPISODIC.pi, discount=0.9, interval=None, estimator="mis-sn")
    found = evaluate_policy(logs, EPISODIC.pi, estimator="mis-sn", ratio_method="matching", **asked)
    assert found.value == pytest.approx(table.value, rel=0.02)
    ridged = evaluate_policy(
        logs, EPISODIC.pi, estimator="mis-sn", ratio_method="matching", ridge=10.0, **asked
    )
    assert abs(ridged.value - found.value) > 0.01


@pytest.mark.parametrize("link", ["exponential", "safe"])
def test_a_saved_estimate_is_read_without_torch(link: LinkName, tmp_path: Path) -> None:
    logs, phi = log(CONTINUING), features(6)
    found = estimate_ratio(
        logs, CONTINUING.pi, ratio_discount=0.9, method="matching", features=phi, link=link
    )
    again = RatioEstimate.load(found.save(tmp_path))
    np.testing.assert_array_equal(again.ratio(np.arange(6)), found.ratio(np.arange(6)))
    code = (
        "import sys, numpy as np\n"
        "from covshift.estimation import RatioEstimate\n"
        f"print(RatioEstimate.load({str(tmp_path)!r}).ratio(np.arange(6)).sum())\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(found.ratio(np.arange(6)).sum())


def test_bad_input_is_refused() -> None:
    def ask(phi: Dense | None, **options: Any) -> RatioEstimate:
        return estimate_ratio(
            log(CONTINUING), CONTINUING.pi, ratio_discount=0.9, method="matching", features=phi, **options
        )  # fmt: skip

    with pytest.raises(InputError, match=r"no bias.*misses it by .*add a feature that is 1"):
        ask(features(6)[:, 1:])
    with pytest.raises(InputError, match="link must be exponential or safe, but it is cubic"):
        ask(None, link="cubic")
    with pytest.raises(InputError, match=r"ridge must not be negative, but it is -1"):
        ask(None, ridge=-1.0)
    with pytest.raises(InputError, match="iterations must be at least 1"):
        ask(None, iterations=0)
    found = MatchedRatioFunction(np.array([1.0]), 0.9, "exponential")
    with pytest.raises(InputError, match=r"overflows at z = 1000 .*use the safe link"):
        found.at(np.array([[1000.0]]))
