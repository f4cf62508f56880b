"""Data of the agent itself: who collected what, and resumes that give the same rows."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from covshift.config.presets import PRESETS, make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.format import read_rows, shard_name
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.networks import AgentNetwork, make_agent_network, value_support
from covshift.records import RunFolder
from covshift.rules import decayed_epsilon, epsilon_greedy_probabilities, expected_value
from covshift.runs.checkpoints import read_checkpoint
from covshift.runs.launch import resume_run, start_or_resume
from covshift.runs.online import OnlineData
from covshift.runs.stacks import resume_stack
from covshift.runs.training import Trainer, run_to_end
from covshift.theory import c_star
from covshift.theory.examples import random_walk

ENV = "covshift/RandomWalk-v0"
RUNTIME = RuntimeOptions(device="cpu", threads=1)


def config_of(preset: str = "c51-matched", **leaves: Any) -> TrainConfig:
    small: dict[str, Any] = {
        **{"num_updates": 40, "evaluate_every": 20, "learning_rate": 0.01, "target_period": 20},
        **{"warm_up": 60, "online_shard": 30, "window": 120, "epsilon_decay": 60},
    }
    return make_config(ENV, preset, "smoke", **(small | leaves))


def start(folder: Path, config: TrainConfig) -> Trainer:
    return start_or_resume(RunFolder(folder), config, "online", RUNTIME, lambda _: None)


def finish(trainer: Trainer) -> None:
    run_to_end(trainer, lambda update, row: None)


def stop_after(trainer: Trainer, update: int) -> None:
    """Leaves a run as a kill after this update would: nothing is saved but what was due."""
    with closing(trainer):
        for tick in trainer.run():
            if tick.update == update:
                break


def assert_same(first: Path, second: Path) -> None:
    """Checkpoints, metrics and every row of the data."""
    states = [read_checkpoint(run / "checkpoints").state for run in (first, second)]
    assert states[0].values == states[1].values
    assert set(states[0].tensors) == set(states[1].tensors)
    for name, tensor in states[0].tensors.items():
        assert torch.equal(tensor, states[1].tensors[name]), name
    assert (first / "metrics.csv").read_bytes() == (second / "metrics.csv").read_bytes()
    folders = [run.with_name(f"{run.name}-online") for run in (first, second)]
    names = [sorted(path.name for path in folder.glob("*.arrow")) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def last_layer(network: AgentNetwork) -> nn.Linear:
    return cast(nn.Linear, cast(nn.Sequential, network.value_head.layers)[-1])


def acting_probabilities(
    network: AgentNetwork, config: TrainConfig, states: Any, epsilon: float
) -> np.ndarray:
    with torch.no_grad():
        logits = network.value_head(network.torso(torch.from_numpy(states)))
        q = expected_value(torch.softmax(logits, -1), value_support(config.value)).numpy()
    return epsilon_greedy_probabilities(q.astype(np.float64), epsilon)


def assert_acted(
    store: Store, rows: Any, network: AgentNetwork, config: TrainConfig, epsilon: float
) -> None:
    taken = rows[store.is_transition[rows]]
    expected = acting_probabilities(network, config, store.states(taken), epsilon)
    actions = store.columns["action"][taken]
    np.testing.assert_allclose(
        store.columns["mu"][taken], expected[np.arange(len(taken)), actions], rtol=1e-6
    )


def test_each_shard_is_the_agent_of_the_moment_when_the_one_before_was_needed(
    tmp_path: Path,
) -> None:
    config = config_of(acting_epsilon=0.2)
    source = OnlineData(tmp_path / "data", config)
    store = source.store
    network = make_agent_network(config, store.state_shape, store.num_actions)
    try:
        source.begin(network, None)
        source.window(0)
        uniform = store.columns["mu"][store.is_transition]
        np.testing.assert_array_equal(uniform, np.float32(1 / store.num_actions))
        old = make_agent_network(config, store.state_shape, store.num_actions)
        with torch.no_grad():
            # The shard after those of the warm-up was started with the first parameters already.
            last_layer(network).weight.mul_(-3.0)
        seen, started, update, shards = len(store), old, 0, 0
        while shards < 4:
            update += 1
            transitions = int(store.is_transition.sum())
            source.window(update)
            if len(store) == seen:
                continue
            epsilon = decayed_epsilon(transitions, 60, 60, 0.2)
            assert_acted(store, np.arange(seen, len(store)), started, config, epsilon)
            seen, shards = len(store), shards + 1
            started = make_agent_network(config, store.state_shape, store.num_actions)
            started.load_state_dict(network.state_dict())
            with torch.no_grad():
                last_layer(network).weight.mul_(-1.0)
        assert epsilon == 0.2
        store.check_valid()
    finally:
        source.close()


def test_seeds_share_no_data(tmp_path: Path) -> None:
    rows = []
    for seed in (0, 1):
        config = config_of("c51", seed=seed, num_updates=1)
        finish(start(tmp_path / f"run{seed}", config))
        rows.append(read_rows(tmp_path / f"run{seed}-online" / shard_name(0)))
    assert rows[0].columns["action"].tolist() != rows[1].columns["action"].tolist()


@pytest.mark.parametrize("preset", [p for p in PRESETS if p != "c51-matched"])
def test_every_preset_runs_and_resumes_from_its_last_checkpoint(
    tmp_path: Path, preset: str
) -> None:
    config = config_of(preset, num_updates=20)
    finish(start(tmp_path / "whole", config))
    stop_after(start(tmp_path / "parts", config), 15)
    finish(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None))
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_shards_after_the_checkpoint_are_collected_anew_and_older_ones_cannot_be(
    tmp_path: Path,
) -> None:
    """A shard of parameters that the resumed run does not have yet must not be used, whatever is in it."""
    config = config_of()
    finish(start(tmp_path / "whole", config))
    stop_after(start(tmp_path / "parts", config), 23)
    folder = tmp_path / "parts-online"
    taken_in = read_checkpoint(tmp_path / "parts" / "checkpoints").state.values["shards"]
    last = len(list(folder.glob("*.arrow")))
    for index in range(taken_in + 1, last + 3):
        for end in ("", ".sha256"):  # Whole files, of another moment.
            content = (folder / f"{shard_name(0)}{end}").read_bytes()
            (folder / f"{shard_name(index)}{end}").write_bytes(content)
    (folder / shard_name(taken_in)).write_bytes(b"cut off")  # Its parameters are in the checkpoint.
    finish(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None))
    assert_same(tmp_path / "whole", tmp_path / "parts")

    stop_after(start(tmp_path / "broken", config), 23)
    (tmp_path / "broken-online" / shard_name(1)).write_bytes(b"cut off")
    with pytest.raises(InputError, match=r"shard-00001\.arrow is damaged or gone, and the agent"):
        resume_run(RunFolder(tmp_path / "broken"), None, lambda _: None)


def test_a_checkpoint_is_small(tmp_path: Path) -> None:
    stop_after(start(tmp_path / "run", config_of()), 20)
    files = list((tmp_path / "run" / "checkpoints").rglob("*.safetensors"))
    one = read_checkpoint(tmp_path / "run" / "checkpoints").state.tensors
    acting = sum(x.numel() for name, x in one.items() if name.startswith("acting."))
    network = sum(x.numel() for name, x in one.items() if name.startswith("network."))
    assert 0 < acting <= network
    assert max(path.stat().st_size for path in files) < 8 * network * 4


def test_online_runs_can_be_stacked(tmp_path: Path) -> None:
    folders = []
    for seed in (0, 1):
        folder = RunFolder(tmp_path / f"run{seed}")
        stop_after(start(folder.path, config_of(seed=seed, num_updates=24, evaluate_every=24)), 0)
        folders.append(folder)
    resume_stack(folders, lambda _: None)
    assert [folder.status()["status"] for folder in folders] == ["finished", "finished"]


def test_killed_runs_go_on_exactly(
    tmp_path: Path, train_and_kill: Callable[[Path, TrainConfig, str], None]
) -> None:
    config = config_of(num_updates=120, evaluate_every=50)
    finish(start(tmp_path / "whole", config))
    train_and_kill(tmp_path / "killed", config, "online")
    finish(start(tmp_path / "killed", config))
    assert_same(tmp_path / "whole", tmp_path / "killed")


def test_the_ratio_follows_the_moving_policy_and_its_moving_data(tmp_path: Path) -> None:
    """Within a fifth of the exact ratio of π of the moment to the window of the moment, counting visits.

    π goes left everywhere at first and right everywhere later. The window starts with uniform play and ends with the
    agent's own, for which the exact ratio is another.
    """
    problem = random_walk()
    leaves: dict[str, Any] = {
        **{"num_updates": 800, "evaluate_every": 800, "batch_size": 128, "learning_rate": 0.001},
        **{"warm_up": 3000, "online_shard": 200, "window": 3000, "epsilon_decay": 1500},
        **{"acting_epsilon": 0.3, "ratio_loss_weight": 1.0, "ratio_discount": 0.9},
        **{"target_period": 100, "calibration_episodes": 0},
    }
    config = config_of(seed=1, **leaves)
    trainer = start(tmp_path / "run", config)
    learner, store = trainer.learner, trainer.replay.source.store
    states = np.eye(problem.mdp.num_states, dtype=np.uint8)
    exact, pis = {}, {}
    with closing(trainer):
        for tick in trainer.run():
            if tick.update not in (0, 400, 500, 600, 700, 800):
                continue
            pi = acting_probabilities(learner.target, config, states, 0.1)
            lo, hi = trainer.replay.source.window(max(0, tick.update - 1))
            rows = lo + np.flatnonzero(store.is_state[lo:hi])
            met = np.bincount(store.states(rows).argmax(axis=1), minlength=len(states))
            visits = met / store.columns["is_initial"][rows].sum()
            exact[tick.update] = c_star(problem.mdp.chain(pi), visits, 0.9)
            pis[tick.update] = pi
            with torch.no_grad():
                c = learner.network.ratio(learner.network.torso(torch.from_numpy(states))).numpy()
            error = np.sqrt((visits * (c - exact[tick.update]) ** 2).sum())
            error /= np.sqrt((visits * exact[tick.update] ** 2).sum())
            assert tick.update == 0 or error < 0.2, f"{error:.3f} at update {tick.update}"
    assert (pis[0].argmax(axis=1) == 0).all()
    assert (pis[400].argmax(axis=1) == 1).all()
    assert np.abs(exact[800] - exact[400]).max() > 0.2
