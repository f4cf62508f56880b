"""Datasets of d3rlpy; run where it is installed, in an environment of its own (docs/integrations.md)."""

import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.data import open_dataset
from covshift.data.collection import Request, collect
from covshift.data.dataset import Episode
from covshift.data.dataset_writer import write_dataset
from covshift.errors import InputError

INSTALL = (
    "d3rlpy is not installed: its pins need an environment of its own, see docs/integrations.md"
)


def test_where_it_is_missing_one_sentence_says_how_to_install_it() -> None:
    code = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'd3rlpy' else found(name, *more)\n"
        "import covshift.integrations\n"
        "try: import covshift.integrations.d3rlpy\n"
        "except ImportError as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert "pip install d3rlpy==2.8.1, and then covshift" in printed.stdout.decode()


@pytest.fixture(scope="module")
def d3() -> Any:
    pytest.importorskip("d3rlpy", reason=INSTALL)
    from covshift.integrations import d3rlpy

    return d3rlpy


def episodes() -> list[Episode]:
    """One that terminated after 3 steps, and one that was cut off after 2."""
    rng = np.random.default_rng(0)
    return [
        Episode(
            rng.normal(size=(steps + 1, 2)).astype(np.float32),
            rng.integers(3, size=steps),
            rng.normal(size=steps).astype(np.float32).astype(np.float64),
            rng.uniform(0.1, 1.0, size=steps).astype(np.float32),
            terminated,
        )
        for steps, terminated in ((3, True), (2, False))
    ]


def written(folder: Path, made: list[Episode]) -> Path:
    return write_dataset(
        folder, iter(made), request={"source": "a test"}, num_actions=4, stack=1, policy=None,
        shard_transitions=100,
    )  # fmt: skip


def assert_same(folder: Path, expected: list[Episode]) -> None:
    found = open_dataset(folder)
    assert found.store.num_actions == 4
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        # d3rlpy keeps no state where an episode terminated.
        states = theirs.observations.copy()
        states[-1] *= not theirs.terminated
        np.testing.assert_array_equal(mine.observations, states)
        np.testing.assert_array_equal(mine.actions, theirs.actions)
        np.testing.assert_array_equal(mine.rewards, theirs.rewards)
        np.testing.assert_array_equal(np.asarray(mine.mu), np.asarray(theirs.mu))
        assert mine.terminated == theirs.terminated


def test_d3rlpy_sees_the_same_transitions(d3: Any, tmp_path: Path) -> None:
    made = episodes()
    buffer = d3.export_d3rlpy(written(tmp_path / "data", made))
    assert buffer.transition_count == 5
    assert buffer.dataset_info.action_size == 4
    for episode, theirs in zip(made, buffer.episodes, strict=True):
        assert theirs.compute_return() == pytest.approx(episode.rewards.sum())
        for t in range(len(episode)):
            step = buffer.transition_picker(theirs, t)
            ends = episode.terminated and t == len(episode) - 1
            np.testing.assert_array_equal(step.observation, episode.observations[t])
            arrived = episode.observations[t + 1] * (not ends)
            np.testing.assert_array_equal(step.next_observation, arrived)
            assert step.action == episode.actions[t]
            assert step.reward == np.float32(episode.rewards[t])
            assert step.terminal == ends


def test_back_from_memory_and_from_a_file(d3: Any, tmp_path: Path) -> None:
    import d3rlpy

    made = episodes()
    buffer = d3.export_d3rlpy(written(tmp_path / "data", made))
    assert_same(d3.import_d3rlpy(buffer, tmp_path / "memory"), made)
    file = BytesIO()
    buffer.dump(file)
    file.seek(0)
    loaded = d3.load_d3rlpy(file)
    assert_same(d3.import_d3rlpy(loaded, tmp_path / "file", num_actions=4), made)
    file.seek(0)
    plain = d3rlpy.dataset.ReplayBuffer.load(file, d3rlpy.dataset.InfiniteBuffer())
    assert plain.transition_count == 5
    with pytest.raises(InputError, match=r"the data hold no μ\(a\|s\)"):
        d3.import_d3rlpy(plain, tmp_path / "plain")


