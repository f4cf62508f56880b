"""What the training loop hands to whom: samplers, batches, weights, priorities, networks, ε."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covshift.config.environment import EnvOptions
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Request, collect
from covshift.data.runner import Step
from covshift.data.samplers import PrioritizedSampler
from covshift.envs import Outcome
from covshift.errors import InputError
from covshift.learners.deep import UpdateReport
from covshift.networks import make_torso
from covshift.records import RunFolder
from covshift.runs import EpisodeResult, evaluation, launch, measures, training
from covshift.runs.evaluation import roll_out
from covshift.runs.launch import create_run, start_or_resume
from covshift.runs.training import Trainer

ENV = "covshift/RandomWalk-v0"
RUNTIME = RuntimeOptions(device="cpu", threads=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("data") / "walk"
    return str(collect(Request(ENV, 1500), place, progress=lambda _: None))


def config_of(preset: str = "c51-corrected", **leaves: Any) -> TrainConfig:
    return make_config(ENV, preset, "smoke", **({"transitions": 1500, "window": 1500} | leaves))


class Recorder:
    """Stands where the learner's update is, and answers with given priorities."""

    def __init__(self, trainer: Trainer, priority: float = 2.0, ratio: float = 3.0) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []
        self.priority, self.ratio, self.learner = priority, ratio, trainer.learner

    def __call__(self, values: Any, ratios: Any, weights: Any = None) -> UpdateReport:
        self.calls.append((values, ratios, weights))
        self.learner.num_updates += 1
        size = len(values.a_tm1)
        kind = self.learner.config.replay.priority
        return UpdateReport(
            None if kind == "uniform" else np.full(size, self.priority),
            None if ratios is None else np.full(len(ratios.s_t), self.ratio),
            torch.zeros(5),
        )


def started(tmp_path: Path, config: TrainConfig, data: str) -> tuple[Trainer, Recorder]:
    trainer = start_or_resume(RunFolder(tmp_path / "run"), config, data, RUNTIME, lambda _: None)
    recorder = Recorder(trainer)
    trainer.learner.update = recorder  # type: ignore[method-assign, assignment]
    return trainer, recorder


def test_ratio_batches_are_states_and_independent(tmp_path: Path) -> None:
    """States that end a truncated episode are drawn, terminal ones never; the draws share no generator."""
    drawn: list[np.ndarray] = []
    request = Request(ENV, 300, options=EnvOptions(episode_cap=4))
    cut = collect(request, tmp_path / "data", progress=lambda _: None)
    trainer, _ = started(tmp_path, config_of(), str(cut))
    sampler, transitions = trainer.replay.states, trainer.replay.transitions
    assert sampler is not None
    store = trainer.replay.source.store
    np.testing.assert_array_equal(sampler.eligible, store.is_state)
    assert not np.array_equal(store.is_state, store.is_transition)
    assert sampler.rng is not transitions.rng
    before = transitions.rng.bit_generator.state
    drawn.append(sampler.sample(50))
    assert transitions.rng.bit_generator.state == before
    other = np.random.default_rng(0)
    other.bit_generator.state = before
    assert not np.array_equal(drawn[0], other.integers(*sampler.window, size=50))
    trainer.close()


