"""All that defines a training run, as one tree of frozen records.

Every setting has a name of its own, so that the command line can leave the branches out. A field's text says its
meaning, its unit and, where the paper has one, the paper's value; "C51" marks what Bellemare, Dabney & Munos
(2017) publish.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from covshift.config.environment import EnvOptions
from covshift.config.ranges import (
    Bound,
    Count,
    NotNegative,
    Positive,
    Range,
    Repeats,
    Seed,
    Share,
    Steps,
    check_ranges,
    check_shares,
)
from covshift.errors import InputError

UPDATE_STEPS = 4
"""Agent steps that one update stands for, whatever the source of the data (C51: one update every 4 steps)."""


@dataclass(frozen=True)
class DataOptions:
    """The logged experience that is learned from."""

    transitions: Count = 10_000_000
    """Transitions to collect where no dataset is given; more of them cover more states (paper: 10 million, its replay)."""

    behavior_policy: tuple[str, ...] = ("uniform",)
    """The behavior policy μ: uniform | file:P.npy | run:DIR,epsilon=E | module:function; if several are given, each episode picks one at random (paper: uniform)."""

    behavior_shares: tuple[float, ...] = ()
    """Share of episodes that picks each behavior policy, in their order, with the sum 1; by default all are picked equally often. Longer episodes fill more of the data."""

    data_seed: Seed = 0
    """Seed of the collection; it does not follow the training seed, so that runs with different training seeds share one dataset unless this differs too."""

    window: Count = 10_000_000
    """Size of the replay: the newest transitions, which can be drawn; a larger one forgets later (paper: 10 million)."""

    warm_up: Count = 20_000
    """Transitions to collect before the first update, with --data stream or online (C51, in Dopamine: 20000)."""

    stream_shard: Count = 32_768
    """Transitions per shard that the collector writes ahead of the learner, with --data stream; a larger one needs more disk and fewer files."""

    acting_epsilon: Annotated[float, Range(0, 1, open_below=True)] = 0.01
    """Probability ε that the agent takes a random action while it collects its own data, after the decay, with --data online; a larger one explores more (C51: 0.01). It must be positive, so that the data have every action."""

    epsilon_decay: Count = 250_000
    """Transitions over which the acting ε falls linearly from 1, after the warm-up; a larger number explores for longer (C51, in Dopamine: 250000)."""

    online_shard: Count = 1000
    """Transitions that the agent collects with the same parameters, in whole episodes of 4 streams, with --data online; with a larger number the agent that acts lags further behind the one that learns. By default as many as pass between copies to the target network."""


@dataclass(frozen=True)
class NetworkOptions:
    """The width of the layers and the ratio's head; the torso follows the observation's shape."""

    width: Annotated[float, Range(0, 16, open_below=True)] = 1.0
    """Units of every layer, as a multiple of the usual network's (C51: 1); a wider network can fit more states well and is slower."""

    ratio_head: Literal["linear", "softplus", "exponential", "safe"] = "linear"
    """Output of the ratio head: linear, whose negative values are clipped to 0 where they are used (paper); softplus, which is positive; or exponential or safe, which add a positive link (e^z; e^z below 0 and 1 + z above) to the floor 1 - γ̂ that every discounted ratio has."""

    ratio_gradient: Literal["torso", "head"] = "torso"
    """Where the ratio's gradient goes: through the torso too (paper), or to its head alone."""


@dataclass(frozen=True)
class ValueOptions:
    """The distributional value."""

    discount: Annotated[float, Range(0, 1, open_above=True)] = 0.99
    """The value's discount γ: rewards count over about 1/(1 - γ) agent steps; a larger one looks further ahead (C51: 0.99)."""

    value_steps: Steps = 1
    """Steps n of the n-step value target; a larger n bootstraps less and follows the behavior policy for longer (C51: 1)."""

    value_trace: Literal["none", "retrace"] = "none"
    """Correction of returns over several steps: none, or retrace, which follows the data as far as the target policy π agrees with it (Munos et al., 2016; distributional as in Gruslys et al., 2018)."""

    trace_decay: Share = 1.0
    """Retrace's trace decay λ: each further step counts at most λ times the one before, so that a larger λ looks further ahead (Gruslys et al.: 1)."""

    trace_steps: Annotated[int, Range(2, 1000)] = 8
    """The most steps that Retrace looks ahead; a larger number uses longer returns and is slower, since an update computes the values of as many states per transition."""

    num_atoms: Annotated[int, Range(2, 65536)] = 51
    """Atoms of the return's distribution; more of them are finer and slower (C51: 51)."""

    value_bound: Annotated[float, Range(1e-6, 1e9)] = 10.0
    """Largest discounted return that can be expressed: the atoms span [-bound, bound]. A larger bound is coarser; if it is too small, edge_share in metrics.csv exceeds 5 % (C51: 10)."""

    reward_clip: NotNegative = 1.0
    """Rewards are clipped to [-clip, clip] in targets, never in scores (C51: 1); 0 leaves them unclipped."""

    bootstrap_action: Literal["greedy", "data"] = "greedy"
    """Action whose value targets bootstrap from: the greedy one (C51), or the one that the data took next, which evaluates the behavior policy and never asks for an action that the data do not show."""

    conservatism: NotNegative = 0.0
    """Weight α of conservative Q-learning's penalty log Σ exp Q(s, a) - Q(s, action of the data); a larger one keeps the greedy policy closer to the data (C51: 0)."""

    cut_at_life_loss: bool = False
    """Treat a lost life as the end of an episode for the value; the ratio ignores lives."""


