"""A weighting of the trajectories gives what data with repeated trajectories give, however it is computed."""

from dataclasses import replace

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import ESTIMATORS, Logs, evaluate_policy, simulate_logs
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.estimators import estimators_of
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike
from covshift.estimation.moments import PairMoments, RatioMoments
from covshift.theory.examples import episodic, garnet
from covshift.validation import Dense

PROBLEM = episodic(np.random.default_rng(3), 5, 2, single_start=False)
FEATURES = np.column_stack([np.ones(5), np.random.default_rng(1).standard_normal((5, 2))])


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Rewards with noise, and actions that two behavior policies took."""
    rng = np.random.default_rng(0)
    made = simulate_logs(PROBLEM.mdp, PROBLEM.mu, 60, 12, rng)
    noisy = made.reward + rng.standard_normal(made.num_transitions)
    mu = np.where(made.trajectory % 2 == 0, np.asarray(made.mu), 0.5)
    return replace(made, reward=noisy, mu=mu)


def repeated(logs: Logs, counts: Dense) -> Logs:
    return logs[np.repeat(np.arange(len(logs)), counts.astype(int))]


@pytest.mark.filterwarnings("ignore:.*trajectories are cut off")
@pytest.mark.parametrize("features", [None, FEATURES], ids=["table", "features"])
@pytest.mark.parametrize("objective", ["discounted", "average"])
def test_weights_are_repetitions(logs: Logs, features: FeaturesLike, objective: Objective) -> None:
    rng = np.random.default_rng(1)
    counts = [rng.integers(0, 4, len(logs)).astype(float) for _ in range(3)]
    estimand = Estimand(objective, 0.9)
    members = Experience.of(logs, PROBLEM.pi, features=features).batch(counts)
    for name in estimators_of(objective):
        # In these two the replicates share the norm of the data, which repeated data do not.
        if features is not None and name in ("gradientdice", "gendice"):
            continue
        estimate = ESTIMATORS[name].estimate
        for member, count in zip(members, counts, strict=True):
            twin = Experience.of(repeated(logs, count), PROBLEM.pi, features=features)
            expected = estimate(twin, estimand)
            assert estimate(member, estimand) == pytest.approx(expected, rel=1e-6), name


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("kind", [PairMoments, RatioMoments])
def test_moments_of_a_batch_are_those_of_each(
    kind: type[PairMoments] | type[RatioMoments], short: bool
) -> None:
    # Long trajectories are summed one by one, short ones all together.
    problem = garnet(np.random.default_rng(2), 6, 2, 2)
    steps, streams = (2, 30) if short else (200, 5)
    rng = np.random.default_rng(0)
    data = simulate_logs(problem.mdp, problem.mu, steps, streams, rng)
    phi = rng.standard_normal((6, 3))
    whole = Experience.of(data, problem.pi, features=phi)
    weights = [rng.exponential(size=streams) for _ in range(120)]
    members = whole.batch(weights)
    for index in (0, 119):
        together, alone = kind.of(members[index]), kind.of(whole.reweighted(weights[index]))
        for name, value in vars(alone).items():
            np.testing.assert_allclose(getattr(together, name), value, rtol=1e-9, atol=1e-9)


def test_replicates_without_an_answer_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulate_logs(PROBLEM.mdp, PROBLEM.mu, 60, 12, np.random.default_rng(0))
    plain = evaluate_policy(data, PROBLEM.pi, estimator="fqe", replicates=40)
    estimator = ESTIMATORS["fqe"]

    def fails_sometimes(experience: Experience, estimand: Estimand) -> float:
        weights = experience.weights
        if weights is not None and weights[0] > threshold:
            raise InputError("too heavy")
        return estimator.estimate(experience, estimand)

    monkeypatch.setitem(ESTIMATORS, "fqe", replace(estimator, estimate=fails_sometimes))
    threshold = 1.5
    found = evaluate_policy(data, PROBLEM.pi, estimator="fqe", replicates=40)
    assert 0 < found.failed_replicates < 20
    kept = found.replicates[~np.isnan(found.replicates)]
    assert set(kept) < set(plain.replicates)
    assert len(kept) == 40 - found.failed_replicates
    assert np.isfinite([found.low, found.high, found.standard_error]).all()
    threshold = 0.01
    with pytest.raises(InputError, match="of 40 bootstrap replicates have no answer"):
        evaluate_policy(data, PROBLEM.pi, estimator="fqe", replicates=40)
