import dataclasses
from pathlib import Path
from typing import Any

import pytest

from covshift.config.presets import PRESET_TEXTS, PRESETS, SCALE_TEXTS, SCALES, make_config
from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.files import write_json
from covshift.schema import read_json


def test_every_leaf_has_a_name_of_its_own() -> None:
    names = []
    for item in dataclasses.fields(TrainConfig):
        if item.default_factory is dataclasses.MISSING:
            names.append(item.name)
        else:
            names += [leaf.name for leaf in dataclasses.fields(item.default_factory)]  # type: ignore[arg-type]
    assert len(names) == len(set(names))
    assert set(TrainConfig("x").leaves()) == set(names)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scale", SCALES)
def test_configurations_survive_json(preset: str, scale: str, tmp_path: Path) -> None:
    config = make_config("x", preset, scale)
    write_json(tmp_path / "config.json", dataclasses.asdict(config))
    assert read_json(tmp_path / "config.json", TrainConfig) == config


def test_texts_name_every_preset_and_scale() -> None:
    assert set(PRESET_TEXTS) == set(PRESETS)
    assert set(SCALE_TEXTS) == set(SCALES)


def test_the_papers_values() -> None:
    paper = make_config("ALE/Pong-v5", "c51-corrected", "paper")
    assert (paper.ratio.ratio_discount, paper.ratio.ratio_loss_weight) == (0.99, 0.02)
    assert (paper.ratio.target_epsilon, paper.replay.priority) == (0.1, "ratio")
    assert (paper.data.window, paper.optimization.batch_size) == (10_000_000, 32)
    # 1000 agent steps are 250 updates; an iteration of 250000 agent steps is 62500; there are 150.
    assert paper.target_updates == 250
    assert paper.evaluation.evaluate_every == 62_500
    assert paper.optimization.num_updates == 150 * 62_500
    normalized = make_config("ALE/Pong-v5", "c51-normalized", "paper")
    assert (normalized.ratio.ratio_discount, normalized.ratio.semantics) == (1.0, "paper")
    auxiliary = make_config("ALE/Pong-v5", "c51-auxiliary", "paper")
    assert auxiliary.ratio.learn_ratio
    assert auxiliary.replay.priority == "uniform"
    for preset in ("c51-auxiliary", "c51-auxiliary-td-priority"):  # Figure 3's caption.
        ratio = make_config("ALE/Pong-v5", preset, "paper").ratio
        assert (ratio.ratio_loss_weight, ratio.ratio_discount) == (0.002, 0.999)


def test_the_values_of_c51() -> None:
    """Bellemare, Dabney & Munos (2017): 51 atoms on [-10, 10], Adam with 0.00025 and 0.01/32, γ = 0.99."""
    c51 = make_config("ALE/Pong-v5", "c51", "paper")
    assert (c51.value.num_atoms, c51.value.value_bound, c51.value.discount) == (51, 10.0, 0.99)
    assert (c51.value.value_steps, c51.value.reward_clip) == (1, 1.0)
    fit = c51.optimization
    assert (fit.learning_rate, fit.adam_epsilon) == (0.00025, 0.0003125)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"ratio_discount": 1.5}, "ratio_discount must lie in [0, 1], but it is 1.5"),
        ({"num_updates": 0}, "num_updates must lie in [1, 1,000,000,000], but it is 0"),
        ({"batch_size": 1}, "batch_size must lie in [2, 65,536], but it is 1"),
        ({"discount": 1.0}, "discount must lie in [0, 1), but it is 1.0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, but it is 0.0"),
        ({"priority_floor": -1.0}, "priority_floor must not be negative"),
        ({"rho_clip": 0.0}, "rho_clip must be positive"),
        ({"value_trace": "retrace", "value_steps": 3}, "set trace_steps 3 and value_steps 1"),
        ({"value_trace": "retrace", "bootstrap_action": "data"}, "evaluates the behavior policy"),
        ({"learn_ratio": False}, "the ratio is used but not learned"),
        ({"correction": "reweight"}, "correction reweight draws uniformly"),
        ({"correction": "reweight-mean"}, "correction reweight-mean draws uniformly"),
        ({"normalization_weight": 0.1}, "normalization_weight needs semantics restart or paper"),
        (
            {"ratio_weighting": "inverse", "ratio_discount": 1.0},
            "ratio_weighting inverse needs ratio_discount below 1",
        ),
        ({"refresh": "both", "priority": "td-error"}, "refresh both writes c as the priority"),
        ({"ratio_batch": "prioritized", "semantics": "restart"}, "ratio_batch prioritized shows"),
        (
            {"mass_closure": True, "initial_rule": "source"},
            "mass_closure balances the ratio of states",
        ),
        ({"mass_closure": True, "semantics": "paper"}, "it needs semantics visits or restart"),
        (
            {"mass_closure": True, "source_clip": False},
            "mass_closure needs ratios that are not negative",
        ),
        (
            {"mass_closure": True, "semantics": "restart", "ratio_discount": 1.0},
            "mass_closure with semantics restart needs ratio_discount below 1",
        ),
        ({"semantics": "restart", "initial_rule": "source"}, "no state is initial"),
        ({"ratio_loss": "matching"}, "ratio_loss matching needs ratio_head exponential or safe"),
        (
            {"ratio_loss": "matching", "ratio_head": "safe", "ratio_weighting": "inverse"},
            "keeps the mean ratio under uniform weights only",
        ),
        (
            {"ratio_loss": "matching", "ratio_head": "safe", "ratio_discount": 1.0},
            "ratio_loss matching with ratio_discount 1 needs semantics restart, but it is 'visits'",
        ),
        (
            {"ratio_loss": "matching", "ratio_head": "safe", "ratio_discount": 0.0},
            "ratio_loss matching needs ratio_discount above 0",
        ),
        ({"priority_scale": "mean", "priority": "td-error"}, "needs priority ratio or ratio-rho"),
        ({"effective_floor": 0.5, "priority": "uniform"}, "effective_floor needs a priority"),
        ({"seed": 2**70}, "seed must lie in [0, 9,223,372,036,854,775,808)"),
        ({"nonsense": 1}, "there is no field 'nonsense'"),
    ],
)
def test_bad_values_are_named(leaves: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        make_config("x", "c51-corrected", "small", **leaves)
    assert message in str(error.value)


def test_unknown_names_and_keys() -> None:
    with pytest.raises(InputError, match="did you mean c51-corrected"):
        make_config("x", "c51-correct")
    with pytest.raises(InputError, match="there is no scale 'huge'; say paper"):
        make_config("x", "c51", "huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, "the file has the unknown key 'more'"),
        (
            {"ratio": {"ratio_discont": 1}},
            "ratio has the unknown key 'ratio_discont'; did you mean",
        ),
        ({"seed": "0"}, "seed must be a valid integer, but it is '0'"),
        (
            {"ratio": {"semantics": "visit"}},
            "ratio.semantics must be 'visits', 'restart' or 'paper'",
        ),
        ({"ratio": {"ratio_discount": 2.0}}, "ratio_discount must lie in [0, 1], but it is 2.0"),
    ],
)
def test_bad_configuration_files_are_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    write_json(path, dataclasses.asdict(make_config("x")) | change)
    with pytest.raises(InputError) as error:
        read_json(path, TrainConfig)
    assert str(error.value).startswith(f"{path}: {message}")
