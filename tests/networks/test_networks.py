import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from covshift.config.presets import make_config
from covshift.errors import InputError
from covshift.networks import (
    SOFTPLUS,
    MinAtarTorso,
    NatureTorso,
    RatioHead,
    SmallFrameTorso,
    VectorTorso,
    make_agent_network,
    make_link,
    make_torso,
)


def test_the_torso_follows_the_observation() -> None:
    assert isinstance(make_torso((4, 84, 84)), NatureTorso)
    assert isinstance(make_torso((4, 60, 90)), NatureTorso)
    assert isinstance(make_torso((4, 59, 90)), SmallFrameTorso)
    assert isinstance(make_torso((4, 42, 42)), SmallFrameTorso)
    assert isinstance(make_torso((10, 10, 7)), MinAtarTorso)
    assert isinstance(make_torso((13,)), VectorTorso)
    for shape in ((), (2, 3), (40, 40, 3), (1, 2, 3)):
        with pytest.raises(InputError, match="no network takes states of shape"):
            make_torso(shape)


def test_nature_torso_is_the_plain_one_on_scaled_frames() -> None:
    torso = make_torso((4, 84, 84))
    assert isinstance(torso, NatureTorso)
    frames = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    x = frames.float() / 255.0
    x = F.relu(F.conv2d(x, torso.conv1.weight, torso.conv1.bias, stride=4))
    x = F.relu(F.conv2d(x, torso.conv2.weight, torso.conv2.bias, stride=2))
    x = F.relu(F.conv2d(x, torso.conv3.weight, torso.conv3.bias)).permute(0, 2, 3, 1).flatten(1)
    assert torso.num_features == 3136
    torch.testing.assert_close(torso(frames), x, atol=1e-5, rtol=1e-4)


def test_small_frames_give_the_maps_that_frames_of_twice_the_side_give_the_network_of_2013() -> (
    None
):
    """Each pixel shown as 2 × 2, and each filter spread over 8 × 8, must come to the same."""
    torso = make_torso((4, 42, 42))
    assert isinstance(torso, SmallFrameTorso)
    frames = torch.randint(0, 256, (3, 4, 42, 42), dtype=torch.uint8)
    twice = frames.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3).float() / 255.0
    spread = torso.conv1.weight.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3) / 4.0
    x = F.relu(F.conv2d(twice, spread, torso.conv1.bias, stride=4))
    assert x.shape == (3, 16, 20, 20)
    x = F.relu(F.conv2d(x, torso.conv2.weight, torso.conv2.bias, stride=2))
    assert x.shape == (3, 32, 9, 9)
    torch.testing.assert_close(torso(frames), x.flatten(1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "features", "hidden"),
    [
        ((4, 84, 84), 3136, 512),
        ((4, 42, 42), 2592, 256),
        ((4, 36, 48), 7 * 10 * 32, 256),
        ((10, 10, 4), 1024, 128),
        ((6,), 128, 128),
    ],
)
def test_sizes(shape: tuple[int, ...], features: int, hidden: int) -> None:
    torso = make_torso(shape)
    states = torch.randint(0, 2, (2, *shape), dtype=torch.uint8)
    assert torso(states).shape == (2, features)
    assert torso.head_hidden == hidden


@pytest.mark.parametrize("shape", [(4, 84, 84), (4, 42, 42), (10, 10, 4), (6,)])
def test_a_width_multiplies_every_layer(shape: tuple[int, ...]) -> None:
    usual, narrow = make_torso(shape), make_torso(shape, 0.25)
    assert (4 * narrow.num_features, 4 * narrow.head_hidden) == (
        usual.num_features,
        usual.head_hidden,
    )
    states = torch.randint(0, 2, (2, *shape), dtype=torch.uint8)
    assert narrow(states).shape == (2, narrow.num_features)
    assert make_torso(shape, 0.001).head_hidden == 1
    config = make_config("x", "c51-matched", "smoke", width=0.25)
    network = make_agent_network(config, shape, 3)
    assert network.torso.num_features == narrow.num_features
    assert network.ratio_head is not None
    assert network.ratio_head.layers[0].out_features == narrow.head_hidden


def test_the_ratio_starts_near_one() -> None:
    features = torch.rand(200, 30)
    for name in ("linear", "softplus", "exponential", "safe"):
        c = RatioHead(30, 64, make_link(name, 0.9))(features)
        assert c.shape == (200,)
        assert (c - 1).abs().mean() < 0.3
    assert (RatioHead(30, 0, SOFTPLUS)(-100 * features) > 0).all()


def test_floored_links_by_hand() -> None:
    """1 - γ̂ + γ̂ e^z at γ̂ = 0.9, and for the safe link 1 + z in place of e^z above 0."""
    z = torch.tensor([-1000.0, 0.0, math.log(2.0), 3.0])
    exponential, safe = make_link("exponential", 0.9), make_link("safe", 0.9)
    torch.testing.assert_close(
        exponential.ratio(z), torch.tensor([0.1, 1.0, 1.9, 0.1 + 0.9 * math.e**3])
    )
    torch.testing.assert_close(
        safe.ratio(z), torch.tensor([0.1, 1.0, 1.0 + 0.9 * math.log(2.0), 3.7])
    )
    with pytest.raises(InputError, match="the exponential link overflows at z = 100"):
        exponential.ratio(torch.tensor([100.0]))


def test_weights_depend_on_the_seed_alone() -> None:
    def weights(seed: int, preset: str = "c51-corrected") -> torch.Tensor:
        config = make_config("x", preset, seed=seed)
        network = make_agent_network(config, (5,), 3)
        return torch.cat([p.flatten() for p in network.value_head.parameters()])

    state = torch.random.get_rng_state()
    first = weights(0)
    torch.rand(3)
    torch.testing.assert_close(weights(0), first)
    assert not torch.equal(weights(1), first)
    # With or without a ratio head the value's weights are the same: arms of a study differ in what they say.
    torch.testing.assert_close(weights(0, "c51"), first)
    torch.random.set_rng_state(state)
    before = torch.rand(1)
    torch.random.set_rng_state(state)
    weights(3)
    assert torch.equal(torch.rand(1), before)


def test_states_need_not_be_bytes() -> None:
    network = make_agent_network(make_config("x", "c51"), (3,), 2)
    assert network.ratio_head is None
    assert network.value_head(network.torso(torch.zeros(4, 3, dtype=torch.float64))).shape == (
        4,
        2,
        51,
    )
    assert np.isfinite(network.torso(torch.ones(1, 3, dtype=torch.bool)).detach().numpy()).all()
