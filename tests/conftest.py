import dataclasses
import io
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from covshift.cli.main import main
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.codec import FrameCodec
from covshift.data.collection import Request, collect
from covshift.data.format import COLUMNS, Rows
from covshift.data.store import Store
from covshift.files import write_json
from covshift.records import MetricsFile, Row, RunFolder
from covshift.report.pictures import picture_uri
from covshift.report.statistics import Curve, curve_band
from covshift.theory.examples import Problem

# No deadline, since shared machines stall; the same examples every run, so that a failure repeats.
settings.register_profile("covshift", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("covshift")


# A shell starts background jobs with SIGINT ignored, and Python then leaves it so; tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def toy_store() -> Store:
    """Episodes of random lengths with vectors as observations: row t shows (t, t², 1) scaled."""
    rng = np.random.default_rng(7)
    codec = FrameCodec((3,), np.dtype(np.float32), None)
    store = Store(codec, 1, 4)
    for episode, length in enumerate([5, 1, 8, 3, 12, 2, 6]):
        rows = length + 1
        terminated = np.zeros(rows, dtype=bool)
        terminated[-1] = episode % 3 != 2
        truncated = np.zeros(rows, dtype=bool)
        truncated[-1] = not terminated[-1]
        initial = np.arange(rows) == 0
        action = rng.integers(4, size=rows)
        action[-1] = -1
        mu = rng.uniform(0.1, 0.9, size=rows)
        mu[-1] = np.nan
        reward = np.where(initial, 0.0, rng.normal(0, 2, size=rows))
        life = ~initial & ~terminated & (rng.random(rows) < 0.2)
        columns = {
            "action": action,
            "mu": mu,
            "policy": np.zeros(rows),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "life_lost": life,
            "is_initial": initial,
            "episode": np.full(rows, episode),
            "stream": np.zeros(rows),
        }
        start = len(store)
        t = np.arange(start, start + rows)
        observations = np.stack([t / 40, (t / 40) ** 2, np.ones(rows)], axis=1).astype(np.float32)
        typed = {
            name: columns[name].astype(kind.to_pandas_dtype()) for name, kind in COLUMNS.items()
        }
        store.append(Rows(typed, [codec.encode(row) for row in observations]))
    store.check_valid()
    return store


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Problem, int], Path]:
    """Datasets of the finite examples under their own behavior policies."""
    made: dict[tuple[str, int], Path] = {}

    def make(name: str, problem: Problem, transitions: int) -> Path:
        if (name, transitions) not in made:
            place = tmp_path_factory.mktemp(name)
            np.save(place / "mu.npy", problem.mu)
            policy = f"file:{place / 'mu.npy'}"
            request = Request(f"covshift/{name}-v0", transitions, (policy,))
            made[name, transitions] = collect(request, place / "data", progress=lambda _: None)
        return made[name, transitions]

    return make


UPDATES = np.arange(0, 60_001, 5_000)


def make_arm(label: str, level: float, seeds: int, diverged: tuple[int, ...] = ()) -> Any:
    """Runs that rise to a level; those that diverge end at 20 000 updates."""
    runs = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, int(10 * level)])
        score = level * (1 - np.exp(-UPDATES / 15_000)) + rng.normal(0, 0.2, len(UPDATES))
        length = 5 if seed in diverged else len(UPDATES)
        config = {"preset": label, "seed": seed, "discount": 0.99, "learn_ratio": True}
        runs.append(
            {
                "name": f"{label}-seed{seed}",
                "x": UPDATES[:length].tolist(),
                "y": score[:length].round(4).tolist(),
                "status": "diverged" if seed in diverged else "finished",
                "config": config,
            }
        )
    band = curve_band([Curve(run["x"], run["y"]) for run in runs], np.random.default_rng(0))
    numbers = {name: getattr(band, name).tolist() for name in ("x", "middle", "low", "high")}
    return {"label": label, "runs": runs} | numbers


def make_figure() -> dict[str, Any]:
    """A figure with something in each of its parts."""
    rng = np.random.default_rng(0)
    arms = [make_arm("plain", 2.0, 3), make_arm("corrected", 4.0, 3, diverged=(1,))]
    frames = [
        {"ratio": 3.0 - k / 4, "uri": picture_uri(rng.random((10, 10, 4)) > 0.8, 40)}
        for k in range(6)
    ]
    counts, edges = np.histogram(rng.exponential(size=5_000), bins=30)
    return {
        "name": "discount-sweep",
        "alias": "figure-1-left",
        "title": "The ratio's discount",
        "claim": "Correcting beats d_μ <as it is>.",
        "paper": "All discounts but γ̂ = 0.9999 score more than the uncorrected agent.",
        "found": "Probability of beating no correction: 1.00 (1.00 to 1.00).",
        "headline": {"value": "1.00 (1.00 to 1.00)", "what": "P(better)", "of": "corrected"},
        "verdict": "holds",
        "rule": "The interval must be above ½.",
        "command": "covshift reproduce figure-1-left --scale small --out out",
        "scale": "small",
        "version": "0.1.0",
        "hashes": {"data": "ab" * 32, "configurations": "cd" * 32},
        "table": {
            "columns": ["arm", "IQM score", "95 % interval", "P(better)", "runs", "diverged"],
            "rows": [
                ["plain", "2.0", "1.9 to 2.1", "", "3", "0"],
                ["corrected", "4.0", "3.9 to 4.1", "1.00 (1.00 to 1.00)", "3", "1"],
            ],
        },
        "panels": [
            {
                "title": "MinAtar/Breakout-v1",
                "x": "updates",
                "y": "score",
                "arms": arms,
                "lines": [{"label": "random policy", "y": 0.41}],
            }
        ],
        "histograms": [
            {
                "title": "Learned ratio",
                "x": "c(s)",
                "edges": edges.tolist(),
                "counts": counts.tolist(),
                "text": "Mean 1.00.",
            }
        ],
        "galleries": [{"title": "Highest c", "text": "6 of 1,000 states.", "frames": frames}],
        "invariants": [
            {"run": "corrected-seed0", "update": 5000.0, "mean_ratio": 1.0}
            | {"mean_ratio_pi": 1.3, "state": "holds"},
            {"run": "corrected-seed0", "update": 10000.0, "mean_ratio": 1.0}
            | {"mean_ratio_pi": 0.9, "state": "unordered"},
            {"run": "corrected-seed0", "update": 15000.0, "mean_ratio": 1.1}
            | {"mean_ratio_pi": 0.8, "state": "unordered"},
            {"run": "corrected-seed1", "update": 5000.0, "mean_ratio": 1.4}
            | {"mean_ratio_pi": 0.2, "state": "violated"},
        ],
        "differences": ["MinAtar instead of Atari.", "Three seeds instead of five."],
    }


