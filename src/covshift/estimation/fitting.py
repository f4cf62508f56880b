"""The methods that estimate a ratio, by name: each takes a problem and returns a function of states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from covshift.errors import InputError
from covshift.estimation.linear_methods import fit_least_squares, fit_semi_gradient, fit_simplex
from covshift.estimation.matching import fit_matching
from covshift.estimation.neural import fit_neural
from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.estimation.tabular_methods import fit_empirical, fit_td

Method: TypeAlias = Callable[..., RatioFunction]

METHODS: dict[str, Method] = {
    "empirical": fit_empirical,
    "td": fit_td,
    "least-squares": fit_least_squares,
    "matching": fit_matching,
    "semi-gradient": fit_semi_gradient,
    "simplex": fit_simplex,
    "neural": fit_neural,
}
"""Ratio methods by name; `register_method` adds one."""


def register_method(name: str, method: Method) -> None:
    """Makes `estimate_ratio(…, method=name)` call a function of a `RatioProblem` and its options.

    The function returns a `RatioFunction`. `RatioEstimate.load` can load it if its kind is in `problem.FUNCTIONS`.
    """
    METHODS[name] = method


def fit_ratio(problem: RatioProblem, method: str, **options: Any) -> RatioFunction:
    """The ratio that the named method estimates."""
    if method not in METHODS:
        raise InputError(f"there is no method '{method}'; use {' | '.join(METHODS)}")
    try:
        return METHODS[method](problem, **options)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise InputError(f"method {method}: {str(error).partition(' ')[2]}") from error
        raise