@pytest.mark.parametrize("semantics", ["visits", "restart"])
def test_the_mass_closure_gets_ends_of_episodes_and_the_shares_of_the_window(
    tmp_path: Path, semantics: str
) -> None:
    request = Request(ENV, 300, options=EnvOptions(episode_cap=4))
    cut = collect(request, tmp_path / "data", progress=lambda _: None)
    trainer, recorder = started(
        tmp_path, config_of("c51-matched", semantics=semantics, batch_size=64, window=101), str(cut)
    )
    trainer.step()
    store, ends = trainer.replay.source.store, recorder.calls[0][1].ends
    trainer.close()
    if semantics == "restart":
        assert (len(ends.a_tm1), ends.share, ends.initial_share) == (0, 0.0, 0.0)
        return
    window = slice(*trainer.replay.transitions.window)
    states = store.is_state[window].sum()
    assert ends.share == store.is_end[window].sum() / states
    assert ends.initial_share == store.columns["is_initial"][window].sum() / states
    assert ends.share > ends.initial_share  # The window begins within an episode.
    assert 0 < ends.is_cut.sum() < 64
    known = np.flatnonzero(store.is_end)
    for state, cut_off, action, mu in zip(
        ends.s_tm1, ends.is_cut, ends.a_tm1, ends.mu_tm1, strict=True
    ):
        same = [row for row in known if np.array_equal(store.states(np.array([row]))[0], state)]
        taken = {
            (int(store.columns["action"][row]), float(store.columns["mu"][row])) for row in same
        }
        assert (action, mu) == (0, 1) if cut_off else (action, mu) in taken


def test_td_error_weights_are_those_of_rainbow(tmp_path: Path, data: str) -> None:
    trainer, recorder = started(tmp_path, config_of("c51-td-priority"), data)
    sampler = trainer.replay.transitions
    assert isinstance(sampler, PrioritizedSampler)
    rows = np.flatnonzero(trainer.replay.source.store.is_transition)
    sampler.update(rows, np.linspace(0.1, 4.0, len(rows)))
    law = dict(zip(rows, sampler.probabilities(rows), strict=True))
    seen: list[np.ndarray] = []
    sample = sampler.sample
    sampler.sample = lambda count: seen.append(sample(count)) or seen[-1]  # type: ignore[func-returns-value, method-assign]
    trainer.step()
    (_, ratios, weights) = recorder.calls[0]
    assert ratios is None
    expected = np.array([(len(rows) * law[row]) ** -0.5 for row in seen[0]])
    np.testing.assert_allclose(weights, expected / expected.max())
    trainer.close()


def priorities_of_new_items(trainer: Trainer) -> np.ndarray:
    """Of the transitions that the window's next move lets in."""
    sampler = trainer.replay.transitions
    assert isinstance(sampler, PrioritizedSampler)
    before = sampler.window
    trainer.replay.slide(trainer.update)
    entered = np.arange(before[1], sampler.window[1])
    entered = entered[trainer.replay.source.store.is_transition[entered]]
    return np.asarray(sampler.save()["priorities"][entered - sampler.window[0]])


def test_the_largest_td_error_so_far_is_that_of_new_items(tmp_path: Path) -> None:
    config = config_of("c51-td-priority", warm_up=100, stream_shard=60, window=120)
    trainer, recorder = started(tmp_path, config, "stream")
    for priority in (5.0, 2.0, 3.0):
        recorder.priority = priority
        trainer.step()
    np.testing.assert_allclose(priorities_of_new_items(trainer), [5.0] * 4)
    trainer.close()


def test_the_mean_ratio_of_the_model_is_that_of_new_items(tmp_path: Path) -> None:
    config = config_of(warm_up=100, stream_shard=60, window=120)
    trainer, _ = started(tmp_path, config, "stream")
    for _ in range(2):
        trainer.step()
    # 1, then a hundredth of the way to 3, twice.
    expected = 3 - 2 * 0.99**2
    np.testing.assert_allclose(priorities_of_new_items(trainer), [expected] * 4)
    trainer.close()


