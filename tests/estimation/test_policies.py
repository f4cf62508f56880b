"""Policies in every form give the same answer as the table that they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from covshift.errors import InputError
from covshift.estimation import Logs, as_logs, estimate_ratio, from_arrays, simulate_logs
from covshift.estimation.policies import as_policy
from covshift.theory.examples import episodic

PROBLEM = episodic(np.random.default_rng(3), 5, 2, single_start=False)
PI = PROBLEM.pi
WORDS = ["a", "b", "c", "d", "e"]
GREEDY = PI.argmax(axis=1)


def numbered() -> Logs:
    return simulate_logs(PROBLEM.mdp, PROBLEM.mu, 60, 3, np.random.default_rng(0))


def labelled() -> Logs:
    """The same with the words a … e for the states and left, right for the actions."""
    logs, words, moves = numbered(), np.array(WORDS), np.array(["left", "right"])
    return from_arrays(
        words[logs.states()], moves[logs.action], logs.reward, words[logs.next_states()],
        logs.terminated, trajectory=logs.trajectory, mu=logs.mu,
    )  # fmt: skip


def vectors() -> Logs:
    """The same with the points (k, -k) for the states."""
    logs = numbered()
    points = np.stack([np.arange(5.0), -np.arange(5.0)], axis=1)
    return from_arrays(
        points[logs.states()], logs.action, logs.reward, points[logs.next_states()],
        logs.terminated, trajectory=logs.trajectory, mu=logs.mu,
    )  # fmt: skip


def by_word(row: Any) -> dict[str, float]:
    return {"left": float(row[0]), "right": float(row[1])}


WIDE = pd.DataFrame(PI, columns=["left", "right"]).assign(state=WORDS)
LONG = pd.DataFrame(
    [(w, a, p) for w, row in zip(WORDS, PI, strict=True) for a, p in by_word(row).items()],
    columns=["state", "action", "probability"],
)


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (numbered, PI),
        (numbered, lambda states: PI[states]),
        (numbered, lambda state: [PI[state, 0], PI[state, 1]]),
        (numbered, lambda state: {0: PI[state, 0], 1: PI[state, 1]}),
        (numbered, lambda state: PI[int(state)].tolist()),
        (numbered, dict(enumerate(PI))),
        (numbered, {k: {0: row[0], 1: row[1]} for k, row in enumerate(PI)}),
        (numbered, pd.DataFrame(PI)),
        (numbered, pd.DataFrame(PI[::-1], index=range(4, -1, -1))),
        (numbered, pa.Table.from_pandas(WIDE.assign(state=range(5)).rename(columns={"left": "0", "right": "1"}))),
        (numbered, LONG.assign(state=LONG.state.map(WORDS.index), action=(LONG.action == "right").astype(int))),
        (labelled, dict(zip(WORDS, PI, strict=True))),
        (labelled, dict(zip(WORDS, map(by_word, PI), strict=True))),
        (labelled, lambda word: by_word(PI[WORDS.index(word)])),
        (labelled, lambda words: PI[[WORDS.index(word) for word in words]]),
        (labelled, WIDE),
        (labelled, WIDE.set_index("state")),
        (labelled, LONG),
        (labelled, LONG.sample(frac=1, random_state=0).to_dict("records")),
        (vectors, lambda points: PI[points[:, 0].astype(int)]),
        (vectors, lambda point: PI[int(point[0])]),
        (vectors, {(float(k), float(-k)): row for k, row in enumerate(PI)}),
        (vectors, pd.DataFrame({"x": np.arange(5.0), "y": -np.arange(5.0), "0": PI[:, 0], "1": PI[:, 1]})),
    ],
)  # fmt: skip
def test_every_form_gives_the_probabilities_of_the_table(
    make: Callable[[], Logs], policy: Any
) -> None:
    logs = make()
    found = as_policy(policy, 2, logs).probabilities(logs.states())
    np.testing.assert_allclose(found, PI[numbered().states()], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (numbered, dict(enumerate(GREEDY))),
        (numbered, lambda states: GREEDY[states]),
        (numbered, lambda state: int(GREEDY[int(state)])),
        (labelled, {word: ["left", "right"][a] for word, a in zip(WORDS, GREEDY, strict=True)}),
        (labelled, lambda word: ["left", "right"][GREEDY[WORDS.index(word)]]),
    ],
)
def test_an_action_is_a_policy_that_always_takes_it(make: Callable[[], Logs], policy: Any) -> None:
    logs = make()
    found = as_policy(policy, 2, logs).probabilities(logs.states())
    np.testing.assert_array_equal(found, np.eye(2)[GREEDY][numbered().states()])


class Predictor:
    """The predict of d3rlpy: a batch of observations to a batch of actions."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        assert x.ndim == 2
        return np.asarray(GREEDY[x[:, 0].astype(int)])


