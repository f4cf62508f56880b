import subprocess
import sys
from pathlib import Path

import pytest

import covshift as covshift_package
from covshift.cli.main import main
from covshift.version import __version__


def covshift(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "covshift", *arguments], capture_output=True, text=True, check=False
    )


def test_version_is_printed() -> None:
    done = covshift("--version")
    assert (done.returncode, done.stdout) == (0, f"covshift {__version__}\n")


def test_help_and_no_arguments_print_the_tour() -> None:
    done = covshift("--help")
    assert done.returncode == 0
    assert "covshift theory --out" in done.stdout
    assert covshift().stdout == done.stdout


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["reproduce"],
            ["resume"],
            ["evaluate"],
            ["watch"],
            ["runs"],
            ["report"],
            ["data", "info"],
        ),
        *(["data", "import"], ["estimate", "ratio"], ["estimate", "value"]),
    ],
)
def test_help_says_in_words_what_happens_without_an_option(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "None" not in shown
    assert "(default: )" not in shown


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from covshift.cli.main import main\n"
        "try: main(['theory', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--problems", "0"], "problems must be at least 1, but it is 0"),
        (["--seed", "-1"], "seed must lie in [0, 9,223,372,036,854,775,808), but it is -1"),
        (["--out", __file__], "is a file; name a folder"),
        (["--out", "/proc/nowhere/x"], "No such file or directory"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["theory", "--out", str(tmp_path), *arguments])
    assert stop.value.code in (1, 2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_an_interrupt_keeps_earlier_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "theory.json"
    earlier.write_text("[]")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("covshift.experiments.theory.claim.Claim.check", interrupt)
    with pytest.raises(SystemExit) as stop:
        main(["theory", "--out", str(tmp_path)])
    assert stop.value.code == 130
    assert "interrupted" in capsys.readouterr().err
    assert earlier.read_text() == "[]"


def test_dir_shows_the_public_names_without_importing_them() -> None:
    code = (
        "import covshift, sys\n"
        "missing = set(covshift.__all__) - set(dir(covshift))\n"
        "sys.exit(f'missing: {missing}' if missing else 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in covshift_package.__all__:
        assert getattr(covshift_package, name) is not None
    with pytest.raises(AttributeError, match="module 'covshift' has no attribute 'nothing'"):
        _ = covshift_package.nothing


def test_importing_covshift_does_not_import_torch() -> None:
    code = "import covshift, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
