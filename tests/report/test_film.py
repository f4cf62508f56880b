from pathlib import Path

import numpy as np
from PIL import Image

from covshift.report.pictures import draw_film


def dark_pixels(path: Path, step: int, box: tuple[int, int, int, int]) -> int:
    """Pixels of a frame's part that are neither paper nor the faint frame of a track."""
    with Image.open(path) as film:
        film.seek(step)
        return int((np.asarray(film.convert("L").crop(box)) < 190).sum())


def test_a_film_shows_step_and_score_and_where_the_ratio_is_one(tmp_path: Path) -> None:
    states = [np.full((10, 10, 4), k % 2 == 0) for k in range(4)]
    tracks = {"value": np.full(4, 1.5), "c(s)": np.array([0.5, 0.6, 0.5, 1.5])}
    draw_film(states, tracks, np.array([0.0, 0.0, 1.0, 1.0]), tmp_path / "film.gif")
    # The line c = 1 runs through the middle of the lower track, whose values are 0.5 to 1.5, before any point is there.
    middle = (126 + 26 + 252 - 10) // 2
    assert dark_pixels(tmp_path / "film.gif", 0, (400, middle - 2, 560, middle + 3)) >= 150
    upper = (26 + 126 - 10) // 2
    assert dark_pixels(tmp_path / "film.gif", 0, (400, upper - 2, 560, upper + 3)) == 0
    with Image.open(tmp_path / "film.gif") as film:
        feet = []
        for step in range(4):
            film.seek(step)
            feet.append(np.asarray(film.convert("L").crop((0, 253, 252, 272))))
    assert all((feet[k] != feet[k + 1]).any() for k in range(3))
