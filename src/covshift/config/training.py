"""All that defines a training run, as one tree of frozen records.

Every leaf has a name of its own, so that the command line can leave the branches out. A field's text says its
meaning, its unit and, where the paper has one, the paper's value; "C51" marks what Bellemare, Dabney & Munos
(2017) publish.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from covshift.config.environment import EnvOptions
from covshift.errors import InputError

UPDATE_STEPS = 4
"""Agent steps an update stands for, whatever the source of the data (C51: one update every 4 steps)."""

_LARGEST = 10**10
"""Of any count: beyond it a slip of the hand is likelier than a wish."""

Semantics = Literal["visits", "restart", "paper"]


@dataclass(frozen=True)
class DataOptions:
    """The logged experience that is learned from."""

    transitions: int = 10_000_000
    """Transitions of the dataset that is collected where none is given (paper: 10 million, its replay)."""

    behavior_policy: tuple[str, ...] = ("uniform",)
    """μ: uniform | file:P.npy | run:DIR,epsilon=E | module:function (paper: uniform)."""

    data_seed: int = 0
    """Seed of the collection; runs of all training seeds share one dataset."""

    window: int = 10_000_000
    """Newest transitions that can be drawn (paper: 10 million)."""

    warm_up: int = 20_000
    """Transitions there are before the first update, with --data stream (C51, in Dopamine: 20000)."""

    stream_shard: int = 32_768
    """Transitions of a shard that the collector writes ahead of the learner, with --data stream."""


@dataclass(frozen=True)
class NetworkOptions:
    """The ratio's head; torso and sizes follow the observation's shape."""

    ratio_head: Literal["linear", "softplus"] = "linear"
    """Output of the ratio head: linear, whose negative values are clipped to 0 where they are used (paper), or softplus, which is positive."""

    ratio_gradient: Literal["torso", "head"] = "torso"
    """Where the ratio's gradient goes: through the torso too (paper), or to its head alone."""


@dataclass(frozen=True)
class ValueOptions:
    """The distributional value."""

    discount: float = 0.99
    """γ (C51: 0.99)."""

    value_steps: int = 1
    """n of the n-step value target (C51: 1)."""

    num_atoms: int = 51
    """Atoms of the return's distribution (C51: 51)."""

    value_bound: float = 10.0
    """The atoms span [-bound, bound] (C51: 10)."""

    reward_clip: float = 1.0
    """Rewards are clipped to [-clip, clip] in targets, never in scores (C51: 1); 0 leaves them."""

    cut_at_life_loss: bool = False
    """Whether the value's discount is 0 where a life was lost; the ratio's chain goes on in any case."""


@dataclass(frozen=True)
class RatioOptions:
    """The covariate shift c(s) = d_π(s)/d_μ(s)."""

    learn_ratio: bool = True
    """Whether the network has a ratio head."""

    ratio_loss_weight: float = 0.02
    """η (paper: 0.02 in Figures 1 and 2's text, 0.002 in Figure 1's caption and Figure 3)."""

    ratio_discount: float = 0.99
    """γ̂ (paper: 0.99 in Figure 2, 0.999 in Figure 3, 1 with normalization)."""

    ratio_steps: int = 1
    """n of the n-step ratio target (paper: 1)."""

    target_epsilon: float = 0.1
    """π is ε-greedy on the target network with this ε (paper: 0.1)."""

    semantics: Semantics = "visits"
    """What c means with episodes: visits (target 1 at initial states), restart (the next episode follows as a transition), or paper (target 1 at initial states and a mean of 1, which cannot both hold)."""

    initial_rule: Literal["target", "source"] = "target"
    """Reading of the paper's rule for initial states: 1 is the target of c(s₀), or 1 stands for c(s₀) wherever it is bootstrapped from."""

    ratio_weighting: Literal["uniform", "inverse"] = "uniform"
    """Weights of the ratio's squared errors: uniform (paper), or 1/c(s'), under which the projected operator contracts."""

    normalization_weight: float = 0.0
    """Weight of the loss ½(E_μ[c] - 1)² (paper: up to 1, with γ̂ = 1)."""

    rho_clip: float | None = None
    """Upper bound of ρ = π(a|s)/μ(a|s) in ratio targets; none (paper)."""

    source_clip: bool = True
    """Whether negative ratios count as 0 where they are bootstrapped from (paper), which adds mass and can make the ratio diverge; without it a linear head keeps the mean of its targets."""

    ratio_batch: Literal["uniform", "prioritized"] = "uniform"
    """What the ratio is learned from: an independent uniform batch of states (paper), or the prioritized batch, which is unstable."""


