"""Exact d_μ, V^π and c on sparse gridworlds, beside plain iteration of the same operators.

    python benchmarks/theory.py [--sides 100 316 1000] [--repeats 3] [--cap 300]
    python benchmarks/theory.py --policies [--sides 1000]

Each size runs in a process of its own, so that its peak memory can be measured, and alternates the two ways. Both
run until the L1 residual is at most 1e-8; times are CPU time, which other load on the machine spoils least. Plain iteration is stopped at the cap, which makes the ratio a lower bound,
and a capped iteration is not repeated. For c the residual is that of d_μ·c, a distribution.

With --policies, several policies on one grid are solved as the library does it and by a factorization at every size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Container
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from covshift.theory import BellmanOperator, CopOperator, chain
from covshift.theory.examples import Problem, open_grid
from covshift.validation import Dense, Vector

TOLERANCE = 1e-8
DISCOUNT = 0.99
QUANTITIES = ("d_mu", "value", "ratio")


def solve(side: int) -> tuple[dict[str, float], dict[str, float], Vector]:
    """Seconds and residual of each quantity by the library; value and ratio share a factorization or a hierarchy."""
    problem = open_grid(side)
    chain_mu, chain_pi = problem.chain_mu, problem.chain_pi
    seconds, residual = {}, {}

    start = time.process_time()
    d_mu = chain_mu.stationary()
    seconds["d_mu"] = time.process_time() - start
    residual["d_mu"] = float(np.abs(chain_mu.push(d_mu) - d_mu).sum())

    start = time.process_time()
    bellman = BellmanOperator(chain_pi, problem.mdp.r_pi(problem.pi), DISCOUNT)
    value = bellman.fixed_point()
    seconds["value"] = time.process_time() - start
    residual["value"] = float(np.abs(bellman.apply(value) - value).sum())

    start = time.process_time()
    operator = CopOperator(chain_pi, d_mu, DISCOUNT)
    c = operator.fixed_point()
    seconds["ratio"] = time.process_time() - start
    residual["ratio"] = float(np.abs(d_mu * (operator.apply(c) - c)).sum())
    return seconds, residual, d_mu


def iterate(
    side: int, d_mu: Vector, cap: float, skip: Container[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """The same by applying each operator until its residual is small or the cap is reached."""
    problem = open_grid(side)
    size = problem.mdp.num_states
    back_mu, back_pi = (sp.csr_array(chain.p.T) for chain in (problem.chain_mu, problem.chain_pi))
    forward, reward = problem.chain_pi.p, problem.mdp.r_pi(problem.pi)
    steps: dict[str, tuple[Callable[[Vector], Vector], Vector]] = {
        "d_mu": (lambda x: back_mu @ x, np.full(size, 1.0 / size)),
        "value": (lambda x: reward + DISCOUNT * (forward @ x), np.zeros(size)),
        "ratio": (lambda x: DISCOUNT * (back_pi @ x) + (1.0 - DISCOUNT) * d_mu, d_mu),
    }
    seconds, residual = {}, {}
    for name, (apply, x) in steps.items():
        if name in skip:
            continue
        start, residual[name] = time.process_time(), np.inf
        while residual[name] > TOLERANCE and time.process_time() - start < cap:
            for _ in range(10):
                before, x = x, apply(x)
            residual[name] = float(np.abs(x - before).sum())
        seconds[name] = time.process_time() - start
    return seconds, residual


def measure(side: int, repeats: int, cap: float) -> dict[str, Any]:
    ours: list[dict[str, float]] = []
    plain: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    residuals: dict[str, float] = {}
    reached: dict[str, float] = {}
    for _ in range(repeats):
        seconds, residuals, d_mu = solve(side)
        ours.append(seconds)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        capped = [name for name, residual in reached.items() if residual > TOLERANCE]
        seconds, residual = iterate(side, d_mu, cap, capped)
        reached |= residual
        for name, value in seconds.items():
            plain[name].append(value)
    return {
        "states": side * side,
        "ours": {name: median(row[name] for row in ours) for name in QUANTITIES},
        "plain": {name: median(plain[name]) for name in QUANTITIES},
        "residual": residuals,
        "reached": reached,
        "memory": memory,
    }


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"\nγ = γ̂ = {DISCOUNT}; seconds of CPU time (medians), residuals in L1, peak memory of our side in GiB\n"
    )
    print("| states | quantity | ours | residual | plain iteration | residual | plain / ours |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for row in rows:
        total_ours, total_plain = sum(row["ours"].values()), sum(row["plain"].values())
        capped = {name: row["reached"][name] > TOLERANCE for name in QUANTITIES}
        for name in QUANTITIES:
            sign = "> " if capped[name] else ""
            print(
                f"| {row['states']} | {name} | {row['ours'][name]:.2f} | {row['residual'][name]:.0e} "
                f"| {sign}{row['plain'][name]:.2f} | {row['reached'][name]:.0e} "
                f"| {sign}{row['plain'][name] / max(row['ours'][name], 1e-9):.1f} |"
            )
        sign = "> " if any(capped.values()) else ""
        print(
            f"| {row['states']} | **all, {row['memory']:.2f} GiB** | **{total_ours:.2f}** | "
            f"| **{sign}{total_plain:.2f}** | | **{sign}{total_plain / total_ours:.1f}** |"
        )
    for before, after in pairwise(rows):
        growth = np.log(sum(after["ours"].values()) / sum(before["ours"].values()))
        exponent = growth / np.log(after["states"] / before["states"])
        print(
            f"\n{before['states']} to {after['states']} states: time grows as n^{exponent:.2f}",
            end="",
        )
    print()


def other_policies(problem: Problem) -> dict[str, Dense]:
    """Policies with and without a drift and a pattern."""
    size, rng = problem.mdp.num_states, np.random.default_rng(0)
    best = np.eye(4)[problem.pi.argmax(axis=1)]
    return {
        "uniform": problem.mu,
        "to the goal, ε = 0.5": 0.5 * best + 0.5 * problem.mu,
        "a random action in each state, ε = 0.1": 0.9 * np.eye(4)[rng.integers(0, 4, size)]
        + 0.1 * problem.mu,
        "random probabilities in each state": rng.dirichlet(np.ones(4), size),
    }


def compare_policies(side: int) -> None:
    """Prints the CPU time of all three quantities both ways, and how much they differ."""
    problem = open_grid(side)
    size, large = problem.mdp.num_states, chain._LARGE
    print(
        "| policy | now, s | factorized, s | d differs by | V | d̂ |\n|---|---:|---:|---:|---:|---:|"
    )
    for name, policy in other_policies(problem).items():
        found, seconds = [], []
        for limit in (large, size + 1):
            chain._LARGE, start = limit, time.process_time()
            one = problem.mdp.chain(policy)
            resolvent = one.resolvent(DISCOUNT)
            values = resolvent.solve(problem.mdp.r_pi(policy))
            found.append(
                (one.stationary(), values, resolvent.solve_transposed(np.full(size, 1.0 / size)))
            )
            seconds.append(time.process_time() - start)
        (d, v, x), (d_lu, v_lu, x_lu) = found
        # A drift takes some states below the smallest number, to 0 both ways.
        differ = [
            (np.abs(d - d_lu) / np.where(d_lu > 0, d_lu, 1)).max(),
            np.abs(v - v_lu).max() / np.abs(v_lu).max(),
            np.abs(x / x_lu - 1).max(),
        ]
        cells = " | ".join([*(f"{s:.1f}" for s in seconds), *(f"{e:.0e}" for e in differ)])
        print(f"| {name} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sides", type=int, nargs="+", default=[100, 316, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cap", type=float, default=300.0, help="seconds for each plain iteration")
    parser.add_argument("--policies", action="store_true", help="compare policies on one grid")
    parser.add_argument("--one", action="store_true", help="measure one size and print JSON")
    options = parser.parse_args()
    if options.policies:
        compare_policies(options.sides[-1])
        return
    if options.one:
        print(json.dumps(measure(options.sides[0], options.repeats, options.cap)))
        return
    rows = []
    for side in options.sides:
        print(f"{side} × {side} …", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--one", "--sides", str(side)]
        command += ["--repeats", str(options.repeats), "--cap", str(options.cap)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout))
    show(rows)


if __name__ == "__main__":
    main()