def make_run(
    folder: Path, *, seed: int = 0, diverged: bool = False, ordered: bool = True, **leaves: Any
) -> RunFolder:
    """A run folder as training leaves it, without checkpoints."""
    config = make_config(
        "MinAtar/Breakout-v1", "c51-corrected", "smoke", seed=seed, num_updates=300, **leaves
    )
    run = RunFolder(folder)
    run.create(
        config,
        {
            "data": "../data",
            "data_identity": "0" * 64,
            "runtime": RuntimeOptions(),
            "threads": 1,
            "device": "cpu",
            "versions": {"covshift": "0.1.0"},
            "machine": "x86_64",
        },
    )
    file = MetricsFile(run.metrics_path)
    for k, update in enumerate((0, 100) if diverged else (0, 100, 200, 300)):
        row: Row = {"update": update, "agent_steps": 4 * update, "score": 0.5 * k + seed}
        if k:
            state = "holds" if ordered else "unordered"
            row |= {"mean_ratio": 1.0, "mean_ratio_pi": 1.2 if ordered else 0.7}
            row |= {"invariant": state}
        file.write(row)
    file.close()
    if diverged:
        run.write_status("diverged", 150, "the loss is not finite")
    else:
        run.write_status("finished", 300)
    return run


@pytest.fixture
def figure() -> dict[str, Any]:
    return make_figure()


@pytest.fixture
def new_run() -> Callable[..., RunFolder]:
    return make_run


class ChildHere:
    """Stands for a child process of a sweep: its command runs in this process when it is first asked for its end."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "covshift"]
        self.arguments, self.log = list(command[3:]), log
        self.stdin = io.BytesIO()
        self.returncode: int | None = None

    def poll(self) -> int:
        if self.returncode is None:
            with self.log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
                try:
                    main(self.arguments)
                    self.returncode = 0
                except SystemExit as stop:
                    self.returncode = int(stop.code or 0)
        return self.returncode

    wait = poll


@pytest.fixture
def children_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps run `covshift resume` in this process: a process of its own takes seconds to import torch."""
    monkeypatch.setattr("covshift.runs.sweeps.start_child", ChildHere)
    monkeypatch.setattr("covshift.runs.sweeps._POLL_SECONDS", 0.0)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_process() -> Iterator[Start]:
    """Starts processes that are killed when the test ends, also if it fails."""
    with ExitStack() as stack:

        def start(*command: Any, **options: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                text=True,
                # A shell may have left SIGINT ignored, and Python then leaves it so.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
                **options,
            )
            stack.enter_context(process)  # Closes its pipes.
            stack.callback(process.kill)
            return process

        yield start


TRAIN = """
import sys, time
from pathlib import Path
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.records import RunFolder
from covshift.runs.launch import start_or_resume
from covshift.runs.training import run_to_end
from covshift.schema import read_json

def wait_for_the_kill(update, row):
    if update >= int(sys.argv[4]):
        time.sleep(3600)

if __name__ == "__main__":  # Processes that collect data import this file.
    config = read_json(Path(sys.argv[2]), TrainConfig)
    runtime = RuntimeOptions(device="cpu", threads=1)
    run = start_or_resume(RunFolder(Path(sys.argv[1])), config, sys.argv[3], runtime, print)
    run_to_end(run, wait_for_the_kill)
"""

Kill = Callable[[Path, TrainConfig, str], None]


@pytest.fixture
def train_and_kill(tmp_path: Path) -> Kill:
    """Begins a run, and kills it twice at random moments: soon after it began, and soon after it went on.

    A process waits after some updates, so that it is under way when it is killed, however slow the machine is.
    """
    code, settings = tmp_path / "train_and_wait.py", tmp_path / "config.json"

    def train(folder: Path, config: TrainConfig, data: str) -> None:
        code.write_text(TRAIN)
        write_json(settings, dataclasses.asdict(config))
        run, rng, done = RunFolder(folder), random.Random(0), -1
        for _ in range(2):
            stop = max(done, 0) + rng.randint(10, 50)
            command = [sys.executable, *map(str, (code, folder, settings, data, stop))]
            process = subprocess.Popen(command)
            try:
                deadline = time.monotonic() + 240
                while not (run.exists() and run.status()["update"] > done):
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                time.sleep(rng.uniform(0.0, 0.3))
                assert process.poll() is None
            finally:
                process.kill()
                process.wait()
            done = run.status()["update"]

    return train
