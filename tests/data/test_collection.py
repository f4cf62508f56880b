import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from covshift.cli.main import main
from covshift.config.environment import EnvOptions
from covshift.data.collection import Collector, Request, collect
from covshift.data.format import read_rows, shard_name, write_shard
from covshift.data.policies import parse_policy
from covshift.data.store import Store
from covshift.data.verification import verify
from covshift.data.workers import ignore_progress
from covshift.envs import make_streams
from covshift.errors import InputError
from covshift.theory.examples import random_walk


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def run(request: Request, out: Path, workers: int = 1) -> Store:
    collect(request, out, workers=workers)
    assert list(verify(out))
    return Store.open(out)


WALK = Request("covshift/RandomWalk-v0", 3000, shard_transitions=700, envs=4)


def test_equal_requests_give_the_same_bytes_in_any_folder_with_any_number_of_workers(
    tmp_path: Path,
) -> None:
    store = run(WALK, tmp_path / "a")
    assert int(store.is_transition.sum()) == 3000
    run(WALK, tmp_path / "b" / "deep")
    assert digest(tmp_path / "a") == digest(tmp_path / "b" / "deep")
    run(WALK, tmp_path / "c", workers=2)
    assert digest(tmp_path / "a") == digest(tmp_path / "c")
    text = (tmp_path / "a" / "manifest.json").read_text()
    assert str(tmp_path) not in text
    manifest = json.loads(text)
    assert manifest["totals"]["transitions"] == 3000
    assert len(manifest["shards"]) > 3
    # Only the last shard is cut.
    assert store.columns["truncated"].sum() <= 1
    assert all(shard["transitions"] >= 700 for shard in manifest["shards"][:-1])


class Counting:
    """Streams that count the steps that are started; an emulator for each stream takes them."""

    steps: ClassVar[list[int]] = []

    def __init__(self, streams: Any, count: int) -> None:
        self._streams, self._count = streams, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)

    def send(self, actions: Any) -> None:
        self.steps.append(self._count)
        self._streams.send(actions)