def test_relative_priorities_are_stored_over_the_running_mean(tmp_path: Path) -> None:
    """The mean starts at 1 and moves a hundredth of the way to each batch's mean ratio, 3."""
    config = config_of(
        priority_scale="mean", refresh="both", warm_up=100, stream_shard=60, window=120
    )
    trainer, recorder = started(tmp_path, config, "stream")
    mean = 1.0
    for _ in range(3):
        draw = trainer.replay.draw(trainer.update)
        report = recorder(draw.values, draw.states)
        trainer.replay.renew(draw, report)
        lo = trainer.replay.transitions.window[0]
        saved = trainer.replay.transitions.save()["priorities"]
        assert draw.state_ids is not None
        only_drawn = np.setdiff1d(draw.ids, draw.state_ids)
        np.testing.assert_allclose(saved[only_drawn - lo], 2.0 / mean)
        states = draw.state_ids[trainer.replay.source.store.is_transition[draw.state_ids]]
        np.testing.assert_allclose(saved[states - lo], 3.0 / mean)
        mean += 0.01 * (3.0 - mean)
    np.testing.assert_allclose(priorities_of_new_items(trainer), [1.0] * 4)
    trainer.close()


def test_priorities_have_the_floor_and_go_to_the_drawn_rows(tmp_path: Path, data: str) -> None:
    trainer, recorder = started(tmp_path, config_of(priority_floor=0.25), data)
    recorder.priority = 0.0
    trainer.step()
    saved = trainer.replay.transitions.save()["priorities"]
    changed = np.unique(saved[(saved != 1.0) & (saved != 0.0)])
    np.testing.assert_allclose(changed, [0.25])
    trainer.close()


def test_the_window_is_the_newest_part(tmp_path: Path, data: str) -> None:
    trainer, _ = started(tmp_path, config_of(window=200), data)
    lo, hi = trainer.replay.source.window(0)
    assert hi == len(trainer.replay.source.store)
    assert trainer.replay.source.store.is_transition[lo:hi].sum() == 200
    trainer.close()


def test_stream_windows_count_transitions(tmp_path: Path) -> None:
    config = config_of(warm_up=100, stream_shard=60, window=50)
    trainer, _ = started(tmp_path, config, "stream")
    for update in (0, 1, 7):
        lo, hi = trainer.replay.source.window(update)
        store = trainer.replay.source.store
        assert store.is_transition[:hi].sum() == 100 + 4 * update
        assert store.is_transition[lo:hi].sum() == 50
    trainer.close()


def test_prioritized_ratio_batches_are_what_drawn_transitions_lead_to(
    tmp_path: Path, data: str
) -> None:
    config = config_of(ratio_batch="prioritized")
    trainer, _ = started(tmp_path, config, data)
    store = trainer.replay.source.store
    ids = np.flatnonzero(store.is_transition)
    arrived = trainer.replay.arrivals(ids)
    ends = store.columns["terminated"][ids + 1]
    np.testing.assert_array_equal(arrived[~ends], ids[~ends] + 1)
    assert ends.any()
    assert store.columns["is_initial"][arrived[ends]].all()
    trainer.close()


