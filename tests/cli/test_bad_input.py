"""Commands that once ended in tracebacks, or took what later commands refused."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.cli.main import main
from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.array_files import read_arrays
from covshift.data.collection import Request, collect
from covshift.errors import InputError
from covshift.records import RunFolder
from covshift.runs.launch import create_run, resume_run, start_or_resume

ENV = "covshift/RandomWalk-v0"


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect(Request(ENV, 300), tmp_path_factory.mktemp("walk") / "walk")


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    text = capsys.readouterr().err
    assert stopped.value.code in (1, 2)
    assert "Traceback" not in text
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--transitions", "9" * 23], "transitions must lie in"),
        (["--frame-skip", "999999999999"], "frame_skip must lie in"),
        (["--frame-size", "100000"], "frame_size must lie in"),
        (["--frame-stack", "9999999"], "frame_stack must lie in"),
        (["--episode-cap", "9999999999"], "episode_cap must lie in"),
        (["--envs", "2000000000"], "envs must lie in"),
        (["--policy", "os:getcwd"], "os:getcwd is no policy"),
        (["--policy", ".:x"], "cannot be imported"),
        (["--policy", "..rel:x"], "cannot be imported"),
    ],
)
def test_collect(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["--transitions", "10"] if "--transitions" not in options else []
    assert message in refused(capsys, "collect", ENV, *given, *options, "--out", tmp_path / "out")


ROWS = 4
ARRAYS = {
    "observations": np.zeros((ROWS, 2), np.float32),
    "actions": np.zeros(ROWS, int),
    "rewards": np.ones(ROWS),
    "terminated": np.arange(ROWS) == ROWS - 1,
    "truncated": np.zeros(ROWS, bool),
    "mu": np.ones(ROWS),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rewards": np.array(list("abcd"))}, "rewards: it holds values of the type <U1"),
        ({"mu": np.array(list("abcd"))}, "mu: it holds values of the type <U1"),
        ({"observations": np.array(1.0)}, "observations is a single number"),
        ({"observations": np.array(list("abcd"))}, "observations: it holds values of the type"),
        ({"observations": np.zeros((ROWS, 2), complex)}, "observations: it holds values of the"),
        ({"observations": np.zeros((ROWS, 2), "datetime64[s]")}, "observations: it holds values"),
        ({"observations": np.zeros((ROWS, 0))}, "shape (0,)"),
    ],
)
def test_import(
    changed: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", **(ARRAYS | changed))
    text = refused(capsys, "data", "import", tmp_path / "a.npz", "--out", tmp_path / "out")
    assert message in text
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_import_with_too_many_actions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    given = ["data", "import", tmp_path / "a.npz", "--out", tmp_path / "out"]
    text = refused(capsys, *given, "--num-actions", "9" * 20)
    assert "number of actions must lie in [1, 32,768]" in text


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, wanted=np.arange(3), huge=np.zeros(2**27, np.uint8))
    assert list(read_arrays(path, ["wanted"])) == ["wanted"]
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2000000000000,), }"
    npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("wanted.npy", npy)
    with pytest.raises(InputError, match="wanted: its header says 16000000000000 bytes"):
        read_arrays(path)
    (tmp_path / "pi.npy").write_bytes(npy)
    with pytest.raises(InputError, match="its header says 16000000000000 bytes"):
        collect(Request(ENV, 10, (f"file:{tmp_path / 'pi.npy'}",)), tmp_path / "out")


def test_arrays_in_fortran_order_are_read_as_they_are(tmp_path: Path) -> None:
    wanted = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "a.npz", a=np.asfortranarray(wanted), b=wanted)
    for found in read_arrays(tmp_path / "a.npz").values():
        np.testing.assert_array_equal(found, wanted)


def test_a_contact_sheet_of_an_unknown_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    collect(Request("MinAtar/Breakout-v1", 50, envs=1), tmp_path / "data")
    text = refused(capsys, "data", "info", tmp_path / "data", "--sheet", tmp_path / "x.bogus")
    assert "must be a picture such as x.png" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "99999999999"], "threads must lie in [0, 1,024]"),
        (["--device", "meta"], "the device 'meta' cannot be used"),
    ],
)
def test_train(
    options: list[str],
    message: str,
    walk: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    given = ["train", ENV, "--data", walk, "--scale", "smoke", "--out", tmp_path / "run"]
    assert message in refused(capsys, *given, *options)
    assert not (tmp_path / "run").exists()


def test_a_ratio_that_is_constant_but_for_rounding_can_be_drawn() -> None:
    from covshift.estimation import estimate_ratio, simulate_logs
    from covshift.theory.examples import line_chain

    problem = line_chain(4)
    logs = simulate_logs(problem.mdp, problem.mu, 50, 5, np.random.default_rng(0))
    estimate = estimate_ratio(logs, problem.mu, ratio_discount=0.9)
    estimate.sample[:] = 1e6 + np.arange(len(estimate.sample)) % 2 * 1e-10
    estimate.plot()


def test_a_start_that_fails_leaves_no_run(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("covshift.runs.launch.make_agent_network", fail)
    folder, config = RunFolder(tmp_path / "run"), make_config(ENV, "c51", "smoke")
    with pytest.raises(RuntimeError):
        start_or_resume(folder, config, str(walk), RuntimeOptions(), lambda _: None)
    assert not folder.path.exists()


def test_a_run_folder_imports_no_code(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil_policy.py").write_text(
        "import pathlib; pathlib.Path('ran').touch()\nf = print"
    )
    monkeypatch.chdir(tmp_path)
    for data in ("stream", str(walk)):
        config = make_config(ENV, "c51", "smoke", behavior_policy=("evil_policy:f",))
        folder = RunFolder(tmp_path / f"run-{data == 'stream'}")
        create_run(folder, config, data, RuntimeOptions())
        text = refused(capsys, "resume", folder.path)
        assert "would import the module 'evil_policy'" in text
        assert "--policy-module evil_policy" in text
    assert not (tmp_path / "ran").exists()
    trainer = resume_run(folder, None, lambda _: None, ["evil_policy"])
    assert trainer.evaluator.source.behavior is None or (tmp_path / "ran").exists()
    trainer.close()
    assert (tmp_path / "ran").exists()


def test_exports_stay_in_their_root(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    for name in ("../../x", "no-version", "/tmp/x-v0", "a/../b-v0", ""):
        assert "is no name of a Minari dataset" in refused(
            capsys, "data", "export", walk, "--name", name
        )
    assert [path.name for path in tmp_path.rglob("*") if path.name != "root"] == []

    def fail(*_: Any) -> Any:
        raise ValueError("it is full")

    monkeypatch.setattr("covshift.data.import_export._buffers", fail)
    assert "it is full" in refused(capsys, "data", "export", walk, "--name", "mine/walk-v0")
    monkeypatch.undo()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    assert not (tmp_path / "root" / "mine").exists()
    main(["data", "export", str(walk), "--name", "mine/walk-v0"])
    assert (tmp_path / "root" / "mine" / "walk-v0").is_dir()


def start(*arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "covshift", *map(str, arguments)]
    # A shell may have left SIGINT ignored, and Python then leaves it so.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Waits, for long on a loaded machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def imported(process: subprocess.Popen[str], part: str) -> bool:
    """Whether a process has mapped a library."""
    try:
        return part in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("library", ["multiarray", "libtorch_cpu"])
def test_a_signal_during_the_start_ends_the_command(
    number: signal.Signals, library: str, walk: Path, tmp_path: Path
) -> None:
    given = ["train", ENV, "--data", walk, "--scale", "smoke", "--out", tmp_path / "run"]
    with start(*given) as process:
        wait_until(lambda: imported(process, library))
        process.send_signal(number)
        text, _ = process.communicate(timeout=120)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert "interrupted" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in refused(
        capsys, "collect", ENV, "--transitions", "10", "--out", tmp_path / "out"
    )


def test_estimates_say_that_nothing_was_written(
    walk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("covshift.estimation.compare_estimators", interrupt)
    with pytest.raises(SystemExit):
        main(["estimate", "value", str(walk), "--policy", "uniform", "--out", str(tmp_path / "e")])
    text = capsys.readouterr().err
    assert "nothing was written" in text
    assert "kept" not in text
    shutil.rmtree(tmp_path / "e", ignore_errors=True)
