import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from covshift.cli.main import main
from covshift.cli.train import parse_train
from covshift.config.presets import PRESETS, SCALES, make_config
from covshift.errors import InputError


def train(tmp_path: Path, *more: str) -> list[str]:
    return [
        *("train", "MinAtar/Breakout-v1", "--scale", "smoke", "--out", str(tmp_path / "run")),
        *("--data-root", str(tmp_path / "data"), "--threads", "1", *more),
    ]


def test_train_evaluate_watch_and_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(train(tmp_path, "--num-updates", "20", "--log", "tensorboard"))
    out = capsys.readouterr().out
    assert "Collecting 2,000 transitions" in out
    assert re.search(r"update 20/20 · score .* mean c under μ .* mean c under π .*/s", out)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    main(["evaluate", str(tmp_path / "run"), "--episodes", "3"])
    assert "over 3 episodes" in capsys.readouterr().out
    film = tmp_path / "film.gif"
    main(["watch", str(tmp_path / "run"), "--out", str(film), "--steps", "5"])
    with Image.open(film) as picture:
        assert picture.size == (592, 272)
        assert getattr(picture, "n_frames") == 5  # noqa: B009
    capsys.readouterr()
    main(["runs", "list", str(tmp_path)])
    out = capsys.readouterr().out
    assert re.search(r"run +MinAtar/Breakout-v1 +c51-corrected +seed 0 +finished 20/20 +score", out)
    for again in (
        ["resume", str(tmp_path / "run")],
        ["resume", str(tmp_path / "run"), "--stacked"],
    ):
        main(again)
        assert "is finished after 20 updates; nothing is left to do" in capsys.readouterr().out


def test_weights_and_biases_need_no_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
    main(train(tmp_path, "--num-updates", "10", "--log", "wandb"))
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    end = time.monotonic() + 240
    while b"value_loss" not in written.read_bytes():
        assert time.monotonic() < end  # A process of wandb writes after the run has ended.
        time.sleep(0.1)


def test_a_tool_that_is_not_installed_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit):
        main(train(tmp_path, "--num-updates", "2", "--log", "wandb"))
    said = capsys.readouterr().err
    assert "the Weights & Biases log needs wandb: pip install 'covshift[wandb]'" in said
    assert not (tmp_path / "run").exists()


def test_values_at_the_end_of_their_support_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two atoms both are outermost."""
    main(train(tmp_path, "--num-updates", "2", "--num-atoms", "2"))
    warning = "100 % of the probability is on the outermost atoms"
    assert f"covshift: warning: {warning}" in capsys.readouterr().err
    main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    assert warning in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scale", SCALES)
def test_defaults_are_those_of_the_preset_and_scale(preset: str, scale: str) -> None:
    parsed = parse_train(["x", "--preset", preset, f"--scale={scale}", "--out", "y"])
    assert parsed.config() == make_config("x", preset, scale)
    changed = parse_train(
        ["x", "--preset", preset, "--scale", scale, "--out", "y", "--ratio-discount", "0.5"]
    )
    assert changed.config() == make_config("x", preset, scale, ratio_discount=0.5)


def test_of_several_presets_and_scales_the_last_counts() -> None:
    given = ["x", "--preset", "c51", "--scale=atari", "--preset=c51-matched", "--scale", "smoke"]
    assert parse_train([*given, "--out", "y"]).config() == make_config("x", "c51-matched", "smoke")


def test_unknown_presets_are_named() -> None:
    with pytest.raises(InputError, match="there is no preset 'c52'; did you mean c51"):
        parse_train(["x", "--preset", "c52", "--out", "y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ratio-discount", "1.5"], "ratio_discount must lie in [0, 1], but it is 1.5"),
        (["--data", "/nowhere"], "/nowhere is not a covshift dataset"),
        (["--device", "abacus"], "the device 'abacus' cannot be used"),
        (
            ["--num-updates", "-3"],
            "num_updates must lie in [1, 1,000,000,000], but it is -3",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(train(tmp_path, *arguments))
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_divergence_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(train(tmp_path, "--divergence-bound", "0.01"))
    assert stop.value.code == 1
    assert "diverged: the mean |c| of update 1" in capsys.readouterr().err


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, start_process: Any) -> None:
    command = ["-m", "covshift", *train(tmp_path, "--num-updates", "100000")]
    process = start_process(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list((tmp_path / "run" / "checkpoints").glob("update-00000002*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 130
    found = re.fullmatch(
        r"covshift: saved at update ([\d,]+); continue with: covshift resume (.*)\n", error
    )
    assert found is not None
    assert Path(found[2]) == tmp_path / "run"
    update = int(found[1].replace(",", ""))
    assert (tmp_path / "run" / "checkpoints" / f"update-{update:09d}").is_dir()
