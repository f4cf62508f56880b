"""Every experiment at the smallest size, end to end, and what the analyses make of runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from covshift.cli.main import main
from covshift.config.presets import SCALES, make_config
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.experiments.experiment import find_experiments, named_experiment
from covshift.experiments.frames.analysis import returns_so_far
from covshift.experiments.ratio_scale.analysis import of_episodes, weigh
from covshift.experiments.reproduction import local_engine, reproduce, run_name
from covshift.experiments.results import Results, judge
from covshift.records import RunFolder
from covshift.report.statistics import Estimate
from covshift.runs import EpisodeResult, load_run

ALIASES = {
    "figure-1-left": "ratio_discount",
    "figure-1-right": "normalization",
    "figure-2": "games",
    "figure-3": "auxiliary",
    "figure-4": "mean_ratio",
    "figure-5": "frames",
    "figure-6": "normalization",
    "figure-7": "frames",
    "figure-8": "frames",
}
OURS = ("ratio_scale", "replay_size", "reweighting", "weighting")


def test_every_figure_of_the_paper_has_its_experiment() -> None:
    assert {alias: named_experiment(alias).name for alias in ALIASES} == ALIASES
    assert set(find_experiments()) == {*ALIASES.values(), *OURS}
    with pytest.raises(InputError, match="there is no experiment 'figure-9'; did you mean figure-"):
        named_experiment("figure-9")


@pytest.mark.parametrize("scale", SCALES)
def test_runs_that_differ_have_names_that_differ(scale: str) -> None:
    names: dict[str, Any] = {}
    for experiment in find_experiments().values():
        for config in experiment.configs(scale, 2).values():
            assert names.setdefault(run_name(config), config) == config
    assert run_name(make_config("MinAtar/Breakout-v1", ratio_discount=0.9)) == (
        "Breakout+c51-corrected+ratio_discount-0.9+small+seed0"
    )


def test_arms_are_the_papers() -> None:
    sweep = named_experiment("figure-1-left").configs("paper", 1)
    assert {config.env for config in sweep.values()} == {"ALE/Pong-v5"}
    corrected = [config for config in sweep.values() if config.preset == "c51-corrected"]
    found = {(c.ratio.ratio_discount, c.ratio.ratio_loss_weight) for c in corrected}
    assert found == {(g, e) for g in (0.9, 0.99, 0.999, 0.9999) for e in (0.02, 0.002)}
    games = named_experiment("figure-2").configs("paper", 3)
    assert len(games) == 5 * 3 * 3
    assert {c.optimization.target_period for c in games.values() if c.preset == "c51"} == {
        1000,
        8000,
    }
    line = [
        c
        for c in named_experiment("figure-3").configs("paper", 1).values()
        if c.preset == "c51-corrected"
    ]
    assert {(c.ratio.ratio_discount, c.ratio.ratio_loss_weight) for c in line} == {(0.999, 0.002)}
    lengths = {
        name: {
            c.optimization.num_updates for c in named_experiment(name).configs("paper", 1).values()
        }
        for name in ALIASES
    }
    # 250 000 agent steps are an iteration, 4 of them an update.
    assert {name for name, found in lengths.items() if found == {50 * 250_000 // 4}} == {
        *("figure-3", "figure-5", "figure-7", "figure-8")
    }
    assert lengths["figure-1-left"] == lengths["figure-2"] == {150 * 250_000 // 4}
    weights = named_experiment("figure-1-right").configs("paper", 1).values()
    assert sorted(c.ratio.normalization_weight for c in weights if c.preset != "c51") == [
        0,
        1e-3,
        1e-2,
        0.1,
        1,
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize("name", list(dict.fromkeys([*ALIASES.values(), *OURS])))
def test_experiments_run_end_to_end(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["reproduce", name, "--scale", "smoke", "--out", str(place)])
    assert "The page:" in capsys.readouterr().out
    figure = json.loads((place / name / "figure.json").read_text())
    assert figure["verdict"] in ("holds", "does not hold", "not enough data")
    assert figure["command"] == f"covshift reproduce {name} --scale smoke --out {place}"
    assert figure["table"]["rows"]
    assert figure["panels"] or figure["galleries"]
    assert (place / name / "index.html").read_text().startswith("<!doctype html>")
    assert (place / name / "figure.svg").is_file() == bool(figure["panels"])
    with (place / name / "table.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [figure["table"]["columns"], *figure["table"]["rows"]]
    rows = (place / name / "runs.csv").read_text().splitlines()
    experiment = named_experiment(name)
    runs = len(experiment.configs("smoke", 1))
    assert len(rows) == 1 + runs * 11


def test_shared_runs_are_run_once_and_reports_join(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("figure-1-left", "figure-4"):
        main(["reproduce", name, "--scale", "smoke", "--out", str(place)])
    said = capsys.readouterr().out
    main(["reproduce", "figure-4", "--scale", "smoke", "--out", str(place)])
    assert "runs to do" not in capsys.readouterr().out
    assert "The page:" in said
    main(["report", str(place), "--out", str(place / "all.html")])
    text = (place / "all.html").read_text()
    assert "mean ratio under the learned policy" in text


def test_frames_of_several_seeds_are_shown_apart(place: Path) -> None:
    main(["reproduce", "figure-5", "--scale", "smoke", "--seeds", "2", "--out", str(place)])
    figure = json.loads((place / "frames" / "figure.json").read_text())
    names = [f"MinAtar/Breakout-v1, seed {seed}" for seed in range(2)]
    assert [row[0] for row in figure["table"]["rows"]] == names
    assert [gallery["title"] for gallery in figure["galleries"]] == [
        f"{name}: {title}" for name in names for title in ("Highest c", "Lowest c")
    ]


def test_the_study_without_agents_refuses_what_is_for_sweeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "estimation", "--seeds", "3", "--out", str(tmp_path / "x")])
    assert stop.value.code == 2
    assert "estimation trains no agents: --seeds" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_masses_are_a_plain_sum_over_transitions(place: Path) -> None:
    main(["reproduce", "ratio_scale", "--scale", "smoke", "--out", str(place)])
    figure = json.loads((place / "ratio_scale" / "figure.json").read_text())
    table = [dict(zip(figure["table"]["columns"], r, strict=True)) for r in figure["table"]["rows"]]
    store = Store.open(next((place / "data").glob("MinAtar-Breakout*")))
    paper, unclipped, positive = (
        place / "runs" / f"Breakout+c51-corrected+{changes}smoke+seed0"
        for changes in ("", "source_clip-False+", "ratio_head-softplus+")
    )
    for run, clips, row in ((paper, True, table[0]), (unclipped, False, table[1])):
        agent = load_run(run)
        sums = np.zeros(4)
        for t in np.flatnonzero(store.is_transition):
            state, action = store.states(np.array([t])), int(store.columns["action"][t])
            with torch.no_grad():
                c = agent.network.ratio(agent.network.torso(torch.from_numpy(state))).item()
            source = max(c, 0.0) if clips else c
            rho = agent.probabilities(state)[0, action] / store.columns["mu"][t]
            ended = rho * source if store.columns["terminated"][t + 1] else 0.0
            sums += [c, source - c, ended, (rho - 1) * source]
        means = sums / store.is_transition.sum()
        np.testing.assert_allclose(weigh(RunFolder(run), store), means, atol=1e-5)
        names = ("E_μ[c]", "clipped", "ended", "chance")
        assert [row[name] for name in names] == [f"{mean:.2f}" for mean in means]
    rows = [row for row in RunFolder(positive).metrics() if "mean_ratio" in row]
    end = np.mean([float(row["mean_ratio"]) for row in rows[-3:]])
    assert table[2]["E_μ[max(c, 0)]"].startswith(f"{end:.2f} (")
    assert float(table[2]["clipped"]) == 0.0


def test_lengths_of_episodes_say_what_the_mean_ratio_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """γ̂ = 0.99: an episode of one step lives 1, one of three 1 + 0.99 + 0.9801; a share p₀ of both enters."""
    main(["reproduce", "ratio_scale", "--scale", "smoke", "--out", str(place)])
    store = Store.open(next((place / "data").glob("MinAtar-Breakout*")))
    run = RunFolder(place / "runs" / "Breakout+c51-corrected+smoke+seed0")
    played = [EpisodeResult(score=0.0, length=length, ratio_sum=0.0) for length in (1, 3)]
    monkeypatch.setattr("covshift.experiments.ratio_scale.analysis.roll_out", lambda *parts: played)
    starts = 0.99 * store.columns["is_initial"].sum() / store.is_state.sum() * (1 + 2.9701) / 2
    assert of_episodes(run, store) == pytest.approx((starts + 0.01, starts + 1.0), rel=1e-3)


def test_a_failed_run_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    def engine(jobs: Any, runtime: Any, watch: Callable[[list[int]], None]) -> dict[int, str]:
        return {0: "out of luck"}

    with pytest.raises(
        InputError, match="5 of 5 runs are not over; the same command tries them again"
    ):
        reproduce(
            named_experiment("figure-1-left"),
            "smoke",
            tmp_path,
            seeds=None,
            engine=engine,
            command="",
            console=Console(),
        )
    with pytest.raises(InputError, match="workers must be at least 1"):
        local_engine(0)
    with pytest.raises(InputError, match="seeds must be at least 1"):
        reproduce(
            named_experiment("figure-2"),
            "smoke",
            tmp_path,
            seeds=0,
            engine=engine,
            command="",
            console=Console(),
        )


def test_equal_scores_are_ties_and_each_game_has_its_own_improvement(tmp_path: Path) -> None:
    """(0.1 + 0.2 + 0.3)/3 and (0.3 + 0.2 + 0.1)/3 differ in their last bit."""
    experiment = named_experiment("figure-2")
    games = experiment.games["small"]
    ends: list[list[float]] = [[0.1, 0.2, 0.3], [1, 2, 4], [1, 2, 2], [1, 2, 3]]
    corrected = dict(zip(games, ends, strict=True))
    runs = {}
    for game in games:
        for arm in experiment.arms["small"]:
            scores = [0.3, 0.2, 0.1] if game == games[0] else [3.0, 2.0, 1.0]
            if arm.label == "corrected":
                scores = corrected[game]
            for seed in range(3):
                folder = tmp_path / f"{game}-{arm.label}-{seed}".replace("/", "-")
                folder.mkdir()
                rows = [f"{update},{score}" for update, score in enumerate(scores)]
                (folder / "metrics.csv").write_text("\n".join(["update,score", *rows]))
                runs[game, arm.label, seed] = RunFolder(folder)
    results = Results(experiment, "small", runs, {})
    found = results.improvement_by_game("corrected", "no correction")
    assert [estimate.value for estimate in found.values()] == [0.5, 1.0, 0.0, 0.5]
    assert results.improvement("corrected", "no correction").value == 0.5
    table = results.score_table("no correction")
    assert [row[-1][:4] for row in table["rows"][-4:]] == ["0.50", "1.00", "0.00", "0.50"]


def test_verdicts_follow_their_rule() -> None:
    sure, worse, unsure = Estimate(0.9, 0.6, 1.0), Estimate(0.1, 0.0, 0.4), Estimate(0.6, 0.3, 0.9)
    assert judge([sure, sure], 3) == "holds"
    assert judge([sure, worse], 3) == "does not hold"
    assert judge([sure, unsure], 3) == "not enough data"
    assert judge([sure, sure], 2) == judge([worse], 2) == "not enough data"


def test_returns_so_far_start_anew_with_each_episode(toy_store: Any) -> None:
    found = returns_so_far(toy_store)
    total = 0.0
    for row in range(len(toy_store)):
        total = 0.0 if toy_store.columns["is_initial"][row] else total
        total += float(toy_store.columns["reward"][row])
        assert found[row] == pytest.approx(total, abs=1e-4)
    assert np.isfinite(found).all()
