"""Environments: ALE under the field's protocol, MinAtar, the finite MDPs of `theory`, any Gymnasium id.

Importing this room registers the finite MDPs as Gymnasium environments.
"""

from covshift.envs.finite import FiniteMDPEnv, register_finite_mdps
from covshift.envs.streams import Outcome, Streams, make_streams, step_streams

register_finite_mdps()

__all__ = [
    "FiniteMDPEnv",
    "Outcome",
    "Streams",
    "make_streams",
    "register_finite_mdps",
    "step_streams",
]
