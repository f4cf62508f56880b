"""Runs: exact resume, kills, damage, divergence, and what a folder says."""

import json
import multiprocessing
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Request, collect
from covshift.data.import_export import import_npz
from covshift.errors import InputError
from covshift.learners.deep import Diverged
from covshift.records import COLUMNS, RunFolder, find_runs
from covshift.runs import load_run, replay
from covshift.runs.checkpoints import read_checkpoint
from covshift.runs.data_sources import dataset_request
from covshift.runs.launch import pick_device, resume_run, start_or_resume
from covshift.runs.training import Interrupted, Trainer, run_to_end

ENV = "covshift/RandomWalk-v0"
RUNTIME = RuntimeOptions(device="cpu", threads=1)


def config_of(preset: str = "c51-corrected", **leaves: Any) -> TrainConfig:
    small = {"transitions": 1500, "window": 1500, "num_updates": 40, "evaluate_every": 20}
    return make_config(ENV, preset, "smoke", **(small | leaves))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("data") / "walk"
    return str(collect(Request(ENV, 1500), place, progress=lambda _: None))


def start(folder: Path, config: TrainConfig, data: str) -> Trainer:
    return start_or_resume(RunFolder(folder), config, data, RUNTIME, lambda _: None)


def finish(trainer: Trainer) -> None:
    run_to_end(trainer, lambda update, row: None)


def state_of(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], bytes]:
    checkpoint = read_checkpoint(folder / "checkpoints")
    tensors = {name: tensor.numpy() for name, tensor in checkpoint.state.tensors.items()}
    return tensors, checkpoint.state.values, (folder / "metrics.csv").read_bytes()


def assert_same(first: Path, second: Path) -> None:
    tensors, state, metrics = state_of(first)
    others, other_state, other_metrics = state_of(second)
    assert state == other_state
    assert metrics == other_metrics
    assert set(tensors) == set(others)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, others[name], err_msg=name)


def interrupt_at(trainer: Trainer, update: int) -> None:
    def watch(done: int, row: object) -> None:
        if done == update:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(
        Interrupted, match=f"saved at update {update}; continue with: covshift resume"
    ):
        run_to_end(trainer, watch)


PRESETS = [
    "c51",
    "c51-corrected",
    "c51-dual",
    "c51-matched",
    "c51-behavior",
    "c51-auxiliary-td-priority",
    "c51-normalized",
]


@pytest.mark.parametrize("preset", PRESETS)
def test_resume_is_exact(tmp_path: Path, data: str, preset: str) -> None:
    """40 updates equal 0 + 13 + 14 + 13, whatever was due in between; the row of update 0 is written once."""
    config = config_of(preset)
    finish(start(tmp_path / "whole", config, data))
    interrupt_at(start(tmp_path / "parts", config, data), 0)
    interrupt_at(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None), 13)
    assert RunFolder(tmp_path / "parts").status() == {"status": "interrupted", "update": 13}
    interrupt_at(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None), 27)
    finish(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None))
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert RunFolder(tmp_path / "parts").status() == {"status": "finished", "update": 40}


def test_a_run_under_a_link_and_one_in_the_working_directory_find_their_data(
    tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "far" / "away")
    interrupt_at(start(tmp_path / "out" / "run", config_of(), data), 5)
    resume_run(RunFolder(tmp_path / "out" / "run"), None, lambda _: None).close()
    interrupt_at(start(tmp_path / "streamed", config_of(), "stream"), 5)
    monkeypatch.chdir(tmp_path / "streamed")
    resume_run(RunFolder(Path()), None, lambda _: None).close()


def test_imported_data_must_fit_the_environment(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "log.npz",
        observations=np.zeros((5, 3), dtype=np.float32),
        actions=np.array([0, 1, 0, 1, 0]),
        rewards=np.zeros(5),
        terminated=np.arange(5) == 4,
        truncated=np.zeros(5, dtype=bool),
        mu=np.full(5, 0.5),
    )
    place = import_npz(tmp_path / "log.npz", tmp_path / "imported")
    with pytest.raises(
        InputError, match=r"has observations of shape \[3\] and 2 actions, but .*RandomWalk-v0 has"
    ):
        start(tmp_path / "run", config_of(), str(place))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("frame_size", [42, 60])
