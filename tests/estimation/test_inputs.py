"""Every source gives the same logs, and bad data are refused with the number of bad rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

from covshift.data.collection import Request, collect
from covshift.data.import_export import export_minari
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation import (
    Logs,
    RatioEstimate,
    Trajectory,
    as_logs,
    estimate_ratio,
    evaluate_policy,
    from_arrays,
    from_frame,
    from_trajectories,
    simulate_logs,
)
from covshift.estimation.behavior import estimate_behavior
from covshift.estimation.features import Affine, RandomFourier, Tabular, as_features
from covshift.theory.examples import episodic, line_chain

EPISODIC = episodic(np.random.default_rng(3), 5, 2, single_start=False)


def logged(seed: int = 0, steps: int = 60, streams: int = 3) -> Logs:
    return simulate_logs(EPISODIC.mdp, EPISODIC.mu, steps, streams, np.random.default_rng(seed))


def frame_of(logs: Logs) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "trajectory": logs.trajectory,
            "state": logs.states(),
            "action": logs.action,
            "reward": logs.reward,
            "terminated": logs.terminated,
            "mu": logs.mu,
            "next_state": np.where(logs.terminated, np.nan, logs.next_states()),
        }
    )


class PolarsLike:
    """The part of a Polars frame that is used: names of columns, and columns that give arrays."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self.columns = list(frame.columns)

    def __getitem__(self, name: str) -> Any:
        return self._frame[name]


