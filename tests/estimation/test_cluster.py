"""Sums as Ray tasks over shards or files give the answers of one process, also if a node is lost."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from covshift.cli.main import main
from covshift.data.collection import Request, collect
from covshift.errors import InputError
from covshift.estimation import as_logs, compare_estimators
from covshift.estimation.cluster import logs_on_ray
from covshift.estimation.experience import Experience
from covshift.estimation.logs import Logs
from covshift.estimation.merging import MergedTransitions
from covshift.theory.examples import random_walk

ray: Any = pytest.importorskip("ray")
cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
ESTIMATORS = ["fqe", "mis", "dr", "behavior"]
ASK: dict[str, Any] = {"estimators": ESTIMATORS, "discount": 0.9, "replicates": 12, "seed": 1}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of seven shards."""
    folder = tmp_path_factory.mktemp("walk") / "data"
    request = Request("covshift/RandomWalk-v0", 3000, seed=1, shard_transitions=500)
    collect(request, folder, progress=lambda _: None)
    return folder


@pytest.fixture(scope="module")
def parquet(walk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as words in a folder of Parquet files, of which not every one has every state."""
    folder = tmp_path_factory.mktemp("parquet")
    logs = as_logs(walk)
    words = np.array([f"s{k}" for k in range(6)], dtype=object)
    table = pd.DataFrame(
        {
            "trajectory": logs.trajectory, "state": words[logs.states().argmax(axis=1)],
            "action": np.array(["left", "right"], dtype=object)[logs.action], "propensity": logs.mu,
            "reward": logs.reward, "next_state": words[logs.next_states().argmax(axis=1)],
            "terminated": logs.terminated,
        }
    )  # fmt: skip
    for k, rows in table.groupby((table.trajectory > 0) * 1 + (table.trajectory > 200) * 1):
        rows.to_parquet(folder / f"{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def assert_same(one: Any, other: Any) -> None:
    assert [e.estimator for e in one.estimates] == ESTIMATORS
    for name in ESTIMATORS:
        np.testing.assert_allclose(one[name].value, other[name].value, rtol=1e-9)
        np.testing.assert_allclose(one[name].replicates, other[name].replicates, rtol=1e-7)


def waves(states: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(states)), np.cos(states @ np.arange(6.0))])


@pytest.mark.parametrize("features", [None, waves], ids=["table", "features"])
def test_a_lost_node_changes_nothing(
    features: Any, walk: Path, cluster: Any, tmp_path: Path
) -> None:
    """A task on the second of two nodes waits until its node is killed, and others until it has begun."""
    driver, pi = os.getpid(), random_walk().pi
    node = cluster.add_node(num_cpus=1)
    second, begun = node.node_id, tmp_path / "begun"

    def policy(states: np.ndarray) -> np.ndarray:
        if os.getpid() != driver:
            if ray.get_runtime_context().get_node_id() == second:
                begun.touch()
                time.sleep(3600)
            while not begun.exists():
                time.sleep(0.02)
        return np.asarray(pi[states.argmax(axis=1)])

    killed = threading.Event()

    def kill() -> None:
        while not begun.exists():
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        killed.set()

    ask = ASK | {"features": features}
    alone = compare_estimators(walk, policy, **ask)
    threading.Thread(target=kill, daemon=True).start()
    with logs_on_ray(walk) as logs:
        assert logs.mapper is not None
        assert len(logs.mapper.bounds) > 3
        spread = compare_estimators(logs, policy, **ask)
    assert killed.wait(240)
    assert_same(spread, alone)


def test_files_of_a_parquet_folder(parquet: Path, walk: Path, cluster: Any) -> None:
    pi = {
        f"s{k}": dict(zip(("left", "right"), row, strict=True))
        for k, row in enumerate(random_walk().pi)
    }
    alone = compare_estimators(walk, random_walk().pi, **ASK)
    with logs_on_ray(parquet) as logs:
        assert logs.mapper is not None
        assert len(logs.mapper.bounds) == 3
        assert_same(compare_estimators(logs, pi, **ASK), alone)
        assert logs[:10].mapper is None


def test_what_has_no_parts_is_refused(
    parquet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = pd.concat([pd.read_parquet(path) for path in sorted(parquet.iterdir())])
    whole.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(SystemExit):
        main(
            ["estimate", "value", str(tmp_path / "a.csv"), "--policy", "uniform", "--engine", "ray"]
        )
    assert "a.csv has no parts for Ray tasks: give a dataset's folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["estimate", "value", str(parquet), "--policy", "uniform", "--ray-address", "x:1"])
    assert "--ray-address x:1 needs --engine ray" in capsys.readouterr().err
    (tmp_path / "cut").mkdir()
    whole.iloc[:101].to_parquet(tmp_path / "cut" / "0.parquet")
    whole.iloc[101:].to_parquet(tmp_path / "cut" / "1.parquet")
    assert whole.trajectory.iloc[100] == whole.trajectory.iloc[101]
    with pytest.raises(
        InputError, match=r"1\.parquet continues a trajectory of the file before it"
    ):
        logs_on_ray(tmp_path / "cut").__enter__()


def test_the_command_prints_the_same_numbers(
    walk: Path, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "pi.npy", random_walk().pi)
    command = [
        "estimate",
        "value",
        str(walk),
        "--policy",
        f"file:{tmp_path / 'pi.npy'}",
        "--replicates",
        "12",
    ]
    command += ["--estimators", "fqe", "dr"]
    tables = []
    for engine in ("local", "ray"):
        main([*command, "--engine", engine])
        # Before the table, Ray may say that the node of an earlier test is dead.
        _, heading, table = capsys.readouterr().out.partition("E[Σ γᵗ r]")
        assert heading
        tables.append(table)
    assert tables[0] == tables[1]


def merged(logs: Logs) -> MergedTransitions:
    experience = Experience.of(logs, random_walk().pi)
    return MergedTransitions.of(experience.samples(), 6, len(logs))


@pytest.mark.parametrize("noise", [False, True], ids=["equal rewards", "random rewards"])
def test_joined_parts_are_the_whole(walk: Path, noise: bool) -> None:
    logs = as_logs(walk)
    if noise:
        reward = np.random.default_rng(0).normal(size=logs.num_transitions)
        reward[: logs.starts[50]] = (
            1.0  # Within the first part equal transitions have equal rewards.
        )
        logs = Logs(
            logs.read_states, logs.read_next_states, logs.action, logs.mu, reward, logs.terminated,
            logs.truncated, logs.is_initial, logs.trajectory, logs.num_actions,
        )  # fmt: skip
    parts = [merged(logs[:50]), merged(logs[50:51]), merged(logs[51:])]
    whole, joined = merged(logs), MergedTransitions.join(parts, 6)
    weights = np.random.default_rng(1).exponential(size=len(logs))
    for left, right in zip(whole.weighed(weights), joined.weighed(weights), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)