@dataclass(frozen=True)
class ReplayOptions:
    """How the value's transitions are drawn."""

    priority: Literal["uniform", "ratio", "ratio-rho", "td-error"] = "uniform"
    """Draw transitions uniformly, by c(s) (paper), by c(s)·ρ(s,a), or by TD error (Schaul et al., as in Rainbow)."""

    correction: Literal["resample", "reweight"] = "resample"
    """Use c(s) as a sampling priority (paper), or draw uniformly and multiply the loss by it (which hurt, says the paper)."""

    priority_floor: float = 1e-3
    """Smallest priority, so that nothing is forgotten (paper: 0.0025 in Figure 5, 'later found to be unnecessary')."""

    priority_tempering: float = 1.0
    """τ: drawn in proportion to priority^τ (paper: 1)."""

    uniform_share: float = 0.0
    """Share of draws that ignores priorities (paper: 0)."""

    refresh: Literal["prioritized", "both"] = "prioritized"
    """Whose priorities are renewed: the prioritized batch (paper), or the uniform batch too."""


@dataclass(frozen=True)
class OptimizationOptions:
    """How the network is fitted."""

    num_updates: int = 9_375_000
    """Updates in all; one stands for 4 agent steps (paper: 150 iterations of 250000 agent steps)."""

    batch_size: int = 32
    """Transitions of the value's batch, and states of the ratio's (C51: 32)."""

    learning_rate: float = 0.00025
    """Adam's step size (C51: 0.00025)."""

    adam_epsilon: float = 0.01 / 32
    """Adam's ε (C51: 0.01/32)."""

    target_period: int = 1000
    """Agent steps between copies to the target network (paper: 1000, which is 250 updates; Dopamine's C51: 8000)."""

    divergence_bound: float = 1000.0
    """A mean |c| beyond this stops the run as diverged."""


