"""Torsos and heads; no losses."""

from covshift.networks.agent import AgentNetwork, make_agent_network, value_support
from covshift.networks.heads import RatioHead, ValueHead
from covshift.networks.torsos import MinAtarTorso, NatureTorso, VectorTorso, make_torso

__all__ = [
    "AgentNetwork",
    "MinAtarTorso",
    "NatureTorso",
    "RatioHead",
    "ValueHead",
    "VectorTorso",
    "make_agent_network",
    "make_torso",
    "value_support",
]
