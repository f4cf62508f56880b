import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from covshift.envs.finite import FiniteMDPEnv
from covshift.errors import InputError
from covshift.integrations import stable_baselines3
from covshift.integrations.stable_baselines3 import PrioritizedReplayBuffer, RatioReplayBuffer
from covshift.learners.deep import closure
from covshift.theory import c_star
from covshift.theory.examples import episodic


def make_agent(
    buffer: type[Any], env: Any = None, *, buffer_size: int = 600, policy: str = "MlpPolicy",
    learning_starts: int = 100, **named: Any
) -> DQN:  # fmt: skip
    return DQN(
        policy,
        make_vec_env("CartPole-v1", 3, seed=0) if env is None else env,
        buffer_size=buffer_size,
        learning_starts=learning_starts,
        train_freq=4,
        batch_size=32,
        target_update_interval=60,
        exploration_fraction=0.5,
        policy_kwargs={"net_arch": [16]} if policy == "MlpPolicy" else None,
        replay_buffer_class=buffer,
        replay_buffer_kwargs=named,
        seed=0,
        device="cpu",
    )


class Spied(DQN):
    """Writes down how each step was chosen."""

    def _sample_action(self, *given: Any, **named: Any) -> Any:
        random = self.num_timesteps < self.learning_starts
        observed = np.array(self._last_obs)
        with torch.no_grad():
            greedy = self.q_net(torch.from_numpy(observed)).argmax(dim=1).numpy()
        actions, stored = super()._sample_action(*given, **named)
        epsilon = 1.0 if random else self.exploration_rate
        odds = np.where(actions == greedy, 1 - epsilon / 2, epsilon / 2)
        self.__dict__.setdefault("spied", []).append(odds)
        return actions, stored


def test_training_past_the_wrap_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stable_baselines3, "_CHECK_PERIOD", 40)
    agent = make_agent(RatioReplayBuffer)
    agent.__class__ = Spied
    agent.set_logger(configure(str(tmp_path), ["csv"]))
    agent.learn(1500, log_interval=20)
    agent.logger.close()
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    assert buffer.full
    assert buffer.priorities.steps == 500
    buffer.priorities.check_valid()

    # μ is what the agent's exploration did, in each environment, before and after the random phase.
    spied = np.stack(agent.__dict__["spied"])
    order = np.arange(300, 500) % 200
    np.testing.assert_allclose(buffer.priorities.mu[order], spied[300:], rtol=1e-6)
    assert len(np.unique(spied[40:])) > 100

    # An episode starts after each that ended, and only there.
    starts = buffer.priorities.is_initial[order]
    np.testing.assert_array_equal(starts[1:], buffer.dones[order][:-1] == 1)
    assert starts.any()

    assert buffer.priorities.learner.num_updates == agent._n_updates > 100
    rows = np.genfromtxt(tmp_path / "progress.csv", delimiter=",", names=True)
    assert rows["ratiomean"][-1] == pytest.approx(buffer.priorities.mean_ratio, rel=0.2)
    assert 0 < rows["ratioeffective_share"][-1] <= 1
    check = buffer.last_check
    assert check is not None
    assert rows["ratiomean_by_episodes"][-1] == pytest.approx(check.mean_ratio, rel=1e-3)
    assert rows["ratiocalibration_error"][-1] == pytest.approx(check.error, rel=1e-3)
    assert rows["ratiocalibration_trajectories"][-1] == pytest.approx(check.trajectories, rel=1e-3)


def test_mu_is_uniform_exactly_as_long_as_the_agent_acts_at_random() -> None:
    agent = make_agent(RatioReplayBuffer)
    agent.__class__ = Spied
    agent.learn(240)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    spied = np.stack(agent.__dict__["spied"])
    np.testing.assert_allclose(buffer.priorities.mu[:80], spied, rtol=1e-6)
    # 34 steps of 3 environments start before the 100th step.
    assert (spied[:34] == 0.5).all()
    assert (spied[34:] != 0.5).all()


