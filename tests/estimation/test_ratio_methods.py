"""Each method against the exact ratio of the population, and on samples against a slow version of itself."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    Trajectory,
    estimate_ratio,
    fitting,
    from_trajectories,
    simulate_logs,
)
from covshift.estimation.diagnostics import diagnose, projected_residual
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.features import Raw
from covshift.estimation.fitting import fit_ratio, register_method
from covshift.estimation.population import population
from covshift.estimation.problem import FUNCTIONS, LinearRatioFunction, RatioProblem, TableRatio
from covshift.estimation.ratio import RatioEstimate
from covshift.estimation.tabular_methods import fit_td
from covshift.learners import TabularRatio, robbins_monro
from covshift.theory import CopOperator, ProjectedOperator, effective_sample_share
from covshift.theory.examples import Problem, episodic, four_rooms, garnet, line_chain, random_walk
from covshift.theory.simulation import Transition
from covshift.validation import Vector

CONTINUING = garnet(np.random.default_rng(1), 6, 3, 2)
EPISODIC = episodic(np.random.default_rng(3), 5, 2, single_start=False)


def exact(problem: Problem, semantics: EpisodeSemantics, ratio_discount: float) -> Vector:
    return (problem.restart() if semantics == "restart" else problem).c_star(ratio_discount)


@pytest.mark.parametrize("ratio_discount", [0.0, 0.9, 1.0])
@pytest.mark.parametrize(
    ("problem", "semantics"),
    [
        (CONTINUING, "continuing"),
        (EPISODIC, "visits"),
        (EPISODIC, "restart"),
        (random_walk(revisits_start=True), "visits"),
    ],
)
@pytest.mark.parametrize("method", ["empirical", "least-squares", "one-hot", "inverse", "simplex"])
def test_methods_are_exact_on_the_population(
    problem: Problem, semantics: EpisodeSemantics, ratio_discount: float, method: str
) -> None:
    linear = method in ("one-hot", "inverse", "simplex")
    size = problem.mdp.num_states
    experience = population(problem, np.eye(size) if linear else None)
    asked = RatioProblem(experience, ratio_discount, semantics)
    if method == "simplex" and semantics == "visits":
        with pytest.raises(InputError, match="another mean than 1"):
            fit_ratio(asked, method)
        return
    options: dict[str, Any] = {"weighting": "inverse"} if method == "inverse" else {}
    name = "least-squares" if method in ("one-hot", "inverse") else method
    if method == "simplex":
        options = {"iterations": 5000, "tolerance": 1e-12}
    found = fit_ratio(asked, name, **options)
    tolerance = 1e-4 if method == "simplex" else 1e-7
    expected = exact(problem, semantics, ratio_discount)
    table = found.at(np.eye(size) if linear else np.arange(size))
    np.testing.assert_allclose(table, expected, atol=tolerance)
    assert projected_residual(asked, found) < tolerance


@pytest.mark.parametrize("discount", [0.5, 0.95])
@pytest.mark.parametrize("problem", [CONTINUING, EPISODIC])
@pytest.mark.parametrize("method", ["empirical", "least-squares"])
def test_discounted_visits_are_exact(problem: Problem, discount: float, method: str) -> None:
    found = fit_ratio(RatioProblem(population(problem), 1.0, "visits", discount), method)
    start = problem.d_mu if problem.mdp.d_0 is None else problem.mdp.d_0
    visits = problem.chain_pi.resolvent(discount).solve_transposed(start)
    table = found.at(np.arange(problem.mdp.num_states))
    np.testing.assert_allclose(table, visits / problem.d_mu, atol=1e-8)


def test_least_squares_is_the_projected_fixed_point() -> None:
    problem = garnet(np.random.default_rng(5), 8, 3, 3)
    phi = np.column_stack([np.ones(8), np.random.default_rng(0).standard_normal((8, 2))])
    operator = CopOperator(problem.chain_pi, problem.d_mu, 0.6)
    asked = RatioProblem(population(problem, phi), 0.6, "continuing")
    uniform = fit_ratio(asked, "least-squares")
    assert isinstance(uniform, LinearRatioFunction)
    twin = ProjectedOperator(operator, phi, problem.d_mu).fixed_point()
    np.testing.assert_allclose(phi @ uniform.w, twin, atol=1e-9)
    assert projected_residual(asked, uniform) < 1e-9

    inverse = fit_ratio(asked, "least-squares", weighting="inverse", iterations=500)
    assert isinstance(inverse, LinearRatioFunction)
    ratio = phi @ inverse.w
    # The answer is rescaled to mean 1; before that it fixes the projection under its own weights.
    fixed = [
        ProjectedOperator(
            operator, phi, problem.d_mu / np.maximum(scale * ratio, 1e-2)
        ).fixed_point()
        for scale in np.linspace(0.5, 2.0, 400)
    ]
    closest = min(np.abs(f / (problem.d_mu @ np.maximum(f, 0)) - ratio).max() for f in fixed)
    assert closest < 5e-3


def test_a_ridge_solves_its_equation() -> None:
    asked = RatioProblem(population(CONTINUING, np.eye(6)), 0.9, "continuing")
    found = fit_ratio(asked, "least-squares", ridge=0.3)
    y = CopOperator(CONTINUING.chain_pi, CONTINUING.d_mu, 0.9).as_matrix()
    d_mu = np.diag(CONTINUING.d_mu)
    expected = np.linalg.solve(d_mu @ (np.eye(6) - y) + 0.3 * np.eye(6), 0.1 * CONTINUING.d_mu)
    expected /= CONTINUING.d_mu @ expected  # The ridge takes mass away, which is given back.
    np.testing.assert_allclose(found.at(np.eye(6)), expected, atol=1e-10)


@pytest.mark.parametrize("num_steps", [1, 3])
@pytest.mark.parametrize("ratio_discount", [0.9, 1.0])
@pytest.mark.parametrize("semantics", ["continuing", "visits"])
def test_td_equals_the_tabular_learner(
    num_steps: int, ratio_discount: float, semantics: EpisodeSemantics
) -> None:
    problem = CONTINUING if semantics == "continuing" else EPISODIC
    streams = 1 if semantics == "continuing" else 3
    logs = simulate_logs(problem.mdp, problem.mu, 300, streams, np.random.default_rng(0))
    estimate = estimate_ratio(
        logs, problem.pi, ratio_discount=ratio_discount, method="td", held_out=0.0,
        num_steps=num_steps, step_size=0.5, halfway=20.0,
    )  # fmt: skip
    learner = TabularRatio(
        problem.rho, ratio_discount, robbins_monro(0.5, 20.0), num_steps,
        normalize=semantics == "continuing" and ratio_discount == 1.0,
    )  # fmt: skip
    state = learner.init(1)
    states, next_states = logs.states(), logs.next_states()
    for i in range(logs.num_transitions):
        s, a, t = states[i : i + 1], logs.action[i : i + 1], next_states[i : i + 1]
        if semantics == "visits" and logs.is_initial[i]:
            state.window = learner.init(1).window
            learner.step(state, Transition(s, a, np.zeros(1), s, np.array([True])))
        if not logs.terminated[i]:
            learner.step(state, Transition(s, a, np.zeros(1), t, np.array([False])))
    size = problem.mdp.num_states
    np.testing.assert_allclose(estimate.ratio(np.arange(size)), state.c[0], atol=1e-12)


def test_td_restarts_across_an_episodes_end() -> None:
    # Two episodes 0 → 1 → end; γ̂ = ½, step 1: the second start has the target ½ρc(1) + ½.
    logs = {
        "states": [0, 1, 0, 1], "actions": [0, 0, 0, 0], "rewards": [0.0] * 4,
        "next_states": [1, 0, 1, 0], "terminated": [False, True, False, True], "mu": [0.5] * 4,
    }  # fmt: skip
    policy = np.array([[1.0], [1.0]])
    found = estimate_ratio(
        logs, policy, ratio_discount=0.5, method="td", semantics="restart", held_out=0.0,
        step_size=1.0, halfway=1e12,
    )  # fmt: skip
    # ρ = 2: c(1) = 2·½·1 + ½ = 1.5; c(0) = ½·2·1.5 + ½ = 2; c(1) = ½·2·2 + ½ = 2.5.
    np.testing.assert_allclose(found.ratio([0, 1]), [2.0, 2.5], atol=1e-9)


def test_semi_gradient_converges_to_the_least_squares_solution() -> None:
    problem = line_chain(5)
    logs = simulate_logs(problem.mdp, problem.mu, 200, 5, np.random.default_rng(0))
    phi = np.column_stack([np.ones(5), np.linspace(-1, 1, 5)])
    asked: dict[str, Any] = {"ratio_discount": 0.8, "features": phi, "held_out": 0.0}
    square = estimate_ratio(logs, problem.pi, method="least-squares", **asked)
    steps = estimate_ratio(
        logs, problem.pi, method="semi-gradient", passes=15, halfway=300.0, **asked
    )
    np.testing.assert_allclose(steps.ratio(np.arange(5)), square.ratio(np.arange(5)), atol=0.04)
    weighted = estimate_ratio(
        logs, problem.pi, method="semi-gradient", passes=10, weighting="inverse", **asked
    )
    assert weighted.diagnostics.mean_ratio == pytest.approx(1.0)
    np.testing.assert_allclose(weighted.ratio(np.arange(5)), problem.c_star(0.8), atol=0.15)


def test_simplex_keeps_mean_one_where_least_squares_diverges() -> None:
    problem = garnet(np.random.default_rng(8), 8, 3, 2)
    phi = np.column_stack([np.ones(8), np.random.default_rng(1).standard_normal((8, 2))])
    found = fit_ratio(RatioProblem(population(problem, phi), 1.0, "continuing"), "simplex")
    ratio = found.at(phi)
    assert problem.d_mu @ ratio == pytest.approx(1.0, abs=1e-6)
    assert ratio.min() >= 0.0


def test_diagnostics_of_the_exact_ratio() -> None:
    problem = four_rooms()
    whole = population(problem)
    whole = whole.reweighted(10_000.0 * whole.trajectory_weights)  # No pair is rare.
    asked = RatioProblem(whole, 0.9, "continuing")
    exact_ratio = TableRatio(problem.c_star(0.9))
    found = diagnose(asked, exact_ratio, float("nan"))
    assert found.mean_ratio == pytest.approx(1.0)
    assert found.max_ratio == pytest.approx(problem.c_star(0.9).max())
    assert found.ess_share == pytest.approx(
        effective_sample_share(problem.c_star(0.9), problem.d_mu)
    )
    assert found.unsupported_mass == pytest.approx(0.0, abs=1e-9)
    assert found.residual < 1e-9
    assert found.flag == "ok"
    assert diagnose(asked, TableRatio(0.1 * exact_ratio.c), 0.0).flag == "collapsed"
    assert diagnose(asked, TableRatio(1e7 * exact_ratio.c), 0.0).flag == "diverged"
    assert projected_residual(asked, TableRatio(exact_ratio.c + 1.0)) == pytest.approx(
        np.sqrt(
            problem.d_mu
            @ (CopOperator(problem.chain_pi, problem.d_mu, 0.9).as_matrix() @ np.ones(104) - 1) ** 2
        )
    )  # fmt: skip


def test_a_mean_that_no_policy_has_is_flagged() -> None:
    """A walk of five states: L_μ = 10 rows, so that p₀ = 1/10 and 0.19 ≤ E_μ[c] ≤ 1.9 at γ̂ = 0.9."""
    problem = random_walk()
    assert problem.d_mu.sum() == pytest.approx(10.0)
    asked = RatioProblem(population(problem), 0.9, "visits")
    exact = problem.c_star(0.9)
    mean = float(problem.d_mu @ exact) / 10.0

    def flag(of: float) -> str:
        return diagnose(asked, TableRatio(of / mean * exact), 0.0).flag

    assert [flag(of) for of in (mean, 1.9, 0.19)] == ["ok"] * 3
    assert [flag(of) for of in (2.2, 0.16)] == ["impossible"] * 2


def test_unsupported_mass_counts_what_was_never_logged() -> None:
    logs = {
        "states": [0, 1, 0, 1], "actions": [0, 0, 0, 1], "rewards": [0.0] * 4,
        "next_states": [1, 0, 1, 0], "terminated": [False] * 4, "mu": [1.0, 0.5, 1.0, 0.5],
        "trajectory": [0, 0, 0, 0],
    }  # fmt: skip
    policy = np.array([[0.7, 0.3], [0.5, 0.5]])
    found = estimate_ratio(logs, policy, ratio_discount=0.5)
    # Half of the data is in state 0, where action 1, taken with 0.3, was never logged.
    assert found.diagnostics.unsupported_mass == pytest.approx(0.15)
    assert np.isnan(found.diagnostics.held_out_residual)


def test_pi_is_renormalized_over_what_was_logged() -> None:
    # 0 → 1 → end; in state 0 only action 0 was logged, which π takes with 0.7: no episode is lost there.
    logs = {
        "states": [0, 1, 0, 1], "actions": [0, 0, 0, 1], "rewards": [0.0] * 4,
        "next_states": [1, 0, 1, 0], "terminated": [False, True] * 2, "mu": [1.0, 0.5] * 2,
    }  # fmt: skip
    found = estimate_ratio(logs, np.array([[0.7, 0.3], [0.5, 0.5]]), ratio_discount=1.0)
    np.testing.assert_allclose(found.ratio([0, 1]), 1.0)
    # Where π takes nothing that was logged, what was done stands in for it.
    found = estimate_ratio(logs, np.array([[0.0, 1.0], [0.5, 0.5]]), ratio_discount=1.0)
    np.testing.assert_allclose(found.ratio([0, 1]), 1.0)
    assert found.diagnostics.unsupported_mass == pytest.approx(0.5)


def test_a_dead_end_leads_back_to_the_data() -> None:
    # 0 → 1 → 2, where nothing was ever done: that transition leads to d_μ = (½, ½).
    logs = {
        "states": [0, 1], "actions": [0, 0], "rewards": [0.0] * 2, "next_states": [1, 2],
        "terminated": [False] * 2, "mu": [1.0] * 2, "trajectory": [0, 0],
    }  # fmt: skip
    found = estimate_ratio(logs, np.ones((3, 1)), ratio_discount=1.0)
    # d = dP with P = ((0, 1), (½, ½)) is (⅓, ⅔); over ½ each. Nothing is known of state 2.
    np.testing.assert_allclose(found.ratio([0, 1, 2]), [2 / 3, 4 / 3, 1.0])


def test_the_mean_over_rollouts_of_pi_is_larger() -> None:
    problem = four_rooms()
    rng = np.random.default_rng(0)
    logs = simulate_logs(problem.mdp, problem.mu, 500, 40, rng)
    rollouts = simulate_logs(problem.mdp, problem.pi, 500, 10, rng)
    found = estimate_ratio(logs, problem.pi, ratio_discount=0.99)
    exact_ratio = problem.c_star(0.99)
    assert found.mean_over(rollouts) == pytest.approx(problem.d_pi @ exact_ratio, rel=0.25)
    assert found.mean_over(rollouts) > found.diagnostics.mean_ratio


@pytest.mark.parametrize("features", [None, np.column_stack([np.ones(5), np.arange(5.0)])])
def test_an_estimate_survives_saving(features: np.ndarray | None, tmp_path: Path) -> None:
    problem = line_chain(5)
    logs = simulate_logs(problem.mdp, problem.mu, 100, 8, np.random.default_rng(0))
    found = estimate_ratio(logs, problem.pi, ratio_discount=0.9, features=features)
    again = RatioEstimate.load(found.save(tmp_path / "estimate"))
    np.testing.assert_array_equal(again.ratio(np.arange(5)), found.ratio(np.arange(5)))
    assert again.diagnostics.record() == found.diagnostics.record()
    assert (again.method, again.semantics) == (found.method, found.semantics)
    assert len(again.plot().axes) == 2
    (tmp_path / "estimate" / "estimate.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"estimate\.npz is damaged: its hash differs"):
        RatioEstimate.load(tmp_path / "estimate")


def test_loading_needs_a_features_function_again(tmp_path: Path) -> None:
    problem = line_chain(5)
    logs = simulate_logs(problem.mdp, problem.mu, 100, 8, np.random.default_rng(0))

    def phi(states: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(states)), states])

    found = estimate_ratio(logs, problem.pi, ratio_discount=0.9, features=phi)
    found.save(tmp_path)
    with pytest.raises(InputError, match="give it as `features`"):
        RatioEstimate.load(tmp_path)
    again = RatioEstimate.load(tmp_path, features=phi)
    np.testing.assert_array_equal(again.ratio(np.arange(5)), found.ratio(np.arange(5)))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test registers are removed after it."""
    monkeypatch.setattr(fitting, "METHODS", dict(fitting.METHODS))


