"""States as pictures."""

from __future__ import annotations

import base64
import io
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covshift.errors import InputError


def picture(observation: NDArray[Any]) -> NDArray[np.uint8]:
    """An observation as height × width × RGB: frames in gray, MinAtar's planes in a color each.

    Raises:
        InputError: it has fewer than two axes.
    """
    if observation.ndim == 2:
        gray = observation.astype(np.uint8)
        return np.repeat(gray[..., None], 3, axis=-1)
    if observation.ndim != 3:
        raise InputError(f"an observation of shape {observation.shape} is no picture")
    planes = observation.shape[-1]
    colors = mpl.colormaps["nipy_spectral"](np.linspace(0.1, 0.95, planes))[:, :3]
    colors = np.concatenate([[[0.06, 0.06, 0.09]], colors])
    newest = (observation.astype(bool) * np.arange(1, planes + 1)).max(axis=-1)
    return np.asarray(np.round(255 * colors[newest]), dtype=np.uint8)


def picture_uri(observation: NDArray[Any], side: int = 168) -> str:
    """The picture as a PNG of `side` pixels that a page can hold."""
    image = Image.fromarray(picture(observation)).resize((side, side), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