class Recurrent:
    """The predict of Stable-Baselines3, which is greedy only if asked."""

    def predict(self, observation: np.ndarray, deterministic: bool = False) -> tuple[Any, None]:
        assert deterministic
        return GREEDY[observation[:, 0].astype(int)], None


@pytest.mark.parametrize("model", [Predictor(), Recurrent(), Predictor().predict])
def test_predict_is_a_deterministic_policy(model: Any) -> None:
    logs = vectors()
    found = as_policy(model, 2, logs).probabilities(logs.states())
    np.testing.assert_array_equal(found, np.eye(2)[GREEDY][numbered().states()])


def test_classifiers_give_their_probabilities_and_their_predictions_on_request() -> None:
    logs = vectors()
    x, y = logs.states(), logs.action
    model = LogisticRegression().fit(x, y)
    found = as_policy(model, 2, logs).probabilities(x)
    np.testing.assert_allclose(found, model.predict_proba(x))
    greedy = as_policy(model.predict, 2, logs).probabilities(x)
    np.testing.assert_array_equal(greedy, np.eye(2)[model.predict(x)])
    # An action that the classifier never saw has probability 0, whatever the order of its classes.
    only = DecisionTreeClassifier().fit(x, np.ones(len(x), dtype=int))
    np.testing.assert_array_equal(as_policy(only, 2, logs).probabilities(x)[:, 1], 1.0)


def test_models_of_stable_baselines3() -> None:
    """DQN is greedy by its Q-values; PPO acts by the probabilities of its distribution."""
    torch = pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")
    states = np.random.default_rng(0).uniform(-0.05, 0.05, (50, 4)).astype(np.float32)
    logs = from_arrays(
        states[:-1], np.arange(49) % 2, np.ones(49), states[1:], np.zeros(49), mu=np.full(49, 0.5)
    )
    dqn = sb3.DQN("MlpPolicy", "CartPole-v1", seed=0)
    q = dqn.q_net(torch.as_tensor(states)).detach().numpy()
    found = as_policy(dqn, 2, logs).probabilities(states)
    np.testing.assert_array_equal(found, np.eye(2)[q.argmax(axis=1)])
    ppo = sb3.PPO("MlpPolicy", "CartPole-v1", seed=0)
    logits = ppo.policy.action_net(ppo.policy.mlp_extractor(torch.as_tensor(states))[0])
    expected = torch.softmax(logits, 1).detach().numpy()
    assert expected.min() > 0.01
    np.testing.assert_allclose(as_policy(ppo, 2, logs).probabilities(states), expected, rtol=1e-5)


def test_a_function_of_one_state_is_not_mistaken_for_one_of_a_batch() -> None:
    """With 2 entries and 2 actions, the first two states look like the probabilities of a function of one state."""
    x = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    logs = from_arrays(x[:-1], [0, 1, 1], [0.0] * 3, x[1:], [False] * 3, mu=[0.5] * 3)
    found = as_policy(lambda s: [s[0], s[1]], 2, logs).probabilities(logs.states())
    np.testing.assert_allclose(found, x[:-1])


