"""Logs and estimates as text, in notebooks and as frames, and what their first use imports."""

import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    Logs,
    compare_estimators,
    compare_policies,
    estimate_ratio,
    evaluate_policy,
    from_arrays,
    from_frame,
    simulate_logs,
)
from covshift.theory.examples import random_walk

WALK = random_walk()


def logged() -> Logs:
    return simulate_logs(WALK.mdp, WALK.mu, 100, 20, np.random.default_rng(0))


def labelled() -> Logs:
    frame = logged().to_frame()
    words = np.array(["<start>", "a", "b", "c", "d", "e"], dtype=object)
    moves = np.array(["left", "right"], dtype=object)
    return from_frame(
        frame.assign(
            state=words[frame.state], next_state=words[frame.next_state], action=moves[frame.action]
        )
    )


def vectors() -> Logs:
    logs = logged()
    points = np.random.default_rng(1).normal(size=(6, 3))
    return from_arrays(
        points[logs.states()], logs.action, logs.reward, points[logs.next_states()], logs.terminated,
        trajectory=logs.trajectory, mu=logs.mu, truncated=logs.truncated,
    )  # fmt: skip


def images() -> Logs:
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    return from_arrays(x[:3], [0, 1, 0], [1.0, 2.0, 3.0], x[1:], [False] * 3)


@pytest.mark.parametrize("make", [logged, labelled, vectors, images])
def test_logs_become_a_frame_and_logs_again(make: Any) -> None:
    logs = make()
    frame = logs.to_frame()
    state = [name for name in frame.columns if name.startswith("state")]
    again = from_frame(frame, state=state if len(state) > 1 else "state", num_actions=None)
    np.testing.assert_array_equal(again.states(), logs.states())
    for name in ("action", "reward", "terminated", "truncated", "is_initial", "trajectory"):
        np.testing.assert_array_equal(getattr(again, name), getattr(logs, name))
    if logs.mu is not None:
        np.testing.assert_array_equal(again.mu, logs.mu)


def test_a_ratio_as_a_frame_has_a_row_per_state() -> None:
    found = estimate_ratio(labelled(), "uniform")
    frame = found.to_frame()
    np.testing.assert_array_equal(frame.ratio, found.ratio(list(frame.state)))
    assert list(found.to_frame(["c", "a"]).state) == ["c", "a"]
    on_vectors = estimate_ratio(logs := vectors(), "uniform", ratio_discount=0.9)
    with pytest.raises(InputError, match="the states are vectors: give those to show"):
        on_vectors.to_frame()
    some = on_vectors.to_frame(logs.states()[:4])
    assert list(some.columns) == ["state_0", "state_1", "state_2", "ratio"]
    np.testing.assert_array_equal(some.ratio, on_vectors.ratio(logs.states()[:4]))


@pytest.mark.filterwarnings("ignore:.*are cut off:UserWarning")
def test_values_as_frames_and_in_notebooks() -> None:
    logs = logged()
    ask: dict[str, Any] = {"discount": 1.0, "replicates": 20}
    one = evaluate_policy(logs, WALK.pi, **ask)
    several = compare_estimators(logs, WALK.pi, estimators=["dr", "wis"], **ask)
    difference = compare_policies(logs, WALK.pi, **ask)
    assert one.to_frame().value.tolist() == [one.value]
    frame = several.to_frame()
    assert list(frame.estimator) == ["dr", "wis"]
    np.testing.assert_array_equal(frame.value, [several["dr"].value, several["wis"].value])
    rows = difference.to_frame().set_index("policy").value
    assert rows["difference"] == pytest.approx(rows["new"] - rows["old"])
    ratio = estimate_ratio(labelled(), "uniform")
    for brief in (difference, logs, labelled(), ratio):
        assert len(repr(brief).splitlines()) <= 5
        assert len(repr(brief)) < 1000
    shown: tuple[tuple[Any, int], ...] = (
        *((one, 1), (several, 2), (difference, 3), (logs, 1), (ratio, 1)),
    )
    for what, rows_of in shown:
        page = ElementTree.fromstring(what._repr_html_())
        assert len(page.findall("tr")) == 1 + rows_of


def test_words_of_the_data_cannot_become_markup() -> None:
    from covshift.estimation.display import as_html

    page = as_html("<b>", [{"<i>": "<script>"}])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_first_answer_waits_for_neither_torch_nor_matplotlib_nor_pandas() -> None:
    code = (
        "import sys, numpy as np\n"
        "from covshift.estimation import compare_policies, estimate_ratio, simulate_logs\n"
        "from covshift.theory.examples import random_walk\n"
        "walk = random_walk()\n"
        "logs = simulate_logs(walk.mdp, walk.mu, 100, 20, np.random.default_rng(0))\n"
        "repr(estimate_ratio(logs, walk.pi)), repr(compare_policies(logs, walk.pi, replicates=5))\n"
        "print([name for name in ('torch', 'matplotlib', 'pandas', 'ray') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
