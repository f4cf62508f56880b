"""Stacks of agents against lone ones: the same numbers, whatever the method and whoever is beside them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covshift.config.environment import EnvOptions
from covshift.config.presets import PRESETS, make_config
from covshift.config.training import TrainConfig
from covshift.data.collection import Request, collect
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.learners.deep import (
    AgentLearner,
    AgentLoss,
    AgentStack,
    Batches,
    Diverged,
    UpdateReport,
    agent,
    end_batch,
    make_priority,
    ratio_batch,
    stack_key,
    value_batch,
)
from covshift.networks import make_agent_network

ENV = "MinAtar/Breakout-v1"
VARIANTS: list[dict[str, Any]] = [
    *({"preset": preset} for preset in PRESETS),
    {"preset": "c51-corrected", "ratio_steps": 3, "value_steps": 2},
    {"preset": "c51-matched", "value_trace": "retrace", "trace_steps": 3},
    {"preset": "c51-corrected", "semantics": "restart", "normalization_weight": 0.3},
    {"preset": "c51-corrected", "initial_rule": "source", "rho_clip": 1.5},
    {"preset": "c51-corrected", "priority": "ratio-rho", "ratio_gradient": "head"},
    {"preset": "c51-auxiliary", "correction": "reweight", "ratio_loss_weight": 0.5},
    {"preset": "c51-auxiliary", "correction": "reweight-mean", "ratio_loss_weight": 0.5},
    {"preset": "c51-matched", "semantics": "restart"},
    {"preset": "c51-matched", "conservatism": 0.5, "bootstrap_action": "data"},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    place = tmp_path_factory.mktemp("data") / "breakout"
    return Store.open(collect(Request(ENV, 2000), place, progress=lambda _: None))


def learner_of(config: TrainConfig, store: Store) -> AgentLearner:
    network = make_agent_network(config, store.state_shape, store.num_actions)
    priority = make_priority(config.replay)
    return AgentLearner(AgentLoss(config, network, priority, torch.device("cpu")))


def batches_of(config: TrainConfig, store: Store, update: int) -> Batches:
    rng = np.random.default_rng([config.seed, update])
    values = value_batch(store, rng.choice(np.flatnonzero(store.is_transition), 32), config.value)
    weights = rng.uniform(0.5, 1.0, 32) if config.replay.priority == "td-error" else None
    if not config.ratio.learn_ratio:
        return Batches(values, None, weights)
    ids = rng.choice(np.flatnonzero(store.is_state), 32)
    ratios = ratio_batch(store, ids, config.ratio)
    if config.ratio.mass_closure:
        # With restarts no state ends an episode.
        size = 0 if config.ratio.semantics == "restart" else 32
        ends = rng.choice(np.flatnonzero(store.is_end), size)
        share = float(store.is_end.sum() / store.is_state.sum())
        ratios = ratios._replace(ends=end_batch(store, ends, share, store.initial_share()))
    return Batches(values, ratios, weights)


def assert_close(a: AgentLearner, b: AgentLearner, tolerance: float) -> None:
    first, second = a.state_dict(), b.state_dict()
    assert first.values["update"] == second.values["update"]
    if first.values["mean_weight"] is not None:
        assert second.values["mean_weight"] == pytest.approx(first.values["mean_weight"], rel=1e-5)
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        torch.testing.assert_close(second.tensors[name], tensor, rtol=0, atol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_a_stack_learns_what_lone_agents_learn(variant: dict[str, Any], store: Store) -> None:
    """After six updates, two of them behind a copy to the target network, parameters agree to 1e-6."""
    base = make_config(ENV, scale="smoke", target_period=16, **variant)
    configs = [base.replace_leaves(seed=seed) for seed in range(3)]
    lone = [learner_of(config, store) for config in configs]
    stacked = [learner_of(config, store) for config in configs]
    stack = AgentStack(stacked)
    for update in range(6):
        batches = [batches_of(config, store, update) for config in configs]
        reports = stack.update(batches)
        for learner, batch, report in zip(lone, batches, reports, strict=True):
            expected = learner.update(*batch)
            assert isinstance(report, UpdateReport)
            torch.testing.assert_close(report.means, expected.means, rtol=1e-4, atol=1e-6)
            for name in ("priority", "ratio"):
                ours, theirs = getattr(report, name), getattr(expected, name)
                assert (ours is None) == (theirs is None)
                if theirs is not None:
                    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for one, other in zip(lone, stacked, strict=True):
        assert_close(one, other, 1e-6)
    start = learner_of(configs[0], store)
    with pytest.raises(AssertionError):
        assert_close(start, stacked[0], 1e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_a_recording_computes_the_same_bits(
    variant: dict[str, Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against automatic differentiation; recorded after two updates, and the target network moves in between."""
    assert_recording_is_exact(
        make_config(ENV, scale="smoke", target_period=16, **variant), store, monkeypatch
    )


def test_a_recording_on_small_frames_computes_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("ALE/Pong-v5", 200, options=EnvOptions(frame_size=42, episode_cap=60))
    frames = Store.open(collect(request, tmp_path / "pong", progress=lambda _: None))
    config = make_config("ALE/Pong-v5", "c51-matched", "smoke", target_period=16, frame_size=42)
    assert learner_of(config, frames)._can_be_recorded()
    assert_recording_is_exact(config, frames, monkeypatch)
    with pytest.raises(InputError, match="resume each alone"):
        AgentStack([learner_of(config, frames)])