@dataclass(frozen=True)
class EvaluationOptions:
    """When and how the policy is tried."""

    evaluate_every: int = 62_500
    """Updates between evaluations (paper: an iteration, 250000 agent steps)."""

    evaluation_episodes: int = 20
    """Episodes an evaluation."""

    evaluation_epsilon: float = 0.001
    """ε of the scored episodes, on the online network (Dopamine: 0.001)."""

    ratio_episodes: int = 10
    """Episodes of π itself, from which the mean ratio under π is taken."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run: what is learned, from what, and how long.

    Args:
        env: environment id.
        preset: the method's name.
        scale: the size's name.
    """

    env: str
    preset: str = "c51-corrected"
    scale: str = "small"
    seed: int = 0
    environment: EnvOptions = field(default_factory=EnvOptions)
    data: DataOptions = field(default_factory=DataOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    value: ValueOptions = field(default_factory=ValueOptions)
    ratio: RatioOptions = field(default_factory=RatioOptions)
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    optimization: OptimizationOptions = field(default_factory=OptimizationOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    def __post_init__(self) -> None:
        _check_ranges(self)
        _check_combinations(self)

    @property
    def log_every(self) -> int:
        """Updates between rows of the metrics: a fifth of the time between evaluations."""
        return max(1, self.evaluation.evaluate_every // 5)

    @property
    def target_updates(self) -> int:
        """Updates between copies to the target network."""
        return max(1, self.optimization.target_period // UPDATE_STEPS)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `config.json` holds them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """The configuration that `to_json` gave.

        Raises:
            InputError: a key is unknown.
        """
        branches = {
            branch.name: _read_branch(branch.name, branch.default_factory, values[branch.name])
            for branch in dataclasses.fields(cls)
            if branch.default_factory is not dataclasses.MISSING and branch.name in values
        }
        _check_keys("the configuration", cls, values)
        return cls(**(values | branches))

    def leaves(self) -> dict[str, Any]:
        """Every leaf by its own name."""
        found: dict[str, Any] = {}
        for name, value in self.to_json().items():
            found |= value if isinstance(value, dict) else {name: value}
        return found

    def replace_leaves(self, **leaves: Any) -> TrainConfig:
        """The same with some leaves changed, by their own names."""
        changed: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name in leaves:
                changed[item.name] = leaves.pop(item.name)
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = {leaf.name for leaf in dataclasses.fields(value)} & set(leaves)
                changed[item.name] = dataclasses.replace(
                    value, **{name: leaves.pop(name) for name in names}
                )
        if leaves:
            raise InputError(f"there is no field '{next(iter(leaves))}' in the configuration")
        return dataclasses.replace(self, **changed)


@dataclass(frozen=True)
class RuntimeOptions:
    """How a run is computed; what it learns does not depend on it, but for rounding."""

    device: str = "auto"
    """auto | cpu | cuda | cuda:1 | mps: where the networks live; auto takes a GPU where there is one."""

    threads: int = 0
    """Threads of the CPU; 0 takes as many as there are cores. Two runs at once want 1 each on two cores."""

    compile: bool = False
    """Whether torch.compile is used on the networks."""

    tensorboard: bool = False
    """Whether TensorBoard events are written into the run folder too (extra 'tensorboard')."""

    def __post_init__(self) -> None:
        _check("threads", self.threads, self.threads >= 0, "must not be negative")


def _read_branch(name: str, kind: Any, values: dict[str, Any]) -> Any:
    _check_keys(f"'{name}'", kind, values)
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _check_keys(where: str, kind: Any, values: dict[str, Any]) -> None:
    unknown = set(values) - {item.name for item in dataclasses.fields(kind)}
    if unknown:
        raise InputError(f"{where} has the unknown key '{sorted(unknown)[0]}'")


def _check_ranges(config: TrainConfig) -> None:
    data, value, ratio, replay = config.data, config.value, config.ratio, config.replay
    fit, evaluation = config.optimization, config.evaluation
    _check("seed", config.seed, config.seed >= 0, "must not be negative")
    counts = {
        "transitions": data.transitions,
        "window": data.window,
        "warm_up": data.warm_up,
        "stream_shard": data.stream_shard,
        "value_steps": value.value_steps,
        "ratio_steps": ratio.ratio_steps,
        "num_updates": fit.num_updates,
        "target_period": fit.target_period,
        "evaluate_every": evaluation.evaluate_every,
        "evaluation_episodes": evaluation.evaluation_episodes,
        "ratio_episodes": evaluation.ratio_episodes,
    }
    for name, count in counts.items():
        _check(name, count, 1 <= count <= _LARGEST, f"must lie between 1 and {_LARGEST:,}")
    _check("seed", config.seed, config.seed < 2**63, "must be below 2^63")
    for name, count in (("batch_size", fit.batch_size), ("num_atoms", value.num_atoms)):
        _check(name, count, 2 <= count <= 2**16, "must lie between 2 and 65536")
    shares = {
        "ratio_discount": ratio.ratio_discount,
        "target_epsilon": ratio.target_epsilon,
        "evaluation_epsilon": evaluation.evaluation_epsilon,
        "priority_tempering": replay.priority_tempering,
        "uniform_share": replay.uniform_share,
    }
    for name, share in shares.items():
        _check(name, share, 0.0 <= share <= 1.0, "must lie in [0, 1]")
    _check("discount", value.discount, 0.0 <= value.discount < 1.0, "must lie in [0, 1)")
    positive = {
        "value_bound": value.value_bound,
        "learning_rate": fit.learning_rate,
        "adam_epsilon": fit.adam_epsilon,
        "divergence_bound": fit.divergence_bound,
    }
    for name, number in positive.items():
        _check(name, number, number > 0.0, "must be positive")
    not_negative = {
        "reward_clip": value.reward_clip,
        "ratio_loss_weight": ratio.ratio_loss_weight,
        "normalization_weight": ratio.normalization_weight,
        "priority_floor": replay.priority_floor,
    }
    for name, number in not_negative.items():
        _check(name, number, number >= 0.0, "must not be negative")
    if ratio.rho_clip is not None:
        _check("rho_clip", ratio.rho_clip, ratio.rho_clip > 0.0, "must be positive")


def _check_combinations(config: TrainConfig) -> None:
    ratio, replay = config.ratio, config.replay
    uses_ratio = replay.priority in ("ratio", "ratio-rho") or replay.correction == "reweight"
    if uses_ratio and not ratio.learn_ratio:
        raise InputError(
            "the ratio is used but not learned: set learn_ratio, or priority uniform with resampling"
        )
    if replay.correction == "reweight" and replay.priority != "uniform":
        raise InputError(
            f"correction reweight draws uniformly, but priority is '{replay.priority}': add priority uniform"
        )
    if ratio.normalization_weight > 0 and ratio.semantics == "visits":
        raise InputError(
            "normalization_weight needs semantics restart or paper: under visits E_μ[c] is not 1"
        )
    if ratio.ratio_weighting == "inverse" and ratio.ratio_discount == 1.0:
        raise InputError(
            "ratio_weighting inverse needs ratio_discount below 1: 1/c is unbounded at 1"
        )
    if replay.refresh == "both" and replay.priority != "ratio":
        raise InputError(
            f"refresh both writes c as the priority, so it needs priority ratio, but it is '{replay.priority}'"
        )
    if ratio.ratio_batch == "prioritized" and (
        replay.refresh == "both" or ratio.semantics == "restart" or ratio.normalization_weight > 0
    ):
        raise InputError(
            "ratio_batch prioritized shows what goes wrong with the paper's agent: it needs refresh prioritized, "
            "semantics visits or paper, and no normalization"
        )
    if ratio.semantics == "restart" and ratio.initial_rule == "source":
        raise InputError(
            "initial_rule source has no meaning with semantics restart: no state is initial"
        )


def _check(name: str, value: float, fits: bool, demand: str) -> None:
    if not fits:
        raise InputError(f"{name} {demand}, but it is {value}")
