"""Every experiment at the smallest size, end to end, and what the analyses make of runs."""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict
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
from covshift.experiments import frames, ratio_scale
from covshift.experiments.comparison.design import Comparison
from covshift.experiments.comparison.reproduction import about_data, reproduce, run_name
from covshift.experiments.comparison.results import DataKey, DataRecord, Results, RunRecord
from covshift.experiments.comparison.running import make_engine, train_all
from covshift.experiments.experiment import RunOptions, find_experiments, named_experiment
from covshift.records import Row, RunFolder
from covshift.runs import EpisodeResult, load_run
from covshift.runs.data_sources import dataset_folder
from covshift.runs.sweeps import Job

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
OURS = (
    "anchors",
    "conservatism",
    "matched_settings",
    "new_seeds",
    "online_control",
    "other_games",
    "ratio_scale",
    "replay_size",
    "reweighting",
    "right_size",
    "traces",
    "two_cures",
    "weighting",
    "where_it_pays",
)


def comparisons_at(scale: str) -> list[Comparison]:
    found = (comparison(name) for name in {*ALIASES.values(), *OURS})
    return [experiment for experiment in found if scale in experiment.arms]


def comparison(name: str) -> Comparison:
    found = named_experiment(name)
    assert isinstance(found, Comparison)
    return found


def test_every_figure_of_the_paper_has_its_experiment() -> None:
    assert {alias: comparison(alias).name for alias in ALIASES} == ALIASES
    found = find_experiments().values()
    comparisons = {experiment.name for experiment in found if isinstance(experiment, Comparison)}
    assert comparisons == {*ALIASES.values(), *OURS}


@pytest.mark.parametrize("scale", SCALES)
def test_runs_that_differ_have_names_that_differ(scale: str) -> None:
    names: dict[str, Any] = {}
    for experiment in comparisons_at(scale):
        online = experiment.online_arms(scale)
        for (_, label, _), config in experiment.configs(scale, 2).items():
            what = config, label in online
            assert names.setdefault(run_name(config, online=what[1]), what) == what
    assert run_name(make_config("MinAtar/Breakout-v1", ratio_discount=0.9)) == (
        "Breakout+c51-corrected+ratio_discount-0.9+small+seed0"
    )


