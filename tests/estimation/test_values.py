"""Each estimator against the exact value of the population, and importance sampling by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    ESTIMATORS,
    Logs,
    Trajectory,
    compare_estimators,
    estimators,
    evaluate_policy,
    from_trajectories,
    simulate_logs,
)
from covshift.estimation.critic import fit_critic
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.population import population, true_average, true_value
from covshift.estimation.values import bootstrap_weights
from covshift.theory.examples import Problem, episodic, four_rooms, garnet, random_walk

CONTINUING = garnet(np.random.default_rng(1), 6, 3, 2)
EPISODIC = episodic(np.random.default_rng(3), 5, 2, single_start=False)
OVER_TRANSITIONS = ("mis", "mis-sn", "dr", "fqe", "dualdice", "gendice", "gradientdice", "mwl")


@pytest.mark.parametrize("problem", [CONTINUING, EPISODIC, random_walk()])
@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0, None])
@pytest.mark.parametrize("features", ["table", "one-hot"])
@pytest.mark.parametrize("name", OVER_TRANSITIONS)
def test_estimators_are_exact_on_the_population(
    problem: Problem, discount: float | None, features: str, name: str
) -> None:
    if discount == 1.0 and not problem.mdp.is_episodic:
        return
    average = discount is None
    estimand = Estimand("average" if average else "discounted", discount or 0.0, ridge=0.0)
    if estimand.objective not in ESTIMATORS[name].objectives:
        return
    experience = population(
        problem, np.eye(problem.mdp.num_states) if features == "one-hot" else None
    )
    truth = true_average(problem) if discount is None else true_value(problem, discount)
    found = ESTIMATORS[name].estimate(experience, estimand)
    assert found == pytest.approx(truth, abs=1e-6)


def test_a_discounted_ratio_gives_the_average_reward_of_the_reset_chain() -> None:
    problem = EPISODIC.restart()
    estimand = Estimand("average", ratio_discount=0.7)
    found = ESTIMATORS["mis"].estimate(population(problem), estimand)
    assert found == pytest.approx(
        (problem.d_mu * problem.c_star(0.7)) @ problem.mdp.r_pi(problem.pi)
    )
    # A fitted Q corrects the ratio's bias.
    corrected = ESTIMATORS["dr"].estimate(population(problem), estimand)
    assert corrected == pytest.approx(true_average(problem))
    assert abs(found - true_average(problem)) > 1e-3


def test_a_right_ratio_corrects_a_wrong_critic() -> None:
    # One constant feature for Q, whose values are wrong; the ratio comes from the table.
    estimand = Estimand("discounted", 0.9, ridge=0.0)
    poor = fit_critic(population(CONTINUING, np.ones((6, 1))), estimand)
    truth = true_value(CONTINUING, 0.9)
    assert abs(poor.value - truth) > 0.1
    experience = population(CONTINUING)
    wide = type(poor)(np.tile(poor.theta, 6), 0.0, poor.value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimators, "fit_critic", lambda *_: wide)
        assert estimators.doubly_robust(experience, estimand) == pytest.approx(truth)


def test_peers_agree_with_lstdq_on_features() -> None:
    problem = garnet(np.random.default_rng(5), 8, 3, 3)
    phi = np.column_stack([np.ones(8), np.random.default_rng(0).standard_normal((8, 2))])
    experience = population(problem, phi)
    estimand = Estimand("discounted", 0.8, ridge=0.0)
    # Slow twin: the projected Bellman equation of Q over the pairs' distribution.
    kernel = problem.mdp.dense_kernel().reshape(24, 8)
    p_pi = np.einsum("pt,ta->pta", kernel, problem.pi).reshape(24, 24)
    psi = np.kron(phi, np.eye(3))
    weight = np.diag((problem.d_mu[:, None] * problem.mu).ravel())
    theta = np.linalg.solve(
        psi.T @ weight @ (psi - 0.8 * p_pi @ psi), psi.T @ weight @ problem.mdp.r.ravel()
    )
    twin = float((problem.d_mu[:, None] * problem.pi).ravel() @ psi @ theta)
    for name in ("fqe", "dualdice", "gendice", "gradientdice", "mwl"):
        found = ESTIMATORS[name].estimate(experience, estimand)
        assert found == pytest.approx(twin, rel=1e-5), name


@pytest.mark.parametrize("name", ["gendice", "gradientdice", "mwl", "mis", "dr"])
def test_estimators_are_exact_on_a_slowly_mixing_table(name: str) -> None:
    problem = four_rooms()
    found = ESTIMATORS[name].estimate(population(problem), Estimand("average"))
    assert found == pytest.approx(true_average(problem), rel=1e-5)


@pytest.mark.parametrize("objective", ["discounted", "average"])
def test_peers_equal_the_counted_model_on_any_table(objective: Any) -> None:
    # Few data, so that many actions and some states were never tried.
    problem = four_rooms(epsilon=0.7)
    logs = simulate_logs(problem.mdp, problem.mu, 100, 20, np.random.default_rng(0))
    found = compare_estimators(
        logs, problem.pi, objective=objective, discount=0.95, interval=None,
        estimators=["fqe", "dr", "dualdice", "gendice", "gradientdice", "mwl"],
    )  # fmt: skip
    for estimate in found.estimates:
        assert estimate.value == pytest.approx(found["fqe"].value, rel=1e-4), estimate.estimator
    assert len(found.estimates) == (6 if objective == "discounted" else 5)


def test_peers_differ_under_a_ridge() -> None:
    experience = population(CONTINUING, np.eye(6))
    estimand = Estimand("discounted", 0.9, ridge=0.1)
    names = ("dualdice", "gendice", "gradientdice", "mwl")
    found = [ESTIMATORS[name].estimate(experience, estimand) for name in names]
    assert np.diff(np.sort(found)).min() > 1e-4


def by_hand() -> Experience:
    # π(a=1) = 0.8 against μ = 0.5: ρ is 1.6 for action 1, 0.4 for action 0.
    logs = from_trajectories(
        [
            Trajectory([0, 0], [1, 0], [1.0, 2.0], True, [0.5, 0.5]),
            Trajectory([0, 0, 0], [1, 1], [3.0, 5.0], False, [0.5, 0.5]),
            Trajectory([0], [0], [7.0], True, [0.5]),
        ]
    )
    return Experience.of(logs, np.array([[0.2, 0.8]]))


@pytest.mark.filterwarnings("ignore:1 of 3 trajectories")
def test_importance_sampling_by_hand() -> None:
    estimand = Estimand("discounted", 0.5)
    # Products: (1.6, 0.64), (1.6, 2.56), (0.4).
    per_decision = (1.6 * 1 + 0.5 * 0.64 * 2 + 1.6 * 3 + 0.5 * 2.56 * 5 + 0.4 * 7) / 3
    weighted = (0.64 * (1 + 1) + 2.56 * (3 + 2.5) + 0.4 * 7) / (0.64 + 2.56 + 0.4)
    # At t = 1 the third episode is over: it keeps its weight 0.4 with reward 0.
    first = (1.6 * 1 + 1.6 * 3 + 0.4 * 7) / (1.6 + 1.6 + 0.4)
    second = 0.5 * (0.64 * 2 + 2.56 * 5) / (0.64 + 2.56 + 0.4)
    average = (1.6 * 1 + 0.64 * 2 + 1.6 * 3 + 2.56 * 5 + 0.4 * 7) / (1.6 + 0.64 + 1.6 + 2.56 + 0.4)
    for name, expected in (("pdis", per_decision), ("wis", weighted), ("wpdis", first + second)):
        assert ESTIMATORS[name].estimate(by_hand(), estimand) == pytest.approx(expected), name
    assert ESTIMATORS["pdis"].estimate(by_hand(), Estimand("average")) == pytest.approx(average)
    behavior = ((1 + 0.5 * 2) + (3 + 0.5 * 5) + 7) / 3
    assert ESTIMATORS["behavior"].estimate(by_hand(), estimand) == pytest.approx(behavior)


@pytest.mark.filterwarnings("ignore:1 of 2 trajectories")
def test_a_truncated_episode_leaves_the_weighted_means_and_a_terminated_one_stays() -> None:
    """Two records, one of which has one step only: ρ is 1.6 for action 1. At t = 1 the other earns 5."""
    for terminated, weights in ((False, 2.56), (True, 2.56 + 1.6)):
        short = Trajectory([0] if terminated else [0, 0], [1], [3.0], terminated, [0.5])
        whole = Trajectory([0, 0], [1, 1], [1.0, 5.0], True, [0.5, 0.5])
        experience = Experience.of(from_trajectories([short, whole]), np.array([[0.2, 0.8]]))
        found = ESTIMATORS["wpdis"].estimate(experience, Estimand("discounted", 0.5))
        assert found == pytest.approx((3 + 1) / 2 + 0.5 * 2.56 * 5 / weights)


def test_the_ridge_of_dualdice_is_in_both_of_its_equations() -> None:
    """By inverses: β = (G + r)⁻¹Fᵀ (F (G + r)⁻¹ Fᵀ + r)⁻¹ b, over one-hot pairs of state and action."""
    problem, discount, ridge = CONTINUING, 0.9, 0.1
    states, actions = problem.mdp.r.shape
    pairs = states * actions
    d = (problem.d_mu[:, None] * problem.mu).ravel()
    p = problem.mdp.dense_kernel().reshape(pairs, states)
    onward = (p[:, :, None] * problem.pi[None]).reshape(pairs, pairs)
    gram = np.diag(d)
    flow = gram - discount * (d[:, None] * onward).T
    start = (problem.d_mu[:, None] * problem.pi).ravel()
    onto = np.linalg.inv(gram + ridge * np.eye(pairs)) @ flow.T
    beta = onto @ np.linalg.inv(flow @ onto + ridge * np.eye(pairs)) @ start
    estimand = Estimand("discounted", discount, ridge=ridge)
    found = ESTIMATORS["dualdice"].estimate(population(problem, np.eye(states)), estimand)
    assert found == pytest.approx(float((d * problem.mdp.r.ravel()) @ beta))


@pytest.mark.filterwarnings("ignore:. of . trajectories")
def test_trajectories_that_begin_within_an_episode_do_not_count() -> None:
    """Trajectories from d₀ earn 1 per step, those that begin elsewhere 100."""
    parts = [
        Trajectory([0, 0, 0], [1, 0], [reward] * 2, True, [0.5, 0.5], is_initial=reward == 1.0)
        for reward in (1.0, 100.0, 1.0)
    ]
    logs, policy = from_trajectories(parts), np.array([[0.5, 0.5]])
    estimand = Estimand("discounted", 0.5)
    for name in ("behavior", "pdis", "wis", "wpdis"):
        found = ESTIMATORS[name].estimate(Experience.of(logs, policy), estimand)
        assert found == pytest.approx(1.5), name
    none = Experience.of(logs[1:2], policy)
    with pytest.raises(InputError, match="no trajectory starts from an initial state"):
        ESTIMATORS["pdis"].estimate(none, estimand)


def test_splitting_a_record_keeps_its_value() -> None:
    record = Trajectory(np.zeros(201, dtype=int), [0] * 200, [1.0] * 200, False, [1.0] * 200)
    whole = from_trajectories([record])
    for logs in (whole, whole.split(100)):
        found = ESTIMATORS["behavior"].estimate(
            Experience.of(logs, np.ones((1, 1))), Estimand("discounted", 0.9)
        )
        assert found == pytest.approx(10.0, abs=1e-3)


@pytest.mark.filterwarnings("ignore:. of . trajectories")
def test_a_weight_of_two_counts_a_trajectory_twice() -> None:
    estimand = Estimand("discounted", 0.5, ridge=0.0)
    once = by_hand()
    twice = Experience.of(once.logs[[0, 1, 2, 1]], np.array([[0.2, 0.8]]))
    assert len(twice.logs) == 4
    for name, estimator in ESTIMATORS.items():
        if name == "dr-cf":
            continue  # A repeated trajectory falls into another fold.
        weighed = estimator.estimate(once.reweighted(np.array([1.0, 2.0, 1.0])), estimand)
        assert weighed == pytest.approx(estimator.estimate(twice, estimand)), name


def test_a_cut_record_gives_a_warning() -> None:
    with pytest.warns(
        UserWarning, match="1 of 3 trajectories are cut off, so that a share of γᵗ = 0.08"
    ):
        ESTIMATORS["pdis"].estimate(by_hand(), Estimand("discounted", 0.5))


def test_a_rho_of_zero_ends_a_product() -> None:
    logs = from_trajectories(
        [
            Trajectory([0, 0, 0], [1, 0, 1], [1.0, 1.0, 1.0], True, [0.5] * 3),
            Trajectory([0, 0], [1, 1], [1.0, 1.0], True, [0.5] * 2),
        ]
    )
    experience = Experience.of(logs, np.array([[0.0, 1.0]]))
    # ρ = 2, 0, 2 and 2, 2: after the zero nothing of the first counts, and the second starts anew.
    expected = (2 + 0 + 0 + 2 + 4) / 2
    found = ESTIMATORS["pdis"].estimate(experience, Estimand("discounted", 1.0))
    assert found == pytest.approx(expected)


def test_a_product_that_overflows_is_refused() -> None:
    steps = 1100
    logs = from_trajectories(
        Trajectory(
            np.zeros(steps, dtype=int),
            np.ones(steps, dtype=int),
            np.ones(steps),
            True,
            [0.5] * steps,
        )
        for _ in range(2)
    )
    with pytest.raises(InputError, match="pdis is not a finite number"):
        # 2 to the power of 1100.
        evaluate_policy(logs, np.array([[0.0, 1.0]]), estimator="pdis", discount=1.0, interval=None)


def test_bootstrap_weights_are_a_dirichlet_draw() -> None:
    draws = np.array(list(bootstrap_weights(5, 4000, np.random.default_rng(0))))
    np.testing.assert_allclose(draws.sum(axis=1), 5.0)
    assert (draws > 0).all()
    # n · Dirichlet(1, …, 1) has mean 1 and variance (n - 1)/(n + 1).
    np.testing.assert_allclose(draws.mean(axis=0), 1.0, atol=0.06)
    np.testing.assert_allclose(draws.var(axis=0), 4 / 6, atol=0.1)


def whole_episodes(problem: Problem, count: int, rng: np.random.Generator) -> Logs:
    """The first episode of each of many streams, so that none is cut off."""
    logs = simulate_logs(problem.mdp, problem.mu, 100, count, rng)
    first = np.zeros(logs.num_trajectories, dtype=bool)
    first[logs.trajectory[::100]] = True
    return logs[first]


@pytest.mark.parametrize("name", ["fqe", "mis-sn", "pdis"])
def test_intervals_cover_the_truth(name: str) -> None:
    """Nominal 90 %: of 60 intervals that cover at that rate fewer than 48 hold the truth in 1 of 200 runs."""
    # Nearer policies: products of ρ have no use for a bootstrap where few trajectories carry all weight.
    near = replace(EPISODIC, pi=0.5 * (EPISODIC.pi + EPISODIC.mu))
    truth = true_value(near, 0.9)
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(60):
        logs = whole_episodes(near, 100, rng)
        found = evaluate_policy(
            logs, near.pi, estimator=name, discount=0.9, interval=0.9, replicates=40
        )
        covered += found.low <= truth <= found.high
    assert covered >= 48


def test_a_comparison_lists_failures_and_draws_the_rest() -> None:
    problem = CONTINUING
    logs = simulate_logs(problem.mdp, problem.mu, 100, 12, np.random.default_rng(0))
    found = compare_estimators(
        logs, problem.pi, objective="average", replicates=20, truth=true_average(problem)
    )
    assert set(found.failures) == {"pdis"}
    assert found["fqe"].low < found["fqe"].value < found["fqe"].high
    assert found["fqe"].standard_error > 0
    labels = [text.get_text() for text in found.plot().axes[0].get_yticklabels()]
    drawn = [name for label in labels for name in label.split(", ")]
    assert sorted(drawn) == sorted(estimate.estimator for estimate in found.estimates)
    with pytest.raises(InputError, match="endless stream"):
        found["pdis"]


def test_a_comparison_is_written_as_csv(tmp_path: Path) -> None:
    logs = simulate_logs(EPISODIC.mdp, EPISODIC.mu, 50, 10, np.random.default_rng(0))
    found = compare_estimators(logs, EPISODIC.pi, estimators=["fqe", "mis"], interval=None)
    lines = found.write_csv(tmp_path / "values.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("estimator,objective,estimand,value")
    assert np.isnan(found["mis"].low)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "magic"}, "there is no estimator 'magic'"),
        ({"estimator": "wis", "objective": "average"}, "wis answers for the discounted value only"),
        ({"discount": 1.0}, "none of 3 trajectories terminated"),
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], but it is 1.5"),
        ({"interval": 1.5}, r"interval must lie in \(0, 1\), but it is 1.5"),
        ({"seed": -1}, r"seed must lie in \[0, 9,223.*\), but it is -1"),
        ({"ridge": -1.0}, "ridge must not be negative, but it is -1.0"),
        ({"objective": "median"}, "objective must be discounted or average, but it is median"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    logs = simulate_logs(CONTINUING.mdp, CONTINUING.mu, 20, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        evaluate_policy(logs, CONTINUING.pi, **options)


def test_one_trajectory_gives_no_interval_until_it_is_split() -> None:
    logs = simulate_logs(CONTINUING.mdp, CONTINUING.mu, 400, 1, np.random.default_rng(0))
    ask: dict[str, Any] = {"estimator": "mis", "objective": "average"}
    with pytest.raises(InputError, match="1 trajectory gives no interval"):
        evaluate_policy(logs, CONTINUING.pi, **ask)
    whole = evaluate_policy(logs, CONTINUING.pi, interval=None, **ask)
    parts = evaluate_policy(logs.split(40), CONTINUING.pi, **ask)
    assert parts.value == pytest.approx(whole.value)
    assert parts.low < parts.value < parts.high


def test_few_trajectories_give_a_warning() -> None:
    logs = simulate_logs(CONTINUING.mdp, CONTINUING.mu, 50, 4, np.random.default_rng(0))
    with pytest.warns(UserWarning, match="from 4 trajectories"):
        evaluate_policy(logs, CONTINUING.pi, objective="average", estimator="mis", replicates=5)
