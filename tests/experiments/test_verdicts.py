"""Every rule on made-up runs that must hold, must not hold and must be undecided, and its error where nothing differs."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from covshift.config.presets import make_config
from covshift.experiments import (
    anchors,
    auxiliary,
    conservatism,
    frames,
    games,
    matched_settings,
    mean_ratio,
    new_seeds,
    normalization,
    online_control,
    other_games,
    ratio_discount,
    ratio_scale,
    replay_size,
    reweighting,
    right_size,
    traces,
    two_cures,
    weighting,
    where_it_pays,
)
from covshift.experiments.comparison.design import DATASETS, Comparison
from covshift.experiments.comparison.results import (
    DataKey,
    DataRecord,
    Results,
    RunRecord,
    dataset_of,
)
from covshift.experiments.comparison.verdicts import (
    ERROR,
    FAILS,
    HOLDS,
    UNDECIDED,
    all_shown,
    any_shown,
    decide,
    judge,
    weakest,
)
from covshift.experiments.experiment import find_experiments
from covshift.records import Row
from covshift.report.contrasts import Contrast, compare
from covshift.report.statistics import interquartile_mean

Levels = dict[str, float]


def arms_of(experiment: Comparison, scale: str = "small") -> list[str]:
    return [arm.label for arm in experiment.arms[scale]]


def runs(levels: Levels, seeds: int = 5, tasks: int = 1) -> dict[str, NDArray[np.float64]]:
    """Scores that spread by ±0.1 around the level of their arm."""
    spread = np.linspace(-0.1, 0.1, seeds)[:, None] + np.zeros(tasks)
    return {
        label: level + spread * (1 + 0.01 * k) for k, (label, level) in enumerate(levels.items())
    }


def with_levels(experiment: Comparison, changes: Levels, usual: float = 0.0) -> Levels:
    return dict.fromkeys(arms_of(experiment), usual) | changes


SURE, WORSE, UNSURE = Contrast(0.9, 0.01, 0.99), Contrast(0.1, 0.99, 0.01), Contrast(0.6, 0.3, 0.7)


def test_comparisons_are_judged_by_their_p_values() -> None:
    assert judge([SURE, SURE], 3) == HOLDS
    assert judge([SURE, WORSE], 3) == FAILS
    assert judge([SURE, UNSURE], 3) == UNDECIDED
    assert judge([SURE, SURE], 2) == judge([WORSE], 2) == UNDECIDED
    # One of three is enough to refute a claim, so that each must be three times as sure.
    assert judge([WORSE, UNSURE, UNSURE], 3) == UNDECIDED
    assert judge([Contrast(0.0, 1.0, 0.008), UNSURE, UNSURE], 3) == FAILS
    assert weakest({"a": SURE, "b": UNSURE, "c": Contrast(0.7, 0.1, 0.9)}) == "b"


def test_the_error_is_divided_between_the_verdicts_and_the_comparisons() -> None:
    assert all_shown([0.025, 0.01])
    assert not all_shown([0.026, 0.01])
    assert any_shown([0.0125, 0.9])
    assert not any_shown([0.013, 0.9])
    assert decide(3, holds=True, fails=True) == FAILS
    assert decide(2, holds=True, fails=False) == UNDECIDED


@pytest.mark.parametrize(("corrected", "wanted"), [(1.0, HOLDS), (-1.0, FAILS), (0.0, UNDECIDED)])
def test_games(corrected: float, wanted: str) -> None:
    levels = with_levels(games.EXPERIMENT, {games.CORRECTED: corrected})
    for other in (-5.0, 5.0):  # The longer target period is shown and not judged.
        levels[games.LONG_PERIOD] = other
        assert games.verdict(runs(levels, seeds=3, tasks=4)) == wanted
    assert games.verdict(runs(levels, seeds=2, tasks=4)) == UNDECIDED


@pytest.mark.parametrize(("matched", "wanted"), [(1.0, HOLDS), (-1.0, FAILS), (0.0, UNDECIDED)])
def test_other_games(matched: float, wanted: str) -> None:
    assert len(other_games.OTHERS) == 3
    levels = {other_games.BASELINE: 0.0, other_games.MATCHED: matched}
    assert other_games.verdict(runs(levels, seeds=3, tasks=3)) == wanted
    assert other_games.verdict(runs(levels, seeds=2, tasks=3)) == UNDECIDED


@pytest.mark.parametrize(("corrected", "wanted"), [(1.0, HOLDS), (-1.0, FAILS), (0.0, UNDECIDED)])
def test_games_on_atari(corrected: float, wanted: str) -> None:
    assert arms_of(games.EXPERIMENT, "atari") == [games.BASELINE, games.CORRECTED, games.MATCHED]
    for matched in (-5.0, 5.0):  # Ours is shown and not judged.
        levels = {games.BASELINE: 0.0, games.CORRECTED: corrected, games.MATCHED: matched}
        assert games.verdict(runs(levels, seeds=3, tasks=5)) == wanted


def atari_results(scores: dict[str, NDArray[np.float64]]) -> Results:
    """Runs that end with these scores, seeds × games, and random play that scores 2."""
    found, data = {}, {}
    for label, each in scores.items():
        for (seed, k), score in np.ndenumerate(each):
            game = games.EXPERIMENT.games["atari"][k]
            rows: list[Row] = [{"update": 1, "score": score}]
            config = make_config(game, scale="atari", data_seed=seed)
            found[game, label, seed] = RunRecord(Path(), config, "finished", rows)
            data[DataKey(game, seed)] = DataRecord(Path(), 1.0 + seed, 0.01)
    return Results(games.EXPERIMENT, "atari", found, data)


def test_games_count_where_no_correction_has_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    single = dict.fromkeys(games.EXPERIMENT.games["atari"], -1.0) | {"ALE/Seaquest-v5": 4.8}
    monkeypatch.setattr(games, "SINGLE_ACTION", single)
    levels = {games.BASELINE: 0.0, games.CORRECTED: 1.0, games.MATCHED: 9.0}
    scores = runs(levels, seeds=3, tasks=5)
    # ± 0.25 (Student, 95 %) around these levels; random play has 2, and one action of Seaquest 4.8.
    scores[games.BASELINE] = scores[games.BASELINE] + np.array([2.2, 2.3, 1.7, 5.0, 2.26])
    results = atari_results(scores)
    assert games.games_learned(results) == ["ALE/Breakout-v5", "ALE/SpaceInvaders-v5"]
    single["ALE/Seaquest-v5"] = 4.7
    learned = ["ALE/Breakout-v5", "ALE/Seaquest-v5", "ALE/SpaceInvaders-v5"]
    found = games.analyze(results)
    assert f"single actions in 3 of 5 games ({', '.join(learned)})." in found["found"]
    # One of 20 assignments of the runs is as bad in each of five games: 2/20⁵.
    assert "beats no correction: 0.00 (p = 6.3e-07) over all games" in found["found"]
    assert "That the matched agent does: 1.00 (p" in found["found"]
    assert found["verdict"] == FAILS


@pytest.mark.parametrize(
    ("game", "scores"),
    [
        ("Pong", [-21.0] * 6),
        ("SpaceInvaders", [0.0, 285.0, 0.0, 0.0, 270.0, 285.0]),
        ("Breakout", [0.0] * 4),
        ("Asterix", [200.0, 650.0, 50.0, 50.0, 200.0, 650.0, 650.0, 200.0, 200.0]),
    ],
)
def test_single_actions(game: str, scores: list[float]) -> None:
    """In Space Invaders firing from the start's place, or while moving to an edge, scores twice what random play does.

    Seaquest is left out, since its 18 actions take half a minute.
    """
    env = f"ALE/{game}-v5"
    assert games.single_action_scores(env) == scores
    assert games.SINGLE_ACTION[env] == max(scores)
    assert set(games.SINGLE_ACTION) == set(games.EXPERIMENT.games["atari"])


@pytest.mark.parametrize(("resampled", "wanted"), [(1.0, HOLDS), (-1.0, FAILS), (0.0, UNDECIDED)])
def test_reweighting(resampled: float, wanted: str) -> None:
    for raw in (-5.0, 5.0):  # Raw c is shown and not judged.
        levels = with_levels(
            reweighting.EXPERIMENT, {reweighting.RESAMPLED: resampled, reweighting.RAW: raw}
        )
        assert reweighting.verdict(runs(levels)) == wanted


@pytest.mark.parametrize(
    ("matched", "td_error", "wanted"),
    [(1.0, 0.0, HOLDS), (1.0, 2.0, FAILS), (-1.0, -2.0, FAILS), (0.0, -1.0, UNDECIDED)],
)
def test_online_control(matched: float, td_error: float, wanted: str) -> None:
    for papers in (-5.0, 5.0):  # The paper's ratio is shown and not judged.
        levels = with_levels(
            online_control.EXPERIMENT,
            {
                online_control.MATCHED: matched,
                online_control.TD_ERROR: td_error,
                online_control.PAPERS: papers,
            },
        )
        assert online_control.verdict(runs(levels, seeds=5, tasks=4)) == wanted


def test_traces() -> None:
    both = {pair[0]: 1.0 for pair in traces.judged().values()}
    for other in (-5.0, 5.0):  # One step and 3 steps are shown and not judged.
        shown = {
            traces.label_of(method, source): other
            for method in (traces.BASELINE, traces.N_STEP)
            for source in traces.SOURCES
        }
        assert traces.verdict(runs(with_levels(traces.EXPERIMENT, both | shown))) == HOLDS
    for _, alone in traces.judged().values():  # Each of the four comparisons can fail.
        levels = with_levels(traces.EXPERIMENT, both | {alone: 2.0})
        assert traces.verdict(runs(levels)) == FAILS
        levels = with_levels(traces.EXPERIMENT, both | {alone: 1.0})
        assert traces.verdict(runs(levels)) == UNDECIDED


SMALL_DISCOUNT, *_, LARGE_DISCOUNT = ratio_discount.HELPFUL


@pytest.mark.parametrize(
    ("changes", "exception", "wanted"),
    [
        ({}, 0.0, HOLDS),
        ({}, -1.0, HOLDS),
        ({}, 1.0, FAILS),  # 0.9999 helps too.
        ({}, 2.0, FAILS),
        ({SMALL_DISCOUNT: 0.0}, -1.0, UNDECIDED),
        ({LARGE_DISCOUNT: 0.0}, -1.0, UNDECIDED),
        ({SMALL_DISCOUNT: -1.0}, -2.0, FAILS),
        ({LARGE_DISCOUNT: -1.0}, -2.0, FAILS),
    ],
)
def test_ratio_discount(changes: Levels, exception: float, wanted: str) -> None:
    levels = with_levels(ratio_discount.EXPERIMENT, {ratio_discount.BASELINE: 0.0}, usual=1.0)
    levels |= changes | {ratio_discount.EXCEPTION: exception}
    levels["γ̂ = 0.99, η = 0.002"] = -9.0  # The second η is not judged.
    assert ratio_discount.verdict(runs(levels)) == wanted


def test_ratio_discount_needs_a_difference_from_the_exception() -> None:
    scores = runs(with_levels(ratio_discount.EXPERIMENT, {ratio_discount.BASELINE: 0.0}, usual=1.0))
    # Better than no correction, but by too little to be shown, and like the others: the claim is open.
    scores[ratio_discount.EXCEPTION] = np.array([-0.09, -0.03, 1.0, 1.05, 1.1])[:, None]
    assert ratio_discount.verdict(scores) == UNDECIDED


def test_the_discounts_that_are_judged_are_the_papers() -> None:
    assert [f"γ̂ = {x}, η = 0.02" for x in ("0.9", "0.99", "0.999")] == ratio_discount.HELPFUL
    assert ratio_discount.EXCEPTION == "γ̂ = 0.9999, η = 0.02"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, HOLDS),
        ({"auxiliary": 1.0}, UNDECIDED),
        ({"no correction": 1.0}, UNDECIDED),
        ({"auxiliary": 2.0}, FAILS),
        ({"TD-error priority": 2.0}, FAILS),
        ({"auxiliary, TD-error priority": 2.0}, FAILS),
    ],
)
def test_auxiliary(changes: Levels, wanted: str) -> None:
    levels = with_levels(auxiliary.EXPERIMENT, {auxiliary.CORRECTED: 1.0} | changes)
    assert auxiliary.verdict(runs(levels, tasks=4)) == wanted


@pytest.mark.parametrize(
    ("smallest", "largest", "wanted"), [(2, 1, HOLDS), (1, 2, FAILS), (1, 1, UNDECIDED)]
)
def test_mean_ratio(smallest: float, largest: float, wanted: str) -> None:
    for between in (-9.0, 9.0):
        levels = with_levels(
            mean_ratio.EXPERIMENT,
            {mean_ratio.SMALLEST: smallest, mean_ratio.LARGEST: largest},
            usual=between,
        )
        assert mean_ratio.verdict(runs(levels)) == wanted
    assert (mean_ratio.SMALLEST, mean_ratio.LARGEST) == (SMALL_DISCOUNT, ratio_discount.EXCEPTION)


@pytest.mark.parametrize(
    ("level", "one", "wanted"),
    [
        (10.0, 10.0, HOLDS),  # No setting scores a tenth more.
        (8.0, 6.0, HOLDS),
        (10.0, 10.9, FAILS),  # One scores more, if only by little.
        (10.0, 20.0, FAILS),
        (8.0, 20.0, FAILS),
    ],
)
def test_matched_settings(level: float, one: float, wanted: str) -> None:
    module = matched_settings
    for label in module.OTHERS:
        levels = with_levels(module.EXPERIMENT, {module.BASELINE: 10.0}, usual=level)
        assert module.verdict(runs(levels | {label: one})) == wanted
    scores = runs(with_levels(module.EXPERIMENT, {}, usual=10.0))
    # As good on average, but too spread to say that it is not a tenth more.
    scores["η = 0.16"] = np.array([5.0, 8, 10, 12, 15])[:, None]
    assert module.verdict(scores) == UNDECIDED


def test_matched_settings_change_one_setting_of_a_short_run() -> None:
    arms = matched_settings.EXPERIMENT.arms["small"]
    assert [arm.leaves for arm in arms[1:]] == [
        {**leaves, "num_updates": 20_000} for leaves in matched_settings.OTHERS.values()
    ]
    assert {arm.preset for arm in arms} == {"c51-matched"}
    preset = make_config("MinAtar/Breakout-v1", "c51-matched").ratio
    assert (preset.ratio_discount, preset.ratio_loss_weight) == (0.99, 0.04)


@pytest.mark.parametrize(
    ("level", "one", "wanted"),
    [(10.0, 10.0, HOLDS), (8.0, 6.0, HOLDS), (10.0, 10.9, FAILS), (8.0, 20.0, FAILS)],
)
def test_conservatism(level: float, one: float, wanted: str) -> None:
    module = conservatism
    for label in module.OTHERS:
        levels = with_levels(module.EXPERIMENT, {module.BASELINE: 10.0}, usual=level)
        assert module.verdict(runs(levels | {label: one}, tasks=2)) == wanted
    scores = runs(with_levels(module.EXPERIMENT, {}, usual=10.0))
    scores["α = 1"] = np.array([5.0, 8, 10, 12, 15])[:, None]
    assert module.verdict(scores) == UNDECIDED


def test_conservatism_changes_the_weight_of_a_short_run() -> None:
    found = [
        (config.preset, config.value.conservatism, config.optimization.num_updates)
        for config in conservatism.EXPERIMENT.configs("small", 1).values()
        if config.env == "MinAtar/Breakout-v1"
    ]
    alphas = (0.1, 0.001, 0.003, 0.01, 0.03, 0.3, 1.0)
    assert found == [("c51-conservative", alpha, 20_000) for alpha in alphas]


@pytest.mark.parametrize(
    ("squared", "matching", "wanted"),
    [
        (1.0, 1.0, HOLDS),
        (1.0, -1.0, FAILS),
        (-1.0, 1.0, FAILS),
        (0.0, 1.0, UNDECIDED),
        (1.0, 0.0, UNDECIDED),
    ],
)
def test_two_cures(squared: float, matching: float, wanted: str) -> None:
    """How much more fresh priorities score under each loss, whatever the losses score."""
    module = two_cures
    for loss in (-5.0, 5.0):
        levels = {module.BASELINE: 0.0, module.SQUARED: 0.0, module.SQUARED_FRESH: squared}
        levels |= {module.MATCHING: loss, module.MATCHING_FRESH: loss + matching}
        assert module.verdict(runs(levels)) == wanted


@pytest.mark.parametrize(
    ("matched", "conservative", "behavior", "wanted"),
    [
        (1.0, 0.0, 0.0, HOLDS),
        (1.0, 0.0, 2.0, FAILS),
        (1.0, 2.0, 0.0, FAILS),
        (1.0, 1.0, 0.0, UNDECIDED),
        (1.0, 0.0, 1.0, UNDECIDED),
    ],
)
def test_anchors(matched: float, conservative: float, behavior: float, wanted: str) -> None:
    module = anchors
    judged = {
        module.MATCHED: matched,
        module.CONSERVATIVE: conservative,
        module.BEHAVIOR: behavior,
    }
    for other in (-5.0, 5.0):  # Both at once, and no correction, are shown and not judged.
        levels = with_levels(module.EXPERIMENT, judged, usual=other)
        assert module.verdict(runs(levels, tasks=2)) == wanted


def test_anchors_have_each_method_alone_and_with_the_ratio() -> None:
    configs = {key[1]: config for key, config in anchors.EXPERIMENT.configs("small", 1).items()}
    for alone, both in anchors.WITH_RATIO.items():
        assert not configs[alone].ratio.learn_ratio
        assert configs[both].value == configs[alone].value
        assert configs[both].ratio == configs[anchors.MATCHED].ratio
        assert configs[both].replay == configs[anchors.MATCHED].replay


def test_anchors_put_scores_on_the_published_axis() -> None:
    game = "MinAtar/Breakout-v1"
    found = {}
    for label in arms_of(anchors.EXPERIMENT, "smoke"):
        for seed in range(3):
            rows: list[Row] = [{"update": k, "score": 1.0 + 0.9 * seed * k} for k in range(4)]
            config = make_config(game, data_seed=seed)
            found[game, label, seed] = RunRecord(Path(), config, "finished", rows)
    data = {DataKey(game, seed): DataRecord(Path(), 1.0, 0.1) for seed in range(3)}
    figure = anchors.analyze(Results(anchors.EXPERIMENT, "smoke", found, data))
    # Random play has 1 and online DQN 10, so that 0.9 are 10 %; the last three of seed 1 have a mean of 2 · 0.9 above 1.
    (panel,) = figure["panels"]
    assert panel["arms"][0]["runs"][1]["y"] == pytest.approx([0, 10, 20, 30])
    assert panel["arms"][0]["middle"] == pytest.approx([0, 10, 20, 30])
    levels = {line["label"]: line["y"] for line in panel["lines"]}
    assert levels == {"random policy": 0, "DQN, published": 17, "CQL, published": 33}
    rows_of = {(row[1], row[2]): row for row in figure["table"]["rows"]}
    ours = rows_of[anchors.MATCHED, "ours"]
    # 0, 20 and 40 %: 20 ± 4.303 · 20/√3.
    assert ours[3:] == ["2.80", "20", "-30 to 70"]
    assert rows_of["MCE", "published"][4] == "33"


def paying(rare: float, good: float, narrow: float, usual: float) -> Levels:
    """Scores of the matched ratio in four conditions, where no correction scores 10 everywhere."""
    module = where_it_pays
    levels = with_levels(module.EXPERIMENT, {}, usual=10.0)
    conditions = (module.RARE, module.GOOD, module.NARROWEST, module.RANDOM)
    for condition, level in zip(conditions, (rare, good, narrow, usual), strict=True):
        levels[module.label_of(module.MATCHED, condition)] = level
    return levels


@pytest.mark.parametrize(
    ("levels", "wanted"),
    [
        (paying(20, 10, 20, 10), HOLDS),
        (paying(11, 9, 11, 9), HOLDS),
        (paying(9, 20, 20, 10), FAILS),  # It gains more from good play.
        (paying(20, 10, 9, 20), FAILS),  # It gains less with the narrow network.
        (paying(20, 10, 10, 10), UNDECIDED),
        (paying(10, 10, 20, 10), UNDECIDED),
    ],
)
def test_where_it_pays(levels: Levels, wanted: str) -> None:
    module = where_it_pays
    for other in (1.0, 99.0):  # The other methods and conditions are shown and not judged.
        changed = {label: other for label in levels if "conservative" in label or "50 %" in label}
        assert module.verdict(runs(levels | changed)) == wanted
    # Twice the score in both conditions is the same gain.
    scores = runs(paying(20, 20, 20, 10))
    for method in (module.PLAIN, module.MATCHED):
        label = module.label_of(method, module.RARE)
        scores[label] = 3.0 * scores[module.label_of(method, module.GOOD)]
    assert module.verdict(scores) == UNDECIDED


def matched_in(condition: str) -> str:
    """The arm with the matched ratio."""
    return where_it_pays.label_of(where_it_pays.MATCHED, condition)


@pytest.mark.parametrize("condition", new_seeds.CONDITIONS)
@pytest.mark.parametrize(("matched", "wanted"), [(1.0, HOLDS), (-1.0, FAILS), (0.0, UNDECIDED)])
def test_new_seeds(condition: str, matched: float, wanted: str) -> None:
    """One condition is as said, and the matched ratio is better in all others."""
    better = {matched_in(other): 1.0 for other in new_seeds.CONDITIONS}
    levels = with_levels(new_seeds.EXPERIMENT, better | {matched_in(condition): matched})
    assert new_seeds.verdict(runs(levels)) == wanted
    assert new_seeds.verdict(runs(levels, seeds=2)) == UNDECIDED


def test_a_gain_is_a_share_of_both_scores() -> None:
    module = where_it_pays
    scores = {
        module.label_of(module.PLAIN, module.RANDOM): np.array([[1.0], [0.0], [2.0]]),
        module.label_of(module.MATCHED, module.RANDOM): np.array([[3.0], [0.0], [0.0]]),
    }
    np.testing.assert_array_equal(module.gains(scores, module.RANDOM).ravel(), [0.75, 0.5, 0.0])


def test_a_long_run_is_read_up_to_an_update() -> None:
    rows: list[Row] = [{"update": k, "score": float(k)} for k in range(8)]
    run = RunRecord(Path("run"), make_config("x"), "finished", rows)
    assert where_it_pays.score_at(run, 5) == 4.0
    assert where_it_pays.score_at(run, 1) == 0.5


def test_where_it_pays_shows_each_condition_and_each_length() -> None:
    """Made-up runs whose score is the update over 10 000, and twice that with the matched ratio."""
    module, game = where_it_pays, "MinAtar/Breakout-v1"
    found = {}
    for arm in module.EXPERIMENT.arms["small"]:
        slope = 2e-4 if arm.label.startswith(f"{module.MATCHED};") else 1e-4
        for seed in range(3):
            last = arm.leaves.get("num_updates", 60_000)
            rows: list[Row] = [
                {"update": k, "score": slope * k} for k in range(5_000, last + 1, 5_000)
            ]
            config = make_config(game, arm.preset, "small", **arm.leaves)
            found[game, arm.label, seed] = RunRecord(Path(), config, "finished", rows)
    data = {dataset_of(run.config): DataRecord(Path(), 1.0, 0.1) for run in found.values()}
    figure = module.analyze(Results(module.EXPERIMENT, "small", found, data))
    shown = {panel["title"]: [arm["label"] for arm in panel["arms"]] for panel in figure["panels"]}
    assert shown[module.GOOD] == shown[module.LONG] == [module.PLAIN, module.MATCHED]
    assert shown[module.RANDOM] == shown[module.RARE] == list(module.METHODS)
    rows_of = {row[0]: row[1:] for row in figure["table"]["rows"]}
    # The means of the last three evaluations, which are 5 000 updates apart.
    assert rows_of[module.GOOD][:3] == ["5.50", "11.00", "2.00"]
    for length in module.LENGTHS:
        plain = (length - 5_000) / 1e4
        wanted = [f"{plain:.2f}", f"{2 * plain:.2f}", "2.00", "1.00 (p = 0.1)"]
        assert rows_of[f"{length:,} updates of random play"] == wanted


def test_where_it_pays_has_the_conservative_preset_with_the_ratio() -> None:
    (preset, leaves) = where_it_pays.METHODS["matched, conservative"]
    both = make_config("MinAtar/Breakout-v1", preset, **leaves)
    alone = make_config("MinAtar/Breakout-v1", "c51-conservative")
    assert both.value == alone.value


def test_where_it_pays_changes_one_thing_at_a_time() -> None:
    module = where_it_pays
    arms = {arm.label: arm for arm in module.EXPERIMENT.arms["small"]}
    plain, matched = (
        arms[module.label_of(method, module.RANDOM)] for method in (module.PLAIN, module.MATCHED)
    )
    assert (plain.preset, matched.preset) == ("c51", "c51-matched")
    assert plain.leaves == matched.leaves == {}
    for condition, changes in module.CONDITIONS.items():
        assert arms[module.label_of(module.MATCHED, condition)].leaves == changes
    assert arms[module.label_of(module.PLAIN, module.LONG)].leaves == {"num_updates": 240_000}


SMALL, LARGE = normalization.SMALL, normalization.LARGE


@pytest.mark.parametrize(
    ("scores", "at_large", "at_small", "wanted"),
    [
        ((1.0, -1.0), 4, 0, HOLDS),
        ((-1.0, 1.0), 4, 0, HOLDS),
        ((1.0, 1.0), 2, 0, UNDECIDED),  # 4 of 10 against 0 of 10: p = 0.043.
        ((1.0, 1.0), 4, 4, UNDECIDED),  # They diverge with small weights too.
        ((0.0, 0.0), 4, 0, UNDECIDED),
        ((0.0, -1.0), 4, 0, UNDECIDED),
        ((-1.0, -1.0), 4, 0, FAILS),  # The first half alone.
        ((1.0, 1.0), 0, 0, FAILS),  # The second half alone.
    ],
)
def test_normalization(
    scores: tuple[float, float], at_large: int, at_small: int, wanted: str
) -> None:
    assert SMALL == ["weight 0.001", "weight 0.01"]
    assert LARGE == ["weight 0.1", "weight 1"]
    for other in (-5.0, 5.0):  # Weight 0 and large weights may score what they like.
        levels = with_levels(normalization.EXPERIMENT, {}, usual=other)
        levels |= {"no correction": 0.0} | dict(zip(SMALL, scores, strict=True))
        diverged = {label: (np.arange(5) < at_large).astype(np.float64) for label in LARGE}
        diverged |= {label: (np.arange(5) < at_small).astype(np.float64) for label in SMALL}
        diverged["weight 0"] = np.ones(5)
        assert normalization.verdict(runs(levels), diverged) == wanted


def test_a_few_divergences_are_rare_if_half_of_the_runs_should_diverge() -> None:
    assert normalization.rarely(np.zeros(10)) == 1 / 1024
    assert normalization.rarely(np.array([1.0] + 9 * [0.0])) == 11 / 1024
    assert normalization.rarely(np.ones(5)) == 1.0


@pytest.mark.parametrize(
    ("full", "part", "full_plain", "part_plain", "wanted"),
    [
        (3.0, 1.0, 1.0, 1.0, HOLDS),
        (3.0, 1.0, 3.0, 1.0, UNDECIDED),  # Any agent loses as much.
        (3.0, 1.0, 4.0, 1.0, FAILS),  # The uncorrected agent loses more.
        (1.0, 3.0, 1.0, 9.0, FAILS),  # The corrected agent gains.
        (1.0, 1.0, 1.0, 3.0, UNDECIDED),
    ],
)
def test_replay_size(
    full: float, part: float, full_plain: float, part_plain: float, wanted: str
) -> None:
    module = replay_size
    levels = with_levels(module.EXPERIMENT, {module.FULL: full, module.PART: part}, usual=7.0)
    levels |= {module.FULL_PLAIN: full_plain, module.PART_PLAIN: part_plain}
    scores = runs(levels, seeds=6)
    # The spread of a loss must not be 0.
    scores[module.PART_PLAIN] = scores[module.PART_PLAIN][::-1]
    scores[module.PART] = np.roll(scores[module.PART], 1, axis=0)
    assert module.verdict(scores) == wanted


def test_replay_size_has_both_agents_with_both_replays() -> None:
    arms = {arm.label: arm for arm in replay_size.EXPERIMENT.arms["small"]}
    assert "window" not in arms[replay_size.FULL_PLAIN].leaves
    assert arms[replay_size.PART_PLAIN].leaves == arms[replay_size.PART].leaves
    assert arms[replay_size.FULL_PLAIN].preset == arms[replay_size.PART_PLAIN].preset == "c51"


@pytest.mark.parametrize(
    ("prioritized", "inverse", "score", "wanted"),
    [
        (3.0, 1.0, 10.0, HOLDS),
        (np.inf, 0.5, 12.0, HOLDS),
        (3.0, 1.9, 9.3, FAILS),  # Surely less, though by little.
        (2.0, 1.0, 10.0, UNDECIDED),
        (1.0, 1.0, 10.0, FAILS),  # Prioritized batches are stable.
        (3.0, 3.0, 10.0, FAILS),  # 1/c is unstable.
        (3.0, np.inf, 10.0, FAILS),
        (3.0, 2.0, 10.0, UNDECIDED),
        (3.0, 1.0, 5.0, FAILS),  # 1/c scores less.
        (3.0, np.nan, 10.0, UNDECIDED),
    ],
)
def test_weighting(prioritized: float, inverse: float, score: float, wanted: str) -> None:
    module = weighting
    scores = runs(with_levels(module.EXPERIMENT, {module.INVERSE: score}, usual=10.0))
    errors = runs({module.BASELINE: 1.0, module.PRIORITIZED: prioritized, module.INVERSE: inverse})
    errors = {
        label: found.ravel() * (1 + 0.02 * k) for k, (label, found) in enumerate(errors.items())
    }
    assert module.verdict(scores, errors) == wanted


def test_weighting_needs_a_score_that_is_shown_to_be_no_less() -> None:
    module = weighting
    errors = {
        label: found.ravel()
        for label, found in runs(
            {module.BASELINE: 1.0, module.PRIORITIZED: 3.0, module.INVERSE: 1.0}
        ).items()
    }
    scores = {
        label: np.array([5.0, 8, 10, 12, 15])[:, None] for label in arms_of(module.EXPERIMENT)
    }
    assert module.verdict(scores, errors) == UNDECIDED


@pytest.mark.parametrize(
    ("means", "wanted"),
    [((1.0, 1.0), HOLDS), ((1.0, 0.0), UNDECIDED), ((1.0, -1.0), FAILS), ((-1.0, -1.0), FAILS)],
)
def test_frames(means: tuple[float, float], wanted: str) -> None:
    noise = np.array([-0.2, 0.0, 0.25])
    assert frames.verdict({str(k): mean + noise for k, mean in enumerate(means)}) == wanted
    assert frames.verdict({str(k): mean + noise[:2] for k, mean in enumerate(means)}) == UNDECIDED


def test_a_claim_about_frames_needs_a_correction_to_fail_in_one_of_many_games() -> None:
    noise = np.array([-1.0, 0.0, 1.0])  # Student: ± 2.48 at 95 %, ± 4.42 at 98.3 %.
    assert frames.verdict({"a": noise - 3}) == FAILS
    assert frames.verdict({"a": noise - 3, "b": noise + 9, "c": noise + 9}) == UNDECIDED


@pytest.mark.parametrize(
    ("clipped", "unclipped", "wanted"),
    [
        (17.0, 5.0, HOLDS),
        (5.0, 5.0, FAILS),
        (17.0, 17.0, FAILS),
        (11.0, 5.0, UNDECIDED),
        (17.0, 11.0, UNDECIDED),
        # To fail on one of two sides takes the wider interval.
        (7.0, 5.0, UNDECIDED),
        (17.0, 15.0, UNDECIDED),
    ],
)
def test_ratio_scale(clipped: float, unclipped: float, wanted: str) -> None:
    """Interquartile means of five runs around a bound of 11, with Student's interval of ± 3.51, or ± 5.07 at 97.5 %."""
    noise = np.array([-9.0, -1.0, 0.0, 1.0, 9.0])
    assert ratio_scale.verdict(clipped + noise, unclipped + noise, 11.0) == wanted
    assert ratio_scale.verdict(clipped + noise[1:3], unclipped + noise[1:3], 11.0) == UNDECIDED