def test_arms_are_the_papers() -> None:
    sweep = comparison("figure-1-left").configs("paper", 1)
    assert {config.env for config in sweep.values()} == {"ALE/Pong-v5"}
    corrected = [config for config in sweep.values() if config.preset == "c51-corrected"]
    found = {(c.ratio.ratio_discount, c.ratio.ratio_loss_weight) for c in corrected}
    assert found == {(g, e) for g in (0.9, 0.99, 0.999, 0.9999) for e in (0.02, 0.002)}
    games = comparison("figure-2").configs("paper", 3)
    assert len(games) == 5 * 3 * 3
    assert {c.optimization.target_period for c in games.values() if c.preset == "c51"} == {
        1000,
        8000,
    }
    line = [
        c
        for c in comparison("figure-3").configs("paper", 1).values()
        if c.preset == "c51-corrected"
    ]
    assert {(c.ratio.ratio_discount, c.ratio.ratio_loss_weight) for c in line} == {(0.999, 0.002)}
    lengths = {
        name: {c.optimization.num_updates for c in comparison(name).configs("paper", 1).values()}
        for name in ALIASES
    }
    # 250 000 agent steps are an iteration, 4 of them an update.
    assert {name for name, found in lengths.items() if found == {50 * 250_000 // 4}} == {
        *("figure-3", "figure-5", "figure-7", "figure-8")
    }
    assert lengths["figure-1-left"] == lengths["figure-2"] == {150 * 250_000 // 4}
    weights = comparison("figure-1-right").configs("paper", 1).values()
    assert sorted(c.ratio.normalization_weight for c in weights if c.preset != "c51") == [
        0,
        1e-3,
        1e-2,
        0.1,
        1,
    ]


SIZES = {
    *("scale", "data_seed", "transitions", "window", "epsilon_decay", "evaluate_every"),
    *("evaluation_episodes", "ratio_episodes", "calibration_episodes"),
}
"""What a scale sets beside the agent: data and evaluations."""


def test_the_scale_atari_is_figure_2_in_the_papers_games() -> None:
    (games,) = comparisons_at("atari")
    configs = games.configs("atari", 3)
    assert {config.env for config in configs.values()} == set(games.games["paper"])
    assert {config.preset for config in configs.values()} == {
        *("c51", "c51-corrected", "c51-matched")
    }
    assert len(configs) == 5 * 3 * 3
    for config in configs.values():
        assert config == make_config(
            config.env, config.preset, "atari", seed=config.seed, data_seed=config.seed
        )
        # The ratio, the atoms and both discounts are those of the scale `paper`.
        paper = make_config(config.env, config.preset, "paper", seed=config.seed)
        assert config.ratio == paper.ratio
        changed = {
            name: (config.leaves()[name], value)
            for name, value in paper.leaves().items()
            if value != config.leaves()[name] and name not in SIZES
        }
        assert changed == {
            "frame_size": (42, 84),
            "episode_cap": (4500, None),
            "width": (0.5, 1.0),
            "value_steps": (10, 1),
            "batch_size": (128, 32),
            "learning_rate": (3e-5, 2.5e-4),
            "target_period": (100, 1000),
            "num_updates": (4000, 9_375_000),
        }


def test_seeds_are_the_papers_and_those_that_were_fixed_before_the_runs() -> None:
    paper = {alias: comparison(alias).seeds["paper"] for alias in ALIASES}
    # Figure 5 shows one run; a verdict needs three.
    assert paper == dict.fromkeys(ALIASES, 3) | dict.fromkeys(
        ("figure-1-left", "figure-1-right", "figure-4", "figure-6"), 5
    )
    assert comparison("games").seeds["atari"] == 3
    small = {name: comparison(name).seeds["small"] for name in {*ALIASES.values(), *OURS}}
    ten = {name for name, seeds in small.items() if seeds == 10}
    assert ten >= {"ratio_discount", "games", "mean_ratio", "other_games"}
    five = {name for name, seeds in small.items() if seeds == 5}
    assert five >= {
        "anchors",
        "normalization",
        "auxiliary",
        "conservatism",
        "frames",
        "online_control",
        "replay_size",
        "reweighting",
        "traces",
        "weighting",
    }


@pytest.mark.parametrize("scale", SCALES)
def test_a_seed_has_a_dataset_of_its_own(scale: str) -> None:
    for experiment in comparisons_at(scale):
        if experiment.first_seed:
            continue
        configs = experiment.configs(scale, 7)
        found = {(key[2], config.data.data_seed) for key, config in configs.items()}
        several = [0, 1, 2, 0, 1, 2, 0] if scale == "atari" else [0, 1, 2, 3, 4, 0, 1]
        wanted = [0] * 7 if scale == "paper" else several
        assert found == set(enumerate(wanted))


def test_new_seeds_have_seeds_and_datasets_that_no_other_experiment_has() -> None:
    seen = {
        (config.seed, config.data.data_seed)
        for experiment in comparisons_at("small")
        if experiment.name != "new_seeds"
        for config in experiment.configs("small", experiment.seeds["small"]).values()
    }
    experiment = comparison("new_seeds")
    found = {
        (config.seed, config.data.data_seed)
        for config in experiment.configs("small", experiment.seeds["small"]).values()
    }
    assert found == {(seed, seed) for seed in range(10, 20)}
    assert not {seed for seed, _ in found} & {seed for seed, _ in seen}
    assert not {data for _, data in found} & {data for _, data in seen}


pytestmark = pytest.mark.usefixtures("children_here")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize("name", list(dict.fromkeys([*ALIASES.values(), *OURS])))
def test_experiments_run_end_to_end(
    name: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["reproduce", name, "--scale", "smoke", "--out", str(out)])
    said = capsys.readouterr().out
    figure = json.loads((out / name / "figure.json").read_text())
    key = f"{figure['headline']['of']}: {figure['headline']['value']}."
    for text in ("SMOKE TEST", f"Verdict: {figure['verdict']}.", key, "The page:"):
        assert text in said
    assert "SMOKE TEST" in (out / name / "index.html").read_text()
    assert not [
        cell for row in figure["table"]["rows"] for cell in row if "nan" in cell or "inf" in cell
    ]
    assert figure["verdict"] in ("holds", "does not hold", "not enough data")
    assert figure["command"] == f"covshift reproduce {name} --scale smoke --out {out}"
    assert figure["table"]["rows"]
    assert figure["panels"] or figure["galleries"]
    assert (out / name / "index.html").read_text().startswith("<!doctype html>")
    assert (out / name / "figure.svg").is_file() == bool(figure["panels"])
    with (out / name / "table.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [figure["table"]["columns"], *figure["table"]["rows"]]
    rows = (out / name / "runs.csv").read_text().splitlines()
    assert rows[0].startswith("game,arm,seed,data_seed,status,update")
    configs = comparison(name).configs("smoke", 1).values()
    wanted = sum(1 + config.optimization.num_updates // config.log_every for config in configs)
    assert len(rows) == 1 + wanted


def test_shared_runs_are_run_once_and_reports_join(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("figure-1-left", "figure-4"):
        main(["reproduce", name, "--scale", "smoke", "--out", str(out)])
    said = capsys.readouterr().out
    main(["reproduce", "figure-4", "--scale", "smoke", "--out", str(out)])
    assert "runs to do" not in capsys.readouterr().out
    assert "The page:" in said
    main(["report", str(out), "--out", str(out / "all.html")])
    text = (out / "all.html").read_text()
    assert "mean ratio under the learned policy" in text


def test_one_run_per_arm_has_no_interval(out: Path) -> None:
    figure = json.loads((out / "ratio_discount" / "figure.json").read_text())
    assert figure["table"]["columns"][:3] == ["arm", "game", "score"]
    assert not [name for name in figure["table"]["columns"] if "95 %" in name or "P(" in name]


def test_a_reader_can_change_one_thing(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting in all arms, and an arm more; what was stated is judged as before."""
    changes = ["--set", "num-updates=20", "--arm", "no clip:source_clip=false,ratio_discount=0.5"]
    main(["reproduce", "figure1", "--scale", "smoke", "--out", str(out), *changes])
    assert "Verdict: not enough data." in capsys.readouterr().out
    plain = json.loads((out / "ratio_discount" / "figure.json").read_text())
    figure = json.loads((out / "ratio_discount-changed" / "figure.json").read_text())
    arms = [arm["label"] for arm in plain["panels"][0]["arms"]]
    assert [arm["label"] for arm in figure["panels"][0]["arms"]] == [*arms, "no clip"]
    (run,) = figure["panels"][0]["arms"][-1]["runs"]
    chosen = {
        name: run["config"][name] for name in ("num_updates", "source_clip", "ratio_discount")
    }
    assert chosen == {"num_updates": 20, "source_clip": False, "ratio_discount": 0.5}
    assert {r["config"]["num_updates"] for a in figure["panels"][0]["arms"] for r in a["runs"]} == {
        20
    }
    assert "no clip" not in figure["found"]
    assert "--set num-updates=20 --arm 'no clip:" in figure["command"]
    assert "num-updates=20" in " ".join(figure["differences"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--set", "ratio_head=lin"], "ratio_head cannot be 'lin': say linear | softplus"),
        (["--set", "num_updats=3"], "there is no setting 'num_updats'; did you mean num_updates?"),
        (["--set", "num_updates=0"], "num_updates must"),
        (["--set", "ratio_discount=0.5"], "add an arm instead: --arm 'NAME:ratio_discount=VALUE'"),
        (["--set", "num_updates"], "write key=value"),
        (["--arm", "source_clip=false"], "write NAME:key=value"),
        (["--arm", "new:preset=c52"], "there is no preset 'c52'; did you mean c51?"),
        (["--arm", "no correction:num_updates=3"], "there are two arms 'no correction'"),
    ],
)
def test_a_change_that_does_not_exist_is_answered_by_one_that_does(
    changes: list[str], said: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "figure-1-left", "--scale", "smoke", "--out", str(out), *changes])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["figure1", "Figure 1", "fig-1", "figure_1_left", "ratio-discount"]
)
def test_names_are_found_however_they_are_spelled(name: str) -> None:
    assert named_experiment(name).name == "ratio_discount"
    with pytest.raises(InputError, match="did you mean figure-"):
        named_experiment("figure-12")


def test_frames_of_several_seeds_are_shown_apart(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["reproduce", "figure-5", "--scale", "smoke", "--seeds", "2", "--out", str(out)])
    assert "runs analyzed: " in capsys.readouterr().out
    figure = json.loads((out / "frames" / "figure.json").read_text())
    names = [f"MinAtar/Breakout-v1, {which}" for which in ("seed 0", "seed 1", "all seeds")]
    assert [row[0] for row in figure["table"]["rows"]] == names
    assert [gallery["title"] for gallery in figure["galleries"]] == [
        f"{names[0]}: {title}" for title in ("Highest c", "Lowest c")
    ]
    for gallery, order in zip(figure["galleries"], (-1, 1), strict=True):
        shown = [order * frame["ratio"] for frame in gallery["frames"]]
        assert shown == sorted(shown)
    for _, high, low, difference, _ in figure["table"]["rows"][:2]:
        assert float(difference.split()[0]) == pytest.approx(float(high) - float(low), abs=0.011)
    # The second run learned from a dataset of its own, which every record of it names.
    hashes = [figure["hashes"][f"data of MinAtar/Breakout-v1, data seed {k}"] for k in range(2)]
    assert hashes[0] != hashes[1]
    for k, changes in enumerate(("", "data_seed-1+")):
        run = RunFolder(out / "runs" / f"Breakout+c51-corrected+{changes}smoke+seed{k}")
        assert run.config().data.data_seed == k
        assert f"data/MinAtar-Breakout-v1-2000-seed{k}-" in run.provenance()["data"]
        assert run.provenance()["data_identity"] == hashes[k]
    with (out / "frames" / "runs.csv").open(newline="") as file:
        assert {(row["seed"], row["data_seed"]) for row in csv.DictReader(file)} == {
            ("0", "0"),
            ("1", "1"),
        }
    assert "k mod 5" in figure["differences"][-1]
    assert "k mod 5" in (out / "frames" / "index.html").read_text()


def test_states_are_ranked_by_outputs_below_0_too(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> list[list[str]]:
        main(["reproduce", "figure-5", "--scale", "smoke", "--out", str(out)])
        found: list[list[str]] = json.loads((out / "frames" / "figure.json").read_text())["table"][
            "rows"
        ]
        return found

    before = rows()
    run = out / "runs" / "Breakout+c51-corrected+smoke+seed0"
    agent = load_run(run)
    assert agent.network.ratio_head is not None
    store = Store.open(dataset_folder(agent.config, out / "data"))
    usual = frames.sample_ratios(store, run, 200)
    with torch.no_grad():
        list(agent.network.ratio_head.parameters())[-1].sub_(99.0)
    monkeypatch.setattr("covshift.runs.load_run", lambda _: agent)
    lowered = frames.sample_ratios(store, run, 200)
    np.testing.assert_allclose(lowered.output, usual.output - 99.0, atol=1e-4)
    assert not lowered.ratio.any()
    after = rows()
    assert [row[:4] for row in after] == [row[:4] for row in before]
    assert after[0][4] == "100%"


def test_the_balance_of_the_mean_ratio_is_a_plain_sum_over_transitions(out: Path) -> None:
    main(["reproduce", "ratio_scale", "--scale", "smoke", "--out", str(out)])
    figure = json.loads((out / "ratio_scale" / "figure.json").read_text())
    table = [dict(zip(figure["table"]["columns"], r, strict=True)) for r in figure["table"]["rows"]]
    store = Store.open(
        dataset_folder(make_config("MinAtar/Breakout-v1", scale="smoke"), out / "data")
    )
    paper, unclipped, positive = (
        out / "runs" / f"Breakout+c51-corrected+{changes}smoke+seed0"
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
        np.testing.assert_allclose(ratio_scale.balance_of(run, store), means, atol=1e-5)
        names = ("E_μ[c]", "clipped", "ended", "chance")
        assert [row[name] for name in names] == [f"{mean:.2f}" for mean in means]
    rows = [row for row in RunFolder(positive).metrics() if "mean_ratio" in row]
    end = np.mean([float(row["mean_ratio"]) for row in rows[-3:]])
    assert table[2]["E_μ[max(c, 0)]"].startswith(f"{end:.2f} (")
    assert float(table[2]["clipped"]) == 0.0


def test_lengths_of_episodes_bound_the_mean_ratio(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """γ̂ = 0.99: an episode of one step lives 1, one of three 1 + 0.99 + 0.9801; a share p₀ of both enters."""
    main(["reproduce", "ratio_scale", "--scale", "smoke", "--out", str(out)])
    store = Store.open(
        dataset_folder(make_config("MinAtar/Breakout-v1", scale="smoke"), out / "data")
    )
    run = out / "runs" / "Breakout+c51-corrected+smoke+seed0"
    played = [EpisodeResult(score=0.0, length=length, ratio_sum=0.0) for length in (1, 3)]
    monkeypatch.setattr("covshift.runs.roll_out", lambda *parts: played)
    starts = 0.99 * store.columns["is_initial"].sum() / store.is_state.sum() * (1 + 2.9701) / 2
    assert ratio_scale.range_by_episodes(run, store) == pytest.approx(
        (starts + 0.01, starts + 1.0), rel=1e-3
    )


def test_a_failed_run_is_reported_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(jobs: Any, runtime: Any, watch: Callable[[list[int]], None]) -> dict[int, str]:
        return {0: "out of luck"}

    monkeypatch.setattr(f"{reproduce.__module__}.make_engine", lambda _: engine)
    console = Console(record=True, width=200)
    options = RunOptions(scale="smoke")
    with pytest.raises(
        InputError, match="5 of 5 runs are not finished; the same command tries them again"
    ):
        reproduce(comparison("figure-1-left"), tmp_path, options, console)
    assert "failed twice: out of luck" in console.export_text()
    with pytest.raises(InputError, match="workers must be at least 1"):
        make_engine(RunOptions(workers=0))
    with pytest.raises(InputError, match="seeds must be at least 1"):
        reproduce(comparison("figure-2"), tmp_path, RunOptions(seeds=0), console)


def test_metrics_are_read_once(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["reproduce", "games", "--scale", "smoke", "--out", str(out)])
    reads: list[Path] = []
    read = RunFolder.metrics

    def counted(run: RunFolder) -> Any:
        reads.append(run.path)
        return read(run)

    monkeypatch.setattr(RunFolder, "metrics", counted)
    monkeypatch.setattr(f"{reproduce.__module__}.write_report", lambda *_: None)
    main(["reproduce", "games", "--scale", "smoke", "--out", str(out)])
    assert len(reads) == len(set(reads)) == 3


@pytest.mark.parametrize("data", ["folder", "online"])
def test_a_run_with_other_settings_than_its_name_says_is_refused(tmp_path: Path, data: str) -> None:
    """As after a preset has changed: names leave out what presets have. ε decays in online runs alone."""

    def engine(jobs: Any, *_: Any) -> dict[int, str]:
        raise AssertionError("nothing is to be trained")

    def train(**settings: Any) -> None:
        config = make_config("MinAtar/Breakout-v1", "c51", "smoke", **settings)
        train_all([Job(tmp_path, config, data)], engine, Console())

    config = make_config("MinAtar/Breakout-v1", "c51", "smoke")
    (tmp_path / "config.json").write_text(json.dumps(asdict(config)))
    (tmp_path / "status.json").write_text(json.dumps({"status": "finished", "update": 1}))
    train()
    with pytest.raises(InputError, match=r"target_period is \d+ there, 8000 here; name another"):
        train(target_period=8000)
    if data == "folder":
        train(epsilon_decay=77)
    else:
        with pytest.raises(InputError, match="77 here"):
            train(epsilon_decay=77)


def test_equal_scores_are_ties_and_each_game_has_its_own_improvement() -> None:
    """(0.1 + 0.2 + 0.3)/3 and (0.3 + 0.2 + 0.1)/3 differ in their last bit."""
    experiment = comparison("figure-2")
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
                rows: list[Row] = [{"update": k, "score": score} for k, score in enumerate(scores)]
                config = make_config(game, arm.preset)
                runs[game, arm.label, seed] = RunRecord(Path(), config, "finished", rows)
    results = Results(experiment, "small", runs, {})
    found = results.improvement_by_game("corrected", "no correction")
    assert [estimate.value for estimate in found.values()] == [0.5, 1.0, 0.0, 0.5]
    assert results.improvement("corrected", "no correction").value == 0.5
    table = results.score_table("no correction")
    assert [row[-2][:4] for row in table["rows"][-4:]] == ["0.50", "1.00", "0.00", "0.50"]


@pytest.mark.parametrize(
    ("scale", "said"),
    [("paper", "leave out the chance"), ("atari", "k mod 3"), ("small", "k mod 5")],
)
def test_a_page_says_which_seeds_share_their_data(scale: str, said: str) -> None:
    data = {DataKey("game", 0): DataRecord(Path(), 1.0, 0.2)}
    (sentence,) = about_data(Results(comparison("figure-2"), scale, {}, data))
    assert said in sentence
    assert about_data(Results(comparison("figure-2"), scale, {}, {})) == []  # Online runs.
    (own,) = about_data(Results(comparison("new_seeds"), scale, {}, data))
    assert "dataset of data seed k, in every arm" in own


def test_a_run_is_measured_against_the_data_that_it_learned_from() -> None:
    """γ̂ = 0.99 bounds E_μ[c] by 1 + 99 p₀: a mean of 12 needs a share of starts p₀ of 1/9 or more (with 10 % allowed)."""
    experiment = comparison("figure-4")
    (game,) = experiment.games["small"]
    label = experiment.arms["small"][1].label
    rows: list[Row] = [{"update": 1, "mean_ratio": 12.0, "mean_ratio_pi": 20.0, "invariant": "?"}]
    runs = {
        (game, label, seed): RunRecord(
            Path(f"run{seed}"), make_config(game, data_seed=seed), "finished", rows
        )
        for seed in range(2)
    }
    data = {
        DataKey(game, 0): DataRecord(Path(), 1.0, 0.2),
        DataKey(game, 1): DataRecord(Path(), 3.0, 0.05),
        DataKey(game, 1, ("good",)): DataRecord(Path(), 99.0, 0.9),
    }
    results = Results(experiment, "small", runs, data)
    assert [row["state"] for row in results.invariants()] == ["holds", "violated"]
    assert results.possible_means(game, label)[1] == pytest.approx(1 + 99 * 0.125)
    assert results.score_panel(game, [label])["lines"] == [{"label": "random policy", "y": 2.0}]


def test_the_support_is_that_of_the_game_and_saturated_runs_are_counted() -> None:
    experiment = comparison("figure-2")
    configs = experiment.configs("small", 1)
    bounds = {(game, config.value.value_bound) for (game, _, _), config in configs.items()}
    games = experiment.games["small"]
    assert bounds == {(game, 40.0 if "SpaceInvaders" in game else 10.0) for game in games}
    runs = {}
    for k, (key, config) in enumerate(configs.items()):
        rows: list[Row] = [{"update": 1, "edge_share": 0.9}, {"update": 2, "edge_share": 0.04}]
        if key[0] == games[0] and k % 3:
            rows = rows[::-1]  # The newest evaluation counts.
        runs[key] = RunRecord(Path(), config, "finished", rows)
    said = Results(experiment, "small", runs, {}).saturated()
    assert said.endswith(f"in 2 of 3 runs in {games[0]}.")
    calm = {key: run for key, run in runs.items() if key[0] != games[0]}
    assert Results(experiment, "small", calm, {}).saturated() == ""


def test_returns_so_far_start_anew_with_each_episode(toy_store: Any) -> None:
    found = frames.returns_so_far(toy_store)
    total = 0.0
    for row in range(len(toy_store)):
        total = 0.0 if toy_store.columns["is_initial"][row] else total
        total += float(toy_store.columns["reward"][row])
        assert found[row] == pytest.approx(total, abs=1e-4)
    assert np.isfinite(found).all()
