"""What all experiments have in common, and how they are listed."""

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from covshift.cli.main import main
from covshift.config.presets import SCALES
from covshift.errors import InputError
from covshift.experiments.demo import SIZES
from covshift.experiments.estimation import sweep
from covshift.experiments.experiment import (
    RunOptions,
    Study,
    find_experiments,
    named_experiment,
)
from covshift.experiments.theory import PROBLEMS


def test_studies_have_a_cost_for_each_scale_that_they_have() -> None:
    found = find_experiments().values()
    costs = {study.name: set(study.costs) for study in found if isinstance(study, Study)}
    scales = {"demo": set(SIZES), "estimation": set(sweep.SCALES), "theory": set(PROBLEMS)}
    assert costs == scales


def test_the_listing_imports_nothing_heavy_and_names_every_experiment() -> None:
    code = (
        "import sys; from covshift.cli.main import main\n"
        "main(['experiments'])\n"
        "heavy = {'torch', 'matplotlib', 'pyarrow', 'scipy', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" · ")[0].split(", ")[-1] for line in lines] == list(find_experiments())
    assert lines[0].startswith("figure-1-left, ratio_discount · Replay prioritized by the")


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_is_listed_with_its_cost(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["experiments", "--scale", scale])
    said = capsys.readouterr().out
    for experiment in find_experiments().values():
        assert f"{experiment.name} · {experiment.claim} · {experiment.cost(scale)}\n" in said
    assert ("not at the scale paper, only small and smoke" in said) == (scale == "paper")


def test_an_unknown_name_is_answered_with_similar_ones() -> None:
    with pytest.raises(InputError, match="there is no experiment 'figure-9'; did you mean figure-"):
        named_experiment("figure-9")


@pytest.mark.parametrize("name", ["estimation", "theory"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "3"], "has no use for --seeds;"),
        (["--workers", "3"], "has no use for --workers;"),
        (["--engine", "ray", "--ray-address", "x"], "has no use for --engine and --ray-address;"),
    ],
)
def test_studies_without_agents_refuse_the_options_of_training(
    name: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", name, *options, "--out", str(tmp_path / "x")])
    assert stop.value.code == 2
    assert f"{name} {message}" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["demo", "estimation"])
def test_a_scale_that_an_experiment_lacks_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name} has no scale 'paper'; choose small or smoke"):
        named_experiment(name).run(tmp_path / "x", RunOptions(scale="paper"), Console())
    with pytest.raises(InputError, match="games has no scale 'tiny'"):
        named_experiment("games").run(tmp_path / "x", RunOptions(scale="tiny"), Console())
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("children_here")
def test_the_demo_is_an_experiment_with_a_number_of_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "smoke", SIZES["smoke"]._replace(updates=20))
    main(["reproduce", "demo", "--scale", "smoke", "--seeds", "2", "--out", str(tmp_path)])
    page = tmp_path / "demo" / "index.html"
    assert f"The page: {page}\n" in capsys.readouterr().out
    assert "--transitions 3000 --updates 20 --seeds 2" in page.read_text()
    assert len(list((tmp_path / "demo" / "runs").iterdir())) == 4
