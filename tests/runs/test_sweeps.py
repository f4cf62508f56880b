"""Sweeps: kills, resumes, failures; on this machine's processes and on a real Ray cluster."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.collection import Request, collect
from covshift.errors import InputError
from covshift.records import RunFolder, find_runs
from covshift.runs.cluster import run_on_ray
from covshift.runs.launch import resume_run, start_or_resume
from covshift.runs.sweeps import Job, Sweep
from covshift.runs.training import run_to_end

ENV = "covshift/RandomWalk-v0"
RUNTIME = RuntimeOptions(device="cpu", threads=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("data") / "walk"
    return str(collect(Request(ENV, 1500), place, progress=lambda _: None))


def jobs_of(place: Path, data: str, updates: int, seeds: int = 3, **leaves: Any) -> list[Job]:
    return [
        Job(
            place / f"seed{seed}",
            make_config(
                ENV, scale="smoke", seed=seed, num_updates=updates, evaluate_every=50, **leaves
            ),
            data,
        )
        for seed in range(seeds)
    ]


def alone(folder: Path, job: Job) -> bytes:
    trainer = start_or_resume(RunFolder(folder), job.config, job.data, RUNTIME, lambda _: None)
    run_to_end(trainer, lambda update, row: None)
    return (folder / "metrics.csv").read_bytes()


def test_killed_workers_and_half_done_sweeps_lose_nothing(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covshift.runs.sweeps._POLL_SECONDS", 0.1)
    jobs = jobs_of(tmp_path, data, 300, seeds=2)
    # One is half done before, and the worker of the other is killed on the way.
    trainer = start_or_resume(
        RunFolder(jobs[1].folder), jobs[1].config, data, RUNTIME, lambda _: None
    )
    ticks = trainer.run()
    while next(ticks).update < 100:
        pass
    trainer.close()
    killed: list[int] = []

    def watch(sweep: Sweep) -> None:
        if not killed and RunFolder(jobs[0].folder).status()["update"] > 0:
            sweep.running[0].kill()
            killed.append(0)

    sweep = Sweep(jobs)
    sweep.run(2, RUNTIME, watch)
    assert sweep.failed == {}
    assert sweep.tries == {0: 2, 1: 1}
    assert [job.status for job in jobs] == ["finished"] * 2
    for job in jobs:
        assert (
            alone(tmp_path / "alone" / job.folder.name, job)
            == (job.folder / "metrics.csv").read_bytes()
        )
    again = Sweep(jobs)
    again.run(2, RUNTIME, lambda _: None)
    assert again.tries == {}


@pytest.mark.usefixtures("children_here")
def test_a_run_that_fails_twice_is_reported_and_the_rest_goes_on(tmp_path: Path, data: str) -> None:
    jobs = jobs_of(tmp_path, data, 20, seeds=2)
    (jobs[0].folder).mkdir()
    sweep = Sweep(jobs)

    def watch(now: Sweep) -> None:
        (jobs[0].folder / "provenance.json").write_text("{}")

    sweep.run(1, RUNTIME, watch)
    assert list(sweep.failed) == [0]
    assert sweep.failed[0]
    assert jobs[1].status == "finished"


@pytest.mark.usefixtures("children_here")
def test_diverged_runs_are_over(tmp_path: Path, data: str) -> None:
    jobs = jobs_of(tmp_path, data, 20, seeds=1, divergence_bound=0.01)
    sweep = Sweep(jobs)
    sweep.run(1, RUNTIME, lambda _: None)
    assert sweep.failed == {}
    assert jobs[0].status == "diverged"


def test_ctrl_c_lets_workers_save(tmp_path: Path, data: str) -> None:
    jobs = jobs_of(tmp_path, data, 100_000, seeds=1)

    def watch(sweep: Sweep) -> None:
        if RunFolder(jobs[0].folder).status()["update"] >= 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Sweep(jobs).run(1, RUNTIME, watch)
    assert jobs[0].status == "interrupted"


def test_a_worker_that_is_starting_ends_too(tmp_path: Path, data: str) -> None:
    """As in a background job, whose shell has left SIGINT ignored in it and so in its children."""
    jobs = jobs_of(tmp_path, data, 2_000, seeds=1)

    def watch(sweep: Sweep) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            Sweep(jobs).run(1, RUNTIME, watch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not jobs[0].is_over


@pytest.mark.usefixtures("children_here")
def test_what_another_process_is_at_is_waited_for(tmp_path: Path, data: str) -> None:
    """A second sweep over the same runs neither gives them up nor runs them twice."""
    jobs = jobs_of(tmp_path, data, 20, seeds=2)
    trainer = start_or_resume(
        RunFolder(jobs[0].folder), jobs[0].config, data, RUNTIME, lambda _: None
    )
    polls: list[int] = []

    def watch(sweep: Sweep) -> None:
        polls.append(1)
        if len(polls) == 4:
            assert 0 not in sweep.tries
            run_to_end(trainer, lambda update, row: None)

    sweep = Sweep(jobs)
    sweep.run(2, RUNTIME, watch)
    assert sweep.failed == {}
    assert sweep.tries == {1: 1}
    assert [job.status for job in jobs] == ["finished"] * 2


def test_a_sweep_that_is_ended_lets_its_runs_save(tmp_path: Path, start_process: Any) -> None:
    """As a scheduler ends a job: no run is left behind, and none loses an update."""
    # So many updates that the runs are under way however slow the machine is.
    command = ["reproduce", "figure-4", "--scale", "smoke", "--set", "num_updates=1000000"]
    sweep = start_process("-m", "covshift", *command, "--out", tmp_path, stderr=subprocess.PIPE)
    begun: list[RunFolder] = []
    while not begun:
        assert sweep.poll() is None
        time.sleep(0.1)
        begun = [run for run in find_runs(tmp_path) if run.status()["status"] == "running"]
    sweep.send_signal(signal.SIGTERM)
    _, said = sweep.communicate(timeout=240)
    assert sweep.returncode == 130
    assert said == "covshift: interrupted; finished work is kept, and the same command continues\n"
    assert [run.status()["status"] for run in begun] == ["interrupted"] * len(begun)
    assert not any(run.is_locked() for run in begun)


def test_one_process_a_run(tmp_path: Path, data: str) -> None:
    (job,) = jobs_of(tmp_path, data, 20, seeds=1)
    trainer = start_or_resume(RunFolder(job.folder), job.config, data, RUNTIME, lambda _: None)
    with pytest.raises(InputError, match="another process is training the run"):
        resume_run(RunFolder(job.folder), RUNTIME, lambda _: None)
    trainer.close()
    resume_run(RunFolder(job.folder), RUNTIME, lambda _: None).close()


def test_ctrl_c_lets_ray_tasks_save(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run folders are given relative to a directory that Ray's workers do not have."""
    pytest.importorskip("ray")
    (job,) = jobs_of(Path("runs"), data, 100_000, seeds=1)
    monkeypatch.chdir(tmp_path)

    def watch(running: list[int]) -> None:
        if job.status == "running":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_ray([job], RUNTIME, watch, address=None)
    assert job.status == "interrupted"


