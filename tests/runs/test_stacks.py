"""Runs in a stack: kills, interruptions, divergence, and the same numbers as alone."""

import csv
import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Request, collect
from covshift.errors import InputError
from covshift.records import RunFolder
from covshift.runs.cluster import run_on_ray
from covshift.runs.launch import create_run, resume_run, start_or_resume
from covshift.runs.stacks import resume_stack, run_stacked
from covshift.runs.sweeps import LOG, Job, Sweep, stacks_of
from covshift.runs.training import Interrupted, run_to_end

ENV = "covshift/RandomWalk-v0"
RUNTIME = RuntimeOptions(device="cpu", threads=1)
UPDATES = 60


def quiet(_: object) -> None:
    pass


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("data")
    return [
        str(collect(Request(ENV, 1500, seed=seed), place / str(seed), progress=lambda _: None))
        for seed in range(2)
    ]


def config_of(seed: int, **leaves: Any) -> TrainConfig:
    small = {"num_updates": UPDATES, "evaluate_every": 50, "target_period": 40} | leaves
    return make_config(ENV, "c51-dual", "smoke", seed=seed, calibration_episodes=0, **small)


def made(place: Path, data: list[str], configs: list[TrainConfig]) -> list[RunFolder]:
    folders = [RunFolder(place / f"run{k}") for k in range(len(configs))]
    for k, (folder, config) in enumerate(zip(folders, configs, strict=True)):
        create_run(folder, config, data[k % 2], RUNTIME)
    return folders


def contents(folder: RunFolder) -> dict[str, bytes]:
    """Metrics and the newest checkpoint."""
    newest = max(folder.checkpoints.iterdir())
    files = {path.name: path.read_bytes() for path in newest.iterdir()}
    return files | {"metrics": folder.metrics_path.read_bytes()}


def test_a_killed_stack_resumes_to_the_same_bytes(tmp_path: Path, data: list[str]) -> None:
    """Runs end after different numbers of updates, are killed at different checkpoints, and have different data."""
    configs = [config_of(0), config_of(1, num_updates=35), config_of(2, ratio_discount=0.9)]
    whole = made(tmp_path / "whole", data, configs)
    resume_stack(whole, quiet)
    parts = made(tmp_path / "parts", data, configs)
    with ExitStack() as closed:
        trainers = [
            closed.enter_context(closing(resume_run(folder, None, quiet))) for folder in parts
        ]
        for left in run_stacked(trainers, quiet):
            if left[0].update == 43:
                break
        # As kill -9 leaves them: the newest checkpoints are of update 40, and one was just written.
        trainers[0].save()
    assert [folder.status()["status"] for folder in parts] == ["running", "finished", "running"]
    resume_stack(parts[:1], quiet)
    resume_stack(parts, quiet)
    assert [folder.status()["status"] for folder in parts] == ["finished"] * 3
    for one, other in zip(whole, parts, strict=True):
        assert contents(one) == contents(other)
    with pytest.raises(InputError, match="all of these runs are over"):
        resume_stack(parts, quiet)


def test_a_stack_agrees_with_lone_runs(tmp_path: Path, data: list[str]) -> None:
    """Also a run that was begun alone and is finished in the stack."""
    configs = [config_of(0), config_of(1), config_of(2, ratio_loss_weight=0.1)]
    stacked = made(tmp_path / "stacked", data, configs)
    begun = start_or_resume(stacked[1], configs[1], data[1], RUNTIME, quiet)
    ticks = begun.run()
    while next(ticks).update < 20:
        pass
    begun.close()
    resume_stack(stacked, quiet)
    for folder, config in zip(stacked, configs, strict=True):
        k = configs.index(config)
        alone = RunFolder(tmp_path / "alone" / str(k))
        run_to_end(
            start_or_resume(alone, config, data[k % 2], RUNTIME, quiet), lambda update, row: None
        )
        assert_same_rows(alone, folder)


def assert_same_rows(first: RunFolder, second: RunFolder) -> None:
    tables = [
        list(csv.DictReader(folder.metrics_path.read_text().splitlines()))
        for folder in (first, second)
    ]
    assert len(tables[0]) == len(tables[1]) > 1
    for one, other in zip(*tables, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - {"invariant"}:
            a, b = float(one[name] or "nan"), float(other[name] or "nan")
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-6, err_msg=name)