def assert_same(left: Logs, right: Logs) -> None:
    for name in ("action", "mu", "reward", "terminated", "truncated", "is_initial", "trajectory"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    np.testing.assert_array_equal(left.states(), right.states())
    continues = ~left.terminated
    np.testing.assert_array_equal(left.next_states()[continues], right.next_states()[continues])
    assert left.num_actions == right.num_actions


def closed_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per state: a trajectory that was cut off ends with a row without an action."""
    parts = []
    for _, part in frame.groupby("trajectory"):
        rows = part.drop(columns="next_state").astype({"action": float})
        if not part.terminated.iloc[-1]:
            last = rows.iloc[-1:].assign(
                state=int(part.next_state.iloc[-1]), action=np.nan, reward=0.0
            )
            rows = pd.concat([rows, last])
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda logs: frame_of(logs),
        lambda logs: PolarsLike(frame_of(logs)),
        lambda logs: closed_rows(frame_of(logs)),
        lambda logs: closed_rows(frame_of(logs)).fillna({"action": -1}).astype({"action": int}),
        lambda logs: list(logs),
        lambda logs: iter(logs),
        lambda logs: {
            "state": frame_of(logs).state.to_numpy(),
            "action": list(frame_of(logs).action),
            "reward": frame_of(logs).reward,
            "next_state": logs.next_states(),
            "terminated": logs.terminated,
            "trajectory": [f"run {number}" for number in logs.trajectory],
            "propensity": logs.mu,
        },
    ],
    ids=["pandas", "polars", "rows", "rows of -1", "trajectories", "iterator", "arrays"],
)
def test_every_source_gives_the_same_logs(make: Callable[[Logs], Any]) -> None:
    logs = logged()
    assert logs.has_episodes
    assert logs.truncated.sum() > 0
    assert_same(as_logs(make(logs), num_actions=2), logs)


def test_a_dataset_and_its_minari_export_give_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(
        Request("covshift/RandomWalk-v0", 300, seed=1), tmp_path / "walk", progress=lambda _: None
    )
    logs = as_logs(tmp_path / "walk")
    assert_same(as_logs(Store.open(tmp_path / "walk")), logs)
    assert logs.num_transitions == 300
    assert len(logs) == int(Store.open(tmp_path / "walk").columns["is_initial"].sum())
    assert as_features(None, logs) == Tabular(6)
    continues = ~(logs.terminated | logs.truncated)[:-1]
    np.testing.assert_array_equal(logs.next_states()[:-1][continues], logs.states()[1:][continues])
    assert logs.is_initial[0]
    # Reading small blocks gives the same as reading all at once.
    parts = [logs.next_states(rows) for rows in logs.blocks(7)]
    assert {len(part) for part in parts} == {7, 300 % 7}
    np.testing.assert_array_equal(np.concatenate(parts), logs.next_states())
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    export_minari(tmp_path / "walk", "test/walk-v0")
    assert_same(as_logs("minari:test/walk-v0"), logs)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_minari_without_mu_takes_the_behavior_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def create(name: str, space: Any, observations: Any) -> None:
        buffers = [
            EpisodeBuffer(
                id=0, observations=observations, actions=np.array([0, 1]), rewards=np.ones(2),
                terminations=np.array([False, True]), truncations=np.zeros(2, dtype=bool),
            )
        ]  # fmt: skip
        minari.create_dataset_from_buffers(
            name, buffer=buffers, observation_space=space, action_space=spaces.Discrete(2)
        )

    box = spaces.Box(-1, 1, (2,), np.float32)
    create("test/plain-v0", box, np.zeros((3, 2), dtype=np.float32))
    logs = as_logs("minari:test/plain-v0")
    assert logs.mu is None
    with pytest.raises(InputError, match="μ"):
        evaluate_policy(logs, "uniform", estimator="mis", interval=None)
    found = evaluate_policy(
        "minari:test/plain-v0", "uniform", behavior="uniform", discount=0.5, interval=None,
        estimator="pdis",
    )  # fmt: skip
    assert found.value == pytest.approx(1.5)
    create("test/dict-v0", spaces.Dict({"x": box}), {"x": np.zeros((3, 2), dtype=np.float32)})
    with pytest.raises(InputError, match="arrays of one shape are needed"):
        as_logs("minari:test/dict-v0")


def test_large_states_are_read_few_at_a_time_and_too_many_features_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = np.arange(50.0).reshape(5, 10)
    logs = from_arrays(states[:4], [0, 1, 0, 1], np.ones(4), states[1:], [False] * 4, mu=[0.5] * 4)
    monkeypatch.setattr("covshift.estimation.logs.BLOCK_BYTES", 2 * 160)
    assert [len(rows) for rows in logs.blocks()] == [2, 2]
    monkeypatch.setattr("covshift.estimation.moments.MOST_FEATURES", 10)
    with pytest.raises(InputError, match=r"11 features are too many .* \(at most 10\); take fewer"):
        estimate_ratio(logs, "uniform", ratio_discount=0.9, features=Affine.fit(logs))
    monkeypatch.setattr("covshift.estimation.moments.MOST_FEATURES", 21)
    with pytest.raises(InputError, match="22 features are too many"):
        evaluate_policy(logs, "uniform", estimator="fqe", features=Affine.fit(logs), interval=None)


def test_several_columns_of_a_frame_make_a_state() -> None:
    frame = pd.DataFrame(
        {
            "trajectory": [0, 0, 1], "x": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 3.0], "action": [0, 1, 0],
            "reward": [1.0, 2.0, 3.0], "terminated": [False, True, True], "mu": [0.5] * 3,
        }
    )  # fmt: skip
    logs = from_frame(frame, state=["x", "y"])
    states = logs.states()
    np.testing.assert_array_equal(states, [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]])
    np.testing.assert_array_equal(logs.next_states()[0], [1.5, 2.0])
    features = Affine.fit(logs)
    np.testing.assert_allclose(features(states)[:, 1:].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(features(states)[:, 1:].std(axis=0), 1.0)
    waves = RandomFourier.fit(logs, 4000, np.random.default_rng(0))
    phi = waves(states)[:, 1:]
    # Inner products of the waves are those of the Gaussian kernel.
    x = features(states)[:, 1:]
    kernel = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(phi @ phi.T, kernel, atol=0.06)


def test_a_large_offset_does_not_change_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of 1e8 leave no digit for a variance of 1; a constant entry is left unscaled."""
    x = np.random.default_rng(0).standard_normal((1000, 3)) * [1.0, 1e-3, 0.0]
    states = 1e8 + x
    logs = from_arrays(
        states, np.zeros(1000), np.zeros(1000), states, np.zeros(1000), mu=np.ones(1000)
    )
    monkeypatch.setattr("covshift.estimation.logs.BLOCK_BYTES", 300 * 2 * states[0].nbytes)
    found = Affine.fit(logs)
    np.testing.assert_allclose(found.mean, states.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.scale, [x[:, 0].std(), x[:, 1].std(), 1.0], rtol=1e-4)


def test_features_of_a_users_own_are_given_again_to_load(tmp_path: Path) -> None:
    class Halves:
        is_tabular, size = True, 3

        def __call__(self, states: np.ndarray) -> np.ndarray:
            return states // 2

    found = estimate_ratio(logged(), EPISODIC.pi, ratio_discount=0.9, features=Halves())
    with pytest.raises(InputError, match="give it as `features`"):
        RatioEstimate.load(found.save(tmp_path))
    again = RatioEstimate.load(tmp_path, features=Halves())
    np.testing.assert_array_equal(again.ratio(np.arange(5)), found.ratio(np.arange(5)))


def spoiled(**columns: Any) -> pd.DataFrame:
    frame = frame_of(logged())
    for name, (rows, value) in columns.items():
        frame[name] = frame[name].astype(object if isinstance(value, str) else float)
        frame.loc[rows, name] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (spoiled(reward=([3, 5], np.nan)), "2 of 180 entries of rewards are not finite numbers, the first is nan"),
        (spoiled(mu=([1], 0.0)), r"1 of 180 actions were taken with a probability μ\(a\|s\) outside \(0, 1\]"),
        (spoiled(mu=([1, 2, 3], np.nan)), "3 of 180 actions were taken"),
        (spoiled(action=([4], 0.5)), "1 of 180 entries of actions are not whole numbers, the first is 0.5"),
        (spoiled(action=([4], -3)), "1 of 180 actions lie outside 0 … 1, the first is -3"),
        (spoiled(reward=([4], "much")), "rewards must hold numbers"),
        (spoiled(terminated=([4], "yes")), "1 of 180 entries of terminated are neither true nor false"),
        (spoiled(terminated=([4, 6], np.nan)), "2 of 180 entries of terminated are neither true nor false"),
        (spoiled().astype({"terminated": "boolean"}).replace({"terminated": {True: pd.NA}}), "of terminated are neither"),
        (spoiled().drop(columns="reward"), "the frame lacks reward; it has trajectory, state"),
        (spoiled().iloc[::-1].sort_values("state"), "trajectories are not together; sort by trajectory and time"),
        (spoiled().drop(columns="next_state"), "2 of 43 trajectories do not terminate, and the state after"),
        (spoiled().iloc[:0], "the data hold no transition"),
    ],
)  # fmt: skip
def test_bad_frames_are_refused_with_the_number_of_bad_rows(
    frame: pd.DataFrame, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        as_logs(frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_states": [0]}, r"next_states has shape \(1,\), but states has \(3,\)"),
        ({"actions": [0, 1]}, "actions has 2 entries, but states has 3"),
        ({"rewards": [0.0]}, r"reward has shape \(1,\), but \(3,\) is needed"),
        ({"terminated": [True]}, r"terminated has shape \(1,\), but \(3,\) is needed"),
        ({"terminated": [True, False, True], "trajectory": [0, 0, 0]}, "1 of 3 transitions end an episode, but"),
        ({"truncated": [False, False, True]}, "1 of 3 transitions are both terminated and truncated"),
        ({"num_actions": 1}, "1 of 3 actions lie outside 0 … 0"),
        ({"num_actions": 10**9}, "num_actions must be at most 10,000, but it is 1000000000"),
        ({"num_actions": "two"}, "num_actions must be a whole number, but it is 'two'"),
        ({"states": [[0], [1, 2], [3]]}, "hashable|shape"),
        ({"states": [1e300, 1.0, np.nan]}, "1 of 3 entries of states are not finite numbers"),
        ({"actions": [[0, 1], [1, 0], [0, 0]]}, r"actions has shape \(3, 2\), but one axis is needed"),
        ({"mu": [0.5, 0.5]}, r"mu has shape \(2,\)"),
        ({"is_initial": ["a", "b", "c"]}, "3 of 3 entries of is_initial are neither"),
        ({"trajectory": [0]}, r"trajectory has shape \(1,\)"),
    ],
)  # fmt: skip
def test_bad_arrays_are_refused(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {
        "states": [0, 1, 2], "actions": [0, 1, 0], "rewards": [0.0, 1.0, 2.0],
        "next_states": [1, 2, 0], "terminated": [False, False, True],
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        from_arrays(**arrays | change)


def test_bad_trajectories_are_refused() -> None:
    with pytest.raises(InputError, match="trajectory 0 has 2 states for 2 actions, but 3"):
        from_trajectories([Trajectory([0, 1], [0, 1], [0.0, 0.0], False)])
    with pytest.raises(InputError, match="1 of 2 trajectories have no mu"):
        from_trajectories(
            [
                Trajectory([0, 1], [0], [0.0], False, [0.5]),
                Trajectory([0, 1], [0], [0.0], False),
            ]
        )
    with pytest.raises(InputError, match="the data hold no transition"):
        as_logs([])
    with pytest.raises(InputError, match="data of the type int are not known"):
        as_logs(3)


def test_policies_without_overlap_or_of_the_wrong_shape_are_refused() -> None:
    logs: dict[str, Any] = {
        "states": [0, 1], "actions": [0, 0], "rewards": [0.0, 0.0], "next_states": [1, 0],
        "terminated": [False, False], "mu": [0.5, 0.5], "trajectory": [0, 0],
    }  # fmt: skip
    arrays = from_arrays(**logs, num_actions=2)
    ask: dict[str, Any] = {"ratio_discount": 0.9}
    with pytest.raises(InputError, match="probability 0 to all 2 logged actions"):
        estimate_ratio(arrays, np.array([[0.0, 1.0], [0.0, 1.0]]), **ask)
    with pytest.raises(InputError, match=r"shape \(2, 3\), but \(states, 2\) is needed"):
        estimate_ratio(arrays, np.full((2, 3), 1 / 3), **ask)
    with pytest.raises(InputError, match="1 of 2 rows of the policy's table are not probability"):
        estimate_ratio(arrays, np.array([[0.5, 0.5], [0.7, 0.7]]), **ask)
    with pytest.raises(
        InputError, match=r"3 probabilities for a state, but the data have 2 actions"
    ):
        estimate_ratio(arrays, lambda states: [0.2, 0.3, 0.5], **ask)
    with pytest.raises(InputError, match="state 1 is beyond the 1 rows"):
        estimate_ratio(arrays, np.array([[0.5, 0.5]]), **ask)
    with pytest.raises(InputError, match="not a policy; say uniform"):
        estimate_ratio(arrays, "nobody", **ask)
    uniform = estimate_ratio(arrays, "uniform", **ask)
    np.testing.assert_allclose(uniform.ratio([0, 1]), 1.0)
    same = estimate_ratio(arrays, lambda states: np.full((len(states), 2), 0.5), **ask)
    np.testing.assert_allclose(same.ratio([0, 1]), 1.0)


def test_a_reducible_chain_is_refused_at_ratio_discount_one() -> None:
    # The states 0, 1 and 2, 3 never meet.
    logs = from_arrays(
        [0, 1, 1, 2, 3, 2], [0, 1, 0, 0, 1, 0], [0.0] * 6, [1, 1, 0, 3, 2, 3], [False] * 6,
        trajectory=[0, 0, 0, 1, 1, 1], mu=[0.5] * 6,
    )  # fmt: skip
    with pytest.raises(
        InputError, match=r"fall into 2 classes of states that never meet \(3 of 6 transitions"
    ):
        estimate_ratio(logs, "uniform", ratio_discount=1.0)
    # At 0.99 there is an answer; of four of the six transitions the other action was never logged.
    found = estimate_ratio(logs, "uniform", ratio_discount=0.99).diagnostics
    assert found.mean_ratio == pytest.approx(1.0)
    assert found.flag == "low support"


def test_episodes_that_never_end_under_pi_are_refused() -> None:
    logs = from_arrays(
        [0, 0, 0], [0, 0, 1], [0.0] * 3, [0, 0, 0], [False, False, True], mu=[0.5] * 3
    )
    with pytest.raises(InputError, match="from 3 of 3 logged transitions no episode ever ends"):
        estimate_ratio(logs, np.array([[1.0, 0.0]]), ratio_discount=1.0)


def test_semantics_must_fit_the_data() -> None:
    with pytest.raises(InputError, match="episodes terminated, so the data are not continuing"):
        estimate_ratio(logged(), EPISODIC.pi, ratio_discount=0.9, semantics="continuing")
    chain = line_chain(4)
    logs = simulate_logs(chain.mdp, chain.mu, 40, 2, np.random.default_rng(0)).split(10)
    starts = logs[np.arange(len(logs)) % 4 > 0]
    with pytest.raises(InputError, match="visits needs initial states"):
        estimate_ratio(starts, chain.pi, ratio_discount=0.9, semantics="visits")


def test_split_cuts_without_new_starts() -> None:
    logs = logged(steps=50)
    parts = logs.split(3)
    assert parts.num_transitions == logs.num_transitions
    np.testing.assert_array_equal(parts.is_initial, logs.is_initial)
    np.testing.assert_array_equal(parts.terminated, logs.terminated)
    assert np.bincount(parts.trajectory).max() == 3
    last = np.append(np.diff(parts.trajectory) > 0, True)
    np.testing.assert_array_equal(last, parts.terminated | parts.truncated)
    rows = np.flatnonzero(parts.trajectory == 4)
    np.testing.assert_array_equal(parts[4:5].states(), logs.states(rows))


def test_logs_are_a_sequence_of_trajectories() -> None:
    rewards = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
    logs = from_trajectories(
        Trajectory(np.arange(len(given) + 1.0)[:, None] + 10 * k, [1] * len(given), given, k == 1)
        for k, given in enumerate(rewards)
    )
    assert (len(logs), logs.num_trajectories, logs.num_transitions) == (3, 3, 6)
    assert [list(np.asarray(trajectory.rewards)) for trajectory in logs] == rewards
    assert repr(logs) == (
        "Logs(6 transitions in 3 trajectories, of which 1 terminated; 2 actions, μ unknown; states are "
        "float64 arrays of shape (1,))"
    )
    last = logs[-1]
    np.testing.assert_array_equal(last.states, [[20.0], [21.0], [22.0], [23.0]])
    assert (last.terminated, last.mu, last.is_initial) == (False, None, True)
    assert repr(last) == "Trajectory(3 transitions, cut off, sum of rewards 15)"
    np.testing.assert_array_equal(logs[1].states, [[10.0]])  # After an end there is no state.
    # Parts and parts of parts are Logs again, in the order asked for.
    assert_same(logs[1:][[1, 0]], from_trajectories([logs[2], logs[1]], num_actions=2))
    assert_same(logs[np.array([True, False, True])], logs[::2])
    with pytest.raises(IndexError):
        logs[3]
    with pytest.raises(InputError, match="no trajectory is left"):
        logs[3:]


def test_whole_numbers_are_named_in_the_repr() -> None:
    assert repr(logged()).endswith("; 2 actions, μ logged; states are whole numbers)")


def test_mu_must_be_known() -> None:
    logs = replace(logged(), mu=None)
    with pytest.raises(InputError, match="the data hold no μ"):
        estimate_ratio(logs, EPISODIC.pi, ratio_discount=0.9)
    by_policy = estimate_ratio(logs, EPISODIC.pi, ratio_discount=0.9, behavior=EPISODIC.mu)
    by_column = estimate_ratio(logs, EPISODIC.pi, ratio_discount=0.9, behavior=logged().mu)
    stored = estimate_ratio(logged(), EPISODIC.pi, ratio_discount=0.9, method="least-squares")
    given = estimate_ratio(
        logs, EPISODIC.pi, ratio_discount=0.9, method="least-squares", behavior=EPISODIC.mu
    )
    np.testing.assert_array_equal(by_policy.ratio(np.arange(5)), by_column.ratio(np.arange(5)))
    np.testing.assert_allclose(given.ratio(np.arange(5)), stored.ratio(np.arange(5)))
    never = np.tile([[1.0, 0.0]], (5, 1))
    with pytest.raises(InputError, match="actions were taken with a probability"):
        estimate_ratio(logs, EPISODIC.pi, ratio_discount=0.9, behavior=never)


@pytest.mark.parametrize("features", [None, np.eye(5)], ids=["counts", "logistic"])
def test_an_estimated_mu_is_near_the_true_one_and_warns(features: np.ndarray | None) -> None:
    logs = logged(steps=2000, streams=5)
    with pytest.warns(UserWarning, match="μ is estimated from the data: calibration error 0.0"):
        found, calibration = estimate_behavior(logs, as_features(features, logs))
    truth = EPISODIC.mu[logs.states(), logs.action]
    assert np.abs(np.asarray(found.mu) - truth).max() < 0.05
    assert calibration.error < 0.02
    assert calibration.log_likelihood == pytest.approx(np.log(truth).mean(), abs=0.01)
    assert len(calibration.plot().axes) == 1


def test_an_action_is_no_evidence_for_its_own_probability() -> None:
    # Trajectory k alone takes action 1 in state k; the others never saw that state.
    states = np.arange(4)
    logs = from_arrays(states, [1, 1, 1, 1], [0.0] * 4, states, [True] * 4, num_actions=2)
    with pytest.warns(UserWarning, match="μ is estimated"):
        found, _ = estimate_behavior(logs, Tabular(4), folds=4)
    np.testing.assert_allclose(np.asarray(found.mu), 0.5)
