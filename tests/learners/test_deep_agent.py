"""The agent's update against a slow twin that takes one sample at a time and follows the paper's text."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covshift.config.presets import make_config
from covshift.config.training import TrainConfig
from covshift.data.samplers import PrioritizedSampler
from covshift.data.store import Store
from covshift.learners.deep import (
    AgentLearner,
    AgentLoss,
    Diverged,
    RatioBatch,
    ValueBatch,
    closure,
    end_batch,
    make_priority,
    priorities,
    ratio_batch,
    value_batch,
)
from covshift.networks import AgentNetwork, RatioHead, make_agent_network

VARIANTS: list[dict[str, Any]] = [
    {"preset": "c51"},
    {"preset": "c51-conservative"},
    {"preset": "c51-behavior", "value_steps": 2},
    {"preset": "c51-matched", "conservatism": 0.5, "bootstrap_action": "data"},
    {"preset": "c51-td-priority", "conservatism": 0.5},
    {"preset": "c51-corrected"},
    {"preset": "c51-normalized"},
    {"preset": "c51-dual"},
    {"preset": "c51-matched", "ratio_loss_weight": 0.5},
    {"preset": "c51-matched", "ratio_head": "exponential", "ratio_steps": 2},
    {"preset": "c51-matched", "ratio_loss": "squared", "ratio_loss_weight": 0.5},
    {"preset": "c51-matched", "mass_closure": False},
    {"preset": "c51-matched", "semantics": "restart"},
    {"preset": "c51-corrected", "mass_closure": True},
    {"preset": "c51-auxiliary-td-priority"},
    {"preset": "c51-corrected", "ratio_steps": 3, "value_steps": 3},
    {"preset": "c51-corrected", "semantics": "restart", "normalization_weight": 0.3},
    {"preset": "c51-corrected", "rho_clip": 1.5, "ratio_discount": 0.8},
    {"preset": "c51-corrected", "initial_rule": "source"},
    {"preset": "c51-corrected", "source_clip": False},
    {"preset": "c51-auxiliary", "correction": "reweight", "ratio_loss_weight": 0.5},
    {"preset": "c51-auxiliary", "correction": "reweight-mean", "ratio_loss_weight": 0.5},
    {"preset": "c51-corrected", "priority": "ratio-rho"},
    {"preset": "c51-corrected", "ratio_gradient": "head"},
    {"preset": "c51", "value_trace": "retrace", "trace_steps": 4},
    {"preset": "c51-td-priority", "value_trace": "retrace", "trace_steps": 3, "trace_decay": 0.8},
    {"preset": "c51-corrected", "value_trace": "retrace", "target_epsilon": 0.6, "ratio_steps": 2},
    {"preset": "c51-matched", "value_trace": "retrace", "cut_at_life_loss": True},
]


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(str(value) for value in variant.values())


def plain_learner(config: TrainConfig) -> AgentLearner:
    network = make_agent_network(config, (3,), 4)
    priority = make_priority(config.replay)
    return AgentLearner(AgentLoss(config, network, priority, torch.device("cpu")))


def learner_of(config: TrainConfig) -> AgentLearner:
    learner = plain_learner(config)
    # A target network that differs, and ratios of both signs, so that a mix-up or a missing clip shows.
    other = make_agent_network(config.replace_leaves(seed=9), (3,), 4)
    learner.target.load_state_dict(other.state_dict())
    t = torch.linspace(0, 1, 41)
    states = torch.stack([t, t**2, torch.ones(41)], dim=1)
    for network in (learner.network, learner.target):
        if network.ratio_head is not None and config.network.ratio_head == "linear":
            assert isinstance(network.ratio_head, RatioHead)
            last = cast(nn.Linear, network.ratio_head.layers[-1])
            with torch.no_grad():
                last.weight.mul_(20)
                last.bias.sub_(network.ratio(network.torso(states)).median())
    return learner


def batches(store: Store, config: TrainConfig) -> tuple[ValueBatch, RatioBatch | None, Any, Any]:
    rng = np.random.default_rng(3)
    ids = rng.choice(np.flatnonzero(store.is_transition), 16)
    states = rng.choice(np.flatnonzero(store.is_state), 16)
    values = value_batch(store, ids, config.value)
    if not config.ratio.learn_ratio:
        return values, None, ids, states
    ratios = ratio_batch(store, states, config.ratio)
    if config.ratio.mass_closure:
        ends = rng.choice(np.flatnonzero(store.is_end), 8)
        if config.ratio.semantics == "restart":
            ratios = ratios._replace(ends=end_batch(store, ends[:0], 0.0, 0.0))
        else:
            ratios = ratios._replace(ends=end_batch(store, ends, 0.3, 0.25))
    return values, ratios, ids, states


def q_of(network: AgentNetwork, state: Any, support: Tensor) -> tuple[Tensor, Tensor]:
    logits = network.value_head(network.torso(torch.from_numpy(state[None])))[0]
    p = torch.softmax(logits, dim=-1)
    return (p * support).sum(-1), logits


def pi_of(learner: AgentLearner, state: Any, action: int) -> float:
    """ε-greedy on the target network."""
    q, _ = q_of(learner.target, state, learner.support)
    epsilon = learner.config.ratio.target_epsilon
    return epsilon / 4 + (1 - epsilon) * float(action == int(q.argmax()))


def c_of(network: AgentNetwork, state: Any, *, head_only: bool = False) -> Tensor:
    features = network.torso(torch.from_numpy(state[None]))
    return network.ratio(features.detach() if head_only else features)[0]


def twin_loss(
    learner: AgentLearner, values: ValueBatch, ratios: RatioBatch | None, weights: Any
) -> Tensor:
    config, z = learner.config, learner.support
    spacing = z[1] - z[0]
    total = torch.zeros(())
    for k in range(len(values.a_tm1)):
        target = torch.zeros(len(z))
        for mass, total_t, discount_t in twin_outcomes(learner, values, k):
            for j in range(len(z)):
                x = float(total_t + discount_t * z[j])
                b = (min(max(x, float(z[0])), float(z[-1])) - float(z[0])) / float(spacing)
                low = min(int(np.floor(b)), len(z) - 1)
                high = min(low + 1, len(z) - 1)
                target[low] += mass[j].item() * (1 - (b - low))
                target[high] += mass[j].item() * (b - low)
        q, online = q_of(learner.network, values.s_tm1[k], z)
        taken = int(values.a_tm1[k])
        entropy = -(target * torch.log_softmax(online[taken], dim=-1)).sum()
        entropy = entropy + config.value.conservatism * (torch.exp(q).sum().log() - q[taken])
        weight = 1.0 if weights is None else float(weights[k])
        if config.replay.correction != "resample":
            ratios_of_batch = [max(0.0, c_of(learner.network, s).item()) for s in values.s_tm1]
            weight = ratios_of_batch[k]
            if config.replay.correction == "reweight-mean":
                weight /= float(np.mean(ratios_of_batch))
        total = total + weight * entropy / len(values.a_tm1)
    return total if ratios is None else total + twin_ratio_loss(learner, ratios)


def twin_outcomes(
    learner: AgentLearner, values: ValueBatch, k: int
) -> list[tuple[Tensor, float, float]]:
    """Masses on the atoms, with the return and discount that move them: one, or one for each step of Retrace."""
    z, trace = learner.support, values.trace
    q, logits = q_of(learner.target, values.s_t[k], z)
    p = torch.softmax(logits, dim=-1)
    if trace is None:
        action = int(q.argmax())
        if learner.config.value.bootstrap_action == "data":
            assert values.a_t is not None
            action = int(values.a_t[k]) if values.a_t[k] >= 0 else action
        return [(p[action], values.return_t[k], values.discount_t[k])]
    outcomes, weight, state = [], 1.0, values.s_t[k]
    total, discount = values.return_t[k], values.discount_t[k]
    for step in range(len(trace.a_window) + 1):
        q, logits = q_of(learner.target, state, z)
        p = torch.softmax(logits, dim=-1)
        pi = [pi_of(learner, state, action) for action in range(len(p))]
        mass = sum((pi[action] * p[action] for action in range(len(p))), torch.zeros(len(z)))
        passed = 0.0
        if step < len(trace.a_window) and trace.decay_window[step, k] > 0:
            action = int(trace.a_window[step, k])
            passed = min(1.0, pi[action] / float(trace.mu_window[step, k]))
            passed *= learner.config.value.trace_decay
            mass = mass - passed * p[action]
        outcomes.append((weight * mass, total, discount))
        weight *= passed
        if weight == 0.0:
            return outcomes
        state, total = trace.s_window[step, k], trace.return_window[step, k]
        discount = trace.discount_window[step, k]
    return outcomes


def twin_ratio_loss(learner: AgentLearner, ratios: RatioBatch) -> Tensor:
    options = learner.config.ratio
    size = len(ratios.s_t)
    head_only = learner.config.network.ratio_gradient == "head"
    c = [c_of(learner.network, s, head_only=head_only) for s in ratios.s_t]
    inverse = (
        [1.0 / max(x.item(), 1 - options.ratio_discount) for x in c]
        if options.ratio_weighting == "inverse"
        else []
    )
    factor = twin_mass_factor(learner, ratios) if options.mass_closure else 1.0
    total = torch.zeros(())
    for k in range(size):
        target = c_of(learner.target, ratios.s_window[0, k]).item()
        if options.source_clip:
            target = max(0.0, target)
        target *= factor
        if options.initial_rule == "source" and ratios.is_source_initial[k]:
            target = 1.0
        for step in range(options.ratio_steps):
            action = int(ratios.a_window[step, k])
            rho = pi_of(learner, ratios.s_window[step, k], action) / ratios.mu_window[step, k]
            if options.rho_clip is not None:
                rho = min(rho, options.rho_clip)
            target = options.ratio_discount * rho * target + 1 - options.ratio_discount
            if ratios.is_initial_window[step, k]:
                target = 1.0
        weight = inverse[k] / float(np.mean(inverse)) if inverse else 1.0
        error = (target - c[k]) ** 2
        if options.ratio_loss == "matching":
            error = twin_matching_loss(learner, ratios.s_t[k], target)
        if ratios.is_trained_t[k]:
            total = total + options.ratio_loss_weight * weight * error / size
        others = (sum(x.item() for x in c) - c[k].item()) / (size - 1)
        total = total + options.normalization_weight * (others - 1) * c[k] / size
    return total


def twin_mass_factor(learner: AgentLearner, ratios: RatioBatch) -> float:
    """α after the first batch, which moves each running mean three quarters of the way from 1."""
    options, ends = learner.config.ratio, ratios.ends
    assert ends is not None

    def source(state: Any) -> float:
        c = c_of(learner.target, state).item()
        return max(0.0, c) if options.source_clip else c

    before, initial = ratios.s_window[-1], ratios.is_initial_window[-1]
    inner = [source(before[k]) for k in range(len(before)) if not initial[k]]
    end = [source(state) for state in ends.s_tm1]
    ended = [
        c if cut else c * pi_of(learner, state, int(action)) / mu
        for c, cut, state, action, mu in zip(
            end, ends.is_cut, ends.s_tm1, ends.a_tm1, ends.mu_tm1, strict=True
        )
    ]
    means = [0.25 + 0.75 * float(np.mean(part)) if part else 1.0 for part in (inner, end, ended)]
    gamma = options.ratio_discount
    mean_ratio = (1 - ends.share) * means[0] + ends.share * means[1]
    leaves = (1 - gamma) * mean_ratio + gamma * ends.share * means[2]
    return (1 - gamma + gamma * ends.initial_share) / leaves


def twin_matching_loss(learner: AgentLearner, state: Any, target: float) -> Tensor:
    """∫ (x - X) dz from 0, with x = (c - (1 - γ̂))/γ̂ = g(z) and X the same of the target, by the trapezoid rule.

    Its value differs from G(z) - X z by G(0), which has no gradient.
    """
    head = learner.network.ratio_head
    assert head is not None
    gamma = learner.config.ratio.ratio_discount
    z = head.score(learner.network.torso(torch.from_numpy(state[None])))[0]
    points = torch.linspace(0, 1, 2001, dtype=torch.float64) * z
    arrivals = (head.link.ratio(points) - (1 - gamma)) / gamma
    return torch.trapezoid(arrivals - (target - (1 - gamma)) / gamma, points)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_gradients_equal_those_of_the_twin(
    toy_store: Store, variant: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "_MEMORY", 0.25)  # So that the first batch counts.
    config = make_config("x", scale="smoke", **variant)
    learner = learner_of(config)
    values, ratios, _, _ = batches(toy_store, config)
    weights = np.linspace(0.2, 1.0, 16) if config.replay.priority == "td-error" else None
    parameters = dict(learner.network.named_parameters())
    expected = torch.autograd.grad(
        twin_loss(learner, values, ratios, weights), list(parameters.values())
    )
    before = {name: value.detach().clone() for name, value in parameters.items()}
    learner.update(values, ratios, weights)
    for (name, parameter), gradient in zip(parameters.items(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-6, rtol=1e-4, msg=name)
        # The first step of Adam goes against the gradient's sign.
        step = parameter.detach() - before[name]
        assert (step * gradient <= 1e-12).all()


@pytest.mark.parametrize("priority", ["ratio", "ratio-rho", "td-error"])
def test_priorities_are_those_before_the_step(toy_store: Store, priority: str) -> None:
    config = make_config("x", "c51-corrected", "smoke", priority=priority)
    learner = learner_of(config)
    values, ratios, _, _ = batches(toy_store, config)
    expected = []
    for k in range(16):
        c = max(0.0, c_of(learner.network, values.s_tm1[k]).item())
        rho = pi_of(learner, values.s_tm1[k], int(values.a_tm1[k])) / values.mu_tm1[k]
        expected.append(c * rho if priority == "ratio-rho" else c)
    fields = values._asdict().items()
    only = [
        ValueBatch(**{name: part[k : k + 1] for name, part in fields if part is not None})
        for k in range(16)
    ]
    if priority == "td-error":
        expected = [(twin_loss(learner, one, None, None).item() + 1e-10) ** 0.5 for one in only]
    assert ratios is not None
    c_t = [max(0.0, c_of(learner.network, s).item()) for s in ratios.s_t]
    report = learner.update(values, ratios)
    assert report.priority is not None
    assert report.ratio is not None
    np.testing.assert_allclose(report.priority, expected, rtol=1e-5)
    np.testing.assert_allclose(report.ratio, c_t, rtol=1e-5)
    assert min(c_t) == 0.0 < max(c_t)


def test_a_negative_cross_entropy_is_a_td_error_of_zero() -> None:
    """Retrace's targets are signed."""
    priority = make_priority(make_config("x", "c51-td-priority", "smoke").replay)
    assert priority is not None
    errors = torch.tensor([-2.0, 0.0, 4.0])
    found = priority.of_drawn(priorities.DrawnTransitions(errors, Tensor, Tensor))
    torch.testing.assert_close(found, torch.tensor([1e-5, 1e-5, 2.0]))


