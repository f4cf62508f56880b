"""Torsos and heads; no losses."""

from covshift.extras import require

require("torch")

from covshift.networks.agent import AgentNetwork, make_agent_network, value_support
from covshift.networks.heads import RatioHead, ValueHead
from covshift.networks.links import LINEAR, SOFTPLUS, FlooredLink, RatioLink, make_link
from covshift.networks.torsos import (
    MinAtarTorso,
    NatureTorso,
    SmallFrameTorso,
    VectorTorso,
    make_torso,
)

__all__ = [
    "LINEAR",
    "SOFTPLUS",
    "AgentNetwork",
    "FlooredLink",
    "MinAtarTorso",
    "NatureTorso",
    "RatioHead",
    "RatioLink",
    "SmallFrameTorso",
    "ValueHead",
    "VectorTorso",
    "make_agent_network",
    "make_link",
    "make_torso",
    "value_support",
]