def test_evaluations_play_the_right_policies(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores: online network, ε = 0.001. E_π[c]: target network, ε = 0.1, ratio of the online network, a mean over states."""
    trainer, _ = started(tmp_path, config_of(), data)
    asked: list[tuple[Any, float, Any, int]] = []

    def played(
        policy: Any, env: str, options: EnvOptions, count: int, *rest: Any
    ) -> list[EpisodeResult]:
        asked.append((policy.network, policy.epsilon, policy.ratio_network, count))
        return [EpisodeResult(4.0, 1, 10.0), EpisodeResult(8.0, 9, 0.0)]

    monkeypatch.setattr(measures, "roll_out", played)
    row = trainer.evaluator.evaluate({"mean_ratio": 0.5})
    learner = trainer.learner
    assert asked[0][:2] == (learner.network, 0.001)
    assert asked[1][:3] == (learner.target, 0.1, learner.network)
    assert (row["score"], row["episode_length"]) == (6.0, 5.0)
    assert row["mean_ratio_pi"] == pytest.approx(1.0)  # 10 over 10 states, not the mean of 10 and 0
    assert row["ratio_gain"] == pytest.approx(2.0)
    assert row["invariant"] == "holds"
    # Every policy has a mean from 1 - γ̂ + γ̂p₀ to 1 + γ̂p₀/(1 - γ̂) on this data.
    starts = trainer.replay.source.store.initial_share()
    most = 1 + 0.99 / 0.01 * starts
    states = trainer.replay.source.store.is_state.sum()
    assert starts == trainer.replay.source.store.columns["is_initial"].sum() / states
    least = 0.01 + 0.99 * starts
    for mean, state in (
        (1.09 * most, "unordered"),
        (1.11 * most, "violated"),
        (0.91 * least, "holds"),
        (0.89 * least, "violated"),
    ):
        assert trainer.evaluator.evaluate({"mean_ratio": mean})["invariant"] == state
    trainer.close()


def test_scores_are_of_raw_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yes, no, one = np.array([True]), np.array([False]), np.ones(1, np.int64)
    outcome = Outcome(one, np.array([7.0]), yes, no, no, one)
    step = Step(one, one, np.ones(1), one, {"ratio": np.ones(1)}, outcome)
    monkeypatch.setattr(evaluation, "run_steps", lambda *given: (step for _ in range(5)))
    policy: Any = None
    played = roll_out(policy, ENV, EnvOptions(), 1, np.random.default_rng(0))
    assert played == [EpisodeResult(7.0, 1, 1.0)]


def test_other_data_and_other_protocols_are_refused(tmp_path: Path, data: str) -> None:
    create_run(RunFolder(tmp_path / "run"), config_of(), data, RUNTIME)
    other = str(collect(Request(ENV, 1500, seed=1), tmp_path / "other", progress=lambda _: None))
    for given in (other, "stream"):
        with pytest.raises(InputError, match="was started with other data"):
            create_run(RunFolder(tmp_path / "run"), config_of(), given, RUNTIME)
    stacked = collect(
        Request("ALE/Pong-v5", 40, envs=1, options=EnvOptions(frame_stack=2, episode_cap=40)),
        tmp_path / "pong",
        progress=lambda _: None,
    )
    with pytest.raises(
        InputError, match="has frame_stack 2, but the run has 4: give the run --frame-stack 2"
    ):
        create_run(
            RunFolder(tmp_path / "pong-run"),
            make_config("ALE/Pong-v5", scale="smoke"),
            str(stacked),
            RUNTIME,
        )


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, data: str) -> None:
    folder = RunFolder(tmp_path / "run")
    create_run(folder, config_of(num_updates=4, evaluate_every=4), data, RUNTIME)
    (folder.checkpoints / "update-000000000.partial").mkdir(parents=True)
    (folder.checkpoints / "update-000000000.partial" / "state.json").write_text("{")
    trainer = start_or_resume(
        folder, config_of(num_updates=4, evaluate_every=4), data, RUNTIME, lambda _: None
    )
    training.run_to_end(trainer, lambda update, row: None)
    assert folder.status()["status"] == "finished"
    assert not list(folder.checkpoints.glob("*.partial"))
    half = RunFolder(tmp_path / "half")
    half.path.mkdir()
    (half.path / "provenance.json").write_text("{}")
    create_run(half, config_of(), data, RUNTIME)
    assert half.config() == config_of()


@pytest.mark.parametrize(
    ("spike", "wanted"), [(None, 2 / 51), (0, 1.0), (50, 1.0), (25, 0.0), (1, 0.0)]
)
def test_evaluations_measure_the_probability_on_the_outermost_atoms(
    tmp_path: Path, data: str, spike: int | None, wanted: float
) -> None:
    trainer = start_or_resume(
        RunFolder(tmp_path / "run"), config_of("c51"), data, RUNTIME, lambda _: None
    )
    network = trainer.learner.network
    with torch.no_grad():
        last = [part for part in network.value_head.modules() if isinstance(part, nn.Linear)][-1]
        last.weight.zero_()
        last.bias.zero_()
        # Greedy is the action of the highest value: the others put their mass in the middle, or at the low end.
        bias = last.bias.view(-1, 51)
        if spike is not None:
            bias[0, spike] = 40.0
            bias[1:, 0 if spike > 1 else spike] = 40.0
    row = trainer.evaluator.evaluate({})
    trainer.close()
    assert row["edge_share"] == pytest.approx(wanted, abs=1e-4)


def test_the_ratio_of_each_episode_starts_anew(tmp_path: Path, data: str) -> None:
    """With c = 1 everywhere the sum of an episode is its length, in the second episode of a stream too."""
    trainer = start_or_resume(
        RunFolder(tmp_path / "run"), config_of(), data, RUNTIME, lambda _: None
    )
    learner = trainer.learner
    assert learner.network.ratio_head is not None
    with torch.no_grad():
        for weight in learner.network.ratio_head.parameters():
            weight.zero_()
        last = [m for m in learner.network.ratio_head.modules() if isinstance(m, nn.Linear)][-1]
        last.bias.fill_(1.0)
    policy = evaluation.AgentPolicy(learner.network, learner.support, 1.0)
    episodes = roll_out(policy, ENV, trainer.config.environment, 40, np.random.default_rng(0))
    trainer.close()
    assert len(episodes) == 40 > evaluation._MOST_STREAMS
    assert [episode.ratio_sum for episode in episodes] == [
        pytest.approx(episode.length) for episode in episodes
    ]


def test_both_samplers_have_streams_of_their_own(tmp_path: Path) -> None:
    """In an endless problem every row is a state and a transition, so that equal streams would draw equal rows."""
    env = "MinAtar/Breakout-v1"
    config = make_config(env, "c51-auxiliary", "smoke", transitions=500, window=500)
    place = collect(
        Request(env, 500, options=config.environment), tmp_path / "d", progress=lambda _: None
    )
    trainer = start_or_resume(
        RunFolder(tmp_path / "run"), config, str(place), RUNTIME, lambda _: None
    )
    store = trainer.replay.source.store
    rows = [(draw.ids, draw.state_ids) for draw in (trainer.replay.draw(k) for k in range(1, 40))]
    trainer.close()
    ids, states = (np.concatenate(part) for part in zip(*rows, strict=True))
    # As shares of the data, since terminal rows make the two counts differ a little.
    of_ids, of_states = (
        np.cumsum(mask)[part] / mask.sum()
        for mask, part in ((store.is_transition, ids), (store.is_state, states))
    )
    assert abs(np.corrcoef(of_ids, of_states)[0, 1]) < 4 / np.sqrt(len(ids))


@pytest.fixture
def three_threads() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(usual)


@pytest.mark.parametrize("side", [42, 84])
def test_only_the_nature_convolutions_take_several_threads_by_default(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_TORCH_THREADS", 3)
    torso = make_torso((4, side, side))
    assert launch.count_threads(torso, RuntimeOptions()) == (3 if side == 84 else 1)
    assert launch.count_threads(torso, RuntimeOptions(threads=2)) == 2


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("threads", "wanted"), [(0, 1), (2, 2)])
def test_a_run_takes_its_threads(tmp_path: Path, data: str, threads: int, wanted: int) -> None:
    runtime = RuntimeOptions(threads=threads)
    start_or_resume(RunFolder(tmp_path), config_of(), data, runtime, lambda _: None).close()
    assert torch.get_num_threads() == wanted


@pytest.mark.usefixtures("three_threads")
def test_the_states_of_a_step_are_predicted_by_one_thread(tmp_path: Path, data: str) -> None:
    trainer, _ = started(tmp_path, config_of(), data)
    learner, store = trainer.learner, trainer.replay.source.store
    found = []
    learner.network.torso.register_forward_hook(lambda *_: found.append(torch.get_num_threads()))
    torch.set_num_threads(3)
    policy = evaluation.AgentPolicy(learner.network, learner.support, 0.1)
    for size in (64, 65):
        policy.predict(store.states(np.flatnonzero(store.is_state)[:size]))
    trainer.close()
    assert found == [1, 3]
    assert torch.get_num_threads() == 3
