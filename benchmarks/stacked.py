"""Agent-updates a second of stacks of agents, beside one agent in each of as many processes.

    python benchmarks/stacked.py [--agents 8] [--processes 2] [--seconds 4] [--rounds 7]
    python benchmarks/stacked.py --agreement 1500

Corrected MinAtar agents with all that a run's update does: draws, gathering, the update, priorities. One side runs one
agent in each process, the other side a stack of agents in each process; every process has one thread. The sides take
turns, so that both meet the same machine, and the last line is the ratio of their medians. Ends with an error if that
is below 1.5. With --agreement, compares a run in a stack of two with the same run alone instead, for so many updates.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.collection import Request, collect
from covshift.data.store import Store
from covshift.records import RunFolder
from covshift.runs.launch import create_run, resume_run
from covshift.runs.stacks import run_stacked
from covshift.runs.training import Trainer

ENV, TRANSITIONS = "MinAtar/Breakout-v1", 100_000
LEAST = 1.5


class Worker:
    """A process with a few agents, which counts its updates while it is told to work."""

    def __init__(self, data: Path, out: Path, agents: int, preset: str) -> None:
        command = [sys.executable, __file__, "--worker", str(data), str(out), str(agents), preset]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | threads,
        )
        self.answer()

    def tell(self, seconds: float) -> None:
        """Lets it work for so long."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[float, float]:
        """Agent-updates a second, and milliseconds of processor time per agent-update."""
        assert self.process.stdout is not None
        rate, cost = self.process.stdout.readline().split()
        return float(rate), float(cost)

    def stop(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()


def work(data: str, out: str, agents: int, preset: str) -> None:
    """The other side of `Worker`."""
    torch.set_num_threads(1)
    stores: dict[str, Store] = {}
    with ExitStack() as closed:
        trainers = [
            closed.enter_context(
                closing(open_run(Path(out) / str(seed), data, preset, seed, stores))
            )
            for seed in range(agents)
        ]
        # A single agent is updated as in any lone run.
        updates = trainers[0].run() if agents == 1 else run_stacked(trainers, print)
        measure(lambda: next(updates), agents, 1.0)  # Warms up.
        print("0 0", flush=True)
        for line in sys.stdin:
            print(*measure(lambda: next(updates), agents, float(line)), flush=True)


def open_run(out: Path, data: str, preset: str, seed: int, stores: dict[str, Store]) -> Trainer:
    """A run that hardly evaluates."""
    short = {"evaluation_episodes": 1, "ratio_episodes": 1, "calibration_episodes": 0}
    config = make_config(
        ENV, preset, "small", seed=seed, evaluate_every=10**9, episode_cap=5, **short
    )
    folder = RunFolder(out)
    create_run(folder, config, data, RuntimeOptions(device="cpu", threads=1))
    return resume_run(folder, None, lambda _: None, stores=stores)


def show_agreement(data: Path, place: Path, preset: str, updates: int) -> None:
    """Prints how far the parameters of a run in a stack are from those of the same run alone."""
    stores: dict[str, Store] = {}
    first, second, lone = (
        open_run(place / name, str(data), preset, seed, stores)
        for name, seed in (("first", 0), ("second", 1), ("lone", 0))
    )
    stacked, alone = run_stacked([first, second], print), lone.run()
    next(alone)  # The row before the first update.
    for update in range(1, updates + 1):
        next(stacked)
        next(alone)
        if update in (1, 10, 100) or update % 500 == 0:
            ours, theirs = (run.learner.network.state_dict() for run in (first, lone))
            gap = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
            print(f"update {update:5}: parameters differ by at most {gap:.1e}", flush=True)


def measure(step: Callable[[], object], agents: int, seconds: float) -> tuple[float, float]:
    """Agent-updates a second, and milliseconds of processor time per agent-update."""
    start, before, count = time.perf_counter(), processor_time(), 0
    while (passed := time.perf_counter() - start) < seconds:
        step()
        count += agents
    return count / passed, 1e3 * (processor_time() - before) / max(count, 1)


def processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=8, help="agents in all stacks together")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--preset", default="c51-corrected")
    parser.add_argument("--agreement", type=int, metavar="UPDATES")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        data, out, agents, preset = given.worker
        work(data, out, int(agents), preset)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closed:
        place = Path(folder)
        data = collect(Request(ENV, TRANSITIONS), place / "data", progress=lambda _: None)
        if given.agreement:
            torch.set_num_threads(1)
            show_agreement(data, place, given.preset, given.agreement)
            return
        sides: dict[str, list[Worker]] = {}
        for name, agents in (("alone", 1), ("stacked", given.agents // given.processes)):
            sides[name] = [
                Worker(data, place / f"{name}{k}", agents, given.preset)
                for k in range(given.processes)
            ]
            for worker in sides[name]:
                closed.callback(worker.stop)
        rates: dict[str, list[float]] = {name: [] for name in sides}
        costs: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(given.rounds):
            for name, workers in sides.items():
                for worker in workers:
                    worker.tell(given.seconds)
                answers = [worker.answer() for worker in workers]
                rates[name].append(sum(rate for rate, _ in answers))
                costs[name].append(statistics.mean(cost for _, cost in answers))
    rate = {name: statistics.median(values) for name, values in rates.items()}
    cost = {name: statistics.median(values) for name, values in costs.items()}
    print(f"{ENV}, {given.preset}, {given.processes} processes of one thread")
    print(f"{'':34} agent-updates/s   ms of processor time each")
    print(f"{'one agent in each process':34} {rate['alone']:15.0f}   {cost['alone']:.2f}")
    label = f"{given.agents // given.processes} agents in each process, stacked"
    print(f"{label:34} {rate['stacked']:15.0f}   {cost['stacked']:.2f}")
    print(f"ratio of processor times: {cost['alone'] / cost['stacked']:.2f}")
    ratio = rate["stacked"] / rate["alone"]
    print(f"ratio of rates: {ratio:.2f}")
    if ratio < LEAST:
        sys.exit(f"the ratio is below {LEAST}")


if __name__ == "__main__":
    main()
