"""An episode as a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from covshift.errors import InputError
from covshift.report.pictures import picture
from covshift.report.plots import COLORS

_SIDE, _PANEL, _MARGIN = 252, 340, 12
_INK, _PAPER, _LINE = "#1d2433", "#ffffff", "#dfe3ea"


def draw_film(
    states: list[NDArray[Any]], tracks: dict[str, NDArray[np.float64]], path: Path
) -> None:
    """A GIF: each state, and beside it how the tracks ran up to there.

    Args:
        states: newest observation of each step.
        tracks: numbers along the episode, by name.
        path: the file.

    Raises:
        InputError: the file's name does not end in .gif, or the states are no pictures.
    """
    if path.suffix.lower() != ".gif":
        raise InputError(f"the film must end in .gif, but it is {path}")
    frames = [_draw_frame(states, tracks, step) for step in range(len(states))]
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=66, loop=0)


def _draw_frame(
    states: list[NDArray[Any]], tracks: dict[str, NDArray[np.float64]], step: int
) -> Image.Image:
    canvas = Image.new("RGB", (_SIDE + _PANEL, _SIDE), _PAPER)
    state = Image.fromarray(picture(states[step]))
    canvas.paste(state.resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (0, 0))
    draw = ImageDraw.Draw(canvas)
    height = _SIDE // max(1, len(tracks))
    for k, (name, values) in enumerate(tracks.items()):
        left, right = _SIDE + _MARGIN, _SIDE + _PANEL - _MARGIN
        top, bottom = k * height + 26, (k + 1) * height - 10
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        span = (high - low) or 1.0
        draw.text((left, k * height + 8), f"{name} = {values[step]:.3f}", fill=_INK)
        bounds = f"{low:.2f} … {high:.2f}"
        draw.text((right - draw.textlength(bounds), k * height + 8), bounds, fill="#5b6478")
        draw.rectangle((left, top, right, bottom), outline=_LINE)
        x = left + (right - left) * np.arange(step + 1) / max(1, len(values) - 1)
        y = bottom - (bottom - top) * (values[: step + 1] - low) / span
        points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        if len(points) > 1:
            draw.line(points, fill=COLORS[k], width=2)
        draw.ellipse(
            [points[-1][0] - 3, points[-1][1] - 3, points[-1][0] + 3, points[-1][1] + 3],
            fill=COLORS[k],
        )
    return canvas.quantize(64)
