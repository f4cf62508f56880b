"""How often 90 % intervals hold the true value, over many datasets, and how often the flag is `ok`.

    python benchmarks/estimation_coverage.py [--datasets 200] [--replicates 100] [--domains garnet,rooms,taxi,desk,cartpole]
                                             [--sizes 500,2000]

Each dataset is a new draw of the behavior policy. The policy to evaluate is halfway to the target policy of the domain; that of
the help desk is the target policy itself. States of the first three domains are tables, the others are vectors with the default
features. `percentile` is the plain percentile interval from the same replicates.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from covshift.estimation import compare_estimators
from covshift.estimation.intervals import percentile_interval
from covshift.experiments.estimation.domains import four_rooms_domain, garnet_domain, taxi_domain
from covshift.experiments.estimation.games import cart_pole_domain
from estimation_features import HelpDesk

LEVEL = 0.9
DOMAINS: dict[str, tuple[Any, float]] = {
    "garnet": (garnet_domain, 0.5),
    "rooms": (four_rooms_domain, 0.5),
    "taxi": (taxi_domain, 0.5),
    "desk": (HelpDesk, 1.0),
    "cartpole": (lambda: cart_pole_domain(3000), 0.5),
}


def main() -> None:
    """Prints one line per domain, size and estimator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--domains", default=",".join(DOMAINS))
    parser.add_argument("--sizes", default="500,2000")
    parser.add_argument("--estimators", default="dr,dr-cf,pdis")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| domain | transitions | trajectories | estimator | error / stake | green | covered | covered if green | "
        "percentile | width / stake |\n|---|---:|---:|---|---:|---:|---:|---:|---:|---:|"
    )
    started = time.process_time()
    for name in options.domains.split(","):
        make, distance = DOMAINS[name]
        domain = make()
        truth, old = (domain.truth(d, average=False) for d in (distance, 0.0))
        for size in map(int, options.sizes.split(",")):
            rows: dict[str, list[tuple[float, ...]]] = {}
            for seed in range(options.datasets):
                logs = domain.logs(size, np.random.default_rng([seed, size]))
                found = compare_estimators(
                    logs, domain.policy(distance), discount=domain.discount, interval=LEVEL,
                    estimators=options.estimators.split(","), replicates=options.replicates, seed=seed,
                )  # fmt: skip
                for one in found.estimates:
                    plain = percentile_interval(one.replicates, LEVEL)
                    rows.setdefault(one.estimator, []).append((
                        one.value - truth, one.flag == "ok", one.low <= truth <= one.high,
                        plain[0] <= truth <= plain[1], one.high - one.low, len(logs),
                    ))  # fmt: skip
            for estimator, made in rows.items():
                error, green, covered, plain_covered, width, count = np.array(made, dtype=float).T
                among = covered[green > 0].mean() if green.any() else float("nan")
                stake = abs(truth - old)
                print(
                    f"| {name} | {size:,} | {np.median(count):.0f} | `{estimator}` | "
                    f"{np.sqrt(np.mean(error**2)) / stake:.2f} | {green.mean():.0%} | {covered.mean():.0%} | {among:.0%} | "
                    f"{plain_covered.mean():.0%} | {np.median(width) / stake:.2f} |",
                    flush=True,
                )
    print(f"{time.process_time() - started:.0f} CPU seconds")


if __name__ == "__main__":
    main()