def test_running_means_of_the_mass_closure_look_back_over_a_thousand_batches(
    toy_store: Store,
) -> None:
    """After 1 000 batches of c = 3 a share 0.999^1000 of the first mean 1 is left, and α follows by hand."""
    found = closure.MassClosure(0.9, torch.device("cpu"))
    ends = end_batch(toy_store, np.flatnonzero(toy_store.is_end)[:2], 0.2, 0.1)
    three = torch.full((2,), 3.0)
    for _ in range(1000):
        factor = found.factor(three, torch.tensor([True, True]), three, torch.ones(2), ends)
    mean = 3 - 2 * 0.999**1000
    torch.testing.assert_close(found.means, torch.full((3,), mean), rtol=1e-4, atol=0.0)
    assert float(factor) == pytest.approx(0.19 / (0.1 * mean + 0.9 * 0.2 * mean), rel=1e-4)


def test_sampling_by_the_ratio_recovers_the_reweighted_gradient(toy_store: Store) -> None:
    """Σ p_i ∇L_i with p ∝ c equals Σ c_i ∇L_i over Σ c_i: the paper's 'in expectation'."""
    config = make_config("x", "c51-auxiliary", "smoke", ratio_loss_weight=0.0, learning_rate=1e-12)
    learner = learner_of(config)
    ids = np.flatnonzero(toy_store.is_transition)

    def gradient(rows: Any) -> np.ndarray:
        values = value_batch(toy_store, rows, config.value)
        ratios = ratio_batch(toy_store, ids[:2], config.ratio)
        learner.update(values, ratios)
        parts = [*learner.network.torso.parameters(), *learner.network.value_head.parameters()]
        return np.concatenate([p.grad.numpy().ravel() for p in parts if p.grad is not None])

    each = np.stack([gradient(ids[k : k + 1]) for k in range(len(ids))])
    c = np.array([max(0.0, c_of(learner.network, s).item()) for s in toy_store.states(ids)])
    assert (c == 0).any()
    sampler = PrioritizedSampler(
        toy_store.is_transition, np.random.default_rng(0), len(toy_store), floor=0.0
    )
    sampler.slide(0, len(toy_store))
    sampler.update(ids, c)
    expected = (sampler.probabilities(ids)[:, None] * each).sum(axis=0)

    reweighting = config.replace_leaves(correction="reweight")
    other = learner_of(reweighting)
    values = value_batch(toy_store, ids, config.value)
    other.update(values, ratio_batch(toy_store, ids[:2], config.ratio))
    parts = [*other.network.torso.parameters(), *other.network.value_head.parameters()]
    weighted = np.concatenate([p.grad.numpy().ravel() for p in parts if p.grad is not None])
    np.testing.assert_allclose(expected, weighted / c.mean(), atol=1e-6)


