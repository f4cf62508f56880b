"""Replay buffers for Stable-Baselines3's DQN, drawn from by the covariate shift or by TD error.

    from covshift.integrations.stable_baselines3 import RatioReplayBuffer
    DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=RatioReplayBuffer).learn(50_000)

Stable-Baselines3 makes a buffer before the networks and tells it nothing about the agent, and it has no hook in which a
buffer could install a callback. So a buffer looks for its agent when it is first asked to add or sample: the agent is
the caller, a few frames up the call stack. It finds a new agent in the same way after it was loaded.
"""

from __future__ import annotations

from covshift.extras import require

require("sb3")

import inspect
import weakref
from typing import Any, final

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from covshift.data.samplers import PrioritizedSampler
from covshift.errors import InputError
from covshift.integrations.episode_check import EpisodeCheck
from covshift.integrations.ratio_priorities import EVERY_STEP, TEMPERING, RatioPriorities
from covshift.integrations.ratio_replay import check_spaces
from covshift.rules import epsilon_greedy_probabilities

_CHECK_PERIOD = 500
"""Updates of the ratio between comparisons with the buffer's own episodes."""


class _AgentBuffer(ReplayBuffer):
    """A replay buffer that knows the agent that uses it, and that gathers the rows and environments it is told."""

    _agent: weakref.ref[DQN] | None = None

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ) -> None:
        if optimize_memory_usage:
            raise InputError(
                f"{type(self).__name__} keeps each observation beside its next one: leave out optimize_memory_usage"
            )
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            handle_timeout_termination=handle_timeout_termination,
        )

    @property
    def agent(self) -> DQN:
        """The agent whose replay buffer this is."""
        agent = None if self._agent is None else self._agent()
        if agent is None or agent.replay_buffer is not self:
            agent = self._calling_agent()
            self._agent = weakref.ref(agent)
        return agent

    def _calling_agent(self) -> DQN:
        frame = inspect.currentframe()
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, DQN) and caller.replay_buffer is self:
                return caller
            frame = frame.f_back
        raise InputError(
            f"{type(self).__name__} does not know the DQN that it belongs to: give it as DQN(..., "
            f"replay_buffer_class={type(self).__name__}), and let the agent learn before you sample yourself"
        )

    def _gather(
        self, rows: NDArray[np.int64], envs: NDArray[np.int64], env: VecNormalize | None
    ) -> ReplayBufferSamples:
        """What ReplayBuffer gathers, which draws environments itself."""
        ends = self.dones[rows, envs] * (1 - self.timeouts[rows, envs])
        rewards = self._normalize_reward(self.rewards[rows, envs].reshape(-1, 1), env)
        return ReplayBufferSamples(
            self.to_torch(self._seen(self.observations[rows, envs], env)),
            self.to_torch(self.actions[rows, envs]),
            self.to_torch(self._seen(self.next_observations[rows, envs], env)),
            self.to_torch(ends.reshape(-1, 1)),
            self.to_torch(rewards),
        )

    def _seen(self, observations: NDArray[Any], env: VecNormalize | None) -> NDArray[Any]:
        """Stored observations as the agent's networks see them."""
        return np.asarray(self._normalize_obs(observations, env))

    def _record(self, name: str, value: float) -> None:
        self.agent.logger.record(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_agent"}


@final
class RatioReplayBuffer(_AgentBuffer):
    """Draws transitions by √c(s) or another power of c(s) = d_π(s)/d(s), where d are the states in the buffer.

    π, the current policy, is ε-greedy on the agent's target network. Each step is stored with μ(a|s) of the agent's exploration at that
    time. Each time that DQN asks for a batch, the ratio learns from a batch of uniform states of the same size.

    The agent's logger gets `ratio/mean` (E_μ[c]), `ratio/effective_share` (ESS/N) and, every 500 updates anew, how the ratio
    compares with the buffer's own episodes (`EpisodeCheck`): `ratio/mean_by_episodes`, `ratio/calibration_error` and
    `ratio/calibration_trajectories`.

    Args:
        buffer_size: the most steps that are kept, of all environments together.
        observation_space: a Box, of vectors or images.
        action_space: a Discrete space.
        device: where the ratio's network and the batches live.
        n_envs: number of environments.
        optimize_memory_usage: must be False.
        handle_timeout_termination: bootstrap from states where an episode was cut off by a time limit.
        target_epsilon: ε of π.
        ratio_discount: γ̂, the ratio's discount.
        ratio_learning_rate: Adam's step size for the ratio's network.
        tempering: the power of c that transitions are drawn in proportion to: 1 corrects in full, 0 draws uniformly.

    Attributes:
        last_check: the newest comparison with the buffer's own episodes; None before the first.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        target_epsilon: float = 0.1,
        ratio_discount: float = 0.99,
        ratio_learning_rate: float = 0.00025,
        tempering: float = TEMPERING,
    ) -> None:
        shape, self.num_actions = check_spaces(observation_space, action_space)
        if not 0.0 <= target_epsilon <= 1.0:
            raise InputError(f"target_epsilon must lie in [0, 1], but it is {target_epsilon}")
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
        )
        self.target_epsilon = target_epsilon
        self.last_check: EpisodeCheck | None = None
        self.priorities = RatioPriorities(
            self.buffer_size,
            n_envs,
            shape,
            ratio_discount=ratio_discount,
            learning_rate=ratio_learning_rate,
            tempering=tempering,
            seed=_seed(),
            device=self.device,
        )

    def add(
        self,
        obs: NDArray[Any],
        next_obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a step of each environment, with the probability that the agent's exploration gave to its action."""
        # `learn` resets the environments when it starts, also in the middle of an episode.
        self.priorities.cut(~self.priorities.arrived_at(self.next_observations, np.asarray(obs)))
        self.priorities.add(self._odds(np.asarray(action).reshape(self.n_envs)), done)
        super().add(obs, next_obs, action, reward, done, infos)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Learns the ratio from uniform states, then draws transitions by it."""

        def view(observations: NDArray[Any]) -> NDArray[Any]:
            return self._seen(observations, env)

        actions = self.actions[:, :, 0]
        self.priorities.learn(self.observations, actions, self._policy, batch_size, view)
        if self.priorities.learner.num_updates % _CHECK_PERIOD == 0:
            self.last_check = self.priorities.check(self.observations, actions, self._policy, view)
        self._record("ratio/mean", self.priorities.mean_ratio)
        self._record("ratio/effective_share", self.priorities.effective_share)
        if self.last_check is not None:
            self._record("ratio/mean_by_episodes", self.last_check.mean_ratio)
            self._record("ratio/calibration_error", self.last_check.error)
            self._record("ratio/calibration_trajectories", self.last_check.trajectories)
        return self._gather(*self.priorities.draw(self.observations, batch_size, view), env)

    def reset(self) -> None:
        """Empties the buffer; the ratio's network is kept."""
        super().reset()
        self.priorities.clear()

    def _policy(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """π: ε-greedy on the target network."""
        with torch.no_grad():
            q = self.agent.q_net_target(self.to_torch(observations)).cpu().numpy()
        return epsilon_greedy_probabilities(q.astype(np.float64), self.target_epsilon)

    def _odds(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """μ(a|s) of the actions that the agent has just taken, before it changes its ε, its networks or its observation."""
        agent = self.agent
        assert agent._last_obs is not None
        # The agent has counted this step of all environments already.
        if agent.num_timesteps - self.n_envs < agent.learning_starts:
            return np.full(self.n_envs, 1.0 / self.num_actions)
        with torch.no_grad():
            observed, _ = agent.policy.obs_to_tensor(agent._last_obs)
            q = agent.q_net(observed).cpu().numpy().astype(np.float64)
        law = epsilon_greedy_probabilities(q, agent.exploration_rate)
        return np.asarray(law[np.arange(self.n_envs), actions])


@final
class PrioritizedReplayBuffer(_AgentBuffer):
    """Draws transitions in proportion to |TD error|^α with importance weights (N p)^-β over their largest (Schaul et al., 2016).

    DQN's loss takes no weights. So the buffer changes the rewards of the batch such that each TD error δ becomes
    w·clip(δ, -1, 1): DQN's Huber loss then has the gradient of the weighted loss, and only the value
    `train/loss` of the logger differs.

    Args:
        buffer_size: the most steps that are kept, of all environments together.
        observation_space: any space but a Dict.
        action_space: a Discrete space.
        device: where the batches live.
        n_envs: number of environments.
        optimize_memory_usage: must be False.
        handle_timeout_termination: bootstrap from states where an episode was cut off by a time limit.
        alpha: exponent of the priority; 0 draws uniformly.
        beta: exponent of the weights; 0 leaves them out.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
    ) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise InputError(
                f"actions must be Discrete, the only ones that DQN has, but they are {action_space}"
            )
        if isinstance(observation_space, spaces.Dict):
            raise InputError(
                f"observations must be one array, but they are {observation_space}: wrap the environment in "
                "Gymnasium's FlattenObservation"
            )
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name} must lie in [0, 1], but it is {value}")
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
        )
        self.alpha, self.beta = alpha, beta
        self._rng = np.random.default_rng(_seed())
        self._largest = 1.0
        self.sampler = self._new_sampler()

    def add(
        self,
        obs: NDArray[Any],
        next_obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a step of each environment with the largest priority so far."""
        super().add(obs, next_obs, action, reward, done, infos)
        last = self.sampler.window[1] + self.n_envs
        self.sampler.slide(max(0, last - self.rewards.size), last, self._largest)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draws transitions by priority, and renews their priorities."""
        ids = self.sampler.sample(batch_size)
        probabilities = self.sampler.probabilities(ids)
        slots = ids % self.rewards.size
        drawn = self._gather(slots // self.n_envs, slots % self.n_envs, env)
        errors = self._errors(drawn)
        sizes = errors.abs().cpu().numpy().ravel()
        self._largest = max(self._largest, float(sizes.max()))
        self.sampler.update(ids, sizes)
        weights = self.to_torch((probabilities.min() / probabilities) ** self.beta).reshape(-1, 1)
        wanted = weights.to(errors.dtype) * errors.clamp(-1.0, 1.0)
        return drawn._replace(rewards=drawn.rewards + wanted - errors)

    def reset(self) -> None:
        """Empties the buffer."""
        super().reset()
        self.sampler = self._new_sampler()

    def _errors(self, drawn: ReplayBufferSamples) -> torch.Tensor:
        """The TD errors that DQN is going to compute."""
        agent = self.agent
        with torch.no_grad():
            best = agent.q_net_target(drawn.next_observations).max(dim=1, keepdim=True).values
            q = agent.q_net(drawn.observations).gather(1, drawn.actions.long())
            errors: torch.Tensor = drawn.rewards + (1 - drawn.dones) * agent.gamma * best - q
            return errors

    def _new_sampler(self) -> PrioritizedSampler:
        return PrioritizedSampler(
            EVERY_STEP, self._rng, self.rewards.size, floor=1e-6, tempering=self.alpha
        )

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"sampler": self.sampler.save()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.sampler = self._new_sampler()
        self.sampler.restore(saved["sampler"])


def _seed() -> int:
    """A seed from NumPy's global generator, which is what DQN's `seed` sets and its own buffers draw from."""
    return int(np.random.randint(2**31))  # noqa: NPY002
