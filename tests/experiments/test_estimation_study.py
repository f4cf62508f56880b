import csv
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from covshift.errors import InputError
from covshift.estimation import evaluate_policy
from covshift.experiments.estimation.convergence import Point, convergence
from covshift.experiments.estimation.domains import four_rooms_domain, taxi_domain
from covshift.experiments.estimation.figures import summarize
from covshift.experiments.estimation.games import breakout_features, cart_pole_domain
from covshift.experiments.estimation.study import read_records
from covshift.experiments.estimation.sweep import SCALES, VARIANTS, Row, cells
from covshift.experiments.experiment import Outcome, RunOptions, named_experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    options, console = RunOptions(scale="smoke"), Console(quiet=True)
    outcome = named_experiment("estimation").run(out, options, console)
    assert outcome == Outcome(out / "estimation" / "index.html")
    return out / "estimation"


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    return list(read_records(folder / "estimates.csv", Row))


def test_every_variant_answers_in_every_domain_that_it_is_for(rows: list[Row]) -> None:
    finite = {"Four rooms", "Taxi", "Garnet"}
    answered = {(row.domain, row.variant) for row in rows if not row.failure}
    for domain in (*finite, "CartPole", "Breakout (MinAtar)"):
        for variant in VARIANTS:
            if variant.table is None or variant.table == (domain in finite):
                assert (domain, variant.title) in answered
    assert {row.sweep for row in rows} == {"size", "distance", "ratio_discount"}


def test_records_are_read_with_the_types_of_their_fields(folder: Path, rows: list[Row]) -> None:
    with (folder / "estimates.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    assert len(records) == len(rows)
    assert tuple(records[0]) == Row._fields
    assert rows[5].value == float(records[5]["value"])
    assert rows[5].transitions == int(records[5]["transitions"])
    assert (folder / "convergence.csv").read_text().count("\n") > 20


def test_page_is_self_contained(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    loads = re.findall(r'(?:src|href)="([^"#]*)"', page)
    assert all(load.startswith("data:") for load in loads)
    assert page.count("<svg role=") == 6
    assert "covshift reproduce estimation --scale smoke --out DIR" in page
    assert not list(folder.rglob("*.partial"))
    assert len(list((folder / "figures").glob("*.svg"))) == 6


def test_a_summary_counts_intervals_that_contain_the_truth() -> None:
    made = [
        Row("size", "d", "discounted", 1, 0.5, 1.0, seed, "MWL", value, 1.0, 2.0, low, 9.0, flag, 0.5, why)
        for seed, value, low, flag, why in [(0, 2.0, 0.0, "ok", ""), (1, 5.0, 4.0, "unstable", ""), (2, np.nan, 0.0, "", "no")]
    ]  # fmt: skip
    (found,) = summarize(made)
    # Errors ½ and 2 of what is at stake; one of two intervals holds 1.
    assert (found.error, found.coverage, found.milliseconds) == (1.25, 0.5, 500.0)
    assert (found.green, found.green_coverage) == (0.5, 1.0)
    assert (found.failures, found.runs) == (1, 3)


def test_the_taxis_best_policy_delivers_the_passenger() -> None:
    taxi = taxi_domain()
    mdp, pi = taxi.problem.mdp, taxi.problem.pi
    assert mdp.d_0 is not None
    # From cell 5 with a passenger waiting in corner 0 for corner 3: 2 steps, pick, 3 steps, drop.
    best = pi.argmax(axis=1)
    state, rewards, kernel = 5 * 6 + 0 * 2 + 0, [], mdp.dense_kernel()
    while True:
        rewards.append(float(mdp.r[state, best[state]]))
        if kernel[state, best[state]].sum() == 0:
            break
        state = int(kernel[state, best[state]].argmax())
    assert rewards == [-0.05] * 6 + [1.0]
    assert taxi.truth(1.0, average=False) > taxi.truth(0.0, average=False)


def test_the_true_value_of_a_game_agrees_with_returns_in_the_data() -> None:
    game = cart_pole_domain(rollouts=200)
    rng = np.random.default_rng(0)
    logs = game.logs(2000, rng)
    assert logs.num_transitions >= 2000
    found = evaluate_policy(
        logs, game.policy(0.0), estimator="behavior", discount=game.discount, interval=None
    )
    # Means of 80 and 200 returns, whose deviation is about 3.
    assert found.value == pytest.approx(game.truth(0.0, average=False), abs=1.2)


def test_features_of_breakout_hold_positions_and_bricks() -> None:
    grid = np.zeros((1, 10, 10, 4), dtype=bool)
    grid[0, 9, 4, 0] = grid[0, 6, 7, 1] = grid[0, 5, 6, 2] = True
    grid[0, 1:4, :, 3] = True
    row = breakout_features(grid)[0]
    np.testing.assert_allclose(row[:7], [1, 4 / 9, 7 / 9, 6 / 9, 3 / 9, 1 / 9, 1])


def test_each_sweep_varies_one_thing() -> None:
    scale = SCALES["small"]
    made = cells(scale)
    assert {cell.distance for cell in made if cell.sweep == "size"} == {0.5}
    assert {cell.size for cell in made if cell.sweep == "distance"} == {2_000}
    assert {cell.objective for cell in made if cell.sweep == "ratio_discount"} == {"average"}
    assert four_rooms_domain().truth(1.0, average=True) > four_rooms_domain().truth(
        0.0, average=True
    )


def test_convergence_has_a_point_for_every_method(folder: Path) -> None:
    points = read_records(folder / "convergence.csv", Point)
    ratios = {point.name for point in points if point.kind == "ratio"}
    assert {"empirical", "td", "least-squares", "matching", "semi-gradient", "simplex"} <= ratios
    values = {point.name for point in convergence((300,), 1) if point.kind == "value"}
    assert len(values) == 12


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "estimation").touch()
    with pytest.raises(InputError, match="is a file; name a folder"):
        named_experiment("estimation").run(tmp_path, RunOptions(scale="smoke"), Console(quiet=True))
