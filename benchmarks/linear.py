"""Updates a second of linear discounted COP-TD: many seeds as arrays against a loop over seeds.

    python benchmarks/linear.py [--seeds 1000] [--steps 2000] [--features 8] [--repeats 5]

The peer is the plain loop that one would write for a single seed: NumPy vectors, one update at a
time, one seed after the other. All sides read the same transitions and are checked to agree.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from covshift.learners import LinearRatio, constant, train
from covshift.theory.examples import garnet
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense

RATIO_DISCOUNT, STEP_SIZE = 0.99, 0.01


def batched(
    learner: LinearRatio, transitions: list[Transition], num_seeds: int
) -> tuple[float, Dense]:
    state = learner.init(num_seeds)
    start = time.perf_counter()
    train(learner, state, transitions, observe=lambda _: None, every=len(transitions))
    return num_seeds * len(transitions) / (time.perf_counter() - start), state.w


def looped(
    phi: Dense, rho: Dense, transitions: list[Transition], num_seeds: int
) -> tuple[float, Dense]:
    weights = np.zeros((num_seeds, phi.shape[1]))
    start = time.perf_counter()
    for seed in range(num_seeds):
        w = weights[seed]
        for transition in transitions:
            s_tm1, a_tm1, s_t = transition.s_tm1[seed], transition.a_tm1[seed], transition.s_t[seed]
            target = RATIO_DISCOUNT * rho[s_tm1, a_tm1] * (phi[s_tm1] @ w) + (1.0 - RATIO_DISCOUNT)
            w += STEP_SIZE * (target - phi[s_t] @ w) * phi[s_t]
    return num_seeds * len(transitions) / (time.perf_counter() - start), weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    problem = garnet(rng, 50, 4, 3)
    phi = np.column_stack([np.ones(50), 0.3 * rng.standard_normal((50, options.features - 1))])
    learner = LinearRatio(phi, problem.rho, RATIO_DISCOUNT, constant(STEP_SIZE))
    transitions = list(simulate(problem.mdp, problem.mu, options.steps, options.seeds, rng))
    single = [Transition._make(field[:1] for field in step) for step in transitions]

    loop_seeds = min(10, options.seeds)
    rates: dict[str, list[float]] = {"loop": [], "one": [], "many": []}
    for _ in range(options.repeats):
        rate, by_loop = looped(phi, problem.rho, transitions, loop_seeds)
        rates["loop"].append(rate)
        rate, by_one = batched(learner, single, 1)
        rates["one"].append(rate)
        rate, by_many = batched(learner, transitions, options.seeds)
        rates["many"].append(rate)
    np.testing.assert_allclose(by_many[:loop_seeds], by_loop, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(by_one[0], by_loop[0], rtol=1e-8, atol=1e-12)

    peer = median(rates["loop"])
    print(
        f"50 states, {options.features} features, {options.steps} steps, {options.repeats} repeats\n"
    )
    print("| side | updates/s (median) | over the loop |")
    print("|---|---:|---:|")
    print(f"| Python loop, seed by seed | {peer:,.0f} | 1.0 |")
    print(f"| learner, 1 seed | {median(rates['one']):,.0f} | {median(rates['one']) / peer:.2f} |")
    many = median(rates["many"])
    print(f"| learner, {options.seeds} seeds as arrays | {many:,.0f} | {many / peer:.1f} |")


if __name__ == "__main__":
    main()
