"""Calibration on a finite MDP, where the ratio is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.config.presets import make_config
from covshift.data.policies import Uniform
from covshift.data.runner import Decision
from covshift.data.store import Store
from covshift.runs.calibration import calibrate
from covshift.runs.evaluation import Prediction
from covshift.theory.examples import Problem, random_walk

VALUES = np.array([-1.0, -0.5, 0.0, 0.5, 1.5, 2.0])
"""A function of the six states that grows towards where π goes."""


class TablePolicy:
    """π of a problem with a given ratio, as an agent's policy."""

    def __init__(self, problem: Problem, ratio: np.ndarray) -> None:
        self.pi, self.c = problem.pi, ratio

    def decide(self, states: np.ndarray) -> Decision:
        s = states.argmax(axis=1)
        return Decision(self.pi[s], {"value": VALUES[s], "ratio": self.c[s]})

    def predict(self, states: np.ndarray) -> Prediction:
        s = states.argmax(axis=1)
        q = np.tile(VALUES[s][:, None], (1, 2)).astype(np.float32)
        return Prediction(q, self.c[s].astype(np.float32))


@pytest.mark.parametrize("semantics", ["visits", "restart"])
@pytest.mark.parametrize("ratio_discount", [0.5, 0.95])
def test_an_exact_ratio_is_calibrated_and_a_doubled_one_is_not(
    collected: Callable[[str, Problem, int], Path], semantics: Any, ratio_discount: float
) -> None:
    problem = random_walk()
    np.testing.assert_allclose(problem.mu, 0.5)
    store = Store.open(collected("RandomWalk", problem, 40_000))
    config = make_config(
        "covshift/RandomWalk-v0",
        "c51-auxiliary",
        "smoke",
        ratio_discount=ratio_discount,
        semantics=semantics,
        calibration_episodes=1000,
    )
    meant = problem.restart() if semantics == "restart" else problem
    exact = meant.c_star(ratio_discount)
    law = meant.d_mu / meant.d_mu.sum()
    found = {}
    for factor in (1.0, 2.0):
        pi: Any = TablePolicy(problem, factor * exact)
        calibration = calibrate(config, pi, Uniform(2), store, np.random.default_rng(0))
        assert calibration is not None
        found[factor] = calibration
        # 1000 episodes: a standard error of about 2 %.
        assert found[factor].exact_mean == pytest.approx(float(law @ exact), rel=0.08)
    assert set(found[1.0].errors) == {"1", "mean of the observation", "value", "ratio"}
    assert max(found[1.0].errors.values()) < 0.12, found[1.0].errors
    assert found[2.0].errors["1"] == pytest.approx(1.0, abs=0.1)
    # c·c grows fourfold, its exact value c·f with f = c twofold.
    assert found[2.0].errors["ratio"] == pytest.approx(1.0, abs=0.15)


def test_a_ratio_of_one_shows_where_it_is_wrong(
    collected: Callable[[str, Problem, int], Path],
) -> None:
    """With c = 1 the mean over the data is that of μ, whatever π does."""
    problem = random_walk()
    store = Store.open(collected("RandomWalk", problem, 40_000))
    config = make_config(
        "covshift/RandomWalk-v0", "c51-auxiliary", "smoke", ratio_discount=0.95,
        semantics="restart", calibration_episodes=500,
    )  # fmt: skip
    pi: Any = TablePolicy(problem, np.ones(6))
    found = calibrate(config, pi, Uniform(2), store, np.random.default_rng(0))
    assert found is not None
    assert found.errors["1"] < 0.1
    assert found.exact_mean == pytest.approx(1.0)  # with restarts, whatever is played
    slow = config.replace_leaves(ratio_discount=0.999)  # 4600 steps to forget
    assert calibrate(slow, pi, Uniform(2), store, np.random.default_rng(0)) is None
    assert found.errors["value"] > 0.15