def test_the_target_network_is_copied_every_period(toy_store: Store) -> None:
    config = make_config("x", "c51-corrected", "smoke", target_period=12)
    learner = plain_learner(config)
    values, ratios, _, _ = batches(toy_store, config)
    start = learner.target.state_dict()["value_head.layers.0.weight"].clone()
    for update in range(1, 7):
        learner.update(values, ratios)
        target = learner.target.state_dict()["value_head.layers.0.weight"]
        online = learner.network.state_dict()["value_head.layers.0.weight"]
        assert torch.equal(target, start) == (update < 3)
        assert torch.equal(target, online) == (update % 3 == 0)


def test_an_exponential_head_that_overflows_says_what_to_do(toy_store: Store) -> None:
    config = make_config("x", "c51-matched", "smoke", ratio_head="exponential")
    learner = learner_of(config)
    values, ratios, _, _ = batches(toy_store, config)
    assert ratios is not None
    huge = ratios._replace(s_t=np.full_like(ratios.s_t, 1e6))
    assert learner.network.ratio_head is not None
    last = cast(nn.Linear, learner.network.ratio_head.layers[-1])
    with torch.no_grad():
        last.weight.abs_()
    with pytest.raises(Diverged, match=r"update 1: the exponential link overflows .* safe link"):
        learner.update(values, huge)
    assert learner.num_updates == 0


