"""Updates per second of online discounted COP-TD: the compiled learners against a plain Python loop.

    python benchmarks/linear.py [--seeds 1000] [--steps 100000] [--features 8] [--repeats 5]

The peer is the plain loop that one would write for a single seed: one update at a time, NumPy vectors for linear
features and lists for a table. For many seeds the second peer is `step`, which does one transition of all seeds in
NumPy. All sides read the same transitions, take turns, and are checked to agree. What is compiled is ready before the
first measurement.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from covshift.learners import LinearRatio, TabularRatio, constant, train
from covshift.theory.examples import garnet
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense

RATIO_DISCOUNT, STEP_SIZE = 0.99, 0.01


def learned(learner: Any, blocks: list[Transition], num_seeds: int) -> Dense:
    state = learner.init(num_seeds)
    steps = sum(len(block.s_t) for block in blocks)
    train(learner, state, blocks, observe=lambda _: None, every=steps)
    return np.asarray(learner.ratio(state))


def stepped(learner: Any, blocks: list[Transition], num_seeds: int) -> Dense:
    state = learner.init(num_seeds)
    for block in blocks:
        for transition in block.steps():
            learner.step(state, transition)
    return np.asarray(learner.ratio(state))


def looped_linear(phi: Dense, rho: Dense, one: Transition) -> Dense:
    w = np.zeros(phi.shape[1])
    for s_tm1, a_tm1, s_t in zip(one.s_tm1[:, 0], one.a_tm1[:, 0], one.s_t[:, 0], strict=True):
        target = RATIO_DISCOUNT * rho[s_tm1, a_tm1] * (phi[s_tm1] @ w) + (1.0 - RATIO_DISCOUNT)
        w += STEP_SIZE * (target - phi[s_t] @ w) * phi[s_t]
    return np.asarray(phi @ w)


def looped_table(rho: Dense, one: Transition) -> Dense:
    c, table = [1.0] * len(rho), rho.tolist()
    columns = (column[:, 0].tolist() for column in (one.s_tm1, one.a_tm1, one.s_t))
    for s_tm1, a_tm1, s_t in zip(*columns, strict=True):
        target = RATIO_DISCOUNT * table[s_tm1][a_tm1] * c[s_tm1] + (1.0 - RATIO_DISCOUNT)
        c[s_t] += STEP_SIZE * (target - c[s_t])
    return np.array(c)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    problem = garnet(rng, 50, 4, 3)
    phi = np.column_stack([np.ones(50), 0.3 * rng.standard_normal((50, options.features - 1))])
    linear = LinearRatio(phi, problem.rho, RATIO_DISCOUNT, constant(STEP_SIZE))
    table = TabularRatio(problem.rho, RATIO_DISCOUNT, constant(STEP_SIZE))
    # Many seeds take fewer steps, which already are more updates than one seed's.
    fewer = options.steps // 50
    many = list(simulate(problem.mdp, problem.mu, fewer, options.seeds, rng))
    single = list(simulate(problem.mdp, problem.mu, options.steps, 1, rng))
    one = Transition._make(np.concatenate(columns) for columns in zip(*single, strict=True))

    def sides(
        learner: Any, loop: Callable[[], Dense]
    ) -> dict[str, tuple[int, Callable[[], Dense]]]:
        count = options.seeds
        return {
            "Python loop, 1 seed": (options.steps, loop),
            "learner, 1 seed": (options.steps, lambda: learned(learner, single, 1)[0]),
            f"NumPy `step`, {count} seeds": (fewer * count, lambda: stepped(learner, many, count)),
            f"learner, {count} seeds": (fewer * count, lambda: learned(learner, many, count)),
        }

    kinds = {
        f"linear, {options.features} features": sides(
            linear, lambda: looped_linear(phi, problem.rho, one)
        ),
        "table": sides(table, lambda: looped_table(problem.rho, one)),
    }
    print(f"50 states, {options.steps} steps, medians of {options.repeats} alternating runs\n")
    print("| ratio | side | updates/s | over the loop |")
    print("|---|---|---:|---:|")
    for kind, ways in kinds.items():
        found = {name: run() for name, (_, run) in ways.items()}
        loop, compiled, by_steps, of_many = found.values()
        np.testing.assert_allclose(compiled, loop, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(of_many, by_steps, rtol=1e-8, atol=1e-12)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.repeats):
            for name, (updates, run) in ways.items():
                start = time.perf_counter()
                run()
                rates[name].append(updates / (time.perf_counter() - start))
        peer = median(rates["Python loop, 1 seed"])
        for name, measured in rates.items():
            print(f"| {kind} | {name} | {median(measured):,.0f} | {median(measured) / peer:.1f} |")


if __name__ == "__main__":
    main()
