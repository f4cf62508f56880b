"""Diagnostics that must not be green where the answer is wrong."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    Logs,
    compare_policies,
    estimate_ratio,
    evaluate_policy,
    from_arrays,
    simulate_logs,
)
from covshift.estimation.experience import Experience
from covshift.estimation.features import Affine, as_features
from covshift.estimation.intervals import bootstrap_interval
from covshift.estimation.misspecification import find_violation
from covshift.estimation.population import true_value
from covshift.estimation.problem import LinearRatioFunction, RatioProblem
from covshift.theory.examples import four_rooms, garnet
from covshift.validation import Dense, Vector


def lean(states: Dense, random: float) -> Dense:
    """Pushes the cart to the side to which the pole leans, except for a share of random actions."""
    chosen = (states[:, 2] + 0.5 * states[:, 3] > 0).astype(int)
    probabilities = np.full((len(states), 2), random / 2)
    probabilities[np.arange(len(states)), chosen] += 1.0 - random
    return probabilities


def old_policy(states: Dense) -> Dense:
    return lean(states, 0.6)


def new_policy(states: Dense) -> Dense:
    return lean(states, 0.45)


def balance(random: float, episodes: int) -> tuple[Logs, Vector]:
    """Logs of CartPole, and the discounted return of each episode."""
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    rows, returns = [], []
    for episode in range(episodes):
        state, _ = env.reset(seed=episode)
        length = 0
        while length < 500:
            length += 1
            probabilities = lean(state[None], random)[0]
            action = int(rng.random() < probabilities[1])
            after, reward, terminated, _, _ = env.step(action)
            rows.append((state, action, reward, after, terminated, probabilities[action], episode))
            state = after
            if terminated:
                break
        returns.append((1.0 - 0.99**length) / 0.01)
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return from_arrays(*columns[:5], mu=columns[5], trajectory=columns[6]), np.array(returns)


@pytest.fixture(scope="module")
def cartpole() -> Logs:
    return balance(0.6, 200)[0]


def test_a_ratio_that_is_wrong_in_cartpole_is_not_flagged_ok(cartpole: Logs) -> None:
    straight = Affine.fit(cartpole)
    _, returns = balance(0.45, 100)
    wrong = evaluate_policy(cartpole, new_policy, features=straight, replicates=20)
    assert wrong.flag == "misspecified"
    assert wrong.verdict.startswith("Doubt it: the features miss a part of where the policy goes")
    error = returns.std() / np.sqrt(len(returns))
    assert wrong.high < returns.mean() - 4 * error  # The interval is far below the truth,
    found = estimate_ratio(cartpole, new_policy, ratio_discount=0.99, features=straight).diagnostics
    assert found.ess_share > 0.9  # and what looks only at features and weights sees nothing.
    assert found.held_out_residual < 0.05
    assert found.flag == "misspecified"
    assert found.violation > 5 * found.violation_error


def test_the_policy_that_logged_is_never_misspecified(cartpole: Logs) -> None:
    straight = Affine.fit(cartpole)
    for semantics in ("visits", "restart"):
        found = estimate_ratio(
            cartpole, old_policy, ratio_discount=0.9, semantics=semantics, features=straight
        ).diagnostics
        assert found.flag == "ok"
        assert abs(found.violation) < 3 * found.violation_error + 1e-3


@pytest.mark.parametrize("ratio_discount", [0.5, 0.9])
def test_the_violation_is_that_of_the_exact_equation(ratio_discount: float) -> None:
    # A constant ratio of 1 violates its equation by ‖γ̂(E[ρ|s'] - 1)‖, which the chain gives exactly.
    problem = garnet(np.random.default_rng(2), 12, 3, 2)
    logs = simulate_logs(problem.mdp, problem.mu, 100, 400, np.random.default_rng(0))
    half = np.arange(len(logs)) % 2 == 0
    experience = Experience.of(logs, problem.pi, features=np.ones((12, 1)))
    parts = [
        RatioProblem(experience.select(mask), ratio_discount, "continuing")
        for mask in (half, ~half)
    ]
    found = find_violation(parts[0], parts[1], LinearRatioFunction(np.ones(1)))
    arriving = (problem.d_mu @ problem.chain_pi.p) / problem.d_mu
    exact = np.sqrt(problem.d_mu @ (ratio_discount * (arriving - 1.0)) ** 2)
    assert found.norm == pytest.approx(1.0)
    assert found.size == pytest.approx(exact, abs=4 * found.standard_error)
    assert found.standard_error < 0.1 * exact


def test_features_that_can_hold_the_ratio_are_not_called_misspecified() -> None:
    problem = four_rooms()
    logs = simulate_logs(problem.mdp, problem.mu, 50, 200, np.random.default_rng(0))
    policy = 0.5 * (problem.mu + problem.pi)
    states = len(problem.d_mu)
    exact = estimate_ratio(logs, policy, ratio_discount=0.9, features=np.eye(states)).diagnostics
    assert exact.flag == "ok"
    poor = estimate_ratio(
        logs, policy, ratio_discount=0.9, features=np.ones((states, 1))
    ).diagnostics
    assert poor.flag == "misspecified"


def test_actions_that_were_never_logged_are_low_support() -> None:
    problem = garnet(np.random.default_rng(0), 5, 2, 2)
    mu, pi = np.tile([1.0, 0.0], (5, 1)), np.tile([0.5, 0.5], (5, 1))
    logs = simulate_logs(problem.mdp, mu, 20, 50, np.random.default_rng(0))
    assert estimate_ratio(logs, mu, ratio_discount=0.9).diagnostics.flag == "ok"
    assert estimate_ratio(logs, pi, ratio_discount=0.9).diagnostics.flag == "low support"


def test_pairs_that_were_logged_a_few_times_are_low_support() -> None:
    """Action 1 was logged 4 times in state 0 and 40 times in state 1; π takes it in 30 % of steps, μ nearly never."""
    states = np.concatenate([np.zeros(104, int), np.ones(140, int)])
    actions = np.concatenate(
        [np.zeros(100, int), np.ones(4, int), np.zeros(100, int), np.ones(40, int)]
    )
    count = len(states)
    logs = from_arrays(
        states, actions, np.zeros(count), states, np.ones(count, bool), mu=np.full(count, 0.5),
        trajectory=np.arange(count),
    )  # fmt: skip
    rest = [0.5, 0.5]
    for here, flag in ((0.5, "low support"), (0.2, "ok")):
        found = estimate_ratio(logs, np.array([[1.0 - here, here], rest])).diagnostics
        assert found.rare_mass == pytest.approx(
            here * 104 / count
        )  # Every state is a start, so that ĉ = 1.
        assert found.flag == flag


def with_a_trap() -> Logs:
    """1000 steps of a fair coin over 20 states, after which 3 steps in state 20 were the last that was seen."""
    rng = np.random.default_rng(0)
    states = np.append(rng.integers(0, 20, 1000), [20, 20, 20, 20])
    count = len(states) - 1
    return from_arrays(
        states[:-1], rng.integers(0, 2, count), (states[:-1] == 20).astype(float), states[1:], np.zeros(count, bool),
        mu=np.full(count, 0.5), trajectory=np.repeat(np.arange(17), 59),
    )  # fmt: skip


def test_few_transitions_do_not_make_a_state_absorbing() -> None:
    logs = with_a_trap()
    with pytest.warns(UserWarning, match=r"into 1 of 21 states and never out, but only 3 of 1003"):
        found = estimate_ratio(logs, "uniform")
    # By hand: d = γ̂ dP + (1 - γ̂) d_μ with γ̂ = 0.99; at γ̂ = 1 the ratio of state 20 is 1003/3.
    explicit = estimate_ratio(logs, "uniform", ratio_discount=0.99)
    np.testing.assert_allclose(found.ratio(np.arange(21)), explicit.ratio(np.arange(21)))
    assert found.diagnostics.max_ratio < 150
    assert found.diagnostics.mean_ratio == pytest.approx(1.0)
    with pytest.warns(UserWarning, match="a ratio_discount of 0.99 is used"):
        values = [
            evaluate_policy(
                logs, "uniform", objective="average", estimator=name, interval=None
            ).value
            for name in ("mis", "fqe", "dr")
        ]
    inside = float(explicit.ratio(np.array([20]))[0]) * 3 / 1003
    np.testing.assert_allclose(values[:2], inside)  # At γ̂ = 1 all of them are 1.
    assert inside < values[2] < 0.5  # `dr` corrects a part of what γ̂ < 1 takes away.


def test_a_small_class_beside_a_large_one_is_answered_with_a_warning() -> None:
    """600 steps within two states and 5 in a third that no transition links to them: at γ̂ = 1 no ratio is unique."""
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.integers(0, 2, 600), np.full(5, 2)])
    after = np.concatenate([rng.integers(0, 2, 600), np.full(5, 2)])
    count = len(states)
    logs = from_arrays(
        states, np.zeros(count, int), np.zeros(count), after, np.zeros(count, bool),
        mu=np.ones(count), trajectory=np.arange(count), num_actions=1,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="into 1 of 3 states and never out, but only 5 of 605"):
        found = estimate_ratio(logs, np.ones((3, 1)))
    assert found.ratio(np.array([2]))[0] == pytest.approx(1.0)  # π does what μ does.


def test_a_large_absorbing_class_is_believed() -> None:
    states = np.append(np.arange(20), np.full(500, 20))
    count = len(states) - 1
    logs = from_arrays(
        states[:-1], np.zeros(count, int), np.zeros(count), states[1:], np.zeros(count, bool),
        mu=np.ones(count), num_actions=1,
    )  # fmt: skip
    found = estimate_ratio(logs, np.ones((21, 1)))
    assert found.ratio(np.arange(21))[20] == pytest.approx(count / 499)


@pytest.mark.parametrize("features", [None, np.eye(30)])
def test_least_squares_keeps_the_mass(features: Dense | None) -> None:
    problem = garnet(np.random.default_rng(0), 30, 4, 3)
    logs = simulate_logs(problem.mdp, problem.mu, 50, 100, np.random.default_rng(0))
    policy = 0.5 * (problem.mu + problem.pi)
    found = estimate_ratio(
        logs, policy, ratio_discount=0.99, method="least-squares", features=features
    )
    assert found.diagnostics.mean_ratio == pytest.approx(1.0, abs=1e-3)
    exact = replace(problem, pi=policy).c_star(0.99)
    assert np.sqrt(problem.d_mu @ (found.ratio(np.arange(30)) - exact) ** 2) < 0.25


def test_a_verdict_warns_where_a_flag_does(cartpole: Logs) -> None:
    found = compare_policies(
        cartpole, new_policy, features=Affine.fit(cartpole), interval=0.9, replicates=40
    )
    assert found.doubts == {"new": "misspecified"}
    assert found.verdict.startswith(
        "Do not rely on this: the estimate is flagged misspecified for the new policy"
    )


def test_policies_are_compared_replicate_by_replicate() -> None:
    problem = garnet(np.random.default_rng(4), 6, 3, 2)
    logs = simulate_logs(problem.mdp, problem.mu, 50, 200, np.random.default_rng(0))
    near = 0.9 * problem.mu + 0.1 * problem.pi
    truth = [
        true_value(replace(problem, pi=policy), 0.9) for policy in (near, problem.mu, problem.pi)
    ]
    found = compare_policies(logs, near, problem.mu, discount=0.9, replicates=100)
    assert found.doubts == {}
    np.testing.assert_array_equal(found.replicates, found.new.replicates - found.old.replicates)
    assert (found.low, found.high) == pytest.approx(
        bootstrap_interval(found.replicates, 0.95, len(logs))
    )
    assert found.low < truth[0] - truth[1] < found.high
    # What moves both values cancels: the paired interval is much narrower than either one.
    assert found.high - found.low < 0.5 * (found.new.high - found.new.low)
    sign = "better" if truth[2] > truth[1] else "worse"
    for pair, word in (((problem.pi, problem.mu), sign), ((problem.mu, problem.mu), "do not tell")):
        assert word in compare_policies(logs, *pair, discount=0.9, replicates=50).verdict
    swapped = compare_policies(logs, problem.mu, problem.pi, discount=0.9, replicates=50)
    assert ("worse" if sign == "better" else "better") in swapped.verdict
    logged = compare_policies(logs, near, discount=0.9, replicates=50)
    assert logged.old.estimator == "behavior"


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"interval": 0.9}, {"interval": None}, {"replicates": 7}]
)
def test_unpaired_estimates_have_no_difference(change: dict[str, Any]) -> None:
    problem = garnet(np.random.default_rng(4), 6, 3, 2)
    logs = simulate_logs(problem.mdp, problem.mu, 20, 20, np.random.default_rng(0))
    one = evaluate_policy(logs, problem.pi, replicates=5)
    with pytest.raises(InputError, match="are not paired"):
        one.difference(evaluate_policy(logs, problem.mu, **{"replicates": 5} | change))
    with pytest.raises(InputError, match="are not paired"):
        one.difference(evaluate_policy(logs[:15], problem.mu, replicates=5))
    with pytest.raises(InputError, match="ask both the same question"):
        one.difference(evaluate_policy(logs, problem.mu, replicates=5, discount=0.5))


def test_the_default_for_vectors_is_near_the_truth_in_cartpole(cartpole: Logs) -> None:
    _, returns = balance(0.45, 100)
    by_default = evaluate_policy(cartpole, new_policy, interval=None).value
    straight = evaluate_policy(
        cartpole, new_policy, features=Affine.fit(cartpole), interval=None
    ).value
    assert abs(by_default - returns.mean()) < 0.3 * abs(straight - returns.mean())


def test_default_waves_are_as_wide_as_states_are_apart_and_fewer_where_data_are_few() -> None:
    rng = np.random.default_rng(0)

    def logs(count: int, entries: int) -> Logs:
        states = rng.standard_normal((count, entries))
        ones = np.ones(count)
        return from_arrays(states, ones.astype(int), ones, states, ones.astype(bool), mu=ones)

    for entries in (4, 36):
        omega = as_features(None, logs(5000, entries)).omega  # type: ignore[attr-defined]
        assert omega.shape == (entries, 200)
        assert omega.std() == pytest.approx(2.0 / np.sqrt(entries), rel=0.1)
    assert as_features(None, logs(100, 3)).size == 6
