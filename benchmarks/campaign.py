"""Kills commands at random moments and flips bits of their files, and counts what is lost, differs or is not seen.

Usage:

    python benchmarks/campaign.py --kills 200 --flips 2000

A kill is `kill -9` of a command at a random moment. The command is run again, and killed again, a few times, until it is
let run to its end. Lost: it does not reach its end. Differing: its files have other bytes than those of a command that was
never killed. Left: a process that it had started still runs 30 seconds after the kill.
A flip changes one bit of one file, and the file's reader reads it. Undetected: it gives something else than before, and
does not refuse. What changes nothing, such as a time stamp in a zip file, is counted as harmless.
Everything follows from the seed except the moments at which the kernel acts. The table is in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation.ratio import RatioEstimate
from covshift.records import RunFolder
from covshift.runs.checkpoints import read_checkpoint

KILLS_PER_ROUND = 5
PATIENCE = 30.0
COVSHIFT = [sys.executable, "-m", "covshift"]
TRAIN = [*COVSHIFT, "train", "MinAtar/Breakout-v1", "--scale", "smoke", "--threads", "1"]
SHORT = ["--num-updates", "300", "--evaluate-every", "50", "--evaluation-episodes", "1"]
SHORT += ["--ratio-episodes", "1", "--calibration-episodes", "0"]
SWEEP = """
import sys
from pathlib import Path
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.runs.sweeps import Job, Sweep

def config(seed):
    return make_config("MinAtar/Breakout-v1", "c51", "smoke", seed=seed, num_updates=200, evaluate_every=50,
                       evaluation_episodes=1)

jobs = [Job(Path(sys.argv[1]) / f"seed{seed}", config(seed), sys.argv[2]) for seed in range(2)]
sweep = Sweep(jobs)
sweep.run(2, RuntimeOptions(device="cpu", threads=1), lambda _: None)
sys.exit(len(sweep.failed))
"""


class Task(NamedTuple):
    """A command to kill.

    Attributes:
        command: makes the command that writes into a folder.
        kept: the files, as patterns, whose bytes must not depend on kills.
    """

    command: Callable[[Path], list[str]]
    kept: tuple[str, ...]


class Reader(NamedTuple):
    """A folder of files, and what reads them."""

    folder: Path
    files: list[str]
    read: Callable[[Path], Any]


def tasks(data: Path, arrays: Path) -> dict[str, Task]:
    """The commands; `data` is a dataset, `arrays` an .npz file."""
    run = ("metrics.csv", "config.json", "status.json", "checkpoints/*/*")
    collect = [*COVSHIFT, "collect", "MinAtar/Breakout-v1", "--transitions", "30000"]
    sweep = tuple(f"*/{pattern}" for pattern in run)
    train = [*TRAIN, *SHORT]
    ratio = [*COVSHIFT, "estimate", "ratio", str(data), "--policy", "uniform", "--features"]
    return {
        "collect": Task(lambda out: [*collect, "--workers", "2", "--out", str(out)], ("*",)),
        "train": Task(lambda out: [*train, "--data", str(data), "--out", str(out)], run),
        "stream": Task(lambda out: [*train, "--data", "stream", "--out", str(out)], run),
        "online": Task(lambda out: [*train, "--data", "online", "--out", str(out)], run),
        "import": Task(
            lambda out: [*COVSHIFT, "data", "import", str(arrays), "--out", str(out)], ("*",)
        ),
        "sweep": Task(lambda out: [sys.executable, "-c", SWEEP, str(out), str(data)], sweep),
        "estimate": Task(
            lambda out: [*ratio, "fourier:200", "--out", str(out)], ("estimate.*", "checksums.*")
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600.0, help="kill no more after this time")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        data, arrays = place / "data", place / "arrays.npz"
        finish(
            [
                *COVSHIFT,
                "collect",
                "MinAtar/Breakout-v1",
                "--transitions",
                "3000",
                "--out",
                str(data),
            ]
        )
        write_arrays(arrays)
        every = tasks(data, arrays)
        seconds = {name: run_whole(task, place / f"{name}-whole") for name, task in every.items()}
        print("| files | flips | refused | harmless | undetected |\n|---|---|---|---|---|")
        for kind, count in flip_all(readers(place, data), place, given.flips, rng).items():
            numbers = (count[key] for key in ("flips", "refused", "harmless", "undetected"))
            print(f"| {kind} | {' | '.join(map(str, numbers))} |", flush=True)
        table = kill_all(every, seconds, place, given.kills, given.minutes, rng)
        print("\n| command | kills | lost | differing | processes left |\n|---|---|---|---|---|")
        for task, count in table.items():
            numbers = (count[key] for key in ("kills", "lost", "differing", "left"))
            print(f"| {task} | {' | '.join(map(str, numbers))} |", flush=True)


def run_whole(task: Task, out: Path) -> float:
    """Runs a command to its end, and returns how long that took."""
    before = time.monotonic()
    finish(task.command(out))
    return time.monotonic() - before


def kill_all(
    every: dict[str, Task],
    seconds: dict[str, float],
    place: Path,
    kills: int,
    minutes: float,
    rng: np.random.Generator,
) -> dict[str, Counter[str]]:
    """Kills the commands in turn, and compares each with one that was not killed."""
    whole = {name: content(place / f"{name}-whole", task.kept) for name, task in every.items()}
    counts: dict[str, Counter[str]] = {name: Counter() for name in every}
    end, number = time.monotonic() + 60 * minutes, 0
    while sum(count["kills"] for count in counts.values()) < kills and time.monotonic() < end:
        name = list(every)[number % len(every)]
        task, count, out = every[name], counts[name], place / f"{name}-killed"
        for left in (out, *(out.with_name(f"{out.name}-{word}") for word in ("stream", "online"))):
            shutil.rmtree(left, ignore_errors=True)
        for _ in range(KILLS_PER_ROUND):
            done = sum(each["kills"] for each in counts.values())
            if done >= kills or time.monotonic() > end:
                break
            before = time.monotonic()
            if not kill_once(task.command(out), rng.uniform(0, seconds[name]), count):
                seconds[name] = time.monotonic() - before  # The machine has become faster.
                break
        result = subprocess.run(task.command(out), capture_output=True, text=True)
        is_over = "is finished after" in result.stderr  # It had ended before it was killed.
        if result.returncode and not is_over and "exists already" not in result.stderr:
            count["lost"] += 1
            print(f"{name} lost: {result.stderr[-500:]}", file=sys.stderr)
        elif content(out, task.kept) != whole[name]:
            count["differing"] += 1
            print(f"{name} differs", file=sys.stderr)
        number += 1
        print(f"{done} kills", file=sys.stderr, flush=True)
    return counts


def kill_once(command: list[str], pause: float, count: Counter[str]) -> bool:
    """Starts a command and kills it after a pause; returns whether it was still running then."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
        before = descendants(process.pid)
        try:
            process.wait(pause)
            return False
        except subprocess.TimeoutExpired:
            before |= descendants(process.pid)
            process.kill()
            process.wait()
    count["kills"] += 1
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in filter(is_running, before):
        count["left"] += 1
        os.kill(pid, signal.SIGKILL)
    return True


