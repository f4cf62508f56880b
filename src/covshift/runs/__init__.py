"""Training runs: the loop, evaluation, checkpoints, and runs that were saved."""

from covshift.extras import require

require("torch")

from covshift.runs.evaluation import AgentPolicy, EpisodeResult, roll_out
from covshift.runs.saved import SavedRun, load_run
from covshift.runs.training import Trainer

__all__ = ["AgentPolicy", "EpisodeResult", "SavedRun", "Trainer", "load_run", "roll_out"]
