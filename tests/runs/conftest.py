"""Runs in processes of their own that are killed."""

import dataclasses
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from covshift.config.training import TrainConfig
from covshift.files import write_json
from covshift.records import RunFolder

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
            command = [sys.executable, code, folder, settings, data, str(stop)]
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
