"""How much Adam's ε slows each layer of a trained agent down.

    python benchmarks/adam_epsilon.py RUN [RUN …]

A step of Adam is m/(√v + ε), where m and v are running means of the gradient and its square. Where √v is far above ε the
size of the loss does not matter; where it is far below, the layer learns slowly. The table gives, for each parameter of
each run's last checkpoint, the median of √v/ε and the mean of √v/(√v + ε), the share of the step that ε leaves.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from covshift.records import RunFolder
from covshift.runs import load_run
from covshift.runs.checkpoints import read_checkpoint


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="run folders with checkpoints")
    table = Table("run", "η", "parameter", "median √v/ε", "share of the step")
    for path in parser.parse_args().runs:
        agent, state = load_run(path), read_checkpoint(RunFolder(path).checkpoints).state
        epsilon = agent.config.optimization.adam_epsilon
        for k, (name, _) in enumerate(agent.network.named_parameters()):
            root = state.tensors[f"optimizer.{k}.exp_avg_sq"].sqrt()
            table.add_row(
                path.name,
                f"{agent.config.ratio.ratio_loss_weight:g}",
                name,
                f"{float(root.median()) / epsilon:.2f}",
                f"{float((root / (root + epsilon)).mean()):.2f}",
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
