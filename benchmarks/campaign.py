"""Kills commands at random moments and flips bits of their files, and counts what is lost, differs or is not seen.

Usage:

    python benchmarks/campaign.py --kills 200 --flips 2000

A kill is `kill -9` of a command at a random moment: one in four at any time, the others after the command has begun to
write. What is there is then read. Undetected: a reader takes it for finished, but its bytes are not those of a command that
was never killed. The command is run again, and killed again, a few times, until it is let run to its end. Lost: it
does not reach its end. Differing: its files have other bytes than those of a command that was never killed. Left: a process
that it had started still runs two minutes after the kill.
A flip changes one bit of one file, and the file's reader reads it. Undetected: it gives something else than before, and
does not refuse. What changes nothing, such as a time stamp in a zip file, is counted as harmless.
Everything follows from the seed except the moments at which the kernel acts. The tables are in Markdown; Ctrl-C or SIGTERM
ends the kills and prints the table so far. Each fault is also printed when it is found.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
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
from covshift.data.verification import verify
from covshift.errors import InputError
from covshift.estimation.ratio import RatioEstimate
from covshift.records import RunFolder
from covshift.runs.checkpoints import read_checkpoint

KILLS_PER_ROUND = 5
PATIENCE = 120.0
COVSHIFT = [sys.executable, "-m", "covshift"]
TRAIN = [*COVSHIFT, "train", "MinAtar/Breakout-v1", "--scale", "smoke", "--threads", "1"]
SHORT = ["--num-updates", "60", "--evaluate-every", "20", "--evaluation-episodes", "1"]
SHORT += ["--ratio-episodes", "1", "--calibration-episodes", "0"]
SWEEP = """
import sys
from pathlib import Path
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.runs.sweeps import Job, Sweep

def config(seed):
    return make_config("MinAtar/Breakout-v1", "c51", "smoke", seed=seed, num_updates=60, evaluate_every=20,
                       evaluation_episodes=1)