def assert_recording_is_exact(
    config: TrainConfig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for plain_updates in (2, 10):
        monkeypatch.setattr(agent, "_UPDATES_BEFORE_RECORDING", plain_updates)
        learner = learner_of(config, store)
        reports = [learner.update(*batches_of(config, store, update)) for update in range(6)]
        found[plain_updates] = learner, reports
    assert_close(found[10][0], found[2][0], 0.0)
    assert found[2][0].state_dict().values == found[10][0].state_dict().values
    for ours, theirs in zip(found[2][1], found[10][1], strict=True):
        np.testing.assert_array_equal(ours.means.detach(), theirs.means.detach())
        for name in ("priority", "ratio"):
            if getattr(theirs, name) is None:
                assert getattr(ours, name) is None
            else:
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("preset", ["c51", "c51-corrected", "c51-matched"])
def test_recordings_are_simplified(
    preset: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that change tensors in place are not, and repeat every detour of the gradient's."""
    monkeypatch.setattr(agent, "_UPDATES_BEFORE_RECORDING", 0)
    learner = learner_of(make_config(ENV, preset, "smoke"), store)
    learner.update(*batches_of(learner.config, store, 0))
    (recording,) = learner._recordings.values()
    calls = [node.target for node in recording._run.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.mul.Tensor not in calls
    assert torch.mul in calls


def test_a_recorded_update_that_diverges_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_UPDATES_BEFORE_RECORDING", 0)
    config = make_config(ENV, "c51-matched", "smoke", divergence_bound=0.01)
    learner, twin = learner_of(config, store), learner_of(config, store)
    with pytest.raises(Diverged, match=r"mean \|c\| of update 1"):
        learner.update(*batches_of(config, store, 0))
    assert_close(twin, learner, 0.0)


@pytest.mark.parametrize("preset", ["c51-corrected", "c51-dual", "c51-matched"])
def test_agents_of_a_stack_may_differ_by_factors(preset: str, store: Store) -> None:
    base = make_config(ENV, preset, "smoke")
    configs = [
        base,
        base.replace_leaves(seed=1, ratio_loss_weight=0.7),
        base.replace_leaves(seed=2, ratio_discount=0.8),
        base.replace_leaves(seed=3, learning_rate=0.001, discount=0.5),
    ]
    lone = [learner_of(config, store) for config in configs]
    stacked = [learner_of(config, store) for config in configs]
    stack = AgentStack(stacked)
    for update in range(4):
        batches = [batches_of(config, store, update) for config in configs]
        stack.update(batches)
        for learner, batch in zip(lone, batches, strict=True):
            learner.update(*batch)
    for one, other in zip(lone, stacked, strict=True):
        assert_close(one, other, 2e-6)


@pytest.mark.parametrize("preset", ["c51-dual", "c51-matched"])
def test_who_is_beside_an_agent_does_not_matter(preset: str, store: Store) -> None:
    """Bit by bit, so that a stack that lost agents continues as it would have."""
    configs = [make_config(ENV, preset, "smoke", seed=seed) for seed in range(5)]
    configs[0] = configs[0].replace_leaves(ratio_discount=0.5)
    all_five = [learner_of(config, store) for config in configs]
    last_two = [learner_of(config, store) for config in configs[3:]]
    last = learner_of(configs[4], store)
    large, small, single = AgentStack(all_five), AgentStack(last_two), AgentStack([last])
    for update in range(4):
        batches = [batches_of(config, store, update) for config in configs]
        large.update(batches)
        small.update(batches[3:])
        single.update(batches[4:])
    for one, other in zip([*all_five[3:], all_five[4]], [*last_two, last], strict=True):
        assert_close(one, other, 0.0)


def test_an_agent_that_diverges_is_left_as_it_was_and_the_rest_is_updated(store: Store) -> None:
    base = make_config(ENV, "c51-corrected", "smoke")
    configs = [
        base,
        base.replace_leaves(seed=1, divergence_bound=0.01),
        base.replace_leaves(seed=2),
    ]
    learners = [learner_of(config, store) for config in configs]
    twins = [learner_of(config, store) for config in configs]
    results = AgentStack(learners).update([batches_of(config, store, 0) for config in configs])
    assert isinstance(results[1], Diverged)
    assert "mean |c| of update 1" in str(results[1])
    assert_close(twins[1], learners[1], 0.0)
    for k in (0, 2):
        twins[k].update(*batches_of(configs[k], store, 0))
        assert_close(twins[k], learners[k], 1e-6)


def test_which_runs_can_be_stacked() -> None:
    base = make_config(ENV, "c51-corrected", "smoke")
    for same in ({"seed": 3}, {"ratio_discount": 0.5}, {"learning_rate": 1.0}, {"num_updates": 7}):
        assert stack_key(base.replace_leaves(**same)) == stack_key(base)
    for other in (
        {"batch_size": 16},
        {"ratio_head": "softplus"},
        {"num_atoms": 21},
        {"source_clip": False},
        {"target_epsilon": 0.2},
        {"priority": "ratio-rho"},
        {"env": "MinAtar/Asterix-v1"},
    ):
        assert stack_key(base.replace_leaves(**other)) != stack_key(base)
    assert stack_key(base.replace_leaves(env="ALE/Pong-v5")) is None
    assert stack_key(base.replace_leaves(ratio_head="exponential")) is None


def test_different_methods_are_refused(store: Store) -> None:
    configs = [make_config(ENV, preset, "smoke") for preset in ("c51", "c51-corrected")]
    with pytest.raises(InputError, match="cannot be updated as one stack"):
        AgentStack([learner_of(config, store) for config in configs])
