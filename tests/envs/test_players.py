"""The player of Breakout against the game itself."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from covshift.config.environment import EnvOptions
from covshift.envs import players
from covshift.envs.streams import make_streams

ENV = "MinAtar/Breakout-v1"


def mean_score(episodes: int) -> float:
    """Of episodes that the player plays to their ends."""
    rng = np.random.default_rng(0)
    scores: list[float] = []
    running = np.zeros(16)
    with closing(make_streams(ENV, EnvOptions(), 16)) as streams:
        seen: Any = streams.reset(np.arange(16))
        while len(scores) < episodes:
            chances = players.breakout(seen)
            action = np.array([rng.choice(3, p=row) for row in chances])
            streams.send(action)
            outcome = streams.receive()
            running += outcome.reward
            scores += running[outcome.ended].tolist()
            running[outcome.ended] = 0.0
            seen = outcome.current
    return float(np.mean(scores))


def test_probabilities_leave_every_action_a_chance() -> None:
    with closing(make_streams(ENV, EnvOptions(), 4)) as streams:
        rows = players.breakout(streams.reset(np.arange(4)))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert rows.min() == pytest.approx(players.EPSILON / 3)
    assert rows.max() == pytest.approx(1.0 - 2 * players.EPSILON / 3)


def board(paddle: int, ball: tuple[int, int], trail: tuple[int, int]) -> np.ndarray:
    planes = np.zeros((1, 10, 10, 4), dtype=bool)
    planes[0, 9, paddle, 0] = planes[0, *ball, 1] = planes[0, *trail, 2] = True
    return planes


@pytest.mark.parametrize(
    ("paddle", "ball", "trail", "goal"),
    [
        (4, (5, 2), (4, 1), 5),  # Down and right: row 8 is three steps away.
        (4, (5, 2), (4, 3), 0),  # Down and left, back from the wall: 1, 0, 0.
        (4, (5, 8), (4, 7), 8),  # Down and right, back from the wall: 9, 9, 8.
        (4, (5, 7), (6, 6), 7),  # Up: the paddle follows.
        (4, (3, 0), (3, 0), 5),  # The start, at the left wall.
        (4, (3, 9), (3, 9), 4),  # The start, at the right wall.
        (4, (8, 6), (8, 5), 6),  # Just reflected by the paddle.
        (4, (4, 6), (4, 5), 9),  # Just reflected by a brick: 7, 8, 9, 9.
    ],
)
def test_the_paddle_goes_where_the_ball_comes_down(
    paddle: int, ball: tuple[int, int], trail: tuple[int, int], goal: int
) -> None:
    best = int(players.breakout(board(paddle, ball, trail)).argmax())
    assert best == (0 if goal == paddle else 1 if goal < paddle else 2)


def test_the_player_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = mean_score(60)
    assert 5 < usual < 12
    monkeypatch.setattr(players, "EPSILON", 1.0)
    assert mean_score(60) < 1  # Random play.
