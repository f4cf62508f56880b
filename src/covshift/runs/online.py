"""Experience of the agent itself: it acts, and its own past fills the replay.

A shard is a pure function of the request, its number, and the parameters and ε that it was collected with. It is started
when the learner first needs the shard before it, with the parameters of that moment, so that it is collected while the
learner uses that one. A checkpoint holds these parameters. So a run that is killed and resumed collects the same rows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.config.training import UPDATE_STEPS, TrainConfig
from covshift.data.collection import Collector, Request
from covshift.data.format import shard_name
from covshift.data.growing_array import GrowingArray
from covshift.data.store import Store
from covshift.data.workers import Worker, ignore_progress
from covshift.errors import InputError
from covshift.files import DIGEST, is_whole
from covshift.learners.deep import LearnerState
from covshift.networks import AgentNetwork, make_agent_network, value_support
from covshift.rules import decayed_epsilon, epsilon_greedy_probabilities, expected_value
from covshift.runs.seeds import named_generator

_ENVS = 4
"""Streams of a shard; more would collect longer with the same parameters, since each ends with an episode."""

_SNAPSHOT = "acting."
"""How the names of the tensors begin, in a checkpoint, with which the newest shard is collected."""


@final
class ActingPolicy:
    """ε-greedy on a snapshot of the network; with ε = 1 no network is needed.

    Args:
        config: the run's configuration.
        num_actions: number of actions of the environment.
        network: the snapshot; None if ε is 1.
        epsilon: ε.
    """

    needs_observations = True

    def __init__(
        self,
        config: TrainConfig,
        num_actions: int,
        network: AgentNetwork | None = None,
        epsilon: float = 1.0,
    ) -> None:
        self._config, self._num_actions = config, num_actions
        self._network, self._epsilon = network, epsilon
        self._support = value_support(config.value)

    @torch.no_grad()
    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """μ(a|s) of each step, batch × actions."""
        if self._epsilon >= 1.0 or self._network is None:
            return np.full((len(observations), self._num_actions), 1.0 / self._num_actions)
        features = self._network.torso(torch.from_numpy(np.ascontiguousarray(observations)))
        p = torch.softmax(cast(Tensor, self._network.value_head(features)), dim=-1)
        q = expected_value(p, self._support).numpy().astype(np.float64)
        return epsilon_greedy_probabilities(q, self._epsilon)

    def description(self) -> dict[str, str]:
        """The schedule; parameters and ε differ from shard to shard."""
        data = self._config.data
        return {
            "policy": "online",
            "preset": self._config.preset,
            "epsilon": repr(data.acting_epsilon),
            "decay": str(data.epsilon_decay),
        }


class _Acting(NamedTuple):
    """What a shard is collected with: parameters by name, and ε."""

    parameters: dict[str, NDArray[Any]]
    epsilon: float


@final
class OnlineData:
    """A window that moves by 4 transitions per update over what the agent itself did.

    Args:
        folder: where shards are written.
        config: the run's configuration.
    """

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        data = config.data
        self._config, self._folder = config, folder
        self._most = data.warm_up + UPDATE_STEPS * config.optimization.num_updates
        self._request = Request(
            config.env,
            self._most,
            ("online",),
            # Agents of different seeds do different things, so that they share no data.
            int(named_generator(config.seed, "acting", data.data_seed).integers(2**31)),
            _ENVS,
            config.environment,
            data.online_shard,
        )
        collector = _collector(self._request, folder, config)
        try:
            collector.prepare()
            self.store = Store(collector.codec, collector.stack, collector.num_actions)
        finally:
            collector.close()
        self.most_rows = 2 * data.window  # An episode has at least one transition per two rows.
        self.behavior = None
        self._network: AgentNetwork | None = None
        self._worker = Worker(__name__)
        self._transitions, self._shards = GrowingArray(np.int64), 0
        self._acting: _Acting | None = None
        self._window = (0, 0)

    def begin(self, network: AgentNetwork, state: LearnerState | None) -> None:
        """Starts the first shard, or takes in those that a resumed run had and starts the one after them.

        Raises:
            InputError: one of them is damaged or gone.
        """
        self._network = network
        count = 0 if state is None else int(state.values.get("shards", 0))
        # What is newer was collected after the checkpoint, with parameters that this run has yet to reach.
        kept = {shard_name(index) for index in range(count if state is None else count + 1)}
        for shard in self._folder.glob("shard-*.arrow"):
            if shard.name not in kept:
                shard.unlink()
                shard.with_name(f"{shard.name}{DIGEST}").unlink(missing_ok=True)
        if state is None:
            self._start()
            return
        for index in range(count):
            if not is_whole(self._folder / shard_name(index)):
                raise InputError(
                    f"{self._folder / shard_name(index)} is damaged or gone, and the agent that collected it has changed "
                    "since: restore the file, or start a new run"
                )
            self._take_in()
        parameters = {name: x.numpy() for name, x in state.tensors_under(_SNAPSHOT).items()}
        if parameters:
            self._start(parameters)

    def window(self, update: int) -> tuple[int, int]:
        """The newest transitions, after the warm-up and 4 per update."""
        needed = self._config.data.warm_up + UPDATE_STEPS * update
        while len(self._transitions) < needed:
            self._worker.result()
            self._take_in()
            self._start()
        rows = self._transitions.rows
        lo = int(rows[max(0, needed - self._config.data.window)])
        self._window = (lo, int(rows[needed - 1]) + 1)
        return self._window

    def initial_share(self) -> float:
        """Of the window's states, since older ones were met by another policy."""
        lo, hi = self._window
        is_state = self.store.is_state[lo:hi]
        return float((self.store.columns["is_initial"][lo:hi] & is_state).sum() / is_state.sum())

    def state_dict(self) -> LearnerState:
        """How many shards were taken in, and the parameters that the next one is collected with."""
        parameters = {} if self._acting is None else self._acting.parameters
        tensors = {f"{_SNAPSHOT}{name}": torch.from_numpy(x) for name, x in parameters.items()}
        return LearnerState(tensors, {"shards": self._shards})

    def close(self) -> None:
        """Stops the collecting process."""
        self._worker.close()

    def _take_in(self) -> None:
        start = len(self.store)
        self.store.append_shard(self._folder / shard_name(self._shards))
        self._shards += 1
        self._transitions.extend(start + np.flatnonzero(self.store.is_transition[start:]))

    def _start(self, parameters: dict[str, NDArray[Any]] | None = None) -> None:
        """Starts the next shard, with these parameters or those of the moment."""
        done, data = len(self._transitions), self._config.data
        if done >= self._most:
            self._acting = None
            return
        if parameters is None:
            assert self._network is not None
            parameters = {
                name: value.detach().cpu().contiguous().numpy().copy()
                for name, value in self._network.state_dict().items()
                if not name.startswith("ratio_head.")
            }
        epsilon = decayed_epsilon(done, data.warm_up, data.epsilon_decay, data.acting_epsilon)
        self._acting = _Acting(parameters, epsilon)
        self._worker.start(
            partial(
                _make_shard, self._request, self._folder, self._config, self._shards, self._acting
            )
        )


def _collector(request: Request, folder: Path, config: TrainConfig) -> Collector:
    """A collector that acts at random until it gets another policy."""
    collector = Collector(request, folder, [])
    collector.policies = [ActingPolicy(config, collector.num_actions)]
    return collector


_kept: tuple[Collector, AgentNetwork] | None = None
"""In the worker: the environments and the network, which take longer to make than a shard of a small game."""


def _make_shard(
    request: Request, folder: Path, config: TrainConfig, index: int, acting: _Acting
) -> int:
    global _kept
    if _kept is None:
        torch.set_num_threads(1)  # The other cores are the learner's.
        collector = _collector(request, folder, config)
        shape = (collector.stack, *collector.shape) if collector.stack > 1 else collector.shape
        network = make_agent_network(config, shape, collector.num_actions).requires_grad_(False)
        _kept = collector, network
    collector, network = _kept
    network.load_state_dict(
        {name: torch.from_numpy(x) for name, x in acting.parameters.items()}, strict=False
    )
    collector.policies = [ActingPolicy(config, collector.num_actions, network, acting.epsilon)]
    return collector.make_shard(index, ignore_progress)
