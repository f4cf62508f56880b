"""Runs that were saved, as policies and ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from covshift.config.training import TrainConfig
from covshift.data.policies import Policy
from covshift.errors import InputError
from covshift.files import CHECKSUMS, sha256
from covshift.networks import AgentNetwork, make_agent_network, value_support
from covshift.records import RunFolder
from covshift.rules import epsilon_greedy_probabilities
from covshift.runs.checkpoints import read_checkpoint
from covshift.runs.evaluation import AgentPolicy


@final
class SavedRun:
    """The agent in the newest whole checkpoint of a run; `load_run` makes it.

    Attributes:
        network: the online network.
        update: number of updates when it was saved.
        sha256: hash of the checkpoint's checksums, which identifies it.
        damaged: newer checkpoints that were passed over, with what is wrong with them.
    """

    def __init__(
        self,
        config: TrainConfig,
        network: AgentNetwork,
        state_shape: tuple[int, ...],
        num_actions: int,
        update: int,
        sha256: str,
        damaged: Sequence[str] = (),
    ) -> None:
        self.config, self.network = config, network
        self.state_shape, self.num_actions = state_shape, num_actions
        self.update, self.sha256, self.damaged = update, sha256, damaged
        self.support = value_support(config.value)

    def policy(self, epsilon: float) -> AgentPolicy:
        """ε-greedy on the run's values, for evaluation."""
        return AgentPolicy(self.network, self.support, epsilon)

    def probabilities(
        self, observations: NDArray[Any], epsilon: float | None = None
    ) -> NDArray[np.float64]:
        """π(a|s), batch × actions; ε is the run's `target_epsilon` unless it is given."""
        used = self.config.ratio.target_epsilon if epsilon is None else epsilon
        q = self.policy(used).predict(self._checked(observations)).q
        return epsilon_greedy_probabilities(q.astype(np.float64), used)

    def ratio(self, observations: NDArray[Any], *, clip: bool = True) -> NDArray[np.float32]:
        """c(s), clipped at 0, or with `clip=False` the head's output as it is.

        Raises:
            InputError: the run has no ratio head.
        """
        if self.network.ratio_head is None:
            raise InputError(f"a run of the preset '{self.config.preset}' learned no ratio")
        if clip:
            return self.policy(0.0).predict(self._checked(observations)).ratio
        with torch.no_grad():
            features = self.network.torso(torch.from_numpy(self._checked(observations)))
            return np.asarray(self.network.ratio(features).numpy())

    def _checked(self, observations: NDArray[Any]) -> NDArray[Any]:
        if observations.shape[1:] != self.state_shape:
            raise InputError(
                f"observations of shape {observations.shape} were given, but a batch of "
                f"{self.state_shape} is needed"
            )
        return observations


@final
class RunPolicy:
    """A saved run as a behavior or target policy: ε-greedy on its values."""

    needs_observations = True

    def __init__(self, run: SavedRun, epsilon: float) -> None:
        self.run, self.epsilon = run, epsilon

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """batch × actions."""
        return self.run.probabilities(observations, self.epsilon)

    def description(self) -> dict[str, str]:
        """The checkpoint's hash and ε, so that a dataset says what it came from."""
        return {"policy": "run", "sha256": self.run.sha256, "epsilon": repr(self.epsilon)}


def load_run(folder: Path | str) -> SavedRun:
    """A run from its folder; nothing in a checkpoint is run as code.

    Raises:
        InputError: there is no run, or no whole checkpoint of it.
    """
    run = RunFolder(Path(folder))
    config = run.config()
    checkpoint = read_checkpoint(run.checkpoints)
    values = checkpoint.state.values
    shape, num_actions = tuple(values["state_shape"]), values["num_actions"]
    tensors = checkpoint.state.tensors_under("network.")
    # First without memory, since the sizes come from the checkpoint.
    with torch.device("meta"):
        wanted = make_agent_network(config, shape, num_actions).state_dict()
    if {name: (v.shape, v.dtype) for name, v in wanted.items()} != {
        name: (v.shape, v.dtype) for name, v in tensors.items()
    }:
        raise InputError(
            f"the tensors in {checkpoint.path} are not those of the network that {run.path} describes"
        )
    network = make_agent_network(config, shape, num_actions)
    network.load_state_dict(tensors)
    network.requires_grad_(False)
    return SavedRun(
        config,
        network,
        shape,
        num_actions,
        values["update"],
        sha256(checkpoint.path / CHECKSUMS),
        checkpoint.damaged,
    )


def load_policy(text: str, num_actions: int) -> Policy:
    """The policy `DIR,epsilon=E` of the grammar's `run:`."""
    folder, separator, rest = text.rpartition(",epsilon=")
    if not separator:
        raise InputError(f"'run:{text}' is no policy of a run; say run:DIR,epsilon=E")
    try:
        epsilon = float(rest)
    except ValueError:
        epsilon = -1.0
    if not 0.0 <= epsilon <= 1.0:
        raise InputError(f"epsilon must lie in [0, 1], but 'run:{text}' says {rest}")
    run = load_run(folder)
    if run.num_actions != num_actions:
        raise InputError(
            f"the run {folder} has {run.num_actions} actions, but the environment has {num_actions}"
        )
    return RunPolicy(run, epsilon)