def descendants(pid: int) -> set[int]:
    """The processes that a process started, and those that they started."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            child = int(path.parent.name)
            found |= {child} | descendants(child)
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def finish(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def content(folder: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in patterns
        for path in folder.glob(pattern)
        if path.is_file()
    }


def write_arrays(path: Path) -> None:
    """Episodes of 100 steps with random frames, which take a while to import."""
    rng, size = np.random.default_rng(0), 101 * 100
    last = np.arange(size) % 101 == 100
    np.savez(
        path,
        observations=rng.integers(0, 4, (size, 40, 40), dtype=np.uint8),
        actions=rng.integers(0, 3, size),
        rewards=rng.normal(size=size),
        terminated=last,
        truncated=np.zeros(size, dtype=bool),
        mu=np.full(size, 1 / 3),
    )


def readers(place: Path, data: Path) -> dict[str, Reader]:
    """What is read after a flip: everything that the readers can give, so that any change shows."""
    run, imported = place / "train-copy", place / "import-whole"
    shutil.copytree(place / "train-whole", run)
    for old in sorted((run / "checkpoints").iterdir())[:-1]:
        shutil.rmtree(old)
    checkpoint = next((run / "checkpoints").iterdir()).relative_to(run)

    def read_store(folder: Path) -> Any:
        store = Store.open(folder)
        columns = [values.tobytes() for values in store.columns.values()]
        return columns, store.states(np.arange(len(store))).tobytes(), store.num_actions

    def read_run(folder: Path) -> Any:
        found = RunFolder(folder)
        return found.config(), found.status(), found.provenance(), found.metrics()

    def read_state(folder: Path) -> Any:
        state = read_checkpoint(folder / "checkpoints").state
        return state.values, {name: t.numpy().tobytes() for name, t in state.tensors.items()}

    def read_estimate(folder: Path) -> Any:
        found = RatioEstimate.load(folder)
        return json.dumps(found.diagnostics.record()), found.sample.tobytes()

    plain = ["config.json", "status.json", "provenance.json", "metrics.csv"]
    saved = ["tensors.safetensors", "state.json", "checksums.sha256"]
    files = ["estimate.json", "estimate.npz", "checksums.sha256"]
    return {
        "dataset": Reader(data, names(data), read_store),
        "dataset of frames": Reader(imported, names(imported), read_store),
        "run": Reader(run, plain, read_run),
        "checkpoint": Reader(run, [str(checkpoint / name) for name in saved], read_state),
        "estimate": Reader(place / "estimate-whole", files, read_estimate),
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip_all(
    every: dict[str, Reader], place: Path, flips: int, rng: np.random.Generator
) -> dict[str, Counter[str]]:
    """Flips one bit at a time, of every file in turn."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in every}
    files = [(kind, file) for kind, reader in every.items() for file in reader.files]
    copies = {
        kind: Path(shutil.copytree(reader.folder, place / "flipped" / kind))
        for kind, reader in every.items()
    }
    whole = {kind: reader.read(copies[kind]) for kind, reader in every.items()}
    for number in range(flips):
        kind, file = files[number % len(files)]
        path, count = copies[kind] / file, counts[kind]
        bit = int(rng.integers(8 * path.stat().st_size))
        flip(path, bit)
        count["flips"] += 1
        try:
            same = every[kind].read(copies[kind]) == whole[kind]
            count["harmless" if same else "undetected"] += 1
            if not same:
                print(f"bit {bit} of {file} of the {kind}", file=sys.stderr)
        except InputError:
            count["refused"] += 1
        flip(path, bit)
    return counts


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0] ^ (1 << bit % 8)
        file.seek(bit // 8)
        file.write(bytes([byte]))


if __name__ == "__main__":
    main()
