"""Which loss should a ratio be fitted by? Errors, means and seconds of the methods of `estimate_ratio`.

    python benchmarks/ratio_losses.py [--seeds 10] [--sizes 2000 8000] [--neural]

On the finite domains of the estimation study, as tables and on random features (a constant and normal ones, a fifth as
many as states), for policies halfway to π* and at π*. A method's error is ‖ĉ - c*‖/‖c*‖ in the norm of d_μ, with the exact
c* at the same γ̂; its mean is E_μ[ĉ] over the exact one. Methods see the same data:

- least squares, and least squares weighted by 1/c;
- squared, mean kept: squared loss with the factor k of the method `matching`, which separates k from the loss;
- matching with the exponential and with the safe link;
- with --neural, on Garnet's table halfway to π* alone: networks with squared loss and with matching loss.

No exact ratio of the games is known, so the errors of their values are shown, by `mis` and `mis-sn`. CartPole's reward of 1
per step makes `mis` there a measure of the mean ratio alone. All medians are over seeds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.problem import RatioProblem
from covshift.estimation.values import evaluate_experience
from covshift.experiments.estimation.domains import (
    FiniteDomain,
    four_rooms_domain,
    garnet_domain,
    taxi_domain,
)
from covshift.experiments.estimation.games import (
    GameDomain,
    breakout_domain,
    cart_pole_domain,
)
from covshift.rules import LINKS
from covshift.validation import Vector


@dataclass(frozen=True)
class Line:
    """g(z) = 1 + z, under which the matching loss is the squared one; not positive."""

    def ratio(self, z: Any) -> Any:
        """1 + z."""
        return 1.0 + z

    def integral(self, z: Any) -> Any:
        """z + z²/2."""
        return z + 0.5 * z**2

    def slope(self, z: Any) -> Any:
        """1."""
        return np.ones_like(z)


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "least squares": ("least-squares", {}),
    "1/c weights": ("least-squares", {"weighting": "inverse"}),
    "squared, mean kept": ("matching", {"link": "line"}),
    "matching": ("matching", {}),
    "matching, safe": ("matching", {"link": "safe"}),
}
NEURAL: dict[str, tuple[str, dict[str, Any]]] = {
    "neural, squared": ("neural", {}),
    "neural, exponential": ("neural", {"head": "exponential", "loss": "matching"}),
    "neural, safe": ("neural", {"head": "safe", "loss": "matching"}),
}
RATIO_DISCOUNTS = (0.9, 0.99, 1.0)


def settings(
    domain: FiniteDomain,
) -> Iterator[tuple[EpisodeSemantics, float, float]]:
    """Semantics, γ̂ and γ that the ratio is asked for."""
    if domain.problem.mdp.d_0 is None:
        yield from (("continuing", g, 1.0) for g in RATIO_DISCOUNTS)
        return
    yield from (("restart", g, 1.0) for g in RATIO_DISCOUNTS)
    yield from (("visits", g, 1.0) for g in RATIO_DISCOUNTS if g < 1.0)
    yield "visits", 1.0, domain.discount


def exact(
    domain: FiniteDomain, distance: float, semantics: str, g: float, discount: float
) -> tuple[Vector, Vector]:
    """c* and d_μ as a distribution."""
    problem = replace(domain.problem, pi=domain.policy(distance))
    if semantics == "restart":
        problem = problem.restart()
    share = problem.d_mu / problem.d_mu.sum()
    if discount == 1.0:
        return problem.c_star(g), share
    assert problem.mdp.d_0 is not None
    visits = problem.chain_pi.resolvent(discount).solve_transposed(problem.mdp.d_0)
    return visits / problem.d_mu, share


def run_finite(
    domain: FiniteDomain,
    size: int,
    seeds: int,
    methods: dict[str, Any],
    kinds: tuple[str, ...] = ("table", "features"),
    distances: tuple[float, ...] = (0.5, 1.0),
) -> list[Any]:
    """Rows of (states, distance, semantics, γ̂, seed, method, error, mean, seconds)."""
    rows = []
    count = domain.problem.mdp.num_states
    rng = np.random.default_rng(0)
    random = np.column_stack([np.ones(count), rng.standard_normal((count, max(4, count // 5)))])
    for kind in kinds:
        phi = None if kind == "table" else random
        for distance in distances:
            for semantics, g, discount in settings(domain):
                c, share = exact(domain, distance, semantics, g, discount)
                for seed in range(seeds):
                    logs = domain.logs(size, np.random.default_rng([seed, size]))
                    experience = Experience.of(logs, domain.policy(distance), features=phi)
                    asked = RatioProblem(experience, g, semantics, discount)
                    experience.samples()
                    for name, (method, options) in methods.items():
                        if kind == "table" and name not in ("least squares", "matching", *NEURAL):
                            continue  # On a table these are one of the two.
                        started = time.perf_counter()
                        found = fit_ratio(asked, method, **options)
                        seconds = time.perf_counter() - started
                        states = np.arange(count) if phi is None else phi
                        seen = states if phi is not None else np.minimum(states, experience.features.size - 1)  # fmt: skip
                        ratio = found.at(seen)
                        error = np.sqrt(share @ (ratio - c) ** 2 / (share @ c**2))
                        label = f"{semantics}, γ = {discount:g}" if discount < 1.0 else semantics
                        rows.append((kind, distance, label, g, seed, name, float(error), float(share @ ratio / (share @ c)), seconds))  # fmt: skip
    return rows


def show_finite(title: str, size: int, rows: list[Any]) -> None:
    groups: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for *setting, _, name, error, mean, seconds in rows:
        groups[tuple(setting)][name].append((error, mean, seconds))
    print(f"\n{title}, {size:,} transitions")
    print("| states | π | ratio | γ̂ | method | error | mean, 5 % to 95 % | ms |")
    print("|---|---|---|---:|---|---:|---:|---:|")
    for (kind, distance, label, g), methods in groups.items():
        for name, values in methods.items():
            error, mean, seconds = np.array(values).T
            low, middle, high = np.percentile(mean, [5, 50, 95])
            print(
                f"| {kind} | {distance:g} | {label} | {g:g} | {name} | {np.median(error):.3f} | "
                f"{middle:.2f} ({low:.2f} to {high:.2f}) | {1000 * np.median(seconds):.0f} |"
            )


def summarize(rows: list[Any]) -> None:
    """How matching compares with every other method over all settings."""
    table: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for title, size, row in rows:
        table[(title, size, *row[:4])][row[5]].append(row[6])
    for kind in ("table", "features"):
        cells = [methods for key, methods in table.items() if key[2] == kind]
        for name in dict.fromkeys(name for methods in cells for name in methods):
            pairs = [(m["matching"], m[name]) for m in cells if name in m and name != "matching"]
            if not pairs:
                continue
            ratios = np.array([np.median(a) / np.median(b) for a, b in pairs])
            wins = np.mean([x < y for a, b in pairs for x, y in zip(a, b, strict=True)])
            print(
                f"{kind}: error of matching over that of {name}: median {np.median(ratios):.2f}, from {ratios.min():.2f} "
                f"to {ratios.max():.2f} in {len(pairs)} settings; smaller in {wins:.0%} of all datasets"
            )


def run_game(domain: GameDomain, sizes: list[int], seeds: int) -> None:
    """Errors of the discounted value, relative to what is at stake between μ and π*."""
    stake = abs(domain.truth(1.0, average=False) - domain.truth(0.0, average=False))
    print(f"\n{domain.title}: median error of the discounted value over |J(π*) - J(μ)|")
    print("| π | transitions | method | mis-sn | mis | ms |")
    print("|---|---:|---|---:|---:|---:|")
    for distance in (0.5, 1.0):
        truth = domain.truth(distance, average=False)
        for size in sizes:
            found: dict[str, list[Any]] = defaultdict(list)
            for seed in range(seeds):
                logs = domain.logs(size, np.random.default_rng([seed, size]))
                experience = Experience.of(
                    logs, domain.policy(distance), features=domain.features(logs)
                )
                for name, (method, options) in METHODS.items():
                    asked = Estimand("discounted", domain.discount, 1.0, method, options, 1e-4)
                    started = time.perf_counter()
                    asked.ratio(experience)
                    seconds = time.perf_counter() - started
                    errors = [
                        abs(evaluate_experience(experience, asked, name, None, 1, 0).value - truth)
                        for name in ("mis-sn", "mis")
                    ]
                    found[name].append((*errors, seconds))
            for name, rows in found.items():
                normalized, plain, seconds = np.median(rows, axis=0)
                print(
                    f"| {distance:g} | {size:,} | {name} | {normalized / stake:.3f} | {plain / stake:.3f} | "
                    f"{1000 * seconds:.0f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--neural", action="store_true")
    options = parser.parse_args()
    LINKS["line"] = Line()
    warnings.simplefilter("ignore", UserWarning)
    if options.neural:
        domain = garnet_domain()
        size, methods = options.sizes[-1], METHODS | NEURAL
        rows = run_finite(domain, size, options.seeds, methods, ("table",), (0.5,))
        show_finite(domain.title, size, rows)
        return
    everything = []
    for domain in (four_rooms_domain(), taxi_domain(), garnet_domain()):
        for size in options.sizes:
            rows = run_finite(domain, size, options.seeds, METHODS)
            show_finite(domain.title, size, rows)
            everything += [(domain.title, size, row) for row in rows]
    print()
    summarize(everything)
    for game in (cart_pole_domain(3000), breakout_domain(3000)):
        run_game(game, options.sizes, options.seeds)


if __name__ == "__main__":
    main()
