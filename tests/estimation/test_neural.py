from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covshift.errors import InputError
from covshift.estimation import RatioEstimate, estimate_ratio, from_arrays, simulate_logs
from covshift.estimation.experience import Experience
from covshift.estimation.neural import _windows
from covshift.estimation.problem import RatioProblem
from covshift.learners.deep import RatioLearner, ring_batch
from covshift.theory.examples import Problem, line_chain, random_walk


def error_of(estimate: RatioEstimate, problem: Problem, ratio_discount: float) -> float:
    exact = problem.c_star(ratio_discount)
    d = problem.d_mu / problem.d_mu.sum()
    found = estimate.ratio(np.arange(problem.mdp.num_states))
    return float(np.sqrt((d * (found - exact) ** 2).sum() / (d * exact**2).sum()))


@pytest.mark.parametrize(
    ("options", "ratio_discount"),
    [
        ({}, 0.9),
        ({"weighting": "inverse"}, 0.9),
        ({}, 0.99),
        ({"head": "softplus"}, 0.9),
        ({"num_steps": 3}, 0.9),
        ({}, 1.0),
        ({"head": "exponential", "loss": "matching"}, 0.9),
        ({"head": "safe", "loss": "matching"}, 0.99),
        ({"head": "safe", "loss": "matching"}, 1.0),
        ({"head": "exponential"}, 0.9),
    ],
)
def test_the_network_finds_the_exact_ratio_of_a_chain(
    options: dict[str, Any], ratio_discount: float
) -> None:
    """Relative error under d_μ below 0.1 from 20000 transitions."""
    problem = line_chain(6)
    logs = simulate_logs(problem.mdp, problem.mu, 500, 40, np.random.default_rng(0))
    estimate = estimate_ratio(
        logs,
        problem.pi,
        ratio_discount=ratio_discount,
        method="neural",
        held_out=0.0,
        num_updates=2000,
        **options,
    )
    assert error_of(estimate, problem, ratio_discount) < 0.1


def test_the_network_finds_the_exact_ratio_of_episodes() -> None:
    problem = random_walk()
    logs = simulate_logs(problem.mdp, problem.mu, 400, 60, np.random.default_rng(1))
    estimate = estimate_ratio(
        logs, problem.pi, ratio_discount=0.9, method="neural", held_out=0.0, num_updates=2000
    )
    assert estimate.semantics == "visits"
    assert error_of(estimate, problem, 0.9) < 0.1