def test_an_address_without_a_cluster_is_refused_before_runs_are_made(
    tmp_path: Path, data: str
) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="Ray cannot be reached at the address nowhere: "):
        run_on_ray(jobs_of(tmp_path, data, 10), RUNTIME, lambda _: None, address="nowhere")
    assert not [*tmp_path.iterdir()]


def test_a_lost_ray_node_loses_nothing(tmp_path: Path, data: str) -> None:
    """A node is killed while a run is on it; another one takes its place, and the results are the same."""
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    jobs = jobs_of(tmp_path, data, 1500, seeds=2)
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        node = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        lost: list[int] = []

        def watch(running: list[int]) -> None:
            done = [RunFolder(job.folder).status() for job in jobs]
            if not lost and any(50 <= status["update"] < 1500 for status in done):
                lost.append(1)
                cluster.remove_node(node, allow_graceful=False)
                cluster.add_node(num_cpus=1)

        failed = run_on_ray(jobs, RUNTIME, watch, address=None)
        assert lost
        assert failed == {}
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert [job.status for job in jobs] == ["finished"] * 2
    for job in jobs:
        assert (
            alone(tmp_path / "alone" / job.folder.name, job)
            == (job.folder / "metrics.csv").read_bytes()
        )


ALONE = """
import sys
from pathlib import Path
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.runs.sweeps import Job, Sweep

config = make_config("covshift/RandomWalk-v0", "c51", "smoke", num_updates=100_000, evaluate_every=50)
runtime = RuntimeOptions(device="cpu", threads=1)
Sweep([Job(Path(sys.argv[1]), config, sys.argv[2])]).run(1, runtime, lambda _: None)
"""


def test_a_killed_sweep_leaves_no_run_behind(tmp_path: Path, data: str, start_process: Any) -> None:
    """The run saves and ends; on a loaded machine that may take a while, so the test waits."""
    folder = RunFolder(tmp_path / "run")
    process = start_process("-c", ALONE, folder.path, data)

    def wait_until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    wait_until(
        lambda: process.poll() is not None or (folder.exists() and folder.status()["update"] > 0)
    )
    assert process.poll() is None
    process.kill()
    process.wait()
    wait_until(lambda: not folder.is_locked())
    assert folder.status()["status"] == "interrupted"
