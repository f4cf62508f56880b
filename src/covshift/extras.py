"""Packages that only some parts of covshift need, and how to install them."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple, final

from covshift.errors import InputError, reason_of


@final
class MissingExtraError(InputError, ImportError):
    """A package of an extra is not installed."""


class Extra(NamedTuple):
    """An extra of `pyproject.toml`.

    Attributes:
        modules: what it installs.
        need: who needs what, as a clause of the error.
    """

    modules: tuple[str, ...]
    need: str


EXTRAS = {
    "games": Extra(("ale_py", "minatar"), "Atari and MinAtar games need ale-py and minatar"),
    "minari": Extra(("minari",), "Minari datasets need minari"),
    "ray": Extra(("ray",), "runs on a Ray cluster need ray"),
    "sb3": Extra(("torch", "stable_baselines3"), "replay buffers for DQN need stable-baselines3"),
    "tensorboard": Extra(("tensorboard",), "TensorBoard events need tensorboard"),
    "wandb": Extra(("wandb",), "the Weights & Biases log needs wandb"),
    "torch": Extra(("torch",), "agents and neural networks need PyTorch"),
}


def require(*extras: str) -> None:
    """Raises an error unless the packages of these extras are installed. It imports none of them, so it takes no time.

    Raises:
        MissingExtraError: packages are missing; the message names the command that installs them all.

    Example:
        >>> require("torch")
    """
    missing = [name for name in extras if not is_installed(name)]
    if missing:
        needs = ", and ".join(EXTRAS[name].need for name in missing)
        raise MissingExtraError(f"{needs}: pip install 'covshift[{','.join(missing)}]'")


def is_installed(extra: str) -> bool:
    """Whether the packages of an extra are there; imports none of them."""
    return all(find_spec(module) is not None for module in EXTRAS[extra].modules)


def extras_of_env(env_id: str) -> tuple[str, ...]:
    """The extras that a Gymnasium environment of this id needs.

    Example:
        >>> extras_of_env("MinAtar/Breakout-v1"), extras_of_env("CartPole-v1")
        (('games',), ())
    """
    return ("games",) if env_id.split("/")[0] in ("ALE", "MinAtar") else ()


@contextmanager
def ray_session(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster. A connection that this process already has is used and kept.

    Args:
        address: the cluster's address; None starts Ray on this machine, also where other clusters run on it.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    require("ray")
    ray: Any = importlib.import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                include_dashboard=False,
                logging_level="ERROR",
            )
        except (ValueError, ConnectionError) as error:
            raise InputError(
                f"Ray cannot be reached at the address {address}: {reason_of(error)}"
            ) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()
