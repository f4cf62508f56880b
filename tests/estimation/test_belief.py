"""Whether an estimate says by itself that it can be believed, and its interval."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from covshift.cli.estimate import Ratio, Value
from covshift.errors import InputError
from covshift.estimation import (
    ESTIMATORS,
    Logs,
    Tabular,
    Trajectory,
    balanced_behavior,
    compare_estimators,
    compare_policies,
    estimate_ratio,
    evaluate_policy,
    from_trajectories,
    simulate_logs,
)
from covshift.estimation.critic import fit_critic
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.importance import effective_trajectories, middle_step
from covshift.estimation.intervals import (
    bootstrap_interval,
    empirical_likelihood_interval,
    percentile_interval,
)
from covshift.estimation.misspecification import find_imbalance
from covshift.estimation.problem import LinearRatioFunction, RatioProblem
from covshift.estimation.selection import SPLITS, select
from covshift.estimation.totals import FOLDS
from covshift.theory.examples import garnet
from covshift.validation import Dense

GARNET = garnet(np.random.default_rng(4), 6, 3, 2)
NEAR = 0.5 * (GARNET.mu + GARNET.pi)


@pytest.fixture(scope="module")
def logs() -> Logs:
    return simulate_logs(GARNET.mdp, GARNET.mu, 30, 40, np.random.default_rng(0))


def test_empirical_likelihood_of_two_terms_has_a_closed_form() -> None:
    # Weights (1 - θ, θ) of the terms 0 and 1: -2 log 4θ(1 - θ) is the quantile at θ = ½ ± ½√(1 - e^(-q/2)).
    quantile = scipy.stats.f.ppf(0.8, 1, 1)
    half = 0.5 * np.sqrt(1.0 - np.exp(-0.5 * quantile))
    found = empirical_likelihood_interval(np.array([0.0, 1.0]), np.ones(2), 0.8)
    assert found == pytest.approx((0.5 - half, 0.5 + half))


def test_empirical_likelihood_follows_scale_and_shift_and_leans_to_the_long_tail() -> None:
    rng = np.random.default_rng(0)
    terms, weights = rng.exponential(size=30), rng.uniform(0.5, 1.5, 30)
    low, high = empirical_likelihood_interval(terms, weights, 0.9)
    moved = empirical_likelihood_interval(3.0 * terms - 5.0 * weights, weights, 0.9)
    assert moved == pytest.approx((3.0 * low - 5.0, 3.0 * high - 5.0))
    middle = terms.sum() / weights.sum()
    assert high - middle > middle - low > 0
    assert empirical_likelihood_interval(2.0 * weights, weights, 0.9) == pytest.approx((2.0, 2.0))


def test_intervals_from_few_terms_hold_the_mean_as_often_as_they_say() -> None:
    """Of 400 intervals at 90 %, deviation 6: plain percentiles of ten terms hold about 330, Student's about 350."""
    rng = np.random.default_rng(1)
    count, held = 10, np.zeros(3)
    for _ in range(400):
        terms = rng.exponential(size=count)
        draws = rng.dirichlet(np.ones(count), 300) @ terms
        intervals = (
            percentile_interval(draws, 0.9),
            bootstrap_interval(draws, 0.9, count),
            empirical_likelihood_interval(terms, np.ones(count), 0.9),
        )
        held += [low <= 1.0 <= high for low, high in intervals]
    plain, widened, likely = held
    assert widened > plain + 15
    assert likely > plain + 15
    assert min(widened, likely) > 325


def test_the_bootstrap_interval_is_students_for_a_mean() -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal(8)
    draws = rng.dirichlet(np.ones(8), 20_000) @ terms
    half = scipy.stats.t.isf(0.1, 7) * terms.std(ddof=1) / np.sqrt(8)
    low, high = bootstrap_interval(draws, 0.8, 8)
    assert high - low == pytest.approx(2.0 * half, rel=0.05)
    assert bootstrap_interval(draws, 0.8, 10**6) == pytest.approx(
        percentile_interval(draws, 0.8), abs=1e-3
    )


@pytest.mark.parametrize("objective", ["discounted", "average"])
@pytest.mark.parametrize("features", [Tabular(6), np.random.default_rng(1).random((6, 3))])
def test_cross_fitting_is_fits_to_other_trajectories(
    logs: Logs, features: Any, objective: Any
) -> None:
    estimand = Estimand(objective, 0.9)
    fold = np.arange(len(logs)) % FOLDS
    fitted = mass = leaving = error = 0.0
    for k in range(FOLDS):
        fit, test = (
            Experience.of(logs[mask], NEAR, features=features) for mask in (fold != k, fold == k)
        )
        ratio, critic = estimand.ratio(fit), fit_critic(fit, estimand)
        for sample in test.samples():
            weight = ratio.at(sample.x_tm1) * sample.rho_tm1
            q_tm1, v_t = critic.values(test, sample)
            gamma = 1.0 if estimand.is_average else 0.9
            error += float(weight @ (sample.r_t - critic.gain + gamma * v_t - q_tm1))
            mass += float(weight.sum())
            leaving += float((1.0 - 0.9) * weight.sum())
            if estimand.is_average:
                fitted += critic.gain * float(weight.sum())
            else:
                first = sample.x_tm1[sample.is_initial_tm1]
                theta = critic.theta.reshape(-1, 3)
                q = theta[first] if test.is_tabular else first @ theta
                fitted += float((q * sample.pi_tm1[sample.is_initial_tm1]).sum())
    expected = (
        (fitted + error) / mass if estimand.is_average else fitted / len(logs) + error / leaving
    )
    experience = Experience.of(logs, NEAR, features=features)
    assert ESTIMATORS["dr-cf"].estimate(experience, estimand) == pytest.approx(expected)