def test_targets_do_not_clip_negative_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clipped target would add mass to the fit and lift its mean (B6); the estimate is never negative."""
    seen: list[RatioLearner] = []

    def learner_of(*parts: Any, **options: Any) -> RatioLearner:
        seen.append(RatioLearner(*parts, **options))
        return seen[-1]

    monkeypatch.setattr("covshift.learners.deep.RatioLearner", learner_of)
    problem = line_chain(4)
    logs = simulate_logs(problem.mdp, problem.mu, 50, 10, np.random.default_rng(0))
    told: list[int] = []
    estimate = estimate_ratio(
        logs, problem.pi, ratio_discount=0.9, method="neural", held_out=0.0, num_updates=3, progress=told.append,
    )  # fmt: skip
    (learner,) = seen
    not_initial = np.zeros(2, dtype=bool)
    batch = ring_batch(np.eye(2), np.zeros(2), np.ones(2), not_initial, np.array([1]))
    target = learner.loss.targets(torch.tensor([-2.0]), torch.tensor([[1.0]]), batch)
    assert target.item() == pytest.approx(0.1 + 0.9 * -2.0)
    assert estimate.ratio(np.arange(4)).min() >= 0.0
    assert told == [1, 1, 1]


def test_saved_networks_are_read_without_torch(tmp_path: Path) -> None:
    problem = line_chain(4)
    logs = simulate_logs(problem.mdp, problem.mu, 50, 10, np.random.default_rng(0))
    estimate = estimate_ratio(logs, problem.pi, ratio_discount=0.9, method="neural", num_updates=20)
    estimate.save(tmp_path / "ratio")
    again = RatioEstimate.load(tmp_path / "ratio")
    np.testing.assert_allclose(again.ratio(np.arange(4)), estimate.ratio(np.arange(4)))
    assert {path.suffix for path in (tmp_path / "ratio").iterdir()} == {".json", ".npz", ".sha256"}
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from covshift.estimation import RatioEstimate\n"
        f"print(RatioEstimate.load({str(tmp_path / 'ratio')!r}).ratio(np.arange(4)).sum())\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(estimate.ratio(np.arange(4)).sum())


def test_windows_hold_the_steps_that_led_to_a_state() -> None:
    """Two episodes of 3 and 2 steps, in which no state occurs twice, so that windows can be read off."""
    problem = RatioProblem(
        Experience.of(
            from_arrays(
                states=np.array([0, 1, 2, 4, 5]),
                actions=np.zeros(5, dtype=int),
                rewards=np.zeros(5),
                next_states=np.array([1, 2, 3, 5, 6]),
                terminated=np.array([False, False, False, False, True]),
                trajectory=np.array([0, 0, 0, 1, 1]),
                mu=np.full(5, 0.5),
                num_actions=2,
            ),
            np.tile([0.75, 0.25], (7, 1)),
        ),
        0.9,
        "visits",
    )
    windows = _windows(problem, 2, np.random.default_rng(0))
    states = np.array([0, 1, 2, 4, 5, 1, 2, 3, 5, 6])
    arrived = states[windows.arrived].tolist()
    assert arrived == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(states[windows.sources[-1]][1:4], [0, 1, 2])
    np.testing.assert_array_equal(states[windows.sources[0]][2:4], [0, 1])
    assert windows.initial[-1].tolist() == [True, False, False, False, True, False]
    assert windows.initial[0].tolist() == [False, True, False, False, False, True]
    np.testing.assert_allclose(windows.rho[-1][[1, 2, 3, 5]], 1.5)


def test_bad_options_are_refused() -> None:
    problem = line_chain(4)
    logs = simulate_logs(problem.mdp, problem.mu, 5, 4, np.random.default_rng(0))
    for options, message in (
        ({"num_updates": 0}, "num_updates must be at least 1"),
        (
            {"head": "cubic"},
            r"head must be linear \| softplus \| exponential \| safe, but it is cubic",
        ),
        (
            {"loss": "matching"},
            "needs head exponential or safe and weighting uniform, but they are linear",
        ),
        (
            {"loss": "matching", "head": "safe", "weighting": "inverse"},
            "but they are safe and inverse",
        ),
        ({"num_steps": 50}, "no record is as long as num_steps = 50"),
    ):
        with pytest.raises(InputError, match=message):
            estimate_ratio(
                logs, problem.pi, ratio_discount=0.9, method="neural", held_out=0.0, **options
            )


def test_the_matching_loss_needs_a_discount_that_bounds_the_mean() -> None:
    problem = random_walk()
    logs = simulate_logs(problem.mdp, problem.mu, 50, 4, np.random.default_rng(0))
    asked: dict[str, Any] = {
        "method": "neural",
        "head": "safe",
        "loss": "matching",
        "num_updates": 1,
    }
    with pytest.raises(InputError, match=r"counts visits at ratio_discount = 1: use"):
        estimate_ratio(logs, problem.pi, ratio_discount=1.0, **asked)
    with pytest.raises(InputError, match="needs a ratio_discount above 0"):
        estimate_ratio(logs, problem.pi, ratio_discount=0.0, **asked)
    estimate_ratio(logs, problem.pi, ratio_discount=1.0, discount=0.9, **asked)


@pytest.mark.parametrize("head", ["exponential", "safe"])
def test_a_matched_network_in_numpy_is_that_of_the_learner(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the floor 1 - γ̂, and the same after saving."""
    seen: list[RatioLearner] = []

    def learner_of(*parts: Any, **options: Any) -> RatioLearner:
        seen.append(RatioLearner(*parts, **options))
        return seen[-1]

    monkeypatch.setattr("covshift.learners.deep.RatioLearner", learner_of)
    problem = random_walk()
    logs = simulate_logs(problem.mdp, problem.mu, 50, 4, np.random.default_rng(0))
    found = estimate_ratio(
        logs, problem.pi, ratio_discount=0.7, method="neural", held_out=0.0, num_updates=50, head=head, loss="matching",
    )  # fmt: skip
    (learner,) = seen
    assert learner.loss.options.ratio_loss == "matching"
    c = found.ratio(np.arange(6))
    np.testing.assert_allclose(c, learner.ratio(np.eye(6, dtype=np.float32)), rtol=1e-5)
    assert c.min() > 0.3
    assert np.ptp(c) > 0.05
    again = RatioEstimate.load(found.save(tmp_path))
    np.testing.assert_array_equal(again.ratio(np.arange(6)), c)
