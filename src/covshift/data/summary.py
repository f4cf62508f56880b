"""A readable summary of a dataset, and a contact sheet of its frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covshift.data.dataset import Dataset
from covshift.errors import InputError
from covshift.files import whole_file


def summarize(dataset: Dataset) -> dict[str, str]:
    """What a dataset holds, as pairs of a word and a text."""
    column, manifest = dataset.store.columns, dataset.manifest
    facts, shards = dataset.describe(), manifest["shards"]
    ends = np.flatnonzero(column["action"] < 0)
    starts = np.flatnonzero(column["is_initial"])
    sums = np.concatenate([[0.0], np.cumsum(column["reward"], dtype=np.float64)])
    action = column["action"][column["action"] >= 0]
    shares = np.bincount(action, minlength=dataset.store.num_actions) / len(action)
    mu = column["mu"][~np.isnan(column["mu"])]
    return facts | {
        "actions": " ".join(f"{k}: {share:.1%}" for k, share in enumerate(shares)),
        "policies": ", ".join(
            f"{k}: {policy['policy']} ({np.mean(column['policy'] == k):.0%})"
            for k, policy in enumerate(manifest["request"]["policies"])
        ),
        "size on disk": f"{facts['size on disk']} in {_count(len(shards), 'shard')}, "
        f"{dataset.num_bytes / manifest['totals']['rows']:.0f} bytes per row",
        "seed": str(manifest["request"].get("seed", "none")),
        "episode length": _spread(ends - starts),
        "return": _spread(sums[ends + 1] - sums[starts]),
        "ends": f"{_count(column['terminated'].sum(), 'termination')}, "
        f"{_count(column['truncated'].sum(), 'truncation')}; lives lost on the way: {column['life_lost'].sum():,}",
        "μ(a|s)": f"{mu.min():.3g} to {mu.max():.3g}",
    }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def has_frames(dataset: Dataset) -> bool:
    """Whether the observations can be drawn as pictures."""
    return len(dataset.store.codec.shape) >= 2


def contact_sheet(dataset: Dataset, path: Path, count: int = 24) -> Path:
    """Draws frames spread evenly over the dataset as a PNG; observations need two or three axes."""
    store = dataset.store
    rows = np.flatnonzero(store.is_state)
    chosen = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    figure = Figure(figsize=(9, 1.65 * -(-count // 6)), layout="constrained")
    kind = path.suffix.lower().removeprefix(".")
    if kind not in figure.canvas.get_supported_filetypes():
        raise InputError(
            f"the contact sheet must be a picture such as {path.stem}.png, but it is {path}"
        )
    panels = figure.subplots(-(-count // 6), 6).flat
    for panel, row, frame in zip(panels, chosen, store.observations(chosen), strict=False):
        image = _as_image(frame)
        top = 255 if image.dtype == np.uint8 else None
        panel.imshow(image, cmap="gray", interpolation="nearest", vmin=0, vmax=top)
        panel.set_title(f"row {row}", fontsize=7)
        panel.set_axis_off()
    with mpl.rc_context({"savefig.dpi": 130}), whole_file(path) as partial:
        figure.savefig(partial, format=kind)
    return path


def _as_image(frame: NDArray[Any]) -> NDArray[Any]:
    if frame.ndim == 2:
        return frame
    # A shade for each channel of a MinAtar state; of several channels, the last one is shown.
    shades = np.arange(1, frame.shape[-1] + 1)
    return np.asarray((frame * shades).max(axis=-1))


def _spread(values: NDArray[Any]) -> str:
    low, middle, high = np.percentile(values, [0, 50, 100])
    return f"mean {values.mean():.1f}, median {middle:.0f}, from {low:.0f} to {high:.0f}"