@pytest.mark.parametrize("name", ["pi.csv", "pi.parquet"])
def test_policy_files_and_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = WIDE.to_csv if name.endswith("csv") else WIDE.to_parquet
    save(tmp_path / name, index=False)
    logs, plain = labelled(), estimate_ratio(numbered(), PI, ratio_discount=0.9)
    found = estimate_ratio(logs, f"file:{tmp_path / name}", ratio_discount=0.9)
    np.testing.assert_allclose(found.ratio(WORDS), plain.ratio(np.arange(5)), rtol=1e-12)
    module = f"policies_{name.replace('.', '_')}"
    (tmp_path / f"{module}.py").write_text('chosen = {k: "left" for k in "abcde"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    left = as_policy(f"{module}:chosen", 2, logs).probabilities(logs.states())
    np.testing.assert_array_equal(left[:, 0], 1.0)


def test_numbers_in_a_policy_file_name_the_words_of_the_data(tmp_path: Path) -> None:
    """Python may have states as words such as "7", which a text file shows as the number 7."""
    logs = as_logs(
        {
            "state": ["7", "8"], "action": [0, 0], "reward": [0, 0], "next_state": ["8", "7"],
            "terminated": [False, False],
        }
    )  # fmt: skip
    pd.DataFrame({"state": [8, 7], "0": [1.0] * 2}).to_csv(tmp_path / "pi.csv", index=False)
    assert as_policy(f"file:{tmp_path / 'pi.csv'}", 1, logs).probabilities(logs.states()).all()


BAD: dict[str, tuple[Callable[[], Logs], Any, str]] = {
    "missing state": (numbered, {0: 0, 1: 1}, "the policy says nothing about 3 states of the data: .*it has 0, 1"),
    "missing word": (labelled, {"a": "left"}, "says nothing about 4 states of the data: 'b', 'c', 'd', 'e'; it has 'a'"),
    "unknown action": (numbered, dict.fromkeys(range(5), 7), "names the action 7, but the data have the actions 0 … 1; .*num_actions"),
    "unknown word": (labelled, dict.fromkeys(WORDS, "up"), "the action 'up' does not occur in the data, which have 'left', 'right'"),
    "more actions": (numbered, np.full((5, 3), 1 / 3), r"shape \(5, 3\), but \(states, 2\) is needed; .*--num-actions"),
    "sums": (numbered, {k: [0.7, 0.7] for k in range(5)}, "5 of 5 rows of the policy are not probability vectors"),
    "empty": (numbered, {}, "the policy is an empty mapping"),
    "raises": (numbered, lambda s: 1 / 0, "is no policy. For one state: ZeroDivisionError: .*for a batch of states: Zero"),
    "nothing": (numbered, lambda s: None, "is no policy. For one state"),
    "text": (numbered, lambda s: "left", "names the action 'left', but the data have the actions 0 … 1"),
    "sums of a function": (numbered, lambda s: [0.7, 0.7], "is not a probability vector"),
    "an object": (numbered, object(), "a object is not a policy: give a function of states, a table"),
    "a number": (numbered, 3, r"the policy's table has shape \(\)"),
    "None": (numbered, None, "policy"),
    "twice": (labelled, pd.concat([WIDE, WIDE]), "the frame of the policy has several rows for one state"),
    "no action column": (labelled, WIDE.drop(columns="left"), "lacks the actions left; it has right, state"),
    "no such file": (labelled, "file:nothing.csv", "there is no file nothing.csv"),
    "no such module": (labelled, "nothing_here:pi", "the policy 'nothing_here:pi' cannot be imported"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_what_is_no_policy_is_refused_with_the_fix(case: str) -> None:
    make, policy, message = BAD[case]
    with pytest.raises(InputError, match=message):
        estimate_ratio(make(), policy, ratio_discount=0.9)