@dataclass(frozen=True)
class RatioOptions:
    """The covariate shift c(s) = d_π(s)/d_μ(s)."""

    learn_ratio: bool = True
    """Learn the ratio: the network gets a ratio head."""

    ratio_loss: Literal["squared", "matching"] = "squared"
    """Loss of the ratio: squared error (paper), or the matching loss of an exponential or safe head, which keeps the mean ratio right with no projection and no penalty."""

    ratio_loss_weight: NotNegative = 0.02
    """Weight η of the ratio's loss beside the value's; a larger one learns the ratio faster and shapes the shared torso more (paper: 0.02 in Figures 1 and 2's text, 0.002 in Figure 1's caption and Figure 3)."""

    ratio_discount: Share = 0.99
    """The ratio's discount γ̂: the correction reaches about 1/(1 - γ̂) agent steps back. A larger one corrects more, is harder to learn and multiplies errors (paper: 0.99 in Figure 2, 0.999 in Figure 3, 1 with normalization)."""

    ratio_steps: Steps = 1
    """Steps n of the n-step ratio target; a larger n bootstraps less and varies more (paper: 1)."""

    target_epsilon: Share = 0.1
    """The target policy π is ε-greedy on the target network with this ε; with a larger ε the policy is closer to uniform and the ratio closer to 1 (paper: 0.1)."""

    semantics: Literal["visits", "restart", "paper"] = "visits"
    """What c means with episodes: visits (target 1 at initial states), restart (the next episode follows as a transition), or paper (target 1 at initial states and a mean of 1, which cannot both hold)."""

    initial_rule: Literal["target", "source"] = "target"
    """Reading of the paper's rule for initial states s₀: 1 is the target of c(s₀), or 1 stands for c(s₀) wherever it is bootstrapped from."""

    ratio_weighting: Literal["uniform", "inverse"] = "uniform"
    """Weights of the ratio's squared errors: uniform (paper), or inverse, 1/c(s'), under which the projected operator contracts."""

    normalization_weight: NotNegative = 0.0
    """Weight of the loss ½(E_μ[c] - 1)², which pulls the mean ratio to 1, used with γ̂ = 1; a large one flattens the ratio."""

    rho_clip: Bound | None = None
    """Upper bound of the importance ratio ρ = π(a|s)/μ(a|s) in ratio targets; a smaller one has less variance and more bias (paper: none)."""

    source_clip: bool = True
    """Count negative ratios as 0 where they are bootstrapped from (paper), which adds mass and can make the ratio diverge; without it a linear head keeps the mean of its targets."""

    mass_closure: bool = False
    """Multiply ratios that are bootstrapped from by the factor that makes the mass that leaves the data equal to the mass that enters (B7), so that errors of E_μ[c] do not add up over steps."""

    ratio_batch: Literal["uniform", "prioritized"] = "uniform"
    """What the ratio is learned from: an independent uniform batch of states (paper), or the prioritized batch, which is unstable."""


@dataclass(frozen=True)
class ReplayOptions:
    """How the value's transitions are drawn."""

    priority: Literal["uniform", "ratio", "ratio-rho", "td-error"] = "uniform"
    """Draw transitions uniformly, by c(s) (paper), by c(s)·ρ(s,a), or by TD error (Schaul et al., as in Rainbow)."""

    correction: Literal["resample", "reweight", "reweight-mean"] = "resample"
    """Use c(s) as a sampling priority (paper), or draw uniformly and multiply the loss by c(s), or by c(s) over its mean in the batch, which leaves the loss its size (the paper reports that reweighting hurt, and does not say which)."""

    priority_floor: NotNegative = 1e-3
    """Smallest priority, so that every transition is drawn at times; a larger one is closer to uniform draws (paper: 0.0025 in Figure 5, 'later found to be unnecessary')."""

    priority_scale: Literal["raw", "mean"] = "raw"
    """Store ratios as priorities as they are (paper), or over the running mean ratio, so that old and new priorities stay comparable while the mean drifts."""

    priority_tempering: Share = 1.0
    """Exponent τ: transitions are drawn in proportion to priority^τ; smaller is closer to uniform (paper: 1)."""

    effective_floor: Share = 0.0
    """Smallest effective share ESS/N of the distribution that transitions are drawn from, between 0 and 1: the tempering is lowered until it is reached. A larger one is closer to uniform draws; 0 leaves the tempering alone (paper)."""

    uniform_share: Share = 0.0
    """Share of draws that ignores priorities, between 0 and 1; 1 draws uniformly (paper: 0)."""

    refresh: Literal["prioritized", "both"] = "prioritized"
    """Which transitions get new priorities: those of the prioritized batch (paper), or those of the ratio's uniform batch too."""