def test_resume_is_exact_on_frames(tmp_path: Path, frame_size: int) -> None:
    """The larger network's weights lie channels last in memory, a checkpoint's numbers do not."""
    small: dict[str, Any] = {
        **{"transitions": 200, "window": 200, "num_updates": 4, "batch_size": 4},
        **{
            "evaluation_episodes": 1,
            "ratio_episodes": 1,
            "calibration_episodes": 0,
            "episode_cap": 40,
            "frame_size": frame_size,
        },
    }
    config = make_config("ALE/Pong-v5", scale="smoke", **small)
    data = collect(dataset_request(config), tmp_path / "data", progress=lambda _: None)
    finish(start(tmp_path / "whole", config, str(data)))
    interrupt_at(start(tmp_path / "parts", config, str(data)), 2)
    finish(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None))
    assert_same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("preset", ["c51-corrected", "c51-td-priority", "c51-matched"])
def test_resume_is_exact_while_data_stream_in(
    tmp_path: Path, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_TEMPERING_PERIOD", 5)
    leaves: dict[str, Any] = {"warm_up": 100, "stream_shard": 60, "window": 150}
    if preset == "c51-matched":
        leaves |= {"effective_floor": 0.9999, "ratio_loss_weight": 1.0, "learning_rate": 0.01}
    config = config_of(preset, **leaves)
    finish(start(tmp_path / "whole", config, "stream"))
    interrupt_at(start(tmp_path / "parts", config, "stream"), 13)
    finish(resume_run(RunFolder(tmp_path / "parts"), None, lambda _: None))
    assert_same(tmp_path / "whole", tmp_path / "parts")
    rows = RunFolder(tmp_path / "whole").metrics()
    assert (float(rows[-1]["tempering"]) < 1.0) == (preset == "c51-matched")
    _, state, _ = state_of(tmp_path / "whole")
    lo, hi = state["value_sampler"]["window"]
    # The 40th update drew from the newest 150 of 100 + 4 · 39 transitions, and the ends of their episodes.
    assert 150 <= hi - lo < 170
    assert lo > 100


def test_killed_runs_go_on_exactly(
    tmp_path: Path, data: str, train_and_kill: Callable[[Path, TrainConfig, str], None]
) -> None:
    config = config_of(num_updates=150, evaluate_every=50)
    finish(start(tmp_path / "whole", config, data))
    train_and_kill(tmp_path / "killed", config, data)
    finish(start(tmp_path / "killed", config, data))
    assert_same(tmp_path / "whole", tmp_path / "killed")


def test_a_run_that_cannot_be_resumed_holds_nothing_open(tmp_path: Path) -> None:
    config = config_of(warm_up=100, stream_shard=60, window=150)
    interrupt_at(start(tmp_path / "run", config, "stream"), 5)
    for place in (tmp_path / "run" / "checkpoints").iterdir():
        (place / "state.json").write_text("{}")
    before = {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    with pytest.raises(InputError, match="no checkpoint is whole"):
        resume_run(RunFolder(tmp_path / "run"), None, lambda _: None)
    assert not multiprocessing.active_children()
    opened = {path.resolve() for path in Path("/proc/self/fd").iterdir()} - before
    assert not [path for path in opened if tmp_path in path.parents]
    assert not RunFolder(tmp_path / "run").is_locked()


def test_events_are_closed_with_the_run(tmp_path: Path, data: str) -> None:
    pytest.importorskip("tensorboard")
    threads = threading.active_count()
    trainer = start(tmp_path / "run", config_of(), data)
    run_to_end(trainer, lambda update, row: None, log="tensorboard")
    assert threading.active_count() == threads
    opened = {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    assert not [path for path in opened if tmp_path in path.parents]


def test_who_may_read_a_run_may_read_its_tensors(tmp_path: Path, data: str) -> None:
    interrupt_at(start(tmp_path / "run", config_of(), data), 5)
    (place, *_) = (tmp_path / "run" / "checkpoints").iterdir()
    modes = {path.stat().st_mode for path in place.iterdir()}
    assert modes == {(tmp_path / "run" / "config.json").stat().st_mode}


def test_damaged_checkpoints_are_named_and_passed_over(tmp_path: Path, data: str) -> None:
    config = config_of()
    finish(start(tmp_path / "whole", config, data))
    folder = tmp_path / "run"
    interrupt_at(start(folder, config, data), 27)
    newest = max((folder / "checkpoints").iterdir())
    path = newest / "tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    said: list[str] = []
    finish(resume_run(RunFolder(folder), None, said.append))
    assert any("damaged and passed over" in text and newest.name in text for text in said)
    assert_same(tmp_path / "whole", folder)
    for place in (folder / "checkpoints").iterdir():
        (place / "state.json").write_text("{}")
    with pytest.raises(InputError, match="no checkpoint is whole"):
        load_run(folder)


def test_loading_runs_no_code(tmp_path: Path, data: str) -> None:
    """What is on disk is safetensors, JSON and CSV; a pickle in place of the tensors is refused."""
    folder = tmp_path / "run"
    finish(start(folder, config_of(), data))
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert suffixes == {".json", ".csv", ".safetensors", ".sha256"}

    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (exec, ("raise SystemExit('code from a checkpoint ran')",))

    from covshift.files import write_checksums

    for place in (folder / "checkpoints").iterdir():
        torch.save(Trap(), place / "tensors.safetensors")
        write_checksums(place, ["tensors.safetensors", "state.json"])
    with pytest.raises(InputError, match="no checkpoint is whole"):
        load_run(folder)


def test_a_run_that_diverges_says_so_and_keeps_its_checkpoint(tmp_path: Path, data: str) -> None:
    config = config_of(
        "c51-corrected",
        learning_rate=30.0,
        divergence_bound=5.0,
        num_updates=200,
        evaluate_every=10,
    )
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Diverged):
        finish(start(folder.path, config, data))
    status = folder.status()
    assert status["status"] == "diverged"
    assert "mean |c|" in status["reason"] or "loss" in status["reason"]
    rows = folder.metrics()
    assert rows[-1]["update"] == status["update"] < 200
    assert np.isfinite(load_run(folder.path).ratio(np.eye(6, dtype=np.uint8))).all()
    with pytest.raises(InputError, match="diverged after"):
        resume_run(folder, None, lambda _: None)


def test_rows_hold_the_documented_columns(tmp_path: Path, data: str) -> None:
    folder = RunFolder(tmp_path / "run")
    finish(start(folder.path, config_of(), data))
    rows = folder.metrics()
    assert [row["update"] for row in rows] == list(range(0, 41, 4))
    assert [row["update"] for row in rows if "score" in row] == [0, 20, 40]
    assert set(rows[-1]) == set(COLUMNS)
    assert 0 < float(rows[-1]["sampling_share"]) <= 1
    for row in rows:
        assert row["agent_steps"] == 4 * float(row["update"])
    last = {name: value for name, value in rows[-1].items() if name != "invariant"}
    assert last["ratio_gain"] == pytest.approx(
        float(last["mean_ratio_pi"]) / float(last["mean_ratio"])
    )
    assert 0 < float(last["effective_share"]) <= 1
    assert folder.provenance()["versions"]["torch"] == torch.__version__
    plain = RunFolder(tmp_path / "plain")
    finish(start(plain.path, config_of("c51"), data))
    assert "mean_ratio" not in plain.metrics()[-1]
    assert "mean_ratio_pi" not in plain.metrics()[-1]
    assert [run.path.name for run in find_runs(tmp_path)] == ["plain", "run"]


def test_the_same_command_goes_on_and_another_is_refused(tmp_path: Path, data: str) -> None:
    interrupt_at(start(tmp_path / "run", config_of(), data), 5)
    said: list[str] = []
    trainer = start_or_resume(RunFolder(tmp_path / "run"), config_of(), data, RUNTIME, said.append)
    assert trainer.update == 5
    assert said == ["resuming from update 5"]
    trainer.close()
    with pytest.raises(InputError, match=r"ratio_discount is 0\.99 there, 0\.9 here"):
        start(tmp_path / "run", config_of(ratio_discount=0.9), data)
    finish(resume_run(RunFolder(tmp_path / "run"), None, lambda _: None))
    with pytest.raises(InputError, match="is finished after 40 updates"):
        resume_run(RunFolder(tmp_path / "run"), None, lambda _: None)


def remove_seals(run: Path) -> None:
    """Writes a run's status as version 0.1.0 did, without the hashes of its files."""
    path = run / "status.json"
    status = json.loads(path.read_text())
    path.write_text(json.dumps({name: status[name] for name in ("status", "update")}))


def test_runs_of_an_older_version_are_resumed(tmp_path: Path, data: str) -> None:
    """One that did not know a setting of today, whatever its value would be, and one with an infinite bound."""
    config = config_of(divergence_bound=float("inf"))
    interrupt_at(start(tmp_path / "run", config, data), 5)
    path = tmp_path / "run" / "config.json"
    values = json.loads(path.read_text())
    del values["evaluation"]["calibration_episodes"]
    path.write_text(json.dumps(values))
    provenance = tmp_path / "run" / "provenance.json"
    values = json.loads(provenance.read_text())
    del values["runtime"]["log"]
    values["runtime"]["tensorboard"] = True
    provenance.write_text(json.dumps(values))
    remove_seals(tmp_path / "run")
    assert RunFolder(tmp_path / "run").provenance()["runtime"].log == "tensorboard"
    trainer = start(tmp_path / "run", config, data)
    assert trainer.update == 5
    assert trainer.config.optimization.divergence_bound == float("inf")
    trainer.close()


def test_an_unknown_behavior_policy_only_leaves_the_calibration_out(
    tmp_path: Path, data: str
) -> None:
    config = config_of(behavior_policy=("nowhere:policy",), num_updates=4, evaluate_every=4)
    finish(start(tmp_path / "run", config, data))
    rows = RunFolder(tmp_path / "run").metrics()
    assert "score" in rows[-1]
    assert "calibration_error" not in rows[-1]


def test_a_ratio_that_overflows_in_an_evaluation_ends_the_run_as_diverged(
    tmp_path: Path, data: str
) -> None:
    config = config_of("c51-matched", ratio_head="exponential", num_updates=8, evaluate_every=4)
    trainer = start(tmp_path / "run", config, data)
    ticks = trainer.run()
    for _ in range(4):
        assert next(ticks).update < 4
    head = trainer.learner.network.ratio_head
    assert head is not None
    update = trainer.learner.update

    def and_then_explode(*batches: Any) -> Any:
        report = update(*batches)
        with torch.no_grad():
            head.layers[-1].bias.add_(1000.0)  # type: ignore[operator]
        return report

    trainer.learner.update = and_then_explode  # type: ignore[method-assign, assignment]
    with pytest.raises(Diverged, match="evaluation after update 4: the exponential link overflows"):
        next(ticks)
    trainer.close()
    assert RunFolder(tmp_path / "run").status()["status"] == "diverged"


def test_data_of_another_make_are_refused(tmp_path: Path, data: str) -> None:
    with pytest.raises(InputError, match="is of covshift/RandomWalk-v0, but the run is of"):
        start(tmp_path / "run", make_config("covshift/LineChain-v0", scale="smoke"), data)
    interrupt_at(start(tmp_path / "run", config_of(), data), 5)
    other = collect(Request(ENV, 1500, seed=1), tmp_path / "other", progress=lambda _: None)
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    provenance["data"] = str(other)
    (tmp_path / "run" / "provenance.json").write_text(json.dumps(provenance))
    remove_seals(tmp_path / "run")
    with pytest.raises(InputError, match="is not the one that the run began with"):
        resume_run(RunFolder(tmp_path / "run"), None, lambda _: None)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "x").write_text("")
    with pytest.raises(InputError, match="holds no run; name another folder"):
        start(tmp_path / "file", config_of(), data)


def test_all_options_run(tmp_path: Path, data: str) -> None:
    variants: list[dict[str, Any]] = [
        {"ratio_batch": "prioritized"},
        {"semantics": "restart", "normalization_weight": 0.1},
        {"ratio_steps": 3, "value_steps": 3},
        {"priority_tempering": 0.5, "uniform_share": 0.2},
        {"priority": "uniform", "correction": "reweight"},
        {"priority": "ratio-rho"},
        {"refresh": "both"},
    ]
    for k, variant in enumerate(variants):
        folder = RunFolder(tmp_path / str(k))
        finish(start(folder.path, config_of(num_updates=10, evaluate_every=10, **variant), data))
        assert folder.status()["status"] == "finished"


def test_refreshing_from_both_batches_reaches_more_priorities(tmp_path: Path, data: str) -> None:
    changed = {}
    for refresh in ("prioritized", "both"):
        folder = tmp_path / refresh
        finish(start(folder, config_of(num_updates=10, evaluate_every=10, refresh=refresh), data))
        place = sorted((folder / "checkpoints").iterdir())[-1]
        priorities = safetensors.numpy.load_file(place / "tensors.safetensors")["priorities"]
        changed[refresh] = int(((priorities != 1.0) & (priorities != 0.0)).sum())
    # 320 draws of 1500 rows touch about 290; as many more from the uniform batch.
    assert 200 < changed["prioritized"] < 321
    assert changed["both"] > 1.6 * changed["prioritized"]


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="the device 'abacus' cannot be used"):
        pick_device("abacus")