def test_effective_trajectories_by_hand() -> None:
    # ρ is 1.6 for action 1 and 0.4 for action 0. Products: (1.6, 0.64), (1.6, 2.56), (0.4); the third has ended after one step.
    logs = from_trajectories(
        [
            Trajectory([0, 0], [1, 0], [1.0, 2.0], True, [0.5, 0.5]),
            Trajectory([0, 0], [1, 1], [3.0, 5.0], True, [0.5, 0.5]),
            Trajectory([0], [0], [7.0], True, [0.5]),
        ]
    )
    experience, estimand = Experience.of(logs, np.array([[0.2, 0.8]])), Estimand("discounted", 0.5)
    first = 3.6**2 / (1.6**2 + 1.6**2 + 0.4**2)
    second = 3.6**2 / (0.64**2 + 2.56**2 + 0.4**2)
    np.testing.assert_allclose(effective_trajectories(experience, estimand), [first, second])
    # Three trajectories at weight 1 and two at ½: half of the sum has passed after the first step.
    assert middle_step(experience, estimand) == 0


def vectors(logs: Logs, seen: Dense) -> Logs:
    """The same data, in which states are seen as rows of a table."""
    before, after = seen[logs.states()], seen[logs.next_states()]
    return replace(logs, read_states=before.__getitem__, read_next_states=after.__getitem__)


def test_the_imbalance_is_that_of_the_exact_chain() -> None:
    problem = garnet(np.random.default_rng(2), 12, 3, 2)
    seen = np.random.default_rng(0).standard_normal((12, 1))
    data = simulate_logs(problem.mdp, problem.mu, 100, 200, np.random.default_rng(0))

    def policy(states: Dense) -> Dense:
        return np.asarray(problem.pi[np.abs(states - seen.T).argmin(axis=1)])

    experience = Experience.of(vectors(data, seen), policy, features=lambda s: np.ones((len(s), 1)))
    found = find_imbalance(
        RatioProblem(experience, 0.9, "continuing"), LinearRatioFunction(np.ones(1))
    )
    # By hand: a ratio of 1 puts 0.9 (d_μP_π - d_μ) too much on each state.
    excess = 0.9 * (problem.d_mu @ problem.chain_pi.p - problem.d_mu)
    x = (seen[:, 0] - problem.d_mu @ seen[:, 0]) / np.sqrt(
        problem.d_mu @ seen[:, 0] ** 2 - (problem.d_mu @ seen[:, 0]) ** 2
    )
    sizes = [abs(excess @ g) / np.sqrt(problem.d_mu @ g**2) for g in (x, x**2 - 1.0)]
    assert found.size == pytest.approx(max(sizes), abs=3 * found.standard_error)
    assert found.standard_error < 0.2 * max(sizes)
    assert found.sure < found.size - 2.0 * found.standard_error


def test_every_way_to_ask_has_the_same_default_of_the_ratio_discount() -> None:
    functions = (estimate_ratio, evaluate_policy, compare_estimators, compare_policies)
    defaults = [inspect.signature(f).parameters["ratio_discount"].default for f in functions]
    assert {*defaults, Ratio.ratio_discount, Value.ratio_discount} == {1.0}


def test_a_good_estimate_says_that_it_can_be_believed(logs: Logs) -> None:
    found = evaluate_policy(logs, NEAR, discount=0.9, replicates=50)
    assert found.flag == "ok"
    assert found.verdict.startswith("Believe it")
    assert found.verdict in repr(found)
    assert found.record()["flag"] == "ok"
    ratio = found.diagnostics.ratio
    assert ratio is not None
    assert found.diagnostics.effective_sample == pytest.approx(ratio.pair_ess_share * 1200)


def test_a_wrong_mu_makes_the_estimate_unstable(logs: Logs) -> None:
    """A ratio weighs by the logged μ, and the counted model does not need it, so that they disagree."""
    wrong = replace(logs, mu=np.where(logs.action == 0, 0.9, 0.3))
    found = evaluate_policy(wrong, NEAR, discount=0.9, replicates=50)
    assert found.flag == "unstable"
    assert found.verdict.startswith("Doubt it")
    both = [evaluate_policy(wrong, NEAR, estimator=e, discount=0.9, interval=None).value for e in ("mis-sn", "fqe")]  # fmt: skip
    assert found.diagnostics.disagreement == pytest.approx(both[0] - both[1])


