"""States as pictures, and episodes as films."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from covshift.errors import InputError
from covshift.files import check_folder, whole_file
from covshift.report.plots import COLORS

RATIO = "c(s)"
"""The name of the ratio's track."""

_SIDE, _PANEL, _MARGIN, _FOOT = 252, 340, 12, 20
_INK, _SOFT_INK, _PAPER, _LINE = "#1d2433", "#5b6478", "#ffffff", "#dfe3ea"


def picture(observation: NDArray[Any]) -> NDArray[np.uint8]:
    """An observation as height × width × RGB: frames in gray, each of MinAtar's planes in a color.

    Raises:
        InputError: the observation is neither a frame nor a stack of planes.
    """
    if observation.ndim == 2:
        gray = observation.astype(np.uint8)
        return np.repeat(gray[..., None], 3, axis=-1)
    if observation.ndim != 3:
        raise InputError(
            f"an observation of shape {observation.shape} cannot be shown as a picture"
        )
    planes = observation.shape[-1]
    colors = mpl.colormaps["nipy_spectral"](np.linspace(0.1, 0.95, planes))[:, :3]
    colors = np.concatenate([[[0.06, 0.06, 0.09]], colors])
    newest = (observation.astype(bool) * np.arange(1, planes + 1)).max(axis=-1)
    return np.asarray(np.round(255 * colors[newest]), dtype=np.uint8)


def picture_uri(observation: NDArray[Any], side: int = 168) -> str:
    """The picture as a PNG of `side` pixels in a data URI, which a page can hold."""
    buffer = io.BytesIO()
    _enlarge(observation, side).save(buffer, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def draw_film(
    states: list[NDArray[Any]],
    tracks: dict[str, NDArray[np.float64]],
    scores: NDArray[np.float64],
    path: Path,
) -> None:
    """Writes a GIF that shows each state with its step and score and, beside it, the tracks up to that step.

    A track that is called c(s) has a line at 1: above it π visits the state more often than the data show it.

    Args:
        states: the newest observation of each step.
        tracks: by name, a number for each step.
        scores: the rewards up to each step.
        path: the file to write.

    Raises:
        InputError: the file's name does not end in .gif, or the states cannot be shown as pictures.
    """
    if path.suffix.lower() != ".gif":
        raise InputError(f"the film must end in .gif, but it is {path}")
    frames = [_draw_frame(state, tracks, scores, step) for step, state in enumerate(states)]
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        frames[0].save(partial, "GIF", save_all=True, append_images=frames[1:], duration=66, loop=0)


def _draw_frame(
    state: NDArray[Any],
    tracks: dict[str, NDArray[np.float64]],
    scores: NDArray[np.float64],
    step: int,
) -> Image.Image:
    canvas = Image.new("RGB", (_SIDE + _PANEL, _SIDE + _FOOT), _PAPER)
    canvas.paste(_enlarge(state, _SIDE), (0, 0))
    draw = ImageDraw.Draw(canvas)
    foot = f"step {step + 1} of {len(scores)}   score {scores[step]:g}"
    draw.text((_MARGIN, _SIDE + 4), foot, fill=_INK)
    height = _SIDE // max(1, len(tracks))
    for k, (name, values) in enumerate(tracks.items()):
        left, right = _SIDE + _MARGIN, _SIDE + _PANEL - _MARGIN
        top, bottom = k * height + 26, (k + 1) * height - 10
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if name == RATIO:
            low, high = min(low, 1.0), max(high, 1.0)
        span = (high - low) or 1.0
        draw.text((left, k * height + 8), f"{name} = {values[step]:.3f}", fill=_INK)
        bounds = f"{low:.2f} … {high:.2f}"
        draw.text((right - draw.textlength(bounds), k * height + 8), bounds, fill=_SOFT_INK)
        draw.rectangle((left, top, right, bottom), outline=_LINE)
        if name == RATIO:
            one = bottom - (bottom - top) * (1.0 - low) / span
            draw.line([(left, one), (right, one)], fill=_SOFT_INK, width=1)
            place = (right - draw.textlength("c = 1") - 3, one - 12 if one > top + 14 else one + 1)
            draw.text(place, "c = 1", fill=_SOFT_INK)
        x = left + (right - left) * np.arange(step + 1) / max(1, len(values) - 1)
        y = bottom - (bottom - top) * (values[: step + 1] - low) / span
        points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        if len(points) > 1:
            draw.line(points, fill=COLORS[k], width=2)
        (a, b) = points[-1]
        draw.ellipse((a - 3, b - 3, a + 3, b + 3), fill=COLORS[k])
    return canvas.quantize(64)


def _enlarge(observation: NDArray[Any], side: int) -> Image.Image:
    return Image.fromarray(picture(observation)).resize((side, side), Image.Resampling.NEAREST)
