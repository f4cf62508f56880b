"""Commands that once ended in tracebacks, or took what later commands refused."""

import ctypes
import os
import re
import resource
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
from covshift.data.array_files import read_array, read_arrays
from covshift.data.collection import Request, collect
from covshift.data.import_export import export_minari
from covshift.errors import InputError
from covshift.estimation import RatioEstimate
from covshift.records import RunFolder
from covshift.runs.launch import create_run, resume_run, start_or_resume

ENV = "covshift/RandomWalk-v0"
LIBC = ctypes.CDLL(None)


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
        (["--transitions", "9999999999"], "transitions must lie in [1, 1,000,000,000]"),
        (["--share", "nan"], "needs a share above 0, but the shares are (nan,)"),
        (["--share", "inf"], "must have the sum 1"),
        (["--frame-skip", "999999999999"], "frame_skip must lie in"),
        (["--frame-size", "100000"], "frame_size must lie in"),
        (["--frame-stack", "9999999"], "frame_stack must lie in"),
        (["--episode-cap", "9999999999"], "episode_cap must lie in"),
        (["--envs", "2000000000"], "envs must lie in"),
        (["--seed", "9" * 26], "seed must lie in"),
        (["--workers", "0"], "workers must be at least 1"),
        (["--workers", "99999999999"], "workers must be at most 1,024"),
        (["--policy", "os:getcwd"], "os:getcwd is no policy"),
        (["--policy", "builtins:exit"], "builtins:exit is no policy"),
        (["--policy", "operator:not_"], "operator:not_ is no policy"),
        (["--policy", f"file:{Path(__file__).parent}"], "cannot be read: it is not an ordinary"),
        (["--policy", ".:x"], "cannot be imported"),
        (["--policy", "..rel:x"], "cannot be imported"),
    ],
)
def test_collect(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["--transitions", "10"] if "--transitions" not in options else []
    text = refused(capsys, "collect", ENV, *given, *options, "--out", tmp_path / "out")
    assert message in text
    assert text.count("cannot be read") <= 1
    assert not (tmp_path / "out").exists()


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
    with (
        (tmp_path / "pi.npy").open("rb") as file,
        pytest.raises(ValueError, match="its header says 16000000000000 bytes, but it has 79"),
    ):
        read_array(file, len(npy))  # An open file would take memory for all that is asked of it.
    with pytest.raises(InputError, match="its header says 16000000000000 bytes"):
        collect(Request(ENV, 10, (f"file:{tmp_path / 'pi.npy'}",)), tmp_path / "out")


def test_arrays_in_fortran_order_are_read_as_they_are(tmp_path: Path) -> None:
    wanted = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "a.npz", a=np.asfortranarray(wanted), b=wanted)
    for found in read_arrays(tmp_path / "a.npz").values():
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "parts/t.parquet"])
def test_pipes_in_the_place_of_tables(
    name: str, walk: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipe = tmp_path / name
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    table = tmp_path / name.split("/")[0]
    text = f"{pipe} cannot be read: it is not an ordinary file"
    assert text in refused(capsys, "estimate", "value", table, "--policy", "uniform")
    if table == pipe:
        assert text in refused(capsys, "estimate", "value", walk, "--policy", f"file:{pipe}")


def test_a_contact_sheet_of_an_unknown_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    collect(Request("MinAtar/Breakout-v1", 50, envs=1), tmp_path / "data")
    text = refused(capsys, "data", "info", tmp_path / "data", "--sheet", tmp_path / "x.bogus")
    assert "must be a picture such as x.png" in text
    sheet = tmp_path / "x.png"
    done = run_limited("data", "info", tmp_path / "data", "--sheet", sheet, file_size=2000)
    assert done.returncode == 1
    assert done.stderr == f"covshift: {sheet}: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_contact_sheet_of_a_dataset_without_frames(
    walk: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = refused(capsys, "data", "info", walk, "--sheet", tmp_path / "x.png")
    assert "holds no frames to draw" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "99999999999"], "threads must lie in [0, 1,024]"),
        (["--device", "meta"], "the device 'meta' cannot be used"),
        (["--value-bound", "1e308"], "value_bound must lie in"),
        (["--value-bound", "1e-300"], "value_bound must lie in"),
        (["--learning-rate", "inf"], "learning_rate must be positive and finite"),
        (["--adam-epsilon", "inf"], "adam_epsilon must be positive and finite"),
        (["--priority-floor", "inf"], "priority_floor must not be negative or infinite"),
        (["--value-steps", "9999999999"], "value_steps must lie in [1, 1,000]"),
        (["--ratio-steps", "9999999999"], "ratio_steps must lie in [1, 1,000]"),
        (["--data-seed", "9" * 26], "data_seed must lie in"),
        (["--num-updates", "9999999999"], "num_updates must lie in [1, 1,000,000,000]"),
        (["--evaluation-episodes", "9999999999"], "evaluation_episodes must lie in [1, 100,000]"),
        (["--ratio-episodes", "9999999999"], "ratio_episodes must lie in [1, 100,000]"),
        (["--behavior-shares", "nan"], "needs a share above 0, but the shares are (nan,)"),
        (["--behavior-shares", "0.5", "0.5"], "each of the 1 policies needs a share"),
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


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("fourier:0", "the K of fourier:K must be at least 1"),
        ("fourier:" + "9" * 20, "the K of fourier:K must be at most 100,000"),
        ("fourier:" + "9" * 5000, "names no features"),
        ("fourier:²", "'fourier:²' names no features"),
        ("os:getcwd", "the features cannot be computed from a batch of states: TypeError"),
        ("builtins:exit", "the features cannot be computed from a batch of states: SystemExit"),
        ("builtins:str", "the features cannot be computed from a batch of states: ValueError"),
    ],
)
def test_features(
    features: str, message: str, walk: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["estimate", "ratio", walk, "--policy", "uniform", "--features", features]
    assert message in refused(capsys, *given, "--out", tmp_path / "out")
    assert not [*tmp_path.iterdir()]


REPRODUCE = ["reproduce", "figure-1-left", "--scale", "smoke", "--out", "out"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate", "nowhere", "--episodes", "9999999999"], "episodes must be at most 100,000"),
        (["watch", "nowhere", "--out", "x.gif", "--steps", "9999999999"], "steps must be at most"),
        (
            ["theory", "--out", "out", "--problems", "9999999999"],
            "problems must be at most 100,000",
        ),
        (["theory", "--out", "out", "--seed", "9" * 20], "seed must lie in"),
        (["demo", "--out", "out", "--transitions", "9999999999"], "transitions must lie in"),
        (["demo", "--out", "out", "--updates", "9999999999"], "num_updates must lie in"),
        (["demo", "--out", "out", "--seeds", "9999999999"], "seeds must be at most 1,000"),
        (["demo", "--out", "out", "--workers", "9" * 20], "workers must be at most 1,024"),
        (
            ["estimate", "value", "{walk}", "--policy", "uniform", "--replicates", "9999999999"],
            "replicates must be at most 1,000,000, but it is 9999999999",
        ),
        ([*REPRODUCE, "--seeds", "9999999999"], "seeds must be at most 1,000"),
        ([*REPRODUCE, "--stack", "9999999999"], "stack must be at most 1,000,000,000"),
        ([*REPRODUCE, "--set", "ratio_episodes=9999999999"], "ratio_episodes must lie in"),
        ([*REPRODUCE, "--arm", "a:width=1e400"], "width must lie in (0, 16], but it is inf"),
        *(
            (["estimate", *words, "{walk}", "--policy", "uniform", "--num-actions", given], message)
            for words in (["value"], ["ratio", "--out", "out"])
            for given, message in (
                ("9" * 20, "num_actions must be at most 10,000"),
                ("9999999999", "num_actions must be at most 10,000"),
                ("0", "num_actions must be at least 1, but it is 0"),
            )
        ),
    ],
)
def test_numbers_beyond_any_use(
    command: list[str],
    message: str,
    walk: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *(word.format(walk=walk) for word in command))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "command",
    [
        ["collect", ENV, "--transitions", "10"],
        ["train", ENV, "--data", "{walk}", "--scale", "smoke"],
        ["estimate", "ratio", "{walk}", "--policy", "uniform"],
        ["data", "import", "a.npz"],
        ["theory"],
        ["demo"],
        ["reproduce", "figure-1-left", "--scale", "smoke"],
    ],
)
@pytest.mark.parametrize("out", ["file", "file/out"])
def test_a_file_in_the_place_of_a_folder(
    command: list[str],
    out: str,
    walk: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", **ARRAYS)
    Path("file").write_text("mine")
    assert "file is a file; name a folder" in refused(capsys, *filled(command, walk, Path(out)))
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize("data", ["{walk}", "online"])
def test_a_start_that_fails_leaves_no_run(
    data: str, walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("covshift.runs.launch.make_agent_network", fail)
    folder, config = RunFolder(tmp_path / "run"), make_config(ENV, "c51", "smoke")
    with pytest.raises(RuntimeError):
        start_or_resume(folder, config, data.format(walk=walk), RuntimeOptions(), lambda _: None)
    assert not [*tmp_path.iterdir()]


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


def test_an_export_that_fails_leaves_nothing_behind(walk: Path, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    root = tmp_path / "root"
    given = ["data", "export", walk, "--name", "mine/walk-v0"]
    # HDF5 crashes when it cannot write.
    done = run_limited(*given, env={"MINARI_DATASETS_PATH": str(root)}, file_size=40_000)
    assert done.returncode == 2
    assert (
        done.stderr == "covshift: Minari cannot write the dataset 'mine/walk-v0': File too large\n"
    )
    assert not [*root.iterdir()]
    done = run_limited(*given, env={"MINARI_DATASETS_PATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert (root / "mine" / "walk-v0").is_dir()


WAITING = """
import os, sys, time
from pathlib import Path

class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "minari":
            Path(os.environ["MINARI_DATASETS_PATH"], "child").write_text(str(os.getpid()))
            time.sleep(3600)

if "covshift.data.minari_export" in sys.orig_argv:
    sys.meta_path.insert(0, Waiting())
"""
"""Lets the process that an export starts wait before it writes, as Python runs a `sitecustomize`."""


def test_a_killed_export_ends_with_all_of_its_processes(
    walk: Path, tmp_path: Path, start_process: Any
) -> None:
    pytest.importorskip("minari")
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    places = {"MINARI_DATASETS_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    given = ["data", "export", walk, "--name", "walk-v0"]
    process = start_process("-m", "covshift", *given, env=os.environ | places)
    written = tmp_path / "child"
    wait_until(lambda: process.poll() is not None or (written.exists() and written.stat().st_size))
    child = Path("/proc", written.read_text())
    assert child.exists()
    process.kill()
    process.wait()
    wait_until(lambda: not child.exists())


def test_a_failed_export_keeps_its_neighbors(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    (tmp_path / "root" / "mine" / "other-v0").mkdir(parents=True)
    with pytest.raises(InputError, match=r"nowhere is not a covshift dataset"):
        export_minari(tmp_path / "nowhere", "mine/walk-v0")
    assert [path.name for path in (tmp_path / "root" / "mine").iterdir()] == ["other-v0"]


def run_limited(
    *arguments: Any,
    env: dict[str, str] | None = None,
    file_size: int | None = None,
    memory: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command; where files cannot grow beyond a size, writing fails as on a full disk.

    Permissions hold for root too.
    """

    def limit() -> None:
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if os.geteuid() == 0:
            for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
                LIBC.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    return subprocess.run(
        [sys.executable, "-m", "covshift", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | (env or {}),
        preexec_fn=limit,
    )


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
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
    number: signal.Signals, library: str, walk: Path, tmp_path: Path, start_process: Any
) -> None:
    given = ["train", ENV, "--data", walk, "--scale", "smoke", "--num-updates", "1000000"]
    command = ["-m", "covshift", *given, "--out", tmp_path / "run"]
    process = start_process(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until(lambda: imported(process, library))
    process.send_signal(number)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    # On a loaded machine the command may have begun to train by then.
    assert re.search("interrupted|saved at update", text)


COLLECT = ["collect", ENV, "--transitions", "10"]
RATIO = ["estimate", "ratio", "{walk}", "--policy", "uniform"]
VALUE = ["estimate", "value", "{walk}", "--policy", "uniform", "--estimators", "mis"]
VALUE += ["--replicates", "2"]
TRAIN = ["train", ENV, "--data", "{walk}", "--scale", "smoke", "--threads", "1"]


def filled(command: list[str], walk: Path, out: Path) -> list[str]:
    return [word.format(walk=walk) for word in command] + ["--out", str(out)]


@pytest.mark.skipif(sys.platform != "linux", reason="drops Linux's capabilities")
@pytest.mark.parametrize("command", [COLLECT, RATIO, VALUE, TRAIN])
def test_a_read_only_folder(command: list[str], walk: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(0o500)
    done = run_limited(*filled(command, walk, place / "out"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"covshift: {place}")
    assert done.stderr.endswith("Permission denied\n")


@pytest.mark.skipif(sys.platform != "linux", reason="drops Linux's capabilities")
@pytest.mark.parametrize("name", ["config.json", "status.json", "metrics.csv"])
def test_a_run_that_may_not_be_read_hides_no_other(name: str, walk: Path, tmp_path: Path) -> None:
    for run in ("good", "secret"):
        config = make_config(ENV, "c51", "smoke")
        create_run(RunFolder(tmp_path / run), config, str(walk), RuntimeOptions())
    (tmp_path / "secret" / "metrics.csv").write_text("update,score\r\n")
    (tmp_path / "secret" / name).chmod(0)
    done = run_limited("runs", "list", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "new 0/" in lines[0]
    assert lines[1].endswith(f"{name} cannot be read: Permission denied")


@pytest.mark.parametrize("command", [RATIO, VALUE])
def test_an_estimate_is_written_whole_or_not_at_all(
    command: list[str], walk: Path, tmp_path: Path
) -> None:
    # The pictures come last and are the largest.
    done = run_limited(*filled(command, walk, tmp_path / "a" / "b"), file_size=10_000)
    assert (done.returncode, [*tmp_path.iterdir()]) == (1, [])
    assert done.stderr.endswith("covshift: File too large\n")


def test_libraries_that_do_not_fit_into_memory(walk: Path, tmp_path: Path) -> None:
    # NumPy fits, torch does not.
    given = filled(TRAIN, walk, tmp_path / "run")
    done = run_limited(*given, env={"OPENBLAS_NUM_THREADS": "1"}, memory=400 * 2**20)
    assert done.returncode == 1
    assert done.stderr.startswith("covshift: not enough memory: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_checkpoints_on_a_full_disk(walk: Path, tmp_path: Path) -> None:
    # Compiled functions are cached on disk, and would otherwise be the first files that do not fit.
    main([*filled(TRAIN, walk, tmp_path / "compiling"), "--num-updates", "1"])
    done = run_limited(*filled(TRAIN, walk, tmp_path / "run"), file_size=20_000)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "tensors.safetensors cannot be written" in done.stderr
    assert not [*(tmp_path / "run" / "checkpoints").iterdir()]


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_estimate_writes_nothing_and_says_so(
    existing: bool,
    walk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "e"
    if existing:
        main(filled(RATIO, walk, out))
        (out / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def interrupt(estimate: Any) -> Any:
        raise KeyboardInterrupt

    # The estimate itself has been saved by then.
    monkeypatch.setattr("covshift.estimation.RatioEstimate.plot", interrupt)
    with pytest.raises(SystemExit) as stop:
        main([*filled(RATIO, walk, out), "--ratio-discount", "0.5"])
    assert stop.value.code == 130
    assert capsys.readouterr().err == f"covshift: interrupted; nothing was written to {out}\n"
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert existing or not out.exists()
    monkeypatch.undo()
    main([*filled(RATIO, walk, out), "--ratio-discount", "0.5"])
    assert RatioEstimate.load(out).ratio_discount == 0.5
    names = {path.name for path in out.iterdir()}
    assert names - {"notes.txt"} == {*FILES}
    assert ("notes.txt" in names) == existing


FILES = ("checksums.sha256", "estimate.json", "estimate.npz", "ratio.png")


@pytest.mark.parametrize(
    ("command", "kept"),
    [(COLLECT, True), ([*VALUE], False), (["theory"], False)],
)
def test_only_commands_that_continue_say_so(
    command: list[str],
    kept: bool,
    walk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    for place in (
        "data.collection.Collector.prepare",
        "estimation.compare_estimators",
        "experiments.theory.claim.Claim.check",
    ):
        monkeypatch.setattr(f"covshift.{place}", interrupt)
    with pytest.raises(SystemExit):
        main(filled(command, walk, tmp_path / "out"))
    text = capsys.readouterr().err
    assert "interrupted" in text
    assert ("the same command continues" in text) == kept


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""With it, the last of the output is written when Python ends."""


@pytest.mark.parametrize("command", [["runs", "list", "."], ["--help"], ["--version"]])
def test_a_closed_pipe_ends_a_command_in_silence(command: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "covshift", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=BUFFERED,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_an_output_that_cannot_be_written_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "covshift", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=BUFFERED,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "covshift: the output cannot be written: No space left on device\n"
