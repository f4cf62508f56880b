import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from covshift.cli.main import main
from covshift.data.collection import Request, collect
from covshift.estimation import RatioEstimate, as_logs, estimate_ratio
from covshift.theory.examples import random_walk


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of a random walk, and beside it the target policy of the example as a table."""
    folder = tmp_path_factory.mktemp("walk")
    collect(
        Request("covshift/RandomWalk-v0", 4000, seed=1), folder / "data", progress=lambda _: None
    )
    np.save(folder / "pi.npy", random_walk().pi)
    return folder


def test_ratio_prints_diagnostics_and_writes_the_estimate(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        ["estimate", "ratio", str(walk / "data"), "--policy", f"file:{walk / 'pi.npy'}",
         "--out", str(tmp_path), "--ratio-discount", "1.0"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "transitions          4000" in printed
    assert "flag                 ok" in printed
    found = RatioEstimate.load(tmp_path)
    np.testing.assert_allclose(found.ratio(np.arange(6)), random_walk().c_star(), atol=0.1)
    assert (tmp_path / "ratio.png").stat().st_size > 5_000


def test_value_prints_and_writes_the_estimates(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        ["estimate", "value", str(walk / "data"), "--policy", f"file:{walk / 'pi.npy'}",
         "--out", str(tmp_path), "--discount", "1.0", "--replicates", "20",
         "--estimators", "mis", "fqe", "behavior"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "E[Σ γᵗ r] of π from d₀, γ = 1"
    assert lines[1].split() == ["estimator", "value", "95", "%", "interval", "flag"]
    assert lines[2].startswith("mis ")
    assert re.search(r"\nfqe .* ok\n +Believe it: the data hold what the policy does \(", printed)
    records = json.loads((tmp_path / "values.json").read_text())["estimates"]
    problem = random_walk()
    assert problem.mdp.d_0 is not None
    truth = problem.mdp.d_0 @ problem.mdp.value(problem.pi, 1.0)
    by_name = {record["estimator"]: record for record in records}
    assert by_name["fqe"]["value"] == pytest.approx(truth, abs=0.01)
    assert by_name["mis"]["value"] == pytest.approx(truth, abs=0.05)
    # The walk under μ ends at either side alike.
    assert by_name["behavior"]["value"] == pytest.approx(0.5, abs=0.06)
    assert (tmp_path / "values.csv").read_text().count("\n") == 4


def test_features_are_imported_from_the_working_directory(walk: Path, tmp_path: Path) -> None:
    """In a process of its own, since pytest's path would find the module anyway."""
    (tmp_path / "mine.py").write_text("import numpy as np\nphi = lambda s: s.astype(float)\n")
    made = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("covshift")), "estimate", "ratio"),
            *(str(walk / "data"), "--policy", "uniform", "--features", "mine:phi", "--out", "out"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "out" / "estimate.json").is_file()


def test_warnings_are_notes_on_the_standard_error(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect(Request("covshift/RandomWalk-v0", 40), tmp_path / "data", progress=lambda _: None)
    main(
        ["estimate", "value", str(tmp_path / "data"), "--policy", f"file:{walk / 'pi.npy'}",
         "--replicates", "5", "--estimators", "behavior", "fqe"]
    )  # fmt: skip
    captured = capsys.readouterr()
    notes = [line for line in captured.err.splitlines() if line.startswith("Note: ")]
    assert len(notes) == len(set(notes)) == 2
    assert re.fullmatch(r"Note: 1 of \d trajectories are cut off, .* counts as 0\.", notes[0])
    assert re.fullmatch(r"Note: an interval from \d trajectories is a rough one\.", notes[1])
    assert "estimators: 2 in" in captured.err
    assert "Warning" not in captured.err
    # The question, the heading, then a number and a verdict for each.
    assert len(captured.out.splitlines()) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ratio", "{data}", "--policy", "uniform", "--features", "cubic"], "'cubic' names no features"),
        (["ratio", "{data}", "--policy", "uniform", "--features", "no.such:thing"], "cannot be imported"),
        (["ratio", "{data}", "--policy", "uniform", "--method", "magic"], "there is no method 'magic'"),
        (["ratio", "/nowhere", "--policy", "uniform"], "is not a covshift dataset"),
        (["value", "{data}", "--policy", "uniform", "--estimators", "magic"], "there is no estimator 'magic'"),
        (["value", "{data}", "--policy", "run:x"], "say run:DIR,epsilon=E"),
    ],
)  # fmt: skip
def test_bad_input_ends_with_a_message_of_one_line(
    arguments: list[str],
    message: str,
    walk: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [argument.replace("{data}", str(walk / "data")) for argument in arguments]
    with pytest.raises(SystemExit) as stop:
        main(["estimate", *given, "--out", str(tmp_path)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from covshift.cli.main import main\n"
        "try: main(['estimate', 'value', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--ratio-discount" in done.stdout


def test_a_csv_file_with_columns_of_any_name(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The walk's rows with words for states and actions give the numbers of the dataset itself."""
    logs = as_logs(walk / "data")
    place = np.array(["s0", "s1", "s2", "s3", "s4", "s5"])
    table = pd.DataFrame(
        {
            "user": [f"u{k}" for k in logs.trajectory],
            "place": place[logs.states().argmax(axis=1)],
            "then": place[logs.next_states().argmax(axis=1)],
            "move": np.array(["left", "right"])[logs.action],
            "p": logs.mu,
            "gain": logs.reward,
            "done": logs.terminated,
        }
    )
    table.to_csv(tmp_path / "logs.csv", index=False)
    pi = pd.DataFrame(random_walk().pi, columns=["left", "right"]).assign(place=place)
    pi.to_csv(tmp_path / "pi.csv", index=False)
    names = [
        *("--state", "place", "--next-state", "then", "--action", "move", "--propensity", "p"),
        *("--reward", "gain", "--trajectory", "user", "--terminated", "done"),
    ]
    from_file = [str(tmp_path / "logs.csv"), "--policy", f"file:{tmp_path / 'pi.csv'}", *names]
    main(["estimate", "ratio", *from_file, "--out", str(tmp_path / "ratio")])
    found = RatioEstimate.load(tmp_path / "ratio")
    plain = estimate_ratio(logs, random_walk().pi)
    # The states of the dataset are one-hot vectors.
    np.testing.assert_allclose(found.ratio(place), plain.ratio(np.eye(6, dtype=int)), rtol=1e-9)
    capsys.readouterr()
    ask = ["--discount", "1.0", "--replicates", "20", "--estimators", "mis", "fqe", "behavior"]
    main(["estimate", "value", *from_file, *ask])
    printed = capsys.readouterr().out
    main(["estimate", "value", str(walk / "data"), "--policy", f"file:{walk / 'pi.npy'}", *ask])
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "logs.csv lacks state, action, reward, terminated"),
        (["--state", "x,y"], "lacks x, y, action, reward, terminated; it has a, b. Say which column holds the state"),
        (["--state", "a", "--action", "b", "--reward", "b"], "say terminated=False (--terminated never)"),
    ],
)  # fmt: skip
def test_missing_columns_are_named_with_the_option(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs.csv").write_text("a,b\n0,0\n1,0\n")
    with pytest.raises(SystemExit):
        main(["estimate", "value", str(tmp_path / "logs.csv"), "--policy", "uniform", *options])
    assert message in capsys.readouterr().err
