"""A summary of a dataset that a person likes to read, and a contact sheet of its frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covshift.data.format import read_manifest
from covshift.data.store import Store


def summarize(folder: Path) -> dict[str, str]:
    """What a dataset holds, as pairs of a word and a text."""
    manifest, store = read_manifest(folder), Store.open(folder)
    column, totals, observation = store.columns, manifest["totals"], manifest["observation"]
    size = sum(path.stat().st_size for path in folder.iterdir())
    ends = np.flatnonzero(column["action"] < 0)
    starts = np.flatnonzero(column["is_initial"])
    lengths = ends - starts
    sums = np.concatenate([[0.0], np.cumsum(column["reward"], dtype=np.float64)])
    returns = sums[ends + 1] - sums[starts]
    action = column["action"][column["action"] >= 0]
    shares = np.bincount(action, minlength=store.num_actions) / len(action)
    mu = column["mu"][~np.isnan(column["mu"])]
    request = manifest["request"]
    facts = {
        "environment": str(request.get("env", request.get("source"))),
        "transitions": f"{totals['transitions']:,} in {totals['episodes']:,} episodes",
        "policies": ", ".join(
            f"{k}: {policy['policy']} ({np.mean(column['policy'] == k):.0%})"
            for k, policy in enumerate(request["policies"])
        ),
        "seed": str(request.get("seed", "none")),
        "observation": f"{observation['dtype']} {tuple(observation['shape'])}, {observation['encoding']}"
        + (f", {observation['stack']} stacked on reading" if observation["stack"] > 1 else ""),
        "size": f"{size / 2**20:.1f} MiB in {len(manifest['shards'])} shards, "
        f"{size / totals['rows']:.0f} bytes a row",
        "episode length": _spread(lengths),
        "return": _spread(returns),
        "ended by": f"{column['terminated'].sum():,} terminations, "
        f"{column['truncated'].sum():,} truncations, {column['life_lost'].sum():,} lives lost on the way",
        "actions": " ".join(f"{k}: {share:.1%}" for k, share in enumerate(shares)),
        "μ(a|s)": f"{mu.min():.3g} to {mu.max():.3g}",
    }
    return facts


def contact_sheet(folder: Path, path: Path, count: int = 24) -> Path:
    """A PNG with frames spread evenly over the dataset; observations need two or three axes."""
    store = Store.open(folder)
    rows = np.flatnonzero(store.is_state)
    chosen = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    frames = store.states(chosen)
    figure = Figure(figsize=(9, 1.65 * -(-count // 6)), layout="constrained")
    for panel, row, frame in zip(
        figure.subplots(-(-count // 6), 6).flat, chosen, frames, strict=False
    ):
        image = _as_image(frame, store.stack)
        top = 255 if image.dtype == np.uint8 else None
        panel.imshow(image, cmap="gray", interpolation="nearest", vmin=0, vmax=top)
        panel.set_title(f"row {row}", fontsize=7)
        panel.set_axis_off()
    with mpl.rc_context({"savefig.dpi": 130}):
        figure.savefig(path)
    return path


def has_frames(folder: Path) -> bool:
    """Whether observations can be drawn as pictures."""
    return len(read_manifest(folder)["observation"]["shape"]) >= 2


def _as_image(frame: NDArray[Any], stack: int) -> NDArray[Any]:
    if stack > 1:
        return np.asarray(frame[-1])
    if frame.ndim == 2:
        return frame
    # Channels of a MinAtar state: a shade for each, the last one set in front.
    shades = np.arange(1, frame.shape[-1] + 1)
    return np.asarray((frame * shades).max(axis=-1))


def _spread(values: NDArray[Any]) -> str:
    low, middle, high = np.percentile(values, [0, 50, 100])
    return f"mean {values.mean():.1f}, median {middle:.0f}, from {low:.0f} to {high:.0f}"
