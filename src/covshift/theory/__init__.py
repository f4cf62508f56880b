"""Exact theory of finite problems: MDPs, chains, operators, projections, bounds, examples.

Everything is NumPy and SciPy in float64; transition matrices may be dense or sparse. Nothing here learns.
"""

from covshift.theory import examples
from covshift.theory.bounds import (
    ApproximationError,
    approximation_error,
    concentration,
    concentration_limit,
    dual_modulus,
    dual_weighting,
    emphatic_modulus,
    expected_trace,
    mean_ratio_bounds,
    mean_ratio_is_possible,
    printed_concentration_bound,
    reset_margin,
    safe_ratio_discount,
)
from covshift.theory.chain import MarkovChain, Resolvent, as_dense, total_variation
from covshift.theory.matching import (
    MatchingOperator,
    fit_matching,
    kl_divergence,
    project_matching,
)
from covshift.theory.mdp import FiniteMDP, uniform_policy
from covshift.theory.norms import induced_norm, spectral_radius, weighted_norm
from covshift.theory.operators import (
    AffineOperator,
    BellmanOperator,
    CopOperator,
    NormalizedCopOperator,
    PowerOperator,
    ProjectedOperator,
    ResetTransition,
)
from covshift.theory.projections import (
    fit_span,
    project_span,
    project_weighted_simplex,
    span_projection,
)
from covshift.theory.ratios import c_star, chi_squared, d_pi_hat, effective_sample_share, rho
from covshift.theory.traces import RetraceOperator, worst_feature_radius

__all__ = [
    "AffineOperator",
    "ApproximationError",
    "BellmanOperator",
    "CopOperator",
    "FiniteMDP",
    "MarkovChain",
    "MatchingOperator",
    "NormalizedCopOperator",
    "PowerOperator",
    "ProjectedOperator",
    "ResetTransition",
    "Resolvent",
    "RetraceOperator",
    "approximation_error",
    "as_dense",
    "c_star",
    "chi_squared",
    "concentration",
    "concentration_limit",
    "d_pi_hat",
    "dual_modulus",
    "dual_weighting",
    "effective_sample_share",
    "emphatic_modulus",
    "examples",
    "expected_trace",
    "fit_matching",
    "fit_span",
    "induced_norm",
    "kl_divergence",
    "mean_ratio_bounds",
    "mean_ratio_is_possible",
    "printed_concentration_bound",
    "project_matching",
    "project_span",
    "project_weighted_simplex",
    "reset_margin",
    "rho",
    "safe_ratio_discount",
    "span_projection",
    "spectral_radius",
    "total_variation",
    "uniform_policy",
    "weighted_norm",
    "worst_feature_radius",
]