@pytest.mark.usefixtures("own_registry")
def test_a_registered_method_can_be_used_by_name() -> None:
    def ones(problem: RatioProblem, *, height: float = 1.0) -> TableRatio:
        return TableRatio(np.full(problem.experience.features.size, height))

    register_method("ones", ones)
    logs = simulate_logs(CONTINUING.mdp, CONTINUING.mu, 50, 4, np.random.default_rng(0))
    found = estimate_ratio(logs, CONTINUING.pi, ratio_discount=0.9, method="ones", height=2.0)
    assert found.diagnostics.mean_ratio == 2.0
    with pytest.raises(InputError, match="unexpected keyword argument 'width'"):
        estimate_ratio(logs, CONTINUING.pi, ratio_discount=0.9, method="ones", width=2.0)


@pytest.mark.usefixtures("own_registry")
def test_a_method_may_see_raw_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network needs observations as they are, and a function that can be saved and loaded."""

    class Steep:
        kind: ClassVar[str] = "steep"

        def __init__(self, slope: Vector) -> None:
            self.slope = slope

        def at(self, x: Vector) -> Vector:
            return np.asarray(1.0 + self.slope * x[:, 1])

        def arrays(self) -> dict[str, Vector]:
            return {"slope": self.slope}

    register_method("steep", lambda problem: Steep(np.array(0.5)))
    monkeypatch.setitem(FUNCTIONS, "steep", Steep)
    rng = np.random.default_rng(0)
    logs = from_trajectories(
        Trajectory(
            rng.standard_normal((6, 2, 1)), rng.integers(0, 2, 5), np.zeros(5), False, [0.5] * 5
        )
        for _ in range(4)
    )
    found = estimate_ratio(logs, "uniform", ratio_discount=0.9, method="steep", features=Raw(2))
    states = rng.standard_normal((3, 2, 1))
    np.testing.assert_allclose(found.ratio(states), 1.0 + 0.5 * states[:, 1, 0])
    again = RatioEstimate.load(found.save(tmp_path))
    np.testing.assert_array_equal(again.ratio(states), found.ratio(states))


def test_td_draws_trajectories_by_weight() -> None:
    logs = simulate_logs(EPISODIC.mdp, EPISODIC.mu, 100, 2, np.random.default_rng(0))
    experience = population(EPISODIC)
    size = logs.num_trajectories
    only = np.zeros(size)
    only[0] = size
    one = Experience(logs, experience.policy, experience.features, weights=only)
    found = fit_td(RatioProblem(one, 0.9, "visits"), seed=1)
    seen = np.unique(logs[:1].states())
    others = np.setdiff1d(np.arange(5), seen)
    np.testing.assert_array_equal(found.at(others), 1.0)