jobs = [Job(Path(sys.argv[1]) / f"seed{seed}", config(seed), sys.argv[2]) for seed in range(2)]
sweep = Sweep(jobs)
sweep.run(1, RuntimeOptions(device="cpu", threads=1), lambda _: None, stack=2)
sys.exit(len(sweep.failed))
"""


class Task(NamedTuple):
    """A command to kill.

    Attributes:
        command: makes the command that writes into a folder.
        kept: the files, as patterns, whose bytes must not depend on kills.
        is_finished: whether the readers of such a folder take it for finished.
        refusal: what the command says if it had ended before it was killed; empty if it then ends well.
    """

    command: Callable[[Path], list[str]]
    kept: tuple[str, ...]
    is_finished: Callable[[Path], bool]
    refusal: str = ""


class Times(NamedTuple):
    """Seconds until a command begins to write, and until it ends."""

    begin: float
    end: float


class Reader(NamedTuple):
    """A folder of files, and what reads them."""

    folder: Path
    files: list[str]
    read: Callable[[Path], Any]


def tasks(data: Path, arrays: Path) -> dict[str, Task]:
    """The commands; `data` is a dataset, `arrays` an .npz file."""
    plain = ("metrics.csv", "config.json", "status.json", "provenance.json")
    run = (*plain, "*.partial", "checkpoints/*/*")
    collect = [*COVSHIFT, "collect", "MinAtar/Breakout-v1", "--transitions", "12000"]
    sweep = tuple(f"*/{pattern}" for pattern in run)
    train = [*TRAIN, *SHORT]
    ratio = [*COVSHIFT, "estimate", "ratio", str(data), "--policy", "uniform", "--features"]
    return {
        "collect": Task(
            lambda out: [*collect, "--workers", "2", "--out", str(out)], ("*",), is_dataset
        ),
        "train": Task(
            lambda out: [*train, "--data", str(data), "--out", str(out)],
            run,
            is_finished_run,
            "is finished after",
        ),
        "stream": Task(
            lambda out: [*train, "--data", "stream", "--out", str(out)],
            run,
            is_finished_run,
            "is finished after",
        ),
        "online": Task(
            lambda out: [*train, "--data", "online", "--out", str(out)],
            run,
            is_finished_run,
            "is finished after",
        ),
        "import": Task(
            lambda out: [*COVSHIFT, "data", "import", str(arrays), "--out", str(out)],
            ("*",),
            is_dataset,
            "exists already",
        ),
        "sweep": Task(
            lambda out: [sys.executable, "-c", SWEEP, str(out), str(data)], sweep, is_finished_sweep
        ),
        "estimate": Task(
            lambda out: [*ratio, "fourier:100", "--out", str(out)], ("*",), is_estimate
        ),
    }


def is_dataset(folder: Path) -> bool:
    try:
        Store.open(folder)
        return bool(list(verify(folder)))
    except InputError:
        return False


def is_finished_run(folder: Path) -> bool:
    """Whether a run says that it is finished, and its metrics and checkpoint can be read."""
    run = RunFolder(folder)
    try:
        if run.status()["status"] != "finished":
            return False
        run.config(), run.provenance(), run.metrics(), read_checkpoint(run.checkpoints)
    except InputError:
        return False
    return True


def is_finished_sweep(folder: Path) -> bool:
    return all(is_finished_run(folder / f"seed{seed}") for seed in range(2))


def is_estimate(folder: Path) -> bool:
    try:
        RatioEstimate.load(folder)
    except InputError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600.0, help="kill no more after this time")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # A shell has SIGINT ignored in the background.
        signal.signal(number, signal.default_int_handler)
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
        times = {name: run_whole(task, place / f"{name}-whole") for name, task in every.items()}
        print("| files | flips | refused | harmless | undetected |\n|---|---|---|---|---|")
        for kind, count in flip_all(readers(place, data), place, given.flips, rng).items():
            numbers = (count[key] for key in ("flips", "refused", "harmless", "undetected"))
            print(f"| {kind} | {' | '.join(map(str, numbers))} |", flush=True)
        counts: dict[str, Counter[str]] = {name: Counter() for name in every}
        before, cpu = time.monotonic(), cpu_seconds()
        try:
            kill_all(every, times, place, given.kills, given.minutes, rng, counts)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
        columns = ("kills", "writing", "lost", "differing", "undetected", "left")
        print(
            "\n| command | kills | after it had begun to write | lost | differing | undetected | processes left |"
        )
        print("|---|---|---|---|---|---|---|")
        for task, count in counts.items():
            numbers = (count[key] for key in columns)
            print(f"| {task} | {' | '.join(map(str, numbers))} |")
        kills = max(sum(count["kills"] for count in counts.values()), 1)
        print(
            f"\nA kill took {(time.monotonic() - before) / kills:.1f} s, and {(cpu_seconds() - cpu) / kills:.1f} s of "
            "CPU, with its share of the run that is let end."
        )


def run_whole(task: Task, out: Path) -> Times:
    """Runs a command to its end, and returns when it began to write and when it ended."""
    started = time.monotonic()
    with subprocess.Popen(
        task.command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not state_of(out) and process.poll() is None:
            time.sleep(0.01)
        begin = time.monotonic() - started
        if process.wait():
            raise RuntimeError(f"{task.command(out)} failed")
    return Times(begin, time.monotonic() - started)


def kill_all(
    every: dict[str, Task],
    times: dict[str, Times],
    place: Path,
    kills: int,
    minutes: float,
    rng: np.random.Generator,
    counts: dict[str, Counter[str]],
) -> None:
    """Kills the commands in turn, and compares each with one that was not killed; adds to `counts`."""
    whole = {name: content(place / f"{name}-whole", task.kept) for name, task in every.items()}
    end, done = time.monotonic() + 60 * minutes, 0
    per_round = min(KILLS_PER_ROUND, -(-kills // len(every)))
    for name in itertools.cycle(every):
        if done >= kills or time.monotonic() > end:
            return
        task, count, out = every[name], counts[name], place / f"{name}-killed"
        for left in place.glob(f"*{out.name}*"):
            shutil.rmtree(left, ignore_errors=True)
        ended = None
        for _ in range(min(per_round, kills - done)):
            ended = kill_once(task.command(out), out, times[name], rng, count)
            if ended is not None:
                break
            done += 1
            if task.is_finished(out) and content(out, task.kept) != whole[name]:
                count["undetected"] += 1
                print(f"{name}: readers accept what a kill left", file=sys.stderr)
        result = ended or subprocess.run(task.command(out), capture_output=True, text=True)
        same = content(out, task.kept) == whole[name] and task.is_finished(out)
        # A command that had ended before it was killed may refuse to begin again.
        is_over = same and bool(task.refusal) and task.refusal in result.stderr
        if result.returncode and not is_over:
            count["lost"] += 1
            print(f"{name} lost: {result.stderr[-500:]}", file=sys.stderr)
        elif not same:
            count["differing"] += 1
            print(f"{name} differs", file=sys.stderr)
        print(f"{done} kills", file=sys.stderr, flush=True)


def kill_once(
    command: list[str], out: Path, times: Times, rng: np.random.Generator, count: Counter[str]
) -> subprocess.CompletedProcess[str] | None:
    """Starts a command and kills it at a random moment; returns how it ended if it was faster."""
    before = state_of(out)
    after_writing = rng.random() > 0.25
    # Somewhat less than the whole time, since a command that was killed before has less to do.
    pause = rng.uniform(0, 0.7 * (times.end - times.begin) if after_writing else times.end)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while after_writing and process.poll() is None and state_of(out) == before:
                time.sleep(0.01)
            status = process.wait(pause)
            output.seek(0)
            return subprocess.CompletedProcess(command, status, "", output.read().decode())
        except subprocess.TimeoutExpired:
            started = descendants(process.pid)
        finally:
            process.kill()
            process.wait()
    count["kills"] += 1
    count["writing"] += state_of(out) != before
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in filter(is_running, started):
        count["left"] += 1
        print(f"process {pid} of {' '.join(command)} was left", file=sys.stderr)
        os.kill(pid, signal.SIGKILL)
    return None


def state_of(out: Path) -> set[tuple[str, int]]:
    """What a command has written so far: its folder, and those beside it that it fills first."""
    found = set()
    for top in out.parent.glob(f"*{out.name}*"):
        for path in (top, *top.rglob("*")):
            with contextlib.suppress(OSError):  # It was removed in between.
                found.add((str(path), path.stat().st_mtime_ns))
    return found


def cpu_seconds() -> float:
    """CPU time of the commands so far, without processes that outlived the one that had started them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    rng, size = np.random.default_rng(0), 101 * 50
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
