"""All claims of the study, in the order in which the page shows them."""

from typing import Any

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import (
    beyond,
    contraction,
    convergence,
    episodes,
    matching,
    mean_ratio,
    misspecified,
    mixtures,
    normalization,
    projection,
    traces,
    value,
)

GROUPS: dict[str, list[Claim[Any]]] = {
    "Values from off-policy data": value.CLAIMS,
    "The COP operator and its discounted form": convergence.CLAIMS,
    "COP with linear features": projection.CLAIMS,
    "Concentration and contraction": contraction.CLAIMS,
    "Soft normalization": normalization.CLAIMS,
    "Episodes": episodes.CLAIMS,
    "The mean ratio of episodes": mean_ratio.CLAIMS,
    "Past the paper": beyond.CLAIMS,
    "Traces and the ratio": traces.CLAIMS,
    "Data of several policies": mixtures.CLAIMS,
    "The matching loss": matching.CLAIMS,
    "The matching loss where its family does not hold the ratio": misspecified.CLAIMS,
}

CLAIMS: list[Claim[Any]] = [claim for group in GROUPS.values() for claim in group]
