import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from covshift.config.environment import EnvOptions
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.collection import Request, collect
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.files import write_checksums
from covshift.learners.deep import LearnerState
from covshift.records import RunFolder
from covshift.runs import load_run, roll_out
from covshift.runs.checkpoints import write_checkpoint
from covshift.runs.launch import start_or_resume
from covshift.runs.playing import evaluate_run, play_episode
from covshift.runs.seeds import named_generator
from covshift.runs.training import run_to_end

ENV = "MinAtar/Breakout-v1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    data = collect(Request(ENV, 500), place / "data", progress=lambda _: None)
    config = make_config(ENV, "c51-corrected", "smoke", num_updates=20, evaluate_every=20)
    runtime = RuntimeOptions(device="cpu", threads=1)
    trainer = start_or_resume(RunFolder(place / "run"), config, str(data), runtime, lambda _: None)
    run_to_end(trainer, lambda update, row: None)
    return place / "run"


def test_probabilities_and_ratios_of_observations(run: Path) -> None:
    saved = load_run(run)
    states = Store.open(run.parent / "data").states(np.arange(7))
    probabilities = saved.probabilities(states)
    q = saved.policy(0.0).predict(states).q
    best = q.argmax(axis=1)
    expected = np.full((7, 3), 0.1 / 3)
    expected[np.arange(7), best] += 0.9
    np.testing.assert_allclose(probabilities, expected)
    np.testing.assert_allclose(saved.probabilities(states, 0.0).max(axis=1), 1.0)
    ratio = saved.ratio(states)
    assert ratio.shape == (7,)
    assert (ratio >= 0).all()
    with pytest.raises(InputError, match=r"but a batch of \(10, 10, 4\) is needed"):
        saved.ratio(states[0])


def test_a_run_is_a_behavior_policy(run: Path, tmp_path: Path) -> None:
    policy = f"run:{run},epsilon=0.2"
    folder = collect(Request(ENV, 300, (policy,)), tmp_path / "data", progress=lambda _: None)
    store, saved = Store.open(folder), load_run(run)
    ids = np.flatnonzero(store.is_transition)
    probabilities = saved.probabilities(store.states(ids), 0.2)
    taken = store.columns["action"][ids]
    np.testing.assert_allclose(
        store.columns["mu"][ids], probabilities[np.arange(len(ids)), taken], rtol=1e-6
    )
    manifest = (folder / "manifest.json").read_text()
    assert saved.sha256 in manifest
    assert str(run) not in manifest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run:nowhere", "say run:DIR,epsilon=E"),
        ("run:nowhere,epsilon=0.1", "nowhere is no run"),
        ("run:nowhere,epsilon=2", r"epsilon must lie in \[0, 1\]"),
    ],
)
def test_bad_run_policies(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        collect(Request(ENV, 10, (text,)), tmp_path / "data", progress=lambda _: None)


def test_a_run_of_other_actions_is_refused(run: Path, tmp_path: Path) -> None:
    request = Request("covshift/RandomWalk-v0", 10, (f"run:{run},epsilon=0.1",))
    with pytest.raises(InputError, match="has 3 actions, but the environment has 2"):
        collect(request, tmp_path / "data", progress=lambda _: None)


def test_rollouts_are_whole_episodes_of_a_fixed_number(run: Path) -> None:
    saved = load_run(run)

    def play(seed: int) -> list[tuple[float, int]]:
        episodes = roll_out(saved.policy(0.5), ENV, EnvOptions(), 19, named_generator(seed, "x"))
        return [(episode.score, episode.length) for episode in episodes]

    first = play(0)
    assert len(first) == 19
    assert play(0) == first
    assert play(1) != first
    assert all(length >= 1 for _, length in first)


def test_the_ratio_of_an_episode_is_that_of_its_states(run: Path) -> None:
    saved = load_run(run)
    played = play_episode(run, 0.3, 50, 0)
    np.testing.assert_allclose(
        played.tracks["c(s)"], saved.ratio(np.stack(played.states)), rtol=1e-5
    )
    values = saved.policy(0.0).predict(np.stack(played.states)).q.max(axis=1)
    np.testing.assert_allclose(played.tracks["value"], values, rtol=1e-4, atol=1e-6)


def test_evaluation_says_what_was_played(run: Path) -> None:
    facts = evaluate_run(run, 6, None, 0)
    assert "over 6 episodes" in facts["score"]
    assert "mean c" in facts
    with pytest.raises(InputError, match="episodes must be at least 1"):
        evaluate_run(run, 0, None, 0)
    with pytest.raises(InputError, match="epsilon must lie"):
        evaluate_run(run, 1, 2.0, 0)


def test_a_damaged_newest_checkpoint_is_named(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    newest = max((copy / "checkpoints").iterdir())
    (newest / "state.json").write_text("{}")
    facts = evaluate_run(copy, 1, None, 0)
    assert newest.name in facts["damaged"]
    assert "damaged" not in evaluate_run(run, 1, None, 0)


def test_sizes_in_a_checkpoint_are_checked_before_memory_is_taken(
    run: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for place in (copy / "checkpoints").iterdir():
        values = json.loads((place / "state.json").read_text())
        (place / "state.json").write_text(json.dumps(values | {"state_shape": [2**26]}))
        write_checksums(place, ["tensors.safetensors", "state.json"])
    with pytest.raises(InputError, match="are not those of the network"):
        load_run(copy)
    for place in (copy / "checkpoints").iterdir():
        (place / "state.json").write_text(json.dumps(values | {"num_actions": "many"}))
        write_checksums(place, ["tensors.safetensors", "state.json"])
    with pytest.raises(InputError, match=r"state\.json: num_actions must be a valid integer"):
        load_run(copy)


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    state = LearnerState({"x": torch.zeros(100_000)}, {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            write_checkpoint(tmp_path, 1, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