def test_long_products_are_low_support(logs: Logs) -> None:
    far = evaluate_policy(logs, GARNET.pi, estimator="wis", discount=0.85, replicates=20)
    assert far.flag == "low support"
    assert "use dr" in far.verdict
    assert len(far.diagnostics.effective_by_step) == 30
    at_home = evaluate_policy(logs, GARNET.mu, estimator="wis", discount=0.85, replicates=20)
    assert at_home.flag == "ok"
    np.testing.assert_allclose(at_home.diagnostics.effective_by_step, 40.0)


def test_equal_estimators_are_one_group(logs: Logs) -> None:
    found = compare_estimators(logs, NEAR, discount=0.85, replicates=10)
    groups = [[estimate.estimator for estimate in group] for group in found.groups]
    assert ["dr", "fqe", "dualdice", "gendice", "gradientdice", "mwl"] in groups
    assert ["wpdis"] in groups
    assert sum(map(len, groups)) == len(found.estimates)
    assert len(found.plot().axes[0].get_yticks()) == len(groups)
    assert "dr, fqe, dualdice" in repr(found)


def test_auto_compares_halves_with_the_other_halves(logs: Logs) -> None:
    estimand = Estimand("average", 0.9)
    _, _, selection = select(logs, NEAR, estimand, features=Tabular(6), seed=3)
    assert selection.validator == "dr"
    assert [(t.estimator, t.ratio_discount) for t in selection.trials] == [
        (name, g) for name in ("dr", "mis-sn") for g in (1.0, 0.99, 0.9)
    ] + [("fqe", 1.0)]
    rng = np.random.default_rng(3)
    halves = [rng.permutation(len(logs)) < len(logs) // 2 for _ in range(SPLITS)]

    def answers(name: str, asked: Estimand, masks: list[Any]) -> Dense:
        parts = (Experience.of(logs[mask], NEAR, features=Tabular(6)) for mask in masks)
        return np.array([ESTIMATORS[name].estimate(part, asked) for part in parts])

    truths = answers("dr", estimand, [~half for half in halves])
    for trial in (selection.trials[0], selection.trials[5]):
        asked = replace(estimand, ratio_discount=trial.ratio_discount)
        losses = (answers(trial.estimator, asked, halves) - truths) ** 2
        assert trial.loss == pytest.approx(losses.mean())
    best = min(selection.trials, key=lambda trial: trial.loss)
    is_better = best.excess + best.excess_error < 0
    assert selection.chosen is (best if is_better else selection.trials[0])
    assert "chosen" in repr(selection)


def test_auto_leaves_features_that_cannot_hold_the_value() -> None:
    """Action 1 leads to a reward a step later: one constant feature cannot tell, and products of ρ can."""
    first = np.random.default_rng(0).integers(0, 2, 300)
    data = from_trajectories(
        (Trajectory([0, 1 + a], [a, 0], [0.0, float(a)], True, [0.5, 0.5]) for a in first),
        num_actions=2,
    )
    policy = np.array([[0.1, 0.9], [0.5, 0.5], [0.5, 0.5]])
    found = evaluate_policy(
        data, policy, estimator="auto", features=np.ones((3, 1)), discount=1.0, replicates=20
    )
    assert found.selection is not None
    assert found.selection.trials[0].estimator == "dr"
    assert found.estimator == found.selection.chosen.estimator == "wpdis"
    assert found.value == pytest.approx(0.9, abs=0.03)
    with pytest.raises(InputError, match="3 trajectories cannot be split"):
        evaluate_policy(data[:3], policy, estimator="auto", discount=1.0)


def test_the_balanced_denominator_is_the_share_of_actions_in_the_data() -> None:
    rng = np.random.default_rng(0)
    policies = [GARNET.mu, GARNET.pi]
    parts = [simulate_logs(GARNET.mdp, mu, 100, 100, rng) for mu in policies]
    data = from_trajectories([*parts[0], *parts[1]], num_actions=3)
    which = np.repeat([0, 1], 100)
    mu_bar = balanced_behavior(data, policies, which)
    # Exactly: Σ_k w_k d_k(s) μ_k(a|s) / Σ_k w_k d_k(s), with equal shares.
    visits = np.array([GARNET.mdp.chain(mu).occupancy() for mu in policies])
    table = np.einsum("ks,ksa->sa", visits, np.array(policies)) / visits.sum(axis=0)[:, None]
    np.testing.assert_allclose(mu_bar, table[data.states(), data.action], atol=0.02)
    target = 0.5 * (GARNET.mu + GARNET.pi)
    taken = target[data.states(), data.action]
    assert ((taken / mu_bar) ** 2).mean() < ((taken / np.asarray(data.mu)) ** 2).mean()
    found = evaluate_policy(data, target, behavior=mu_bar, discount=0.9, replicates=20)
    assert found.flag == "ok"


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (np.zeros(3, dtype=int), "which must hold a whole number for each of 40 trajectories"),
        (np.full(40, 0.5), "which must hold a whole number"),
        (np.full(40, 2), "which names the policies 2 … 2, but 1 are given"),
    ],
)
def test_wrong_owners_are_refused(logs: Logs, which: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        balanced_behavior(logs, [GARNET.mu], which)
