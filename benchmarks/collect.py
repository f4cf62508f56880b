"""Agent steps per second of `collect`, compared with the bare vector environment in the same run.

    python benchmarks/collect.py [--env ALE/Pong-v5] [--transitions 262144] [--repeats 3]

The bare side is ALE's vector environment with the same protocol, 8 streams and uniform actions; nothing is kept. Our
side is all of `collect` into a temporary folder, with dictionary, compression, checksums and files; its rate counts the
transitions that are kept. The sides take turns of 512 steps, so that other load on the machine slows both. Prints each
repeat as it is measured, and the medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from covshift.config.environment import EnvOptions
from covshift.data.collection import Request, collect
from covshift.envs import make_streams, step_streams

STREAMS, TURN = 8, 512


class Bare:
    """The bare environment, and the time it has taken."""

    def __init__(self, env: str, transitions: int) -> None:
        self._streams = make_streams(env, EnvOptions(), STREAMS)
        self._rng = np.random.default_rng(0)
        self._left = transitions // STREAMS
        self._calls = 0
        self.steps = 0
        start = time.perf_counter()
        self._streams.reset(np.arange(STREAMS))
        self.seconds = time.perf_counter() - start

    def take_turn(self, _: int) -> None:
        """Called at every step of the other side; every 512th call runs 512 steps of this side."""
        self._calls += 1
        if self._calls % TURN == 0 and self._left:
            self.run(min(TURN, self._left))

    def run(self, steps: int) -> None:
        """Runs this many steps, and adds up the time."""
        start = time.perf_counter()
        for _ in range(steps):
            actions = self._rng.integers(0, self._streams.num_actions, STREAMS)
            step_streams(self._streams, actions)
        self.seconds += time.perf_counter() - start
        self.steps += steps
        self._left -= steps

    def close(self) -> None:
        """Stops the emulators."""
        self._streams.close()


def rates(env: str, transitions: int) -> dict[str, float]:
    """Agent steps per second of both sides."""
    bare = Bare(env, transitions)
    alone = bare.seconds
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        collect(Request(env, transitions, envs=STREAMS), Path(folder), progress=bare.take_turn)
        ours = time.perf_counter() - start - (bare.seconds - alone)
    bare.close()
    return {"bare": bare.steps * STREAMS / bare.seconds, "collect": transitions / ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--transitions", type=int, default=262_144)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[float]] = {"bare": [], "collect": []}
    for _ in range(options.repeats):
        newest = rates(options.env, options.transitions)
        for side, rate in newest.items():
            found[side].append(rate)
        text = ", ".join(f"{rate:,.0f} {side}" for side, rate in newest.items())
        print(f"{text}: {newest['collect'] / newest['bare']:.3f}", file=sys.stderr, flush=True)
    print(f"{options.env}, {options.transitions} transitions, {options.repeats} repeats\n")
    ratio = median(ours / bare for ours, bare in zip(found["collect"], found["bare"], strict=True))
    print("| side | agent steps/s (median) | over bare |")
    print("|---|---:|---:|")
    print(f"| bare | {median(found['bare']):,.0f} | 1.00 |")
    print(f"| collect | {median(found['collect']):,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
