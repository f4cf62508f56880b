"""Agent steps a second of `collect`, over what the bare vector environment does in the same run.

    python benchmarks/collect.py [--env ALE/Pong-v5] [--transitions 262144] [--repeats 3]

Bare: ALE's vector environment with the same protocol and 8 streams, uniform actions, nothing kept. Ours:
the whole of `collect` into a temporary folder, with dictionary, compression, checksums and files; the
rate counts the transitions that are kept. Sides alternate; medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from covshift.config.environment import EnvOptions
from covshift.data.collection import Request, collect
from covshift.envs import make_streams, step_streams


def bare(env: str, transitions: int, num_streams: int = 8) -> float:
    streams = make_streams(env, EnvOptions(), num_streams)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    streams.reset(np.arange(num_streams))
    for _ in range(transitions // num_streams):
        step_streams(streams, rng.integers(0, streams.num_actions, num_streams))
    rate = transitions / (time.perf_counter() - start)
    streams.close()
    return rate


def ours(env: str, transitions: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        collect(Request(env, transitions), Path(folder), progress=lambda _: None)
        return transitions / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--transitions", type=int, default=262_144)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"bare": [], "collect": []}
    for _ in range(options.repeats):
        rates["bare"].append(bare(options.env, options.transitions))
        rates["collect"].append(ours(options.env, options.transitions))
    print(f"{options.env}, {options.transitions} transitions, {options.repeats} repeats\n")
    print("| side | agent steps/s (median) | over bare |")
    print("|---|---:|---:|")
    for side, values in rates.items():
        print(f"| {side} | {median(values):,.0f} | {median(values) / median(rates['bare']):.2f} |")


if __name__ == "__main__":
    main()