def mdp_dataset(made: list[Episode]) -> tuple[Any, Any]:
    """d3rlpy's own MDPDataset, and μ as a column beside its rows."""
    import d3rlpy

    parts: dict[str, list[Any]] = {"o": [], "a": [], "r": [], "end": [], "cut": [], "mu": []}
    for episode in made:
        steps, rows = len(episode), len(episode) + episode.truncated
        last = np.arange(rows) == rows - 1
        parts["o"].append(episode.observations[:rows])
        for name, column in (("a", episode.actions), ("r", episode.rewards), ("mu", episode.mu)):
            parts[name].append(np.resize(np.asarray(column), rows))
        assert len(parts["mu"][-1]) >= steps
        parts["end"].append(last & episode.terminated)
        parts["cut"].append(last & episode.truncated)
    whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    dataset = d3rlpy.dataset.MDPDataset(
        whole["o"], whole["a"], whole["r"].astype(np.float32), whole["end"].astype(np.float32),
        whole["cut"].astype(np.float32), action_size=4,
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
    )  # fmt: skip
    return dataset, whole["mu"]


def test_an_mdp_dataset_with_a_column_of_propensities(d3: Any, tmp_path: Path) -> None:
    made = episodes()
    dataset, mu = mdp_dataset(made)
    assert_same(d3.import_d3rlpy(dataset, tmp_path / "data", mu=mu), made)
    with pytest.raises(InputError, match="mu has 5 entries, but the dataset has 6 rows"):
        d3.import_d3rlpy(dataset, tmp_path / "short", mu=mu[:-1])
    with pytest.raises(InputError, match=r"no probability in \(0, 1\]"):
        d3.import_d3rlpy(dataset, tmp_path / "zero", mu=0 * mu)
    uniform = [replace(episode, mu=np.full(len(episode), 0.25)) for episode in made]
    assert_same(d3.import_d3rlpy(dataset, tmp_path / "uniform", policy="uniform"), uniform)


def test_what_cannot_be_imported_is_one_sentence(d3: Any, tmp_path: Path) -> None:
    import d3rlpy

    one, ends = np.zeros((3, 2), dtype=np.float32), np.array([0.0, 1.0, 0.0])
    moves = np.zeros((3, 1), dtype=np.float32)
    floats = d3rlpy.dataset.MDPDataset(one, moves + 0.5, one[:, 0], ends, 1 - ends)
    with pytest.raises(InputError, match="actions must be discrete"):
        d3.import_d3rlpy(floats, tmp_path / "floats")
    cut = d3rlpy.dataset.MDPDataset(
        one, moves.astype(int), one[:, 0], ends, np.array([0.0, 0.0, 1.0])
    )
    with pytest.raises(
        InputError, match="has 2 rows; d3rlpy leaves out episodes that were cut off"
    ):
        d3.import_d3rlpy(cut, tmp_path / "cut", mu=np.full(3, 0.5), num_actions=2)


def test_an_algorithm_of_d3rlpy_learns_from_it(d3: Any, tmp_path: Path) -> None:
    import d3rlpy

    collect(Request("covshift/RandomWalk-v0", 600, ("uniform",), 0), tmp_path / "walk")
    buffer = d3.export_d3rlpy(tmp_path / "walk")
    agent = d3rlpy.algos.DiscreteCQLConfig(batch_size=32).create()
    agent.fit(
        buffer, n_steps=20, n_steps_per_epoch=20, show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    states = np.eye(6, dtype=np.uint8)
    assert set(agent.predict(states)) <= {0, 1}
    assert buffer.transition_count == open_dataset(tmp_path / "walk").num_transitions
