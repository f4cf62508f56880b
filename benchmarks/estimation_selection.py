"""Errors of `estimator="auto"` beside each fixed choice, and beside a blend by bootstrapped error.

    python benchmarks/estimation_selection.py [--datasets 20] [--replicates 40] [--domains garnet,rooms,taxi,desk,cartpole]
                                              [--sizes 500,2000]

For each domain the median error over datasets, divided by what is at stake, |J(π) - J(μ)|. "best fixed" is the candidate with the
smallest median over these datasets, which nobody knows beforehand. The blend weighs the candidates so that the bootstrapped
squared error of their weighted mean is smallest (OPERA, Nie et al., 2024).
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.selection import candidates, select
from covshift.estimation.values import evaluate_experience
from covshift.validation import Dense, Vector
from estimation_coverage import DOMAINS


def main() -> None:
    """Prints one line per domain and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--domains", default=",".join(DOMAINS))
    parser.add_argument("--sizes", default="500,2000")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| domain | transitions | best fixed | its error | `dr` | `auto` | blend | `auto` / best | chosen |\n"
        "|---|---:|---|---:|---:|---:|---:|---:|---|"
    )
    started = time.process_time()
    for name in options.domains.split(","):
        make, distance = DOMAINS[name]
        domain = make()
        truth, old = (domain.truth(d, average=False) for d in (distance, 0.0))
        estimand = Estimand("discounted", domain.discount)
        for size in map(int, options.sizes.split(",")):
            errors: dict[str, list[float]] = {}
            picked: dict[str, int] = {}
            for seed in range(options.datasets):
                logs = domain.logs(size, np.random.default_rng([seed, size]))
                policy = domain.policy(distance)
                values, draws = {}, []
                for one in candidates(logs, policy, estimand):
                    key = f"{one.estimator}, {one.features}"
                    try:
                        found = evaluate_experience(
                            one.experience, one.estimand, one.estimator, 0.9, options.replicates, seed, 0.0
                        )  # fmt: skip
                    except InputError:
                        continue
                    values[key] = found.value
                    draws.append(found.replicates - found.value)
                _, _, selection = select(logs, policy, estimand, seed=seed)
                key = f"{selection.chosen.estimator}, {selection.chosen.features}"
                picked[key] = picked.get(key, 0) + 1
                made = values | {"auto": values[key]}
                made["blend"] = float(blend(np.array(draws)) @ np.array([*values.values()]))
                for what, value in made.items():
                    errors.setdefault(what, []).append(abs(value - truth) / abs(truth - old))
            medians = {what: float(np.median(e)) for what, e in errors.items()}
            fixed = {w: m for w, m in medians.items() if w not in ("auto", "blend")}
            best = min(fixed, key=lambda what: fixed[what])
            shown = ", ".join(f"{count} × {key}" for key, count in picked.items())
            print(
                f"| {name} | {size:,} | {best} | {fixed[best]:.3f} | {next(iter(fixed.values())):.3f} | {medians['auto']:.3f} | "
                f"{medians['blend']:.3f} | {medians['auto'] / fixed[best]:.2f} | {shown} |",
                flush=True,
            )
    print(f"{time.process_time() - started:.0f} CPU seconds")


def blend(errors: Dense) -> Vector:
    """argmin αᵀAα with Σα = 1, where A are the mean products of bootstrapped errors, candidates × replicates."""
    errors = errors[:, np.isfinite(errors).all(axis=0)]
    a = errors @ errors.T / errors.shape[1]
    a += 1e-3 * np.trace(a) / len(a) * np.eye(len(a))
    alpha = np.linalg.solve(a, np.ones(len(a)))
    return np.asarray(alpha / alpha.sum())


if __name__ == "__main__":
    main()