@dataclass(frozen=True)
class OptimizationOptions:
    """How the network is fitted."""

    num_updates: Count = 9_375_000
    """Number of updates; one stands for 4 agent steps (paper: 150 iterations of 250000 agent steps)."""

    batch_size: Annotated[int, Range(2, 65536)] = 32
    """Transitions in the value's batch, and states in the ratio's; a larger batch has less noise and takes longer (C51: 32)."""

    learning_rate: Positive = 0.00025
    """Adam's step size; a larger one learns faster and less stably (C51: 0.00025)."""

    adam_epsilon: Positive = 0.01 / 32
    """Adam's ε, which is added to the root of the second moment; a larger one makes smaller steps where gradients are small (C51: 0.01/32)."""

    target_period: Count = 1000
    """Agent steps between copies to the target network; a longer period is slower and more stable (paper: 1000, which is 250 updates; Dopamine's C51: 8000)."""

    divergence_bound: Bound = 1000.0
    """Stop the run as diverged when the mean |c| of a batch is larger than this; a larger bound lets it run on for longer."""


@dataclass(frozen=True)
class EvaluationOptions:
    """When and how the policy is evaluated."""

    evaluate_every: Count = 62_500
    """Updates between evaluations (paper: an iteration, 250000 agent steps)."""

    evaluation_episodes: Repeats = 20
    """Episodes per evaluation; more of them give a less noisy score."""

    evaluation_epsilon: Share = 0.001
    """Probability ε of a random action in the scored episodes, on the online network (Dopamine: 0.001)."""

    ratio_episodes: Repeats = 10
    """Episodes of π itself per evaluation, from which the mean ratio under π is taken."""

    calibration_episodes: Annotated[int, Range(0, 10_000)] = 64
    """Episodes of π from starts, and as many from states of the behavior policy, per evaluation, with which the learned ratio is compared. Chance makes an error of about 1/√episodes; 0 leaves the comparison out."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run: what is learned, from what, and for how long.

    Args:
        env: environment id.
        preset: name of the method.
        scale: name of the size.
    """

    env: str
    preset: str = "c51-corrected"
    scale: str = "small"
    seed: Seed = 0
    environment: EnvOptions = field(default_factory=EnvOptions)
    data: DataOptions = field(default_factory=DataOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    value: ValueOptions = field(default_factory=ValueOptions)
    ratio: RatioOptions = field(default_factory=RatioOptions)
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    optimization: OptimizationOptions = field(default_factory=OptimizationOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    def __post_init__(self) -> None:
        check_ranges(self)
        for branch in self._branches().values():
            check_ranges(branch)
        check_shares(self.data.behavior_policy, self.data.behavior_shares)
        _check_combinations(self.ratio, self.replay)
        _check_loss(self.network, self.ratio)
        _check_trace(self.value)

    @property
    def log_every(self) -> int:
        """Updates between rows of the metrics: a fifth of the time between evaluations."""
        return max(1, self.evaluation.evaluate_every // 5)

    @property
    def target_updates(self) -> int:
        """Updates between copies to the target network."""
        return max(1, self.optimization.target_period // UPDATE_STEPS)

    def leaves(self) -> dict[str, Any]:
        """Every setting by its own name."""
        found: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            found |= value if isinstance(value, dict) else {name: value}
        return found

    def replace_leaves(self, **leaves: Any) -> TrainConfig:
        """A copy with some settings changed, by their own names."""
        changed: dict[str, Any] = {}
        for name, branch in self._branches().items():
            names = {leaf.name for leaf in dataclasses.fields(branch)} & set(leaves)
            changed[name] = dataclasses.replace(
                branch, **{leaf: leaves.pop(leaf) for leaf in names}
            )
        own = {item.name for item in dataclasses.fields(self)} - set(changed)
        for name in set(leaves) - own:
            raise InputError(f"there is no field '{name}' in the configuration")
        return dataclasses.replace(self, **changed, **leaves)

    def _branches(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}


@dataclass(frozen=True)
class RuntimeOptions:
    """How a run is computed; what it learns does not depend on it, except for rounding."""

    device: str = "auto"
    """Where the networks live: auto | cpu | cuda | cuda:1 | mps; auto takes a GPU where there is one."""

    threads: Annotated[int, Range(0, 1024)] = 0
    """CPU threads for updates; 0 takes one per core for frames of 60 pixels per side or more, and one for smaller networks, which more make little faster. If two runs share two cores, give each 1 thread."""

    compile: bool = False
    """Use torch.compile on the networks."""

    log: Literal["none", "tensorboard", "wandb"] = "none"
    """Also write the metrics into the run folder for TensorBoard or Weights & Biases, each an extra of this name; wandb is offline unless WANDB_MODE says otherwise."""

    def __post_init__(self) -> None:
        check_ranges(self)


def _check_combinations(ratio: RatioOptions, replay: ReplayOptions) -> None:
    uses_ratio = replay.priority in ("ratio", "ratio-rho") or replay.correction != "resample"
    if uses_ratio and not ratio.learn_ratio:
        raise InputError(
            "the ratio is used but not learned: set learn_ratio, or priority uniform with resampling"
        )
    if replay.correction != "resample" and replay.priority != "uniform":
        raise InputError(
            f"correction {replay.correction} draws uniformly, but priority is '{replay.priority}': add priority uniform"
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
    if replay.priority_scale == "mean" and replay.priority not in ("ratio", "ratio-rho"):
        raise InputError(
            f"priority_scale mean divides ratios by their mean, so it needs priority ratio or ratio-rho, but it is "
            f"'{replay.priority}'"
        )
    if replay.effective_floor > 0 and (
        replay.priority == "uniform" or replay.priority_tempering == 0
    ):
        raise InputError(
            "effective_floor needs a priority and a tempering above 0: uniform draws have the share 1 anyway"
        )
    if ratio.ratio_batch == "prioritized" and (
        replay.refresh == "both" or ratio.semantics == "restart" or ratio.normalization_weight > 0
    ):
        raise InputError(
            "ratio_batch prioritized shows what goes wrong with the paper's agent: it needs refresh prioritized, "
            "semantics visits or paper, and no normalization"
        )
    if ratio.mass_closure and (
        ratio.semantics == "paper"
        or ratio.initial_rule == "source"
        or ratio.ratio_batch == "prioritized"
    ):
        raise InputError(
            "mass_closure balances the ratio of states drawn from the data: it needs semantics visits or restart, "
            "initial_rule target and ratio_batch uniform"
        )
    if ratio.mass_closure and ratio.semantics == "restart" and ratio.ratio_discount == 1.0:
        raise InputError(
            "mass_closure with semantics restart needs ratio_discount below 1: at 1 no mass leaves, and every size of "
            "the ratio is balanced"
        )
    if ratio.semantics == "restart" and ratio.initial_rule == "source":
        raise InputError(
            "initial_rule source has no meaning with semantics restart: no state is initial"
        )


def _check_loss(network: NetworkOptions, ratio: RatioOptions) -> None:
    if ratio.mass_closure and network.ratio_head == "linear" and not ratio.source_clip:
        raise InputError(
            "mass_closure needs ratios that are not negative: a ratio_head exponential, safe or softplus, or source_clip"
        )
    if ratio.ratio_loss != "matching":
        return
    if network.ratio_head not in ("exponential", "safe"):
        raise InputError(
            f"ratio_loss matching needs ratio_head exponential or safe, but it is '{network.ratio_head}'"
        )
    if ratio.ratio_weighting != "uniform":
        raise InputError(
            f"ratio_loss matching keeps the mean ratio under uniform weights only, but ratio_weighting is "
            f"'{ratio.ratio_weighting}'"
        )
    if ratio.ratio_discount == 0.0:
        raise InputError("ratio_loss matching needs ratio_discount above 0: at 0 the ratio is 1")
    if ratio.ratio_discount == 1.0 and ratio.semantics != "restart":
        raise InputError(
            f"ratio_loss matching with ratio_discount 1 needs semantics restart, but it is '{ratio.semantics}': "
            "counted visits have no bound there; lower ratio_discount or set semantics restart"
        )


def _check_trace(value: ValueOptions) -> None:
    if value.value_trace == "retrace" and value.value_steps > 1:
        raise InputError(
            f"value_trace retrace has its own number of steps: set trace_steps {value.value_steps} and "
            "value_steps 1"
        )
    if value.value_trace == "retrace" and value.bootstrap_action == "data":
        raise InputError(
            "value_trace retrace evaluates the target policy, but bootstrap_action data evaluates the behavior policy: "
            "choose one"
        )