# From metrics to verdicts.


def ended(
    module: Any, columns: dict[str, Levels], diverged: Collection[str] = ()
) -> dict[str, Any]:
    """The figure of five made-up runs per arm at the scale `small`.

    Args:
        module: of the experiment.
        columns: of the metrics, each with the values at which the runs of an arm end, by its label; 1 if it is not named.
        diverged: labels of the arms whose runs diverged.
    """
    found, data = {}, {}
    for game in module.EXPERIMENT.games["small"]:
        for arm in module.EXPERIMENT.arms["small"]:
            status = "diverged" if arm.label in diverged else "finished"
            for seed in range(5):
                ends = {
                    name: levels.get(arm.label, 1.0) + 0.01 * seed
                    for name, levels in columns.items()
                }
                rows: list[Row] = [{"update": k, **ends} for k in range(1, 4)]
                config = make_config(game, arm.preset, "small", data_seed=seed, **arm.leaves)
                found[game, arm.label, seed] = RunRecord(Path(), config, status, rows)
                data[dataset_of(config)] = DataRecord(Path(), 0.5, 0.1)
    figure: dict[str, Any] = module.analyze(Results(module.EXPERIMENT, "small", found, data))
    return figure


def test_the_mean_ratio_is_read_under_the_target_policy() -> None:
    module = mean_ratio
    smallest, largest = {module.SMALLEST: 5.0}, {module.LARGEST: 5.0}
    columns = {"score": {}, "mean_ratio_pi": smallest, "mean_ratio": largest}
    assert ended(module, columns)["verdict"] == HOLDS
    columns = {"score": {}, "mean_ratio_pi": largest, "mean_ratio": smallest}
    assert ended(module, columns)["verdict"] == FAILS