def test_a_run_that_diverges_leaves_the_stack(tmp_path: Path, data: list[str]) -> None:
    configs = [config_of(0), config_of(1, divergence_bound=0.01), config_of(2)]
    stacked = made(tmp_path / "stacked", data, configs)
    said: list[str] = []
    resume_stack(stacked, said.append)
    assert [run.status()["status"] for run in stacked] == ["finished", "diverged", "finished"]
    assert "mean |c| of update 1" in str(stacked[1].status()["reason"])
    assert any("run1 diverged" in text for text in said)
    pair = made(tmp_path / "pair", data, [configs[0], configs[0], configs[2]])
    resume_stack([pair[0], pair[2]], quiet)
    assert contents(pair[0]) == contents(stacked[0])
    assert contents(pair[2]) == contents(stacked[2])


def test_ctrl_c_saves_all_runs_of_a_stack(tmp_path: Path, data: list[str]) -> None:
    configs = [config_of(seed) for seed in range(2)]
    whole, parts = made(tmp_path / "a", data, configs), made(tmp_path / "b", data, configs)
    resume_stack(whole, quiet)

    def interrupt(text: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    parts += made(tmp_path / "c", data, [config_of(9, divergence_bound=0.01)])
    with pytest.raises(Interrupted, match="saved 2 runs"):
        resume_stack(parts, interrupt)
    assert [run.status()["status"] for run in parts] == ["interrupted", "interrupted", "diverged"]
    assert [run.status()["update"] for run in parts] == [1, 1, 0]
    assert not any(run.is_locked() for run in parts)
    resume_stack(parts, quiet)
    for one, other in zip(whole, parts[:2], strict=True):
        assert contents(one) == contents(other)


@pytest.mark.usefixtures("children_here")
def test_a_sweep_stacks_what_can_be_stacked(tmp_path: Path, data: list[str]) -> None:
    """One run cannot be read: its stack fails, and the others are finished in the second try."""
    configs = [config_of(seed) for seed in range(4)] + [config_of(0, ratio_head="exponential")]
    jobs = [Job(tmp_path / str(k), config, data[0]) for k, config in enumerate(configs)]
    assert stacks_of(jobs, range(5), 8, 2) == [[0, 1, 2], [3], [4]]
    assert stacks_of(jobs, range(5), 8, 1) == [[0, 1, 2, 3], [4]]
    assert stacks_of(jobs, [1, 3], 1, 1) == [[1], [3]]
    seen: list[int] = []

    def watch(sweep: Sweep) -> None:
        seen.append(len(set(sweep.running.values())))
        (tmp_path / "1" / "provenance.json").write_text("{}")

    sweep = Sweep(jobs)
    sweep.run(2, RUNTIME, watch, stack=8)
    assert max(seen) == 2
    assert list(sweep.failed) == [1]
    assert [jobs[k].status for k in (0, 2, 3, 4)] == ["finished"] * 4
    assert sweep.tries[3] == sweep.tries[4] == 1


def test_a_ray_task_updates_a_stack(tmp_path: Path, data: list[str]) -> None:
    """With the bytes of a stack in this process; a run that cannot be stacked gets a task of its own."""
    ray = pytest.importorskip("ray")
    configs = [*(config_of(seed) for seed in range(3)), config_of(0, ratio_head="exponential")]
    jobs = [Job(tmp_path / "ray" / str(k), config, data[0]) for k, config in enumerate(configs)]
    quietly = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=1, **quietly)  # Beside clusters of other tests.
    try:
        assert run_on_ray(jobs, RUNTIME, quiet, address=None, stack=8) == {}
    finally:
        ray.shutdown()
    assert [job.status for job in jobs] == ["finished"] * 4
    # A task writes its messages beside the first of its runs.
    assert [(job.folder / LOG).exists() for job in jobs] == [True, False, False, True]
    here = made(tmp_path / "here", data[:1] * 2, configs[:3])
    resume_stack(here, quiet)
    for job, folder in zip(jobs, here, strict=False):
        assert contents(RunFolder(job.folder)) == contents(folder)
