"""Training runs: the loop, evaluation, checkpoints, and runs that were saved."""

from covshift.runs.evaluation import AgentPolicy, Episode, roll_out
from covshift.runs.saved import SavedRun, load_run
from covshift.runs.training import Trainer

__all__ = ["AgentPolicy", "Episode", "SavedRun", "Trainer", "load_run", "roll_out"]
