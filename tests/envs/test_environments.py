import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from covshift.config.environment import EnvOptions
from covshift.envs import FiniteMDPEnv, make_streams, step_streams
from covshift.envs.finite import EXAMPLES
from covshift.errors import InputError
from covshift.theory.examples import random_walk


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_finite_mdps_are_gymnasium_environments(name: str) -> None:
    env = gymnasium.make(f"covshift/{name}-v0")
    check_env(env.unwrapped, skip_render_check=True)
    assert isinstance(env.unwrapped, FiniteMDPEnv)
    assert env.unwrapped.problem.c_star(0.9).shape == env.observation_space.shape


def test_finite_environments_follow_their_kernel() -> None:
    problem = random_walk()
    env = FiniteMDPEnv(problem)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    counts = np.zeros((6, 2, 7))
    state = 5
    for _ in range(20_000):
        action = rng.integers(2)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert reward == problem.mdp.r[state, action]
        assert not truncated
        after = 6 if terminated else int(observation.argmax())
        counts[state, action, after] += 1
        if terminated:
            assert not observation.any()
            observation, _ = env.reset()
        state = int(observation.argmax())
    kernel = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    np.testing.assert_allclose(kernel[:, :, :6], problem.mdp.dense_kernel(), atol=0.03)


@pytest.mark.parametrize(
    "env_id", ["ALE/Breakout-v5", "MinAtar/Asterix-v1", "covshift/FourRooms-v0"]
)
def test_streams_depend_only_on_their_seed_and_actions(env_id: str) -> None:
    def roll(num_streams: int, num_threads: int) -> list[float]:
        streams = make_streams(env_id, EnvOptions(), num_streams, num_threads)
        seen = [float(streams.reset(np.arange(7, 7 + num_streams))[0].sum())]
        for step in range(150):
            result = step_streams(streams, np.full(num_streams, step % streams.num_actions))
            seen += [float(result.arrived[0].sum()), float(result.current[0].sum())]
            seen += [float(result.reward[0]), float(result.terminated[0])]
        streams.close()
        return seen

    alone = roll(1, 1)
    assert alone == roll(4, 2) == roll(3, 1)


def test_an_episode_keeps_its_last_observation_when_the_next_one_starts() -> None:
    streams = make_streams("CartPole-v1", EnvOptions(), 1)
    bare = gymnasium.make("CartPole-v1")
    streams.reset(np.array([3]))
    bare.reset(seed=3)
    ends = 0
    for _ in range(60):
        step = step_streams(streams, np.array([1]))
        observation, _, terminated, truncated, _ = bare.step(1)
        np.testing.assert_array_equal(step.arrived[0], observation)
        if terminated or truncated:
            ends += 1
            observation, _ = bare.reset()
        np.testing.assert_array_equal(step.current[0], observation)
    assert ends > 3


def test_atari_episodes_are_capped_in_agent_steps_and_keep_their_last_frame() -> None:
    from ale_py.vector_env import AtariVectorEnv

    for frame_skip in (4, 2):
        options = EnvOptions(episode_cap=30, frame_skip=frame_skip)
        streams = make_streams("ALE/Pong-v5", options, 1)
        bare = AtariVectorEnv(
            "pong", 1, repeat_action_probability=0.25, noop_max=0, use_fire_reset=False, stack_num=1,
            frameskip=frame_skip, reward_clipping=False,
        )  # fmt: skip
        streams.reset(np.array([5]))
        bare.reset(seed=np.array([5]))
        for count in range(1, 31):
            step = step_streams(streams, np.array([count % 6]))
            observation = bare.step(np.array([count % 6]))[0]
            # In the step of the cap ALE leaves its frame skip early: the ball may stand a frame behind.
            differing = int((step.arrived[0] != observation[0, 0]).sum())
            assert differing == 0 or (count == 30 and differing < 60)
            assert step.truncated[0] == (count == 30)
        assert (step.arrived[0] != step.current[0]).sum() > 1000
        streams.close()
        bare.close()


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match=r"sticky_actions must lie in \[0, 1\], but it is 2"):
        EnvOptions(sticky_actions=2)
    with pytest.raises(InputError, match=r"frame_skip must lie in \[1, .*\], but it is 0"):
        EnvOptions(frame_skip=0)
    with pytest.raises(InputError, match="did you mean MinAtar/Breakout-v1"):
        make_streams("MinAtar/Breakot-v1", EnvOptions(), 1)
