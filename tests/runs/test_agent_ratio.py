"""The whole agent on a finite MDP: the ratio that it ends with is that of the policy that it ends with."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.records import RunFolder
from covshift.runs import load_run
from covshift.runs.launch import start_or_resume
from covshift.runs.training import run_to_end
from covshift.theory import c_star
from covshift.theory.examples import Problem, random_walk


@pytest.mark.parametrize(
    ("preset", "ratio_discount"),
    # 0.99 is the presets' own discount, so that 0.9 shows that the setting is used.
    [("c51-dual", 0.9), ("c51-matched", 0.9), ("c51-corrected", 0.9), ("c51-matched", 0.99)],
)
def test_a_trained_agent_knows_its_own_ratio(
    tmp_path: Path,
    collected: Callable[[str, Problem, int], Path],
    preset: str,
    ratio_discount: float,
) -> None:
    """Within 0.15 of the exact ratio's size under d_μ, for π of the trained network.

    The learner's last step size is as large as its first, which is what is left of the error.
    """
    problem = random_walk()
    data = collected("RandomWalk", problem, 40_000)
    config = make_config(
        "covshift/RandomWalk-v0",
        preset,
        "smoke",
        window=40_000,
        num_updates=2_000,
        evaluate_every=2_000,
        ratio_loss_weight=1.0,
        ratio_discount=ratio_discount,
        batch_size=128,
        target_period=100,
    )
    runtime = RuntimeOptions(device="cpu", threads=1)
    trainer = start_or_resume(
        RunFolder(tmp_path / "run"), config, str(data), runtime, lambda _: None
    )
    run_to_end(trainer, lambda update, row: None)
    agent = load_run(tmp_path / "run")
    states = np.eye(problem.mdp.num_states, dtype=np.uint8)
    pi = agent.probabilities(states)
    assert np.allclose(pi.max(axis=1), 0.95)
    exact = c_star(problem.mdp.chain(pi), problem.d_mu, ratio_discount)
    d = problem.d_mu / problem.d_mu.sum()
    error = np.sqrt((d * (agent.ratio(states) - exact) ** 2).sum() / (d * exact**2).sum())
    assert np.ptp(exact) > 0.5  # there is something to learn
    assert error < 0.15, f"{error:.3f}: {agent.ratio(states).round(2)} for {exact.round(2)}"
