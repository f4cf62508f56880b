"""A ring of steps whose ratio is learned, and which is drawn from by that ratio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from covshift.config.training import RatioOptions, ReplayOptions
from covshift.data.growing_array import GrowingArray
from covshift.data.samplers import PrioritizedSampler, UniformSampler
from covshift.errors import InputError
from covshift.integrations.episode_check import (
    MOST_STEPS,
    TRAJECTORIES,
    EpisodeCheck,
    Sums,
    Trajectories,
    compare,
    discounted_sums,
    horizon,
)
from covshift.learners.deep import (
    EndBatch,
    RatioLearner,
    UpdateReport,
    make_priority,
    ring_batch,
)
from covshift.networks import RatioHead, make_link, make_torso
from covshift.rules import importance_ratio

Policy = Callable[[NDArray[Any]], "NDArray[Any] | Tensor"]
"""Maps a batch of observations to probabilities, batch × actions."""

EVERY_STEP = np.broadcast_to(np.True_, 1 << 62)
"""Every step can be drawn, however many there will be; takes no memory."""

TEMPERING = 0.5
"""The power of c by default: between uniform draws and the full correction (docs/integrations.md)."""

_LEARNED_STATES = 1024
"""States of the ring over which `check` averages the learned ratio."""

_MEMORY = 0.99
"""Share of the running mean of c² that one batch leaves unchanged."""


@final
class RatioPriorities:
    """Learns c of the steps in a ring, and draws steps in proportion to a power of c over its running mean.

    The replay that owns this object keeps the observations and actions. Step t of environment e has the number
    t·num_envs + e, and its slot in arrays of rows × environments, flattened, is that number modulo
    rows·num_envs.

    c is the ratio d_π/d of the policy π of the latest updates to d, the distribution of the states in the ring, whatever policies they
    come from: each step has a μ(a|s) of its own. It is learned by the matching loss with the safe link over the
    floor 1 - γ̂ and with the mass closure (B7), from states drawn uniformly.

    Args:
        rows: steps of each environment in the full ring.
        num_envs: number of environments.
        shape: shape of an observation.
        ratio_discount: γ̂.
        learning_rate: Adam's step size for the ratio's network.
        tempering: the power of c.
        seed: of the network and of all draws.
        device: where the network lives.

    Attributes:
        mu: rows × environments, μ(a|s) of each step.
        is_initial: rows × environments, whether each step starts an episode.
        steps: number of steps per environment that were added so far.
    """

    def __init__(
        self,
        rows: int,
        num_envs: int,
        shape: tuple[int, ...],
        *,
        ratio_discount: float,
        learning_rate: float,
        tempering: float,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        if rows < 2:
            raise InputError(
                f"a replay needs a capacity of at least 2 steps per environment, but it has {rows}: raise it"
            )
        if not 0.0 < ratio_discount < 1.0:
            raise InputError(f"ratio_discount must lie between 0 and 1, but it is {ratio_discount}")
        self.rows, self.num_envs = rows, num_envs
        self.mu = np.ones((rows, num_envs))
        self.is_initial = np.zeros((rows, num_envs), dtype=bool)
        self.steps = 0
        # 0 where the next step starts an episode.
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        # The numbers of the steps that started and that ended an episode, ascending.
        self._starts, self._ends = GrowingArray(np.int64), GrowingArray(np.int64)
        options = RatioOptions(
            ratio_loss="matching",
            ratio_loss_weight=1.0,
            ratio_discount=ratio_discount,
            source_clip=False,
            mass_closure=True,
        )
        # The network gets a generator of its own, and the caller's is left alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            torso = make_torso(shape)
            head = RatioHead(
                torso.num_features, torso.head_hidden, make_link("safe", ratio_discount)
            )
        self.learner = RatioLearner(
            torso.to(device), head.to(device), None, options, learning_rate=learning_rate
        )
        priority = make_priority(
            ReplayOptions(priority="ratio", priority_scale="mean", refresh="both")
        )
        assert priority is not None
        self._priority, self._mean_square, self._tempering = priority, 1.0, tempering
        self._rng = np.random.default_rng(seed)
        self.sampler = self._new_sampler()

    @property
    def mean_ratio(self) -> float:
        """E_μ[c]: running mean of c over steps drawn uniformly."""
        return self._priority.of_new

    @property
    def effective_share(self) -> float:
        """ESS/N = (E_μ[c])²/E_μ[c²], from running means: 1 if all steps have the same ratio."""
        return self.mean_ratio**2 / self._mean_square

    @property
    def in_episode(self) -> NDArray[np.bool_]:
        """Which environments are in the middle of an episode, so that their next step continues it."""
        return self._lengths > 0

    def arrived_at(
        self, next_observations: NDArray[Any], observed: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Which environments are observed where their last step arrived; rows × environments × shape, and a row of it."""
        last = next_observations[(self.steps - 1) % self.rows]
        return np.asarray((last == observed).reshape(self.num_envs, -1).all(axis=1))

    def cut(self, chosen: ArrayLike = True) -> None:
        """Lets the next step of the chosen environments start an episode."""
        is_cut = np.broadcast_to(np.asarray(chosen), (self.num_envs,)) & self.in_episode
        self._ends.extend((self.steps - 1) * self.num_envs + np.flatnonzero(is_cut))
        self._lengths = np.where(chosen, 0, self._lengths)

    def add(self, mu: ArrayLike, ended: ArrayLike) -> None:
        """Takes in a step of each environment.

        Args:
            mu: probability with which each action was taken.
            ended: whether each episode ended after the step, by termination or timeout.
        """
        odds = np.asarray(mu, dtype=np.float64).reshape(self.num_envs)
        bad = ~((odds > 0) & (odds <= 1 + 1e-6))
        if bad.any():
            raise InputError(
                f"μ of the action taken must lie in (0, 1], but in environment {int(bad.argmax())} it is "
                f"{odds[bad][0]:g}: give the probability with which the action was drawn"
            )
        lengths = self._lengths + 1
        if (lengths > self.rows).any():
            raise InputError(
                f"an episode of environment {int(lengths.argmax())} is longer than the replay, which holds {self.rows} "
                f"steps of each environment: raise the capacity, or put a time limit on episodes"
            )
        row = self.steps % self.rows
        self.mu[row], self.is_initial[row] = odds, self._lengths == 0
        is_end, first = (
            np.asarray(ended, dtype=bool).reshape(self.num_envs),
            self.steps * self.num_envs,
        )
        self._starts.extend(first + np.flatnonzero(self.is_initial[row]))
        self._ends.extend(first + np.flatnonzero(is_end))
        self._lengths = np.where(is_end, 0, lengths)
        self.steps += 1
        last = self.steps * self.num_envs
        self.sampler.slide(max(0, last - self.mu.size), last)

    def learn(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        policy: Callable[[NDArray[Any]], NDArray[np.float64]],
        batch_size: int,
        view: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
    ) -> None:
        """One step of the ratio on states drawn uniformly, whose priorities become their ratios.

        Args:
            observations: rows × environments × shape.
            actions: rows × environments.
            policy: π, which maps a batch of observations to probabilities, batch × actions.
            batch_size: number of states.
            view: turns stored observations into what policy and network see.
        """
        self._check_filled()
        lo, hi = self.sampler.window
        # The step before the oldest one has been overwritten.
        lo = lo + self.num_envs if lo > 0 else lo
        ids = UniformSampler(EVERY_STEP, self._rng, (lo, hi)).sample(batch_size)
        batch = ring_batch(
            self._flat(observations),
            actions.reshape(-1),
            self.mu.reshape(-1),
            self.is_initial.reshape(-1),
            ids % self.mu.size,
            self.num_envs,
        )
        ends = self._end_batch(observations, actions, (lo, hi), batch_size)
        batch = batch._replace(
            s_t=view(batch.s_t),
            s_window=view(batch.s_window),
            ends=ends._replace(s_tm1=view(ends.s_tm1)),
        )
        terms = self.learner.update(batch, policy)
        c = terms.c_t.cpu().numpy().astype(np.float64)
        priority = self._priority
        priority.of_new = priority.of_new_after(
            priority.of_new, UpdateReport(None, c, terms.residual)
        )
        self._mean_square += (1.0 - _MEMORY) * (float(np.square(c).mean()) - self._mean_square)
        self.sampler.update(ids, c / priority.unit)

    def draw(
        self,
        observations: NDArray[Any],
        batch_size: int,
        view: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draws steps by priority, renews their priorities, and returns their rows and environments.

        Before the first `learn` all steps have the same priority.
        """
        self._check_filled()
        ids = self.sampler.sample(batch_size)
        slots = ids % self.mu.size
        if self.learner.num_updates > 0:
            c = self.learner.ratio(view(self._flat(observations)[slots]))
            self.sampler.update(ids, c / self._priority.unit)
        return slots // self.num_envs, slots % self.num_envs

    def check(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        policy: Callable[[NDArray[Any]], NDArray[np.float64]],
        view: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
    ) -> EpisodeCheck | None:
        """Compares the ratio with the finished episodes in the ring; None while there is none.

        The functions of a state that are averaged are 1, the observation's mean, and the ratio itself. Draws are not
        affected: the random states depend on the number of updates only.

        Args:
            observations: rows × environments × shape.
            actions: rows × environments.
            policy: π.
            view: turns stored observations into what policy and network see.
        """
        lo, hi = self.sampler.window
        starts, ends = self._since(self._starts, lo), self._since(self._ends, lo)
        rng = np.random.default_rng(self.learner.num_updates)
        states = rng.integers(lo, hi, _LEARNED_STATES) if hi > lo else starts
        newest = self._followed(starts[::-1], ends)
        others = self._followed(states, ends)
        if not (newest.size and others.size):
            return None

        def noted(slots: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
            seen = view(self._flat(observations)[slots])
            c = self.learner.ratio(seen).astype(np.float64)
            mean = seen.reshape(len(seen), -1).mean(axis=1, dtype=np.float64)
            return {"1": np.ones(len(c)), "mean of the observation": mean, "ratio": c}

        def follow(ids: NDArray[np.int64]) -> Sums:
            is_step = ids >= 0
            slots, rho = ids[is_step] % self.mu.size, np.zeros(ids.shape)
            taken = actions.reshape(-1)[slots].astype(np.int64)
            pi = policy(view(self._flat(observations)[slots]))[np.arange(len(slots)), taken]
            rho[is_step] = importance_ratio(pi, self.mu.reshape(-1)[slots])
            values = {}
            for name, f in noted(slots).items():
                values[name] = np.zeros(ids.shape)
                values[name][is_step] = f
            return discounted_sums(Trajectories(is_step, rho, values), gamma)

        gamma = self.learner.loss.options.ratio_discount
        over_data = noted(states % self.mu.size)
        learned = {name: float((over_data["ratio"] * f).mean()) for name, f in over_data.items()}
        share = len(starts) / (hi - lo)
        return compare(learned, follow(newest), follow(others), share, gamma)

    def clear(self) -> None:
        """Forgets all steps; the ratio's network is kept."""
        self.steps, self._lengths = 0, np.zeros_like(self._lengths)
        self._starts, self._ends = GrowingArray(np.int64), GrowingArray(np.int64)
        self.sampler = self._new_sampler()

    def check_valid(self) -> None:
        """Raises AssertionError unless exactly the steps in the ring can be drawn."""
        self.sampler.check_valid()
        last = self.steps * self.num_envs
        assert self.sampler.window == (max(0, last - self.mu.size), last)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"sampler": self.sampler.save()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.sampler = self._new_sampler()
        self.sampler.restore(saved["sampler"])

    def _new_sampler(self) -> PrioritizedSampler:
        return PrioritizedSampler(
            EVERY_STEP,
            self._rng,
            self.mu.size,
            floor=self._priority.floor,
            tempering=self._tempering,
        )

    def _end_batch(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        window: tuple[int, int],
        batch_size: int,
    ) -> EndBatch:
        """Steps of the window that ended an episode, by termination, timeout or reset, drawn uniformly."""
        lo, hi = window
        starts, ends = self._since(self._starts, lo), self._since(self._ends, lo)
        drawn = self._rng.choice(ends, batch_size) if len(ends) else ends
        slots = drawn % self.mu.size
        return EndBatch(
            self._flat(observations)[slots],
            actions.reshape(-1)[slots].astype(np.int64),
            self.mu.reshape(-1)[slots].astype(np.float32),
            np.zeros(len(slots), dtype=bool),
            len(ends) / (hi - lo),
            len(starts) / (hi - lo),
        )

    def _followed(self, first: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """The steps from each of these to the end of its episode, steps × trajectories, -1 behind the end.

        Trajectories that have no end yet are left out; the rest are taken in this order as far as they are allowed.
        """
        n, longest = self.num_envs, horizon(self.learner.loss.options.ratio_discount)

        def key(ids: NDArray[np.int64]) -> NDArray[np.int64]:
            # Steps of one environment after the other, so that the next end is the next larger number.
            return ids % n * (self.steps + 1) + ids // n

        sorted_ends = np.sort(key(ends))
        place = np.searchsorted(sorted_ends, key(first))
        found = np.append(sorted_ends, np.iinfo(np.int64).max)[place]
        has_end = found // (self.steps + 1) == first % n
        first, lengths = first[has_end], (found - key(first))[has_end] + 1
        lengths = np.minimum(lengths, longest)
        count = int(np.searchsorted(np.cumsum(lengths), MOST_STEPS, side="right"))
        first, lengths = (x[: min(max(count, 1), TRAJECTORIES)] for x in (first, lengths))
        step = np.arange(lengths.max(initial=0))[:, None]
        return np.where(step < lengths, first + step * n, -1)

    @staticmethod
    def _since(found: GrowingArray, lo: int) -> NDArray[np.int64]:
        """Those of these steps that are still in the window."""
        return found.rows[np.searchsorted(found.rows, lo) :]

    def _flat(self, observations: NDArray[Any]) -> NDArray[Any]:
        return observations.reshape(self.mu.size, *observations.shape[2:])

    def _check_filled(self) -> None:
        if self.steps == 0:
            raise InputError("the replay is empty: add steps before you sample or update")


def checked_policy(
    policy: Policy, num_actions: int
) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """The policy, with what it returns checked.

    Raises:
        InputError: it is no function, or what it returns are not probabilities.
    """
    if not callable(policy):
        raise InputError(
            f"policy must be a function from observations to probabilities, but it is {policy!r}"
        )

    def checked(observations: NDArray[Any]) -> NDArray[np.float64]:
        returned = policy(observations)
        if isinstance(returned, Tensor):
            returned = returned.detach().cpu().numpy()
        given = np.asarray(returned, dtype=np.float64)
        wanted = (len(observations), num_actions)
        if given.shape != wanted:
            raise InputError(
                f"policy must return a probability for each observation and action, shape {wanted}, but it returned "
                f"shape {given.shape}"
            )
        if (
            not (np.isfinite(given).all() and (given >= 0).all())
            or (np.abs(given.sum(axis=1) - 1) > 1e-3).any()
        ):
            worst = given[np.argmax(np.nan_to_num(np.abs(given.sum(axis=1) - 1), nan=np.inf))]
            raise InputError(
                f"policy must return probabilities that sum to 1, but it returned {worst.tolist()}: values and logits "
                "have to be turned into probabilities first"
            )
        return given

    return checked
