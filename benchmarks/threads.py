"""One thread against one per core: updates, and steps of an evaluation, alone and beside busy processes.

    python benchmarks/threads.py [--rounds 5]

A parallel loop of torch ends when its slowest thread does, and on a busy machine one of them waits for a core. So a small
network takes one thread by default, and so do the few states of a step on any network. Both sides take turns in one
process, round after round, and the medians of the rounds are given.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.collection import Request, collect
from covshift.records import RunFolder
from covshift.runs import evaluation
from covshift.runs.launch import start_or_resume

GAMES = {
    "MinAtar": ("MinAtar/Breakout-v1", "smoke", {}),
    "small frames": ("ALE/Pong-v5", "atari", {"transitions": 5_000, "window": 5_000}),
    "Nature": ("ALE/Pong-v5", "smoke", {}),
}
"""Environment, scale and other settings of each network."""

TIMES = {"MinAtar": (100, 200), "small frames": (10, 100), "Nature": (5, 30)}
"""Updates and steps of each network that are timed at once."""

STREAMS = 16


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cores = os.cpu_count() or 1
    table = Table("what", "beside", "one thread, ms", f"{cores} threads, ms", f"{cores} / one")
    with tempfile.TemporaryDirectory() as folder:
        for network in GAMES:
            for what, work in pieces_of_work(network, Path(folder) / network).items():
                for busy in (0, cores):
                    with busy_processes(busy):
                        seconds = [
                            {count: timed(work, count) for count in (1, cores)}
                            for _ in range(rounds)
                        ]
                    one, all_cores = (
                        statistics.median(each[count] for each in seconds) for count in (1, cores)
                    )
                    ratio = statistics.median(each[cores] / each[1] for each in seconds)
                    beside = f"{busy} busy processes" if busy else "nothing"
                    row = (what, beside, f"{1e3 * one:.2f}", f"{1e3 * all_cores:.2f}")
                    table.add_row(*row, f"{ratio:.2f}")
    Console(width=100).print(table)


def pieces_of_work(network: str, folder: Path) -> dict[str, Callable[[], float]]:
    """An update of the corrected agent, and a prediction for the states of one step; each returns seconds per piece."""
    env, scale, others = GAMES[network]
    num_updates, num_steps = TIMES[network]
    config = make_config(env, "c51-corrected", scale, num_updates=10**6, **others)
    collect(Request(env, 5_000, options=config.environment), folder / "data")
    runtime = RuntimeOptions(threads=1)
    trainer = start_or_resume(
        RunFolder(folder / "run"), config, str(folder / "data"), runtime, print
    )
    policy = evaluation.AgentPolicy(trainer.learner.network, trainer.learner.support, 0.0)
    store = trainer.replay.source.store
    states = store.states(np.flatnonzero(store.is_state)[:STREAMS])

    def updates() -> float:
        began = time.perf_counter()
        for _ in range(num_updates):
            trainer.step()
        return (time.perf_counter() - began) / num_updates

    def steps() -> float:
        began = time.perf_counter()
        with torch.no_grad():
            for _ in range(num_steps):
                policy._predict(states)
        return (time.perf_counter() - began) / num_steps

    for _ in range(2):
        updates()  # The first hundred are recorded, which takes long.
    return {f"{network}, update": updates, f"{network}, {STREAMS} states": steps}


def timed(work: Callable[[], float], threads: int) -> float:
    """Seconds of a piece of work with so many threads."""
    torch.set_num_threads(threads)
    return work()


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that compute without end."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
