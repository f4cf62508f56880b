"""Self-contained HTML pages from a template and plain values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape


def render(template: str, **values: Any) -> str:
    """The page of one of the templates; every text is escaped unless the template says not to."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = typeset
    environment.filters["itemize"] = itemize
    environment.tests["numeric"] = is_numeric
    return environment.get_template(template).render(**values)


def is_numeric(text: str) -> bool:
    """Whether a table's cell is a number, perhaps with an interval, and not words.

    Example:
        >>> [is_numeric(text) for text in ("1.5", "3.56 to 4.64", "0.88 (p = 0.03)", "1 010", "MinAtar/Breakout-v1", "")]
        [True, True, True, True, False, False]
    """
    return re.match(r"[-+−]?\d[\d.,\u202f ]*(%|$|\s*\(|\s+to\s)", text) is not None


def itemize(text: str) -> Markup:
    """Typeset text in which a sentence that names three or more things, "those: a; b; c.", becomes a list.

    Example:
        >>> str(itemize("Scores: a: 1; b: 2; c: 3. No run diverged."))
        'Scores:<ul><li>a: 1</li><li>b: 2</li><li>c: 3</li></ul>No run diverged.'
    """
    parts = []
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", text):
        head, _, rest = sentence.partition(": ")
        items = rest.removesuffix(".").split("; ")
        if len(items) < 3:
            parts.append(typeset(sentence + " "))
            continue
        listed = Markup("").join(Markup("<li>{}</li>").format(typeset(item)) for item in items)
        parts.append(Markup("{}:<ul>{}</ul>").format(typeset(head), listed))
    return Markup("").join(parts).rstrip()


def typeset(text: str) -> Markup:
    """Plain text as HTML, with subscripts and superscripts in d_μ, E_{d_π}, V^π and K^(1/2).

    Example:
        >>> str(typeset("d_π < K^(1/2)"))
        'd<sub>π</sub> &lt; K<sup>1/2</sup>'
        >>> str(typeset("E_μ̄[c]"))
        'E<sub>μ̄</sub>[c]'
    """
    html = str(escape(text))
    html = re.sub(r"_(γ̂|[πμνnd]\u0304?(?![a-z]))", r"<sub>\1</sub>", html)
    html = re.sub(r"_\{([^{}]*)\}", r"<sub>\1</sub>", html)
    html = re.sub(r"\^\(((?:[^()]|\([^()]*\))*)\)", r"<sup>\1</sup>", html)
    return Markup(re.sub(r"\^(-?[π½])", r"<sup>\1</sup>", html))
