"""The wheel works in a fresh environment without any extra, and it and the sdist hold only what a user needs."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ESTIMATE = """
import sys
import numpy as np
import covshift
from covshift.estimation import simulate_logs
from covshift.theory import FiniteMDP

mdp = FiniteMDP(p=np.tile(np.eye(2), (2, 1, 1)), r=np.array([[0.0, 0.0], [1.0, 1.0]]))
logs = simulate_logs(mdp, np.full((2, 2), 0.5), 2000, 10, np.random.default_rng(0))
estimate = covshift.estimate_ratio(logs, np.array([[0.2, 0.8], [0.1, 0.9]]))
print(*estimate.ratio(np.array([0, 1])))
assert "torch" not in sys.modules
"""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built with the packages that are installed here."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert done.returncode == 0, done.stderr
    return folder


def test_sdist_holds_the_package_and_no_tests_results_or_ci(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames()}
    assert {"src", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= tops
    assert not tops & {"tests", "results", ".ci", "benchmarks", "docs"}


def test_wheel_holds_the_package_and_its_templates_alone(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    tops = {Path(name).parts[0].partition("-")[0] for name in names}
    assert tops == {"covshift"}
    assert "covshift/py.typed" in names
    assert "covshift/report/templates/base.html.j2" in names


@pytest.fixture(scope="module")
def fresh(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel and no extra."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    (wheel,) = built.glob("*.whl")
    pip = [folder / "bin/python", "-m", "pip", "install", "--no-compile", "--quiet"]
    done = run(*pip, "--constraint", ROOT / "constraints.txt", wheel)
    if (
        done.returncode != 0
        and "No matching distribution" in done.stderr
        and "CI" not in os.environ
    ):
        pytest.skip(f"the wheel was not tested: no package index can be reached\n{done.stderr}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_estimation_works_without_torch(fresh: Path) -> None:
    assert run(fresh / "python", "-c", "import torch").returncode != 0
    done = run(fresh / "python", "-c", ESTIMATE)
    assert done.returncode == 0, done.stderr
    # d_π/d_μ of the README's two states: (0.222, 1.778).
    assert [float(word) for word in done.stdout.split()] == pytest.approx([2 / 9, 16 / 9], abs=0.03)


def test_missing_extras_are_one_sentence(fresh: Path, tmp_path: Path) -> None:
    done = run(fresh / "covshift", "train", "MinAtar/Breakout-v1", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "pip install 'covshift[games,torch]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
    done = run(fresh / "python", "-c", "import covshift; covshift.RatioReplay")
    assert "pip install 'covshift[torch]'" in done.stderr.splitlines()[-1]