def test_what_is_drawn_is_what_was_stored() -> None:
    agent = make_agent(RatioReplayBuffer, tempering=1.0)
    agent.learn(1500)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    # Make the ratio of one environment's states large: they are drawn most often.
    ids = np.arange(*buffer.priorities.sampler.window)
    buffer.timeouts[7, 1], buffer.dones[7, 1] = 1, 1
    batches = []
    for _ in range(60):
        buffer.priorities.sampler.update(ids, np.where(ids % 3 == 1, 8.0, 0.5))
        batches.append(buffer.sample(32))
    drawn = ReplayBufferSamples(*(torch.cat(parts) for parts in list(zip(*batches, strict=True))[:5]))  # fmt: skip
    stored = {
        buffer.observations[row, env].tobytes(): (row, env)
        for row in range(200)
        for env in range(3)
    }
    places = np.array([stored[state.tobytes()] for state in drawn.observations.numpy()])
    rows, envs = places.T
    assert (envs == 1).mean() == pytest.approx(8 / 9, abs=0.05)
    np.testing.assert_array_equal(drawn.next_observations, buffer.next_observations[rows, envs])
    np.testing.assert_array_equal(drawn.actions, buffer.actions[rows, envs])
    np.testing.assert_array_equal(drawn.rewards[:, 0], buffer.rewards[rows, envs])
    ends = (buffer.dones[rows, envs] == 1) & (buffer.timeouts[rows, envs] == 0)
    np.testing.assert_array_equal(drawn.dones[:, 0] == 1, ends)
    assert not drawn.dones[(rows == 7) & (envs == 1)].any()