@pytest.mark.parametrize("size", [1, 174, 175, 176, 350, 699, 700])
@pytest.mark.parametrize("env", ["covshift/RandomWalk-v0", "MinAtar/Breakout-v1"])
def test_the_first_part_of_a_shard_has_the_bytes_of_the_whole_one_cut(
    env: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(env, 5000, shard_transitions=700, envs=4)  # A stream's quota is 175.
    with closing(Collector(request, tmp_path / "a")) as collector:
        collector.prepare()
        collector.make_shard(0, ignore_progress)
        path = tmp_path / "a" / shard_name(0)
        whole = read_rows(path)
        cut = whole.cut(size)
        write_shard(tmp_path / "cut", cut, collector.codec)
        path.unlink()
        monkeypatch.setattr(
            "covshift.data.collection.make_streams",
            lambda env, options, count: Counting(make_streams(env, options, count), count),
        )
        collector.close()
        Counting.steps.clear()
        assert collector.make_shard(0, ignore_progress, limit=size) == size
    assert path.read_bytes() == (tmp_path / "cut").read_bytes()
    # All streams that can be needed step together until the longest part that is needed is there, and a step is ahead.
    taken = np.bincount(cut.columns["stream"], cut.columns["action"] >= 0)
    assert len(Counting.steps) == taken.max() + 1
    assert set(Counting.steps) == {-(-size // 175)}


def test_workers_make_no_more_of_the_last_shard_than_can_be_needed(tmp_path: Path) -> None:
    request = replace(WALK, transitions=1450)
    done: list[int] = []
    collect(request, tmp_path / "two", workers=2, progress=done.append)
    collect(request, tmp_path / "one")
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    with closing(Collector(request, tmp_path / "whole")) as collector:
        collector.prepare()
        whole = [collector.make_shard(index, ignore_progress) for index in range(2)]
    assert sum(whole) >= 1450
    # A third shard can be needed for 50 transitions only, before it is known that it is not needed.
    assert sum(done) <= sum(whole) + 50


def test_sha256sum_agrees(tmp_path: Path) -> None:
    run(WALK, tmp_path / "a")
    command = ["sha256sum", "--check", "--strict", "checksums.sha256"]
    done = subprocess.run(command, cwd=tmp_path / "a", capture_output=True, check=False)
    assert done.returncode == 0


BREAKOUT = Request("MinAtar/Breakout-v1", 6000, shard_transitions=800)
SCRIPT = """
import sys, time
from pathlib import Path
from covshift.data.collection import Request, collect
made = 0
def wait_for_the_kill(transitions):
    global made
    made += transitions
    if made >= int(sys.argv[2]):
        time.sleep(3600)
request = Request("MinAtar/Breakout-v1", 6000, shard_transitions=800)
collect(request, Path(sys.argv[1]), progress=wait_for_the_kill)
"""


def test_killed_collections_continue_to_the_same_bytes(tmp_path: Path) -> None:
    collect(BREAKOUT, tmp_path / "whole")
    rng = np.random.default_rng(0)
    killed = tmp_path / "killed"
    for _ in range(3):
        # Each process is killed at a random moment after it has finished one more shard, or earlier. It waits in the
        # shard after that one, so that it is under way however slow the machine is.
        before = len(list(killed.glob("shard-*.arrow")))
        goal = max(before + int(rng.integers(0, 2)), 1)
        command = [sys.executable, "-c", SCRIPT, str(killed), str(800 * (before + 2))]
        process = subprocess.Popen(command)
        try:
            while len(list(killed.glob("shard-*.arrow"))) < goal:
                assert process.poll() is None
                time.sleep(0.002)
            time.sleep(float(rng.uniform(0, 0.3)))
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
    assert 0 < len(list(killed.glob("shard-*.arrow"))) < 8
    collect(BREAKOUT, killed)
    assert digest(killed) == digest(tmp_path / "whole")


PARALLEL = """
import sys, time
from pathlib import Path
from covshift.data.collection import Request, collect
made = 0
def wait_for_the_kill(transitions):
    global made
    made += transitions
    if made >= int(sys.argv[3]):
        time.sleep(3600)
if __name__ == "__main__":
    request = Request("MinAtar/Breakout-v1", 12_000, shard_transitions=400)
    collect(request, Path(sys.argv[1]), workers=int(sys.argv[2]), progress=wait_for_the_kill)
"""


def test_workers_end_with_the_killed_command_which_continues_to_the_same_bytes(
    tmp_path: Path, start_process: Any
) -> None:
    collect(
        Request("MinAtar/Breakout-v1", 12_000, shard_transitions=400),
        tmp_path / "whole",
        progress=ignore_progress,
    )
    killed = tmp_path / "killed"
    # It waits after the first shards, so that it is under way however slow the machine is.
    process = start_process("-c", PARALLEL, killed, 2, 800)
    while not list(killed.glob("shard-*.arrow")):
        time.sleep(0.005)
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "orphans are still running"
        time.sleep(0.02)
    made = len(list(killed.glob("shard-*.arrow")))
    assert 0 < made < 30
    assert start_process("-c", PARALLEL, killed, 2, 10**9).wait() == 0
    assert digest(killed) == digest(tmp_path / "whole")


def test_workers_report_their_progress(tmp_path: Path) -> None:
    reported: list[int] = []
    collect(WALK, tmp_path / "a", workers=2, progress=reported.append)
    made = json.loads((tmp_path / "a" / "manifest.json").read_text())["shards"]
    assert sum(reported) >= sum(shard["transitions"] for shard in made)


def test_actions_follow_the_behavior_policy_and_mu_is_its_probability(tmp_path: Path) -> None:
    problem = random_walk()
    table = np.tile([0.3, 0.7], (6, 1))
    np.save(tmp_path / "p.npy", table)
    request = Request(
        "covshift/RandomWalk-v0", 40_000, (f"file:{tmp_path / 'p.npy'}",), shard_transitions=20_000
    )
    store = run(request, tmp_path / "a")
    rows = np.flatnonzero(store.is_transition)
    states, action = store.states(rows).argmax(axis=1), store.columns["action"][rows]
    np.testing.assert_allclose(store.columns["mu"][rows], table[states, action], rtol=1e-6)
    assert abs(action.mean() - 0.7) < 5 * np.sqrt(0.21 / 40_000)
    visits = np.bincount(states, minlength=6) / store.columns["is_initial"].sum()
    np.testing.assert_allclose(visits, problem.mdp.chain(table).visits(), rtol=0.05)
    assert not store.columns["life_lost"].any()
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["request"]["policies"][0]["policy"] == "file"


def test_shares_say_how_often_an_episode_picks_each_policy(tmp_path: Path) -> None:
    mixture = ("uniform", "uniform")
    request = Request("covshift/RandomWalk-v0", 4000, mixture, shares=(0.9, 0.1))
    store = run(request, tmp_path / "a")
    first = store.columns["policy"][store.columns["is_initial"]]
    assert abs(first.mean() - 0.1) < 5 * np.sqrt(0.09 / len(first))
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["request"]["shares"] == [0.9, 0.1]
    with pytest.raises(InputError, match="shares"):  # Another mixture is another dataset.
        run(Request("covshift/RandomWalk-v0", 4000, mixture), tmp_path / "a")


@pytest.mark.parametrize("shares", [(0.5,), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (0.5, np.nan)])
def test_shares_are_probabilities_of_all_policies(shares: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="share"):
        Request("covshift/RandomWalk-v0", 4000, ("uniform", "uniform"), shares=shares)


def test_each_episode_of_a_mixture_picks_one_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef right(o):\n    return np.tile([0.1, 0.9], (len(o), 1))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    request = Request("covshift/RandomWalk-v0", 4000, ("uniform", "mine:right"))
    store = run(request, tmp_path / "a")
    column = store.columns
    same = column["policy"][1:] == column["policy"][:-1]
    assert (same | column["is_initial"][1:]).all()
    first = column["policy"][column["is_initial"]]
    assert 0.35 < first.mean() < 0.65
    taken = column["action"] >= 0
    uniform = taken & (column["policy"] == 0)
    assert (column["mu"][uniform] == 0.5).all()
    other = taken & (column["policy"] == 1)
    np.testing.assert_allclose(
        column["mu"][other], np.where(column["action"][other] == 1, 0.9, 0.1), rtol=1e-6
    )


def test_atari_frames_and_stacks_are_those_of_the_emulator(tmp_path: Path) -> None:
    vector_env = pytest.importorskip("ale_py.vector_env")
    request = Request("ALE/Breakout-v5", 700, envs=2)
    store = run(request, tmp_path / "a")
    assert store.state_shape == (4, 84, 84)
    column = store.columns
    assert column["life_lost"].any()
    assert not (column["life_lost"] & (column["terminated"] | column["is_initial"])).any()
    # Replay the first stream's actions in ALE's own stacked environment.
    env = vector_env.AtariVectorEnv(
        "breakout", 1, repeat_action_probability=0.25, noop_max=0, use_fire_reset=False,
        reward_clipping=False, autoreset_mode=_same_step(),
    )  # fmt: skip
    sequence = np.random.SeedSequence(0, spawn_key=(0, 0))
    seed = np.random.default_rng(sequence).integers(2**31 - 1)
    observation, _ = env.reset(seed=np.array([seed]))
    stop = int(np.flatnonzero(column["stream"] == 0)[-1])
    for row in range(stop):
        if column["action"][row] < 0:
            continue
        np.testing.assert_array_equal(store.states(np.array([row]))[0], observation[0])
        observation, reward, terminated, *_ = env.step(column["action"][[row]].astype(np.int64))
        assert reward[0] == column["reward"][row + 1]
        assert terminated[0] == column["terminated"][row + 1]
    env.close()


def test_policies_see_the_stacks_that_the_store_rebuilds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """μ shows what the policy saw, since each frame of the stack has its own weight in it."""
    (tmp_path / "seer.py").write_text(
        "import numpy as np\n"
        "def policy(stacks):\n"
        "    seen = stacks.mean(axis=(2, 3)) @ [1.0, 2.0, 4.0, 8.0]\n"
        "    first = 0.2 + 0.5 * (seen % 1.0)\n"
        "    return np.stack([first, *[(1 - first) / 3] * 3], axis=1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from seer import policy  # type: ignore[import-not-found]

    store = run(Request("ALE/Breakout-v5", 1600, ("seer:policy",), envs=4), tmp_path / "a")
    rows = np.flatnonzero(store.is_transition)
    # Several episodes, so that some stacks would reach back into the one before.
    assert store.columns["is_initial"].sum() > 4
    expected = policy(store.states(rows))[np.arange(len(rows)), store.columns["action"][rows]]
    np.testing.assert_allclose(store.columns["mu"][rows], expected, rtol=1e-6)


def _same_step() -> object:
    from gymnasium.vector import AutoresetMode

    return AutoresetMode.SAME_STEP


def test_episode_caps_truncate(tmp_path: Path) -> None:
    request = Request("MinAtar/Freeway-v1", 400, envs=2, options=EnvOptions(episode_cap=50))
    store = run(request, tmp_path / "a")
    ends = np.flatnonzero(store.columns["action"] < 0)
    starts = np.flatnonzero(store.columns["is_initial"])
    assert (ends - starts).max() == 50
    assert store.columns["truncated"].sum() == len(ends)


def test_any_gymnasium_id_works(tmp_path: Path) -> None:
    store = run(Request("CartPole-v1", 300), tmp_path / "a")
    assert store.codec.dtype == np.float32
    assert run(Request("Taxi-v4", 300), tmp_path / "b").state_shape == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ALE/Pongg-v5"], "there is no environment 'ALE/Pongg-v5'; did you mean ALE/Pong-v5"),
        (["covshift/Broken-v0"], "covshift/Broken-v0 cannot be made: No module named 'box'"),
        (["Pendulum-v1"], "but Discrete(n) is needed"),
        (
            ["CartPole-v1", "--policy", "file:many.npz"],
            "the policy file many.npz cannot be read: ",
        ),
        (
            ["CartPole-v1", "--policy", "file:empty.npy"],
            "the policy file empty.npy cannot be read: ",
        ),
        (["CartPole-v1", "--policy", "best"], "'best' is not a policy; say uniform | file:P.npy"),
        (["CartPole-v1", "--policy", "file:none.npy"], "the policy file none.npy cannot be read"),
        (["CartPole-v1", "--policy", "run:x,epsilon=0.1"], "x is no run: it has no config.json"),
        (["CartPole-v1", "--policy", "json:nothing"], "cannot be imported"),
        (["CartPole-v1", "--transitions", "0"], "transitions must lie in [1, "),
        (["CartPole-v1", "--envs", "0"], "envs must lie in [1, "),
        (
            ["CartPole-v1", "--seed", "-1"],
            "seed must lie in [0, 9,223,372,036,854,775,808), but it is -1",
        ),
    ],
)
def test_bad_requests_end_with_a_one_line_message(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(**options: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("No module named 'box'")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        gymnasium.registry,
        "covshift/Broken-v0",
        gymnasium.envs.registration.EnvSpec("covshift/Broken-v0", entry_point=broken),
    )
    np.savez("many.npz", a=np.eye(2), b=np.eye(2))
    Path("empty.npy").touch()
    if "--transitions" not in arguments:
        arguments = [*arguments, "--transitions", "10"]
    with pytest.raises(SystemExit) as stop:
        main(["collect", *arguments, "--out", str(tmp_path / "x")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_refused_policy_file_is_not_left_open(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", a=np.eye(2))
    with pytest.raises(InputError) as refused:
        parse_policy(f"file:{tmp_path / 'many.npz'}", 2)
    # The error's frames keep what was read, so that the open files of this process would show it.
    opened = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
    assert str(tmp_path / "many.npz") not in opened
    assert "one array of numbers" in str(refused.value)


def test_a_second_process_that_collects_the_same_dataset_waits(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    handle = os.open(tmp_path / "a", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    second = threading.Thread(target=run, args=(WALK, tmp_path / "a"))
    second.start()
    # The kernel lists who waits for which lock, so that no time has to be assumed.
    inode = f":{(tmp_path / 'a').stat().st_ino} "
    locks = Path("/proc/locks")
    while not any("->" in x and inode in x for x in locks.read_text().splitlines()):
        assert second.is_alive()
        time.sleep(0.02)
    assert not list((tmp_path / "a").glob("shard-*"))
    os.close(handle)
    second.join()
    run(WALK, tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_a_folder_with_another_dataset_is_left_alone(tmp_path: Path) -> None:
    run(WALK, tmp_path / "a")
    before = digest(tmp_path / "a")
    other = Request("covshift/RandomWalk-v0", 3001, shard_transitions=700, envs=4)
    with pytest.raises(
        InputError,
        match=r"was made differently \(transitions: 3000 there, 3001 here\); name another",
    ):
        collect(other, tmp_path / "a")
    assert digest(tmp_path / "a") == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and holds no dataset"):
        collect(WALK, tmp_path / "full")


def test_a_dataset_of_other_library_versions_is_used_but_not_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    command = ["collect", "covshift/RandomWalk-v0", "--transitions", "300", "--out", str(out)]
    main(command)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["versions"]["numpy"] = "0.1"
    (out / "manifest.json").write_text(json.dumps(manifest))
    before = digest(out)
    capsys.readouterr()
    main(command)
    lines = capsys.readouterr().out.splitlines()
    here = f'numpy: "0.1" there, "{np.__version__}" here'
    assert lines[0] == f"Made with other versions of libraries, and used as it is: {here}"
    assert lines[1].startswith("The dataset is complete")
    assert digest(out) == before
    (out / "shard-00000.arrow").unlink()
    with pytest.raises(SystemExit):
        main(command)
    assert f"made differently (versions.{here})" in capsys.readouterr().err


def test_a_shard_that_is_missing_is_made_again(tmp_path: Path) -> None:
    run(WALK, tmp_path / "a")
    whole = digest(tmp_path / "a")
    (tmp_path / "a" / "shard-00001.arrow").unlink()
    run(WALK, tmp_path / "a")
    assert digest(tmp_path / "a") == whole


def test_a_partial_manifest_of_a_killed_collection_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "manifest.partial").write_text("{")
    run(WALK, tmp_path / "a")


def test_a_killed_worker_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, multiprocessing, numpy\n"
        "def policy(o):\n"
        "    if multiprocessing.parent_process() is not None:\n"
        "        os._exit(1)\n"
        "    return numpy.full((len(o), 2), 0.5)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    request = Request("covshift/RandomWalk-v0", 500, ("deadly:policy",), shard_transitions=100)
    with pytest.raises(InputError, match="a worker process was killed; run the same command again"):
        collect(request, tmp_path / "a", workers=2)


def test_a_collection_continues_after_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    collector = Collector(WALK, tmp_path / "a")
    collector.prepare()
    collector.make_shard(0, ignore_progress)
    before = digest(tmp_path / "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pa.ipc, "new_file", full)
        with pytest.raises(OSError, match="No space left"):
            collect(WALK, tmp_path / "a")
    assert digest(tmp_path / "a") == before
    run(WALK, tmp_path / "a")
    run(WALK, tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_the_commands_collect_verify_and_summarize(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "b")
    main(["collect", "MinAtar/Breakout-v1", "--transitions", "500", "--out", out])
    main(["collect", "MinAtar/Breakout-v1", "--transitions", "500", "--out", out])
    main(["data", "verify", out])
    main(["data", "info", out])
    text = capsys.readouterr().out
    assert "about" in text.splitlines()[0]
    assert f"{out}: OK" in text
    assert "500 in" in text
    assert (tmp_path / "b-frames.png").stat().st_size > 1000