def test_a_ratio_that_diverged_has_an_infinite_error() -> None:
    """Also where its last calibration errors were as small as those of others."""
    module = weighting
    columns = {"score": {}, "calibration_error": {module.INVERSE: 0.1}, "mean_ratio": {}}
    columns["effective_share"] = {}
    assert ended(module, columns)["verdict"] == FAILS
    assert ended(module, columns, diverged=[module.PRIORITIZED])["verdict"] == HOLDS


def test_normalization_counts_the_runs_that_diverged() -> None:
    columns: dict[str, Levels] = {"score": dict.fromkeys(SMALL, 2.0), "mean_ratio": {}}
    columns["effective_share"] = {}
    assert ended(normalization, columns, diverged=LARGE)["verdict"] == HOLDS
    assert ended(normalization, columns)["verdict"] == FAILS


def test_a_longer_target_period_is_compared_with_the_correction() -> None:
    levels = {games.CORRECTED: 2.0, games.LONG_PERIOD: 3.0}
    columns = {"score": levels, "mean_ratio": {}, "effective_share": {}}
    said = ended(games, columns)["found"]
    assert "That a target period of 8000 does: 1.00 (p" in said
    assert "the corrected agent beats the longer period: 0.00 (p" in said


def test_the_longer_target_period_is_compared_with_itself() -> None:
    module = ratio_discount
    plain, corrected = (arm.label for arm in module.LONG_PERIOD)
    for scale in ("small", "paper"):
        arms = {arm.label: arm for arm in module.EXPERIMENT.arms[scale]}
        assert arms[plain].leaves["target_period"] == 8000
        assert arms[corrected].leaves["target_period"] == 8000
    columns = {"score": {plain: 0.0}, "mean_ratio": {}, "effective_share": {}}
    said = ended(module, columns)["found"]
    assert "period of 8000, P(γ̂ = 0.99 beats no correction) = 1.00 (p = 0.0079)." in said


