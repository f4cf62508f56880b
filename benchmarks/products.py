"""Matrix products of an agent's update by oneDNN and by torch's own library, MKL.

    python benchmarks/products.py [--rounds 15]

The shapes are those of a MinAtar agent and of the Nature network: a layer forwards, the gradient of its input, and the
gradient of its weights. Both sides take turns on one thread, and medians are given; the last line is the ratio of their
sums. Where it is not well above 1, MKL uses the processor's full vectors already.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from covshift.learners.deep.products import OneDnnProducts
from covshift.learners.deep.recorded import simplified

LAYERS = {"MinAtar, 32 rows": (32, 1024, 128), "MinAtar, 96 rows": (96, 1024, 128)}
LAYERS |= {"Nature, 32 rows": (32, 3136, 512), "Nature, 64 rows": (64, 3136, 512)}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sums = {"MKL": 0.0, "oneDNN": 0.0}
    print(f"{'layer':18} {'product':9} {'MKL, GFLOP/s':>13} {'oneDNN, GFLOP/s':>16} {'ratio':>6}")
    for layer, (rows, inputs, outputs) in LAYERS.items():
        x, weight, error = (
            torch.randn(rows, inputs),
            torch.randn(outputs, inputs),
            torch.randn(rows, outputs),
        )
        pairs = {
            "forwards": (x, weight.t()),
            "input": (error, weight),
            "weights": (error.t(), x),
        }
        for product, (left, right) in pairs.items():
            seconds = measure(left, right, given.rounds)
            rates = {side: 2e-9 * rows * inputs * outputs / s for side, s in seconds.items()}
            ratio = seconds["MKL"] / seconds["oneDNN"]
            print(
                f"{layer:18} {product:9} {rates['MKL']:13.0f} {rates['oneDNN']:16.0f} {ratio:6.2f}"
            )
            for side, s in seconds.items():
                sums[side] += s
    print(f"time of MKL over time of oneDNN: {sums['MKL'] / sums['oneDNN']:.2f}")


def measure(left: Tensor, right: Tensor, rounds: int) -> dict[str, float]:
    """Seconds of one product by each library, as an update calls it once it is recorded."""

    def multiply(left: Tensor, right: Tensor) -> Tensor:
        with OneDnnProducts():
            return left @ right

    recorded = simplified(make_fx(multiply)(left, right))
    sides: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"MKL": torch.mm, "oneDNN": recorded}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, product in sides.items():
            product(left, right)
            start = time.process_time()
            for _ in range(20):
                product(left, right)
            times[side].append((time.process_time() - start) / 20)
    return {side: statistics.median(values) for side, values in times.items()}


if __name__ == "__main__":
    main()
