"""The mass closure: ratios that are bootstrapped from get the mass that the balance of the data asks for."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from covshift.learners.deep.batches import EndBatch
from covshift.rules import mass_closure

_MEMORY = 0.999
"""Share of the running means that one batch leaves unchanged: they look back over about a thousand updates."""


@final
class MassClosure:
    """The factor α of B7 for ratios that are bootstrapped from, out of running means over batches.

    In a finite dataset the mean of ρc differs from the mean of c by a percent or so, and bootstrapping repeats that
    error at every step back: over 1/(1 - γ̂) steps it can double E_μ[c] or halve it. α needs ρ only where episodes end,
    and it does not repeat an error.

    Args:
        ratio_discount: γ̂.
        device: where the means live.

    Attributes:
        means: running means of c over states that another state of their episode follows, of c over the other states,
            and of ρc over those.
    """

    def __init__(self, ratio_discount: float, device: torch.device) -> None:
        self.ratio_discount = ratio_discount
        self.means = torch.ones(3, device=device)  # Heads start with c = 1.

    def factor(
        self, c_inner: Tensor, is_inner: Tensor, c_end: Tensor, rho_end: Tensor, ends: EndBatch
    ) -> Tensor:
        """Takes in a batch, and returns α.

        Args:
            c_inner: ratios of states that another state of their episode follows, drawn uniformly.
            is_inner: which of them count.
            c_end: ratios of states that end an episode, drawn uniformly.
            rho_end: ρ of the actions taken there.
            ends: these states.
        """
        counted = is_inner.to(c_inner.dtype)
        seen = torch.stack(
            [(c_inner * counted).sum() / counted.sum(), c_end.mean(), (rho_end * c_end).mean()]
        )
        # A part of which the batch has no state keeps its mean.
        self.means = torch.where(seen.isnan(), self.means, torch.lerp(seen, self.means, _MEMORY))
        inner, end, ended = self.means
        # Float64 wherever the shares come from: an agent alone has numbers, an agent in a stack has tensors.
        share, initial_share = (
            torch.as_tensor(x, dtype=torch.float64, device=self.means.device)
            for x in (ends.share, ends.initial_share)
        )
        mean_ratio = (1.0 - share) * inner + share * end
        factor: Tensor = mass_closure(mean_ratio, share * ended, initial_share, self.ratio_discount)
        return factor