# What chance does.

Draw = Callable[[np.random.Generator], str]


def chance(
    experiment: Comparison, seeds: int, changes: Levels | None = None, scale: str = "small"
) -> Callable[[np.random.Generator], dict[str, NDArray[np.float64]]]:
    """Draws scores of every arm; runs of one seed share the luck of their dataset."""
    labels, tasks = arms_of(experiment, scale), len(experiment.games[scale])
    levels = np.array([(changes or {}).get(label, 0.0) for label in labels])[:, None, None]
    dataset = np.arange(seeds) % DATASETS[scale]

    def draw(rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
        luck = rng.normal(size=(seeds, tasks))[dataset]
        noise = rng.exponential(size=(len(labels), seeds, tasks))  # Scores are skewed.
        return dict(zip(labels, levels + 0.5 * luck + noise, strict=True))

    return draw


def scored(module: Any, changes: Levels | None = None) -> Callable[[int], Draw]:
    def of_seeds(seeds: int) -> Draw:
        draw = chance(module.EXPERIMENT, seeds, changes)
        return lambda rng: str(module.verdict(draw(rng)))

    return of_seeds


def normalized(changes: Levels, at_large: float, at_small: float) -> Callable[[int], Draw]:
    def of_seeds(seeds: int) -> Draw:
        draw = chance(normalization.EXPERIMENT, seeds, changes)

        def verdict(rng: np.random.Generator) -> str:
            diverged = {label: (rng.random(seeds) < at_large).astype(np.float64) for label in LARGE}
            diverged |= {
                label: (rng.random(seeds) < at_small).astype(np.float64) for label in SMALL
            }
            return normalization.verdict(draw(rng), diverged)

        return verdict

    return of_seeds


def weighted(prioritized: float, inverse: float, score: float) -> Callable[[int], Draw]:
    """Errors are lognormal, and `prioritized` and `inverse` times as large as those of uniform batches."""

    def of_seeds(seeds: int) -> Draw:
        def verdict(rng: np.random.Generator) -> str:
            sizes = {weighting.BASELINE: 1.0, weighting.PRIORITIZED: prioritized}
            sizes[weighting.INVERSE] = inverse
            errors = {label: size * np.exp(rng.normal(size=seeds)) for label, size in sizes.items()}
            scores = {
                label: np.exp(0.2 * rng.normal(size=(seeds, 1)))
                for label in arms_of(weighting.EXPERIMENT)
            }
            scores[weighting.INVERSE] *= score
            return weighting.verdict(scores, errors)

        return verdict

    return of_seeds


def framed(means: tuple[float, ...]) -> Callable[[int], Draw]:
    def of_seeds(seeds: int) -> Draw:
        return lambda rng: frames.verdict(
            {str(k): mean + rng.normal(size=seeds) for k, mean in enumerate(means)}
        )

    return of_seeds


def scaled(clipped: float, unclipped: float) -> Callable[[int], Draw]:
    """Mean ratios around the bound 0."""

    def of_seeds(seeds: int) -> Draw:
        def verdict(rng: np.random.Generator) -> str:
            ends = [level + rng.normal(size=seeds) for level in (clipped, unclipped)]
            return ratio_scale.verdict(ends[0], ends[1], 0.0)

        return verdict

    return of_seeds


FAR = 99.0
HELP = dict.fromkeys(ratio_discount.HELPFUL, FAR)


def on_atari(_: int) -> Draw:
    """With the seeds of that scale."""
    draw = chance(games.EXPERIMENT, games.EXPERIMENT.seeds["atari"], scale="atari")
    return lambda rng: games.verdict(draw(rng))


NULLS: dict[str, dict[str, Callable[[int], Draw]]] = {
    "anchors": {
        "no difference": scored(anchors),
        "like one of two": scored(anchors, {anchors.MATCHED: FAR, anchors.BEHAVIOR: FAR}),
    },
    "auxiliary": {
        "no difference": scored(auxiliary),
        "like one arm": scored(
            auxiliary, {auxiliary.CORRECTED: FAR, arms_of(auxiliary.EXPERIMENT)[1]: FAR}
        ),
    },
    "frames": {
        "no difference": framed((0.0,) * 4),
        "one game": framed((FAR, 0.0, FAR, FAR)),
    },
    "conservatism": {
        "no difference": scored(conservatism),
        "one as good": scored(
            conservatism, dict.fromkeys(conservatism.OTHERS, -FAR) | {"α = 1": 0.0}
        ),
    },
    "games": {"no difference": scored(games), "no difference on Atari": on_atari},
    "matched_settings": {
        "no difference": scored(matched_settings),
        "one as good": scored(
            matched_settings,
            dict.fromkeys(matched_settings.OTHERS, -FAR) | {"γ̂ = 0.9": 0.0},
        ),
    },
    "mean_ratio": {"no difference": scored(mean_ratio)},
    "new_seeds": {
        "no difference": scored(new_seeds),
        "all but one condition": scored(
            new_seeds, dict.fromkeys(map(matched_in, new_seeds.CONDITIONS[1:]), FAR)
        ),
    },
    "normalization": {
        "half of the runs diverge": normalized({}, 0.5, 0.5),
        "no score": normalized({}, 0.99, 0.0),
        "no divergence": normalized({SMALL[0]: FAR}, 0.5, 0.5),
    },
    "ratio_discount": {
        "no difference": scored(ratio_discount),
        "one does not help": scored(
            ratio_discount, {**HELP, SMALL_DISCOUNT: 0.0, ratio_discount.EXCEPTION: -FAR}
        ),
        "0.9999 is not apart": scored(
            ratio_discount, {**HELP, LARGE_DISCOUNT: 2 * FAR, ratio_discount.BASELINE: FAR}
        ),
    },
    "online_control": {
        "no difference": scored(online_control),
        "like one arm": scored(
            online_control, {online_control.MATCHED: FAR, online_control.TD_ERROR: FAR}
        ),
    },
    "other_games": {"no difference": scored(other_games)},
    "ratio_scale": {"at the bound": scaled(0.0, 0.0), "one at the bound": scaled(FAR, 0.0)},
    "replay_size": {
        "no difference": scored(replay_size),
        "any agent loses": scored(
            replay_size, {replay_size.FULL: FAR, replay_size.FULL_PLAIN: FAR}
        ),
    },
    "reweighting": {"no difference": scored(reweighting)},
    "traces": {
        "no difference": scored(traces),
        "like one of four": scored(
            traces,
            {both: FAR for both, _ in list(traces.judged().values())}
            | {next(iter(traces.judged().values()))[1]: FAR},
        ),
    },
    "two_cures": {
        "no difference": scored(two_cures),
        "one cure": scored(two_cures, {two_cures.SQUARED_FRESH: FAR}),
    },
    "where_it_pays": {
        "no difference": scored(where_it_pays),
        "one pair": scored(where_it_pays, {matched_in(where_it_pays.RARE): FAR}),
    },
    "weighting": {
        "all at their limits": weighted(2.0, 2.0, 1.0),
        "prioritized at its limit": weighted(2.0, 1e-3, 9.0),
        "1/c at its limit": weighted(1e3, 2.0, 9.0),
        "score at its limit": weighted(1e3, 1e-3, weighting.MARGIN),
    },
}

DRAWS = 1500

BEYOND_ONE_END = {"ratio_scale": 0.032}
"""Student's interval for trimmed means is not exact: this share of intervals of five normal runs is too high."""

TRUE_VERDICTS = {("weighting", "score at its limit"): FAILS}
"""Where the condition at its limit is a difference that refutes the claim: 90 % of a score are less."""


@pytest.mark.parametrize(("name", "null"), [(name, null) for name in NULLS for null in NULLS[name]])
def test_chance_decides_seldom(name: str, null: str) -> None:
    """In an experiment's own design, where a condition is at the limit of what a verdict may rest on.

    Each of the two verdicts has a probability of at most half of ERROR; its standard error is 0.004.
    """
    experiment = find_experiments()[name]
    assert isinstance(experiment, Comparison)
    draw = NULLS[name][null](experiment.seeds["small"])
    rng = np.random.default_rng(1)
    said = [draw(rng) for _ in range(DRAWS)]
    limit = BEYOND_ONE_END.get(name, ERROR / 2)
    for wrong in {HOLDS, FAILS} - {TRUE_VERDICTS.get((name, null))}:
        assert said.count(wrong) / DRAWS <= limit + 3 * np.sqrt(limit / DRAWS), wrong


def test_the_scale_is_judged_wrongly_more_often_where_runs_are_skewed() -> None:
    """Lognormal runs with the bound as their interquartile mean: the number of docs/report.md."""
    rng = np.random.default_rng(0)
    level = float(interquartile_mean(np.exp(rng.normal(size=100_000) / 2)))
    below = [
        ratio_scale.verdict(FAR + np.zeros(5), np.exp(rng.normal(size=5) / 2), level)
        for _ in range(DRAWS)
    ]
    assert 0.045 <= below.count(HOLDS) / DRAWS <= 0.075


@pytest.mark.parametrize(("spread", "least", "most"), [(0.0, 0.03, 0.05), (1.0, 0.08, 0.12)])
def test_luck_of_one_arm_with_a_dataset_is_mistaken_for_a_difference(
    spread: float, least: float, most: float
) -> None:
    """Ten seeds share five datasets; the luck that all arms share makes no difference, that of one arm does.

    The numbers are those of docs/report.md.
    """
    rng = np.random.default_rng(0)
    dataset = np.arange(10) % DATASETS["small"]
    wrong = []
    for _ in range(DRAWS):
        own = spread * rng.normal(size=(2, DATASETS["small"]))[:, dataset]
        ours, theirs = own + rng.normal(size=(2, 10))
        wrong.append(compare(ours, theirs).p <= ERROR)
    assert least <= np.mean(wrong) <= most


def test_chance_is_tried_for_every_experiment() -> None:
    found = {name for name, each in find_experiments().items() if isinstance(each, Comparison)}
    # `right_size` compares no arms: it asks of every single run whether it is within given limits.
    assert found == set(NULLS) | {"right_size"}


@pytest.mark.parametrize(
    ("size", "violated", "diverged", "wanted"),
    [
        (1.0, 0, False, True),
        (1.49, 0, False, True),
        (0.68, 0, False, True),
        (1.51, 0, False, False),
        (0.66, 0, False, False),
        (1.0, 1, False, False),
        (1.0, 0, True, False),
        (np.nan, 0, False, False),
    ],
)
def test_right_size_of_a_run(size: float, violated: int, diverged: bool, wanted: bool) -> None:
    assert right_size.is_right(size, violated, diverged=diverged) == wanted


def test_right_size_needs_every_run() -> None:
    assert right_size.verdict([True] * 20, 5) == HOLDS
    assert right_size.verdict([True] * 19 + [False], 5) == FAILS
    assert right_size.verdict([True] * 8, 2) == UNDECIDED


def test_right_size_reads_the_end_and_every_evaluation_of_a_run() -> None:
    rows: list[Row] = [
        {"update": k, "mean_ratio": 9.0 if k < 3 else 2.0 + k, "exact_mean_ratio": 2.0}
        for k in range(6)
    ]
    for k, state in ((1, "violated"), (2, "holds"), (3, "unordered"), (4, "violated")):
        rows[k]["invariant"] = state
    run = RunRecord(Path("run"), make_config("x"), "finished", rows)
    assert right_size.size_of(run) == 3.0
    assert right_size.violations(run) == 2


@pytest.mark.parametrize("kind", ["noise", "noise, clipped", "constant"])
def test_a_ratio_without_meaning_does_not_pass_as_frames(kind: str) -> None:
    """Episodes in which the return so far grows, as in the data; early rows are rows of small return."""
    rng = np.random.default_rng(0)
    lengths = rng.geometric(0.05, 400)
    returns = np.concatenate([np.cumsum(rng.random(length) < 0.1) for length in lengths])
    said = []
    for _ in range(200):
        differences = []
        for _ in range(5):
            output = np.ones(len(returns))
            if kind != "constant":
                output = rng.normal(size=len(returns))
            if kind == "noise, clipped":
                output = np.maximum(output, 0.0)
            high, low = frames.extremes(output, rng)
            differences.append(returns[high].mean() - returns[low].mean())
        said.append(frames.verdict({"game": np.array(differences)}))
    assert sum(verdict != UNDECIDED for verdict in said) / 200 <= ERROR + 3 * 0.0154


def test_extremes_are_the_highest_and_the_lowest() -> None:
    output = np.random.default_rng(0).permutation(200).astype(np.float64) - 100
    high, low = frames.extremes(output, np.random.default_rng(0))
    assert output[high].tolist() == list(range(99, 49, -1))
    assert output[low].tolist() == list(range(-100, -50))


def test_intervals_of_frames_draw_whole_episodes() -> None:
    """Ten states of an episode count as one draw: the interval is √10 times as wide as that of single states."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(size=(2, 30)), 10, axis=1)
    together = np.repeat(np.arange(30), 10)
    apart = np.arange(300)
    widths = []
    for episodes in (together, apart):
        found = frames.difference_by_episodes(
            values[0], values[1], episodes, 1000 + episodes, np.random.default_rng(1)
        )
        assert found.value == pytest.approx(values[0].mean() - values[1].mean())
        assert found.low < found.value < found.high
        widths.append(found.high - found.low)
    assert widths[0] / widths[1] == pytest.approx(np.sqrt(10), rel=0.15)