def test_divergence_changes_nothing(toy_store: Store) -> None:
    config = make_config("x", "c51-corrected", "smoke")
    learner = learner_of(config)
    values, ratios, _, _ = batches(toy_store, config)
    assert ratios is not None
    broken = values._replace(s_tm1=np.full_like(values.s_tm1, np.nan))
    state = {name: value.clone() for name, value in learner.network.state_dict().items()}
    with pytest.raises(Diverged, match="the loss of update 1 is nan"):
        learner.update(broken, ratios)
    huge = ratios._replace(s_t=np.full_like(ratios.s_t, 1e6))
    with pytest.raises(Diverged, match=r"the mean \|c\| of update 1 is .* beyond 1000"):
        learner.update(values, huge)
    assert learner.num_updates == 0
    for name, value in learner.network.state_dict().items():
        torch.testing.assert_close(value, state[name])


def test_negative_ratios_of_any_size_are_a_divergence(toy_store: Store) -> None:
    config = make_config("x", "c51-corrected", "smoke", divergence_bound=100.0)
    learner = plain_learner(config)
    values, ratios, _, _ = batches(toy_store, config)
    assert learner.network.ratio_head is not None
    last = cast(nn.Linear, learner.network.ratio_head.layers[-1])
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(-99.0)
    learner.update(values, ratios)
    with torch.no_grad():
        last.bias.fill_(-101.0)
    with pytest.raises(Diverged, match="101"):
        learner.update(values, ratios)


def test_the_policy_of_priorities_is_that_of_the_target_network(toy_store: Store) -> None:
    """The networks are greedy for the two actions that the batch has most often, each for one."""
    config = make_config("x", "c51-corrected", "smoke", priority="ratio-rho")
    learner = learner_of(config)
    values, ratios, _, _ = batches(toy_store, config)
    of_online, of_target = np.argsort(np.bincount(values.a_tm1, minlength=4))[-2:]
    with torch.no_grad():
        for network, greedy in ((learner.network, of_online), (learner.target, of_target)):
            last = [m for m in network.value_head.modules() if isinstance(m, nn.Linear)][-1]
            last.weight.zero_()
            last.bias.zero_()
            last.bias.view(4, -1)[greedy, -1] = 9.0
    c = np.array([max(0.0, c_of(learner.network, s).item()) for s in values.s_tm1])
    rho = np.where(values.a_tm1 == of_target, 0.925, 0.025) / values.mu_tm1
    report = learner.update(values, ratios)
    assert report.priority is not None
    np.testing.assert_allclose(report.priority, c * rho, rtol=1e-4)
    assert (c[values.a_tm1 == of_online] > 0).any()
    assert (c[values.a_tm1 == of_target] > 0).any()
