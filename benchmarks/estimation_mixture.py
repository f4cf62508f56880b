"""Spread of estimates from data of several policies: each row's own μ beside the balanced denominator.

    python benchmarks/estimation_mixture.py [--datasets 40]

Half of the trajectories of each dataset are logged by the domain's behavior policy, half by a policy that takes its target policy's
action in 80 % of steps. π is halfway between behavior and target policy. The error is the root mean square over datasets, divided by |J(π) - J(μ)|.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from covshift.estimation import balanced_behavior, evaluate_policy, from_trajectories
from covshift.experiments.estimation.domains import four_rooms_domain, garnet_domain, taxi_domain


def main() -> None:
    """Prints one line per domain and estimator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", type=int, default=40)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| domain | estimator | own μ | balanced | E[ρ²], own | E[ρ²], balanced |\n|---|---|---:|---:|---:|---:|"
    )
    for domain in (garnet_domain(), four_rooms_domain(), taxi_domain()):
        policies = [domain.policy(0.0), domain.policy(0.8)]
        other = replace(domain, problem=replace(domain.problem, mu=policies[1]))
        target = domain.policy(0.5)
        # Episodes of both start alike; a continuing problem starts from where each policy goes.
        truth, old = (domain.truth(d, average=True) for d in (0.5, 0.0))
        errors: dict[str, list[tuple[float, float]]] = {"mis-sn": [], "dr": []}
        moments = []
        for seed in range(options.datasets):
            rng = np.random.default_rng(seed)
            parts = [one.logs(1000, rng) for one in (domain, other)]
            logs = from_trajectories([*parts[0], *parts[1]], num_actions=parts[0].num_actions)
            which = np.repeat([0, 1], [len(part) for part in parts])
            mu_bar = balanced_behavior(logs, policies, which)
            taken = target[logs.states(), logs.action]
            moments.append([((taken / mu) ** 2).mean() for mu in (np.asarray(logs.mu), mu_bar)])
            for name, made in errors.items():
                own, balanced = (
                    evaluate_policy(
                        logs, target, estimator=name, behavior=mu, objective="average", interval=None,
                        held_out=0.0,
                    ).value - truth
                    for mu in (None, mu_bar)
                )  # fmt: skip
                made.append((own, balanced))
        for name, made in errors.items():
            own, balanced = np.sqrt(np.mean(np.square(made), axis=0)) / abs(truth - old)
            first, second = np.mean(moments, axis=0)
            print(f"| {domain.title} | `{name}` | {own:.3f} | {balanced:.3f} | {first:.2f} | {second:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