def test_the_ratio_is_exact_on_a_finite_mdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DQN that does not learn explores with ε = 0.8 after random steps; π has ε = 0.1."""
    # Running means that look back over a thousand updates would still hold the ratios of the start.
    monkeypatch.setattr(closure, "_MEMORY", 0.95)
    problem = episodic(np.random.default_rng(4))
    agent = DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: FiniteMDPEnv(problem)] * 2),
        learning_rate=0.0,
        buffer_size=4000,
        learning_starts=2000,
        train_freq=100,
        exploration_initial_eps=0.8,
        exploration_final_eps=0.8,
        replay_buffer_class=RatioReplayBuffer,
        replay_buffer_kwargs={"ratio_discount": 0.9, "ratio_learning_rate": 0.0007},
        seed=1,
        device="cpu",
    )
    agent.learn(5000)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    assert len(np.unique(buffer.priorities.mu)) == 3  # 0.5 at random, then 0.6 and 0.4
    for _ in range(1000):
        buffer.sample(256)
    states = np.eye(5, dtype=np.uint8)
    pi = buffer._policy(states)
    visits = buffer.observations.sum(axis=(0, 1), dtype=np.float64)
    visits /= buffer.priorities.is_initial.sum()
    exact = c_star(problem.mdp.chain(pi), visits, 0.9)
    found = buffer.priorities.learner.ratio(states)
    assert np.ptp(exact) > 0.3
    np.testing.assert_allclose(found, exact, rtol=0.12)  # chance in 4,000 steps
    # The buffer's own episodes, of at most 64 trajectories, tell the same mean.
    check = buffer.last_check
    assert check is not None
    assert check.mean_ratio == pytest.approx(visits @ exact / visits.sum(), rel=0.2)
    assert check.error < 0.3


@pytest.mark.parametrize("kind", [RatioReplayBuffer, PrioritizedReplayBuffer])
def test_saved_loaded_and_continued(kind: type[Any], tmp_path: Path) -> None:
    agent = make_agent(kind)
    agent.learn(900)
    agent.save(tmp_path / "agent")
    agent.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "agent", env=make_vec_env("CartPole-v1", 3, seed=5))
    again.load_replay_buffer(tmp_path / "buffer")
    mine, loaded = agent.replay_buffer, again.replay_buffer
    assert isinstance(loaded, kind)
    agent.learn(0, reset_num_timesteps=False)
    again.learn(0, reset_num_timesteps=False)
    for each in (agent, again):
        each.train(3, 64)
    for kept, restored in zip(agent.q_net.parameters(), again.q_net.parameters(), strict=True):
        assert torch.equal(kept, restored)
    again.learn(300, reset_num_timesteps=False)
    assert loaded.agent is again
    assert mine.agent is agent  # type: ignore[union-attr]
    if isinstance(loaded, RatioReplayBuffer):
        # The environments were reset after the load, in the middle of episodes.
        assert loaded.priorities.is_initial[(900 // 3) % 200].all()


def test_learning_again_cuts_episodes() -> None:
    agent = make_agent(RatioReplayBuffer)
    agent.learn(24)
    agent.learn(24)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    assert buffer.priorities.is_initial[[0, 8]].all()
    np.testing.assert_array_equal(buffer.priorities.is_initial[1:8], buffer.dones[:7] == 1)


class Images(gymnasium.Env[NDArray[np.uint8], np.int64]):
    observation_space = spaces.Box(0, 255, (40, 40, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        self.time += 1
        return self._seen(), 1.0, False, self.time == 7, {}

    def _seen(self) -> NDArray[np.uint8]:
        return self.np_random.integers(0, 256, (40, 40, 1), dtype=np.uint8)


def test_images_and_timeouts() -> None:
    agent = make_agent(
        RatioReplayBuffer, DummyVecEnv([Images, Images]), policy="CnnPolicy", buffer_size=40,
        learning_starts=20,
    )  # fmt: skip
    agent.learn(60)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    assert buffer.full
    assert buffer.priorities.learner.num_updates > 3
    assert buffer.timeouts.sum() == buffer.dones.sum() > 2
    drawn = buffer.sample(16)
    assert drawn.observations.shape == (16, 1, 40, 40)
    assert not drawn.dones.any()


def test_normalized_observations_are_what_policy_and_ratio_see() -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0))
    agent = make_agent(RatioReplayBuffer, env)
    agent.learn(400)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    seen: list[NDArray[Any]] = []
    policy = buffer._policy

    def spy(observations: NDArray[Any]) -> NDArray[np.float64]:
        seen.append(observations)
        return policy(observations)

    buffer._policy = spy  # type: ignore[method-assign]
    drawn = buffer.sample(200, env=env)
    assert 0.5 < seen[0].std(axis=0)[1] < 2  # raw velocities have another scale
    stored = env.normalize_obs(buffer.observations[: buffer.pos].reshape(-1, 4))
    assert isinstance(stored, np.ndarray)
    known = {state.tobytes() for state in stored}
    assert all(state.tobytes() in known for state in drawn.observations.numpy())
    assert len(np.unique(buffer.priorities.mu[60:200])) > 20


def test_td_errors_are_priorities_and_weights_scale_gradients() -> None:
    agent = make_agent(PrioritizedReplayBuffer, alpha=0.7, beta=0.5)
    agent.learn(900)
    buffer = agent.replay_buffer
    assert isinstance(buffer, PrioritizedReplayBuffer)
    buffer.sampler.check_valid()
    before = buffer.sampler.probabilities(np.arange(*buffer.sampler.window))
    state = buffer.sampler.save()
    ids = buffer.sampler.sample(256)
    buffer.sampler.restore(state)
    drawn = buffer.sample(256)
    rows, envs = ids % 600 // 3, ids % 3
    np.testing.assert_array_equal(drawn.observations, buffer.observations[rows, envs])

    def errors(rewards: torch.Tensor) -> torch.Tensor:
        best = agent.q_net_target(drawn.next_observations).max(dim=1).values
        goal = rewards + agent.gamma * best * (1 - drawn.dones[:, 0])
        q = agent.q_net(drawn.observations).gather(1, drawn.actions.long())[:, 0]
        error: torch.Tensor = goal.detach() - q
        return error

    delta = errors(torch.from_numpy(buffer.rewards[rows, envs]))
    # Priorities are |δ|^α.
    law = buffer.sampler.probabilities(ids)
    powers = delta.detach().abs().numpy() ** 0.7
    np.testing.assert_allclose(law / law.max(), powers / powers.max(), rtol=1e-3, atol=1e-5)
    # The gradient of DQN's loss on the batch is that of the weighted loss on the stored rewards.
    weights = torch.from_numpy(before[ids - buffer.sampler.window[0]]).float() ** -0.5
    weights = weights / weights.max()
    parameters = list(agent.q_net.parameters())
    huber = torch.nn.functional.smooth_l1_loss
    wanted = (weights * huber(delta, torch.zeros(256), reduction="none")).mean()
    given = errors(drawn.rewards[:, 0])
    found = huber(given, torch.zeros(256))
    for mine, theirs in zip(
        torch.autograd.grad(wanted, parameters),
        torch.autograd.grad(found, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert weights.min() < 0.9


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="leave out optimize_memory_usage"):
        DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=RatioReplayBuffer, optimize_memory_usage=True)  # fmt: skip
    with pytest.raises(InputError, match=r"target_epsilon must lie in \[0, 1\], but it is 2"):
        make_agent(RatioReplayBuffer, target_epsilon=2)
    with pytest.raises(InputError, match=r"beta must lie in \[0, 1\], but it is 2"):
        make_agent(PrioritizedReplayBuffer, beta=2)
    with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\], but it is 2"):
        make_agent(PrioritizedReplayBuffer, alpha=2)
    with pytest.raises(InputError, match="longer than the replay, which holds 5 steps"):
        make_agent(RatioReplayBuffer, buffer_size=15).learn(300)
    with pytest.raises(InputError, match="actions must be Discrete"):
        RatioReplayBuffer(10, spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (2,)))
    box, named = spaces.Box(0, 1, (2,)), spaces.Dict({"seen": spaces.Box(0, 1, (2,))})
    with pytest.raises(
        InputError, match="must be Discrete, the only ones that DQN has, but they are Box"
    ):
        PrioritizedReplayBuffer(10, box, box)
    with pytest.raises(InputError, match=r"one array, but they are Dict\(.*FlattenObservation"):
        PrioritizedReplayBuffer(10, named, spaces.Discrete(2))
    alone = RatioReplayBuffer(10, spaces.Box(0, 1, (2,)), spaces.Discrete(2))
    with pytest.raises(InputError, match="does not know the DQN that it belongs to"):
        _ = alone.agent


def test_a_buffer_that_is_handed_on_knows_its_new_agent() -> None:
    agent, other = make_agent(RatioReplayBuffer), make_agent(RatioReplayBuffer)
    agent.learn(12)
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    agent.replay_buffer, other.replay_buffer = None, buffer
    other.learn(12)
    assert buffer.agent is other


def test_the_buffer_does_not_keep_the_agent_alive() -> None:
    agent = make_agent(RatioReplayBuffer)
    agent.learn(3)
    assert isinstance(agent.replay_buffer, RatioReplayBuffer)
    assert isinstance(agent.replay_buffer._agent, weakref.ref)


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "import covshift.integrations as i; i.RatioReplay\n"
        "try: i.RatioReplayBuffer\n"
        "except ImportError as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert "pip install 'covshift[sb3]'" in printed.stdout.decode()


@pytest.mark.parametrize("kind", [RatioReplayBuffer, PrioritizedReplayBuffer])
def test_an_emptied_buffer_starts_anew(kind: type[Any]) -> None:
    agent = make_agent(kind)
    agent.learn(700)
    buffer = agent.replay_buffer
    assert isinstance(buffer, (RatioReplayBuffer, PrioritizedReplayBuffer))
    buffer.reset()
    agent.learn(48, reset_num_timesteps=False)
    assert buffer.size() == 16
    sampler = buffer.priorities.sampler if isinstance(buffer, RatioReplayBuffer) else buffer.sampler
    assert sampler.window == (0, 48)
    sampler.check_valid()
