"""Compares our importance sampling and fitted Q evaluation with scope-rl's and d3rlpy's on the same data.

    python benchmarks/estimation_peers.py [--trajectories 200] [--updates 6000]

Run it in an environment of its own (`pip install covshift scope-rl d3rlpy`), since they pin other versions
than ours. The importance samplers must agree to rounding. d3rlpy's fitted Q evaluation trains a network for a
deterministic policy; with one-hot states and a wide layer it comes near our answer, which is the exact value
of the counted model.
"""

from __future__ import annotations

import argparse
from typing import Any

import d3rlpy
import numpy as np
from scope_rl.ope.discrete.basic_estimators import (
    PerDecisionImportanceSampling,
    SelfNormalizedPDIS,
    SelfNormalizedTIS,
)

from covshift.estimation import Logs, evaluate_policy, simulate_logs
from covshift.estimation.population import true_value
from covshift.theory.examples import Problem, garnet

STEPS, DISCOUNT = 30, 0.9
PEERS = {
    "pdis": PerDecisionImportanceSampling,
    "wpdis": SelfNormalizedPDIS,
    "wis": SelfNormalizedTIS,
}


def scope_rl(problem: Problem, logs: Logs) -> dict[str, float]:
    given: dict[str, Any] = {
        "step_per_trajectory": STEPS,
        "action": logs.action,
        "reward": logs.reward,
        "pscore": logs.mu,
        "evaluation_policy_action_dist": problem.pi[logs.states()],
        "gamma": DISCOUNT,
    }
    return {name: float(peer().estimate_policy_value(**given)) for name, peer in PEERS.items()}


def d3rlpy_fqe(logs: Logs, best: np.ndarray, updates: int) -> float:
    """E_{d₀}[Q(s, π(s))] of d3rlpy's DiscreteFQE; the policy is cloned into a network first."""
    d3rlpy.seed(0)
    states, one_hot = logs.states(), np.eye(len(best), dtype=np.float32)
    ends = np.zeros(logs.num_transitions)
    ends[STEPS - 1 :: STEPS] = 1.0

    def dataset(actions: np.ndarray) -> Any:
        return d3rlpy.dataset.MDPDataset(
            observations=one_hot[states],
            actions=actions[:, None],
            rewards=logs.reward[:, None].astype(np.float32),
            terminals=np.zeros(logs.num_transitions),
            timeouts=ends,
            action_space=d3rlpy.ActionSpace.DISCRETE,
            action_size=logs.num_actions,
        )

    wide = d3rlpy.models.VectorEncoderFactory(hidden_units=[256])
    clone = d3rlpy.algos.DiscreteBCConfig(encoder_factory=wide).create()
    quiet: dict[str, Any] = {
        "show_progress": False,
        "save_interval": 10**9,
        "logger_adapter": d3rlpy.logging.NoopAdapterFactory(),
    }
    clone.fit(dataset(best[states]), 2000, 2000, **quiet)
    np.testing.assert_array_equal(clone.predict(one_hot), best)
    config = d3rlpy.ope.FQEConfig(gamma=DISCOUNT, learning_rate=1e-3, encoder_factory=wide)
    fqe = d3rlpy.ope.DiscreteFQE(algo=clone, config=config)
    fqe.fit(dataset(logs.action), updates, updates, **quiet)
    first = states[logs.is_initial]
    return float(fqe.predict_value(one_hot[first], best[first]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--updates", type=int, default=6000)
    options = parser.parse_args()
    problem = garnet(np.random.default_rng(1), 6, 3, 2)
    rng = np.random.default_rng(0)
    logs = simulate_logs(problem.mdp, problem.mu, STEPS, options.trajectories, rng)
    ask: dict[str, Any] = {"discount": DISCOUNT, "interval": None}
    print("| estimate | covshift | peer | difference |")
    print("|---|---:|---:|---:|")
    for name, theirs in scope_rl(problem, logs).items():
        ours = evaluate_policy(logs, problem.pi, estimator=name, **ask).value
        print(f"| {name} (scope-rl) | {ours:.6f} | {theirs:.6f} | {abs(ours - theirs):.1e} |")
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    best = problem.pi.argmax(axis=1)
    greedy = Problem(problem.mdp, np.eye(3)[best], problem.mu)
    ours = evaluate_policy(logs, greedy.pi, estimator="fqe", **ask).value
    theirs = d3rlpy_fqe(logs, best, options.updates)
    print(f"| fqe (d3rlpy) | {ours:.3f} | {theirs:.3f} | {abs(ours - theirs):.3f} |")
    print(f"\nexact value of the greedy policy: {true_value(greedy, DISCOUNT):.3f}")


if __name__ == "__main__":
    main()
