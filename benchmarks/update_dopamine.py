"""The dopamine-rl side of benchmarks/update.py: its JAX C51 trains once for every line that it reads.

Runs in an environment of its own:

    python -m venv dopamine && dopamine/bin/pip install dopamine-rl==4.1.2 jax==0.4.35 jaxlib==0.4.35 'tensorflow==2.18.*' 'tf-keras==2.18.*'
    python benchmarks/update.py --dopamine dopamine/bin/python

The agent is Dopamine's own (`JaxRainbowAgent` with uniform replay, one step, no double DQN: its C51), its replay filled
with random frames; a line is one call of its own training step, sampling from that replay included.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


def main() -> None:
    # Dopamine imports OpenAI's baselines, which it does not declare and which is not used here.
    for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["baselines.common"].__dict__["atari_wrappers"] = sys.modules[name]

    import gin
    from dopamine.jax import networks
    from dopamine.jax.agents.rainbow import rainbow_agent

    gin.parse_config(
        "ReplayBuffer.max_capacity = 1000\nReplayBuffer.batch_size = 32\n"
        "PrioritizedSamplingDistribution.max_capacity = 1000"
    )
    agent: Any = rainbow_agent.JaxRainbowAgent(
        num_actions=6,
        network=networks.RainbowNetwork,
        num_atoms=51,
        vmax=10.0,
        update_horizon=1,
        min_replay_history=500,
        update_period=1,
        target_update_period=8000,
        replay_scheme="uniform",
        epsilon_train=1.0,
        seed=0,
    )
    rng = np.random.default_rng(0)
    agent.begin_episode(rng.integers(0, 255, (84, 84, 1), dtype=np.uint8))
    for step in range(700):
        frame = rng.integers(0, 255, (84, 84, 1), dtype=np.uint8)
        agent._record_observation(frame)
        agent._store_transition(agent._observation, step % 6, 0.0, step % 100 == 99)
    for _ in range(3):
        agent._train_step()
    print("ready", flush=True)
    for _ in sys.stdin:
        agent._train_step()
        agent.optimizer_state[0].count.block_until_ready()
        print("done", flush=True)


if __name__ == "__main__":
    main()
