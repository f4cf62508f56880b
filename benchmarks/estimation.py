"""Seconds and memory of ratio estimates from a dataset on disk, at growing numbers of transitions.

    python benchmarks/estimation.py [--transitions 10000000] [--states 1000] [--features 32] [--replicates-only]

Writes one shard of a long random walk to a temporary folder and lists it as often as needed, so that the
rows are streamed from a memory-mapped file. Five estimates are timed:

- tabular: the exact ratio of the empirical model;
- features: least squares on random features of the state;
- features, all in memory: the same written by hand, as matrix products of all rows; its answer must agree;
- tabular, with all diagnostics: the whole of `estimate_ratio` with its held-out fit;
- features by matching: the matching loss on the same features, in several passes over the data.

Then values with 200 bootstrap replicates, by all estimators of a discounted value: `covshift estimate value` on a million
transitions of the taxi, as a table, and on 5 000 transitions of MinAtar's Breakout. The point estimates alone are timed too,
and a replicate as a pass of its own over reweighted data, which was the way before replicates were computed together.

Each of the first five runs in a process of its own, whose peak memory is shown. The libraries and the store's small columns
(about 30 bytes per row) are part of it in every case.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from covshift.data.import_export import import_npz
from covshift.data.manifest import read_codec, read_manifest
from covshift.data.store import Store
from covshift.estimation import ESTIMATORS, compare_estimators, estimate_ratio, simulate_logs
from covshift.estimation.estimand import Estimand
from covshift.estimation.estimators import estimators_of
from covshift.estimation.experience import Experience
from covshift.estimation.features import Table as FeatureTable
from covshift.estimation.features import Tabular
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.inputs import from_store
from covshift.estimation.policies import as_policy
from covshift.estimation.problem import RatioProblem
from covshift.experiments.estimation.domains import taxi_domain
from covshift.experiments.estimation.games import breakout_domain
from covshift.experiments.estimation.sweep import Domain
from covshift.theory.examples import line_chain
from covshift.theory.simulation import simulate

RATIO_DISCOUNT = 0.99
SHARD = 250_000
PEER_MOST = 4_000_000
"""Largest size for the version by hand, which otherwise needs more memory than most machines have."""

SIDES = (
    "tabular, streamed",
    "features, streamed",
    "features, all in memory",
    "tabular, with all diagnostics",
    "features by matching, streamed",
)


def write_shard(folder: Path, num_states: int) -> None:
    problem = line_chain(num_states, pi_right=0.52)
    streams = 250
    blocks = simulate(problem.mdp, problem.mu, SHARD // streams, streams, np.random.default_rng(0))
    s, a, r, t = (np.concatenate(c).T for c in list(zip(*blocks, strict=True))[:4])
    states = np.concatenate([s, t[:, -1:]], axis=1)
    ends = np.zeros(states.shape, dtype=bool)
    ends[:, -1] = True
    actions = np.concatenate([a, np.zeros((streams, 1), dtype=a.dtype)], axis=1)
    np.savez(
        folder / "walk.npz",
        observations=states.ravel().astype(np.int32),
        actions=actions.ravel(),
        rewards=np.concatenate([np.zeros((streams, 1)), r], axis=1).ravel(),
        terminated=np.zeros(states.size, dtype=bool),
        truncated=ends.ravel(),
        mu=problem.mu[states, actions].ravel(),
    )
    import_npz(folder / "walk.npz", folder / "walk")


def estimate(folder: Path, side: str, transitions: int, num_states: int, num_features: int) -> None:
    """Prints seconds and megabytes of one estimate."""
    manifest = read_manifest(folder / "walk")
    paths = [folder / "walk" / manifest["shards"][0]["file"]] * (transitions // SHARD)
    store = Store.of_shards(paths, read_codec(folder / "walk", manifest), 1, 2)
    problem = line_chain(num_states, pi_right=0.52)
    phi = np.random.default_rng(0).standard_normal((num_states, num_features))
    phi[:, 0] = 1.0
    logs = from_store(store)

    start = time.perf_counter()
    if side == SIDES[3]:
        w = estimate_ratio(logs, problem.pi, ratio_discount=RATIO_DISCOUNT).sample
    elif side == SIDES[2]:
        states = logs.states()
        x_tm1, x_t = phi[states], phi[logs.next_states()]
        rho = problem.pi[states, logs.action] / np.asarray(logs.mu)
        a = x_tm1.T @ x_tm1 - RATIO_DISCOUNT * (x_t.T @ (rho[:, None] * x_tm1))
        w = np.linalg.solve(a, (1.0 - RATIO_DISCOUNT) * x_tm1.sum(axis=0))
        w /= x_tm1.mean(axis=0) @ w  # The mean of c over the data is 1.
    else:
        features = Tabular(num_states) if side == SIDES[0] else FeatureTable(phi)
        experience = Experience(logs, as_policy(problem.pi, 2), features)
        asked = RatioProblem(experience, RATIO_DISCOUNT, "continuing")
        methods = {SIDES[0]: "empirical", SIDES[4]: "matching"}
        found = fit_ratio(asked, methods.get(side, "least-squares"))
        w = next(iter(found.arrays().values()))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert np.isfinite(w).all()
    print(f"{seconds:.3f} {peak / 1024:.0f} {np.abs(w).sum():.9g}")


def neural_rate(updates: int = 500) -> float:
    """Updates per second of the method `neural`, batches of 256, on 50 000 transitions of a chain."""
    problem = line_chain(20)
    logs = simulate_logs(problem.mdp, problem.mu, 500, 100, np.random.default_rng(0))

    def seconds(count: int) -> float:
        start = time.perf_counter()
        estimate_ratio(
            logs, problem.pi, ratio_discount=0.9, method="neural", held_out=0.0, num_updates=count
        )
        return time.perf_counter() - start

    seconds(10)
    # The difference of two runs leaves out the time that does not depend on the number of updates.
    return updates / (seconds(2 * updates) - seconds(updates))


def time_replicates(replicates: int = 200) -> None:
    """Prints CPU seconds of point estimates, of all replicates together, and of one replicate by a pass of its own."""
    print(
        f"\n| all estimators | CPU seconds, point | with {replicates} replicates | one pass per replicate |"
    )
    print("|---|---:|---:|---:|")
    warnings.simplefilter("ignore")
    cases: list[tuple[Domain, int]] = [(taxi_domain(), 1_000_000), (breakout_domain(1), 5_000)]
    for domain, size in cases:
        logs = domain.logs(size, np.random.default_rng(0))
        policy = domain.policy(0.5)
        seconds = []
        for interval in (None, 0.95):
            start = time.process_time()
            compare_estimators(
                logs, policy, discount=domain.discount, interval=interval, replicates=replicates
            )
            seconds.append(time.process_time() - start)
        start = time.process_time()
        weights = np.random.default_rng(0).exponential(size=len(logs))
        estimand = Estimand("discounted", domain.discount)
        for name in estimators_of("discounted"):
            # A fresh start for each estimator, with nothing shared between them.
            experience = Experience.of(logs, policy).reweighted(weights)
            ESTIMATORS[name].estimate(experience, estimand)
        alone = replicates * (time.process_time() - start)
        print(
            f"| {domain.title}, {logs.num_transitions:,} | {seconds[0]:.1f} | {seconds[1]:.1f} | {alone:,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transitions", type=int, default=10_000_000)
    parser.add_argument("--states", type=int, default=1_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--replicates-only", action="store_true")
    parser.add_argument("--child", nargs=3, default=None)
    options = parser.parse_args()
    if options.replicates_only:
        time_replicates()
        return
    if options.child:
        folder, side, transitions = options.child
        estimate(Path(folder), side, int(transitions), options.states, options.features)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder), options.states)
        print(f"{options.states} states, {options.features} features, γ̂ = {RATIO_DISCOUNT}\n")
        print("| estimate | transitions | seconds | M transitions/s | peak memory, MB |")
        print("|---|---:|---:|---:|---:|")
        shares = (options.transitions // 16, options.transitions // 4, options.transitions)
        sizes = sorted({max(SHARD, size // SHARD * SHARD) for size in shares})
        answers: dict[int, dict[str, float]] = {}
        for side in SIDES:
            for size in sizes:
                if side == SIDES[2] and size > PEER_MOST:
                    continue
                command = [sys.executable, __file__, "--child", folder, side, str(size)]
                command += ["--states", str(options.states), "--features", str(options.features)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                seconds, peak, answer = (float(word) for word in done.stdout.split())
                answers.setdefault(size, {})[side] = answer
                rate = size / seconds / 1e6
                print(f"| {side} | {size:,} | {seconds:.2f} | {rate:.2f} | {peak:,.0f} |")
        for by_side in answers.values():
            if set(SIDES[1:3]) <= set(by_side):
                np.testing.assert_allclose(by_side[SIDES[1]], by_side[SIDES[2]], rtol=1e-5)
    time_replicates()
    print(
        f"\nneural: {neural_rate():,.0f} updates/s, batches of 256, two hidden layers of 128 units"
    )


if __name__ == "__main__":
    main()
