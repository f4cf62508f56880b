"""How Sphinx builds the documentation; `make docs` runs it with warnings as errors."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from covshift.version import __version__

project = "covshift"
author = "The covshift authors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
nitpicky = False

html_theme = "furo"
html_title = f"covshift {__version__}"
html_static_path = ["_static"]
html_css_files = ["covshift.css"]
html_copy_source = False
html_show_sphinx = False

# One file of MathJax from a package, copied into the site: pages of mathematics need no network.
_package = find_spec("sphinx-mathjax-offline")
assert _package is not None
assert _package.origin is not None
html_static_path.append(str(Path(_package.origin).parent / "static/mathjax/tex-svg.js"))
mathjax_path = "tex-svg.js"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Docstrings write names and code in single backticks.
default_role = "code"


def setup(app: Any) -> None:
    """Docstrings are plain text with single backticks; what else reStructuredText would interpret is escaped."""
    app.connect("autodoc-process-docstring", _escape, priority=100)
    app.connect("source-read", _set_subscripts)


def _set_subscripts(app: Any, name: str, source: list[str]) -> None:
    """Sets the plain d_π, E_μ[c], s_{t-1} and V^π of a document's words with subscripts and superscripts."""
    parts = re.split(r"(?s)(```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\))", source[0])
    for k, words in enumerate(parts[::2]):
        words = re.sub(r"(?<=[\w\u0302])_(γ̂|[πμ])", r"<sub>\1</sub>", words)
        words = re.sub(r"\b([sW])_(?:\{([^}]*)\}|(t)\b)", r"\1<sub>\2\3</sub>", words)
        parts[2 * k] = re.sub(r"\b([Ve])\^([πz])", r"\1<sup>\2</sup>", words)
    source[0] = "".join(parts)


def _escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    in_example = False
    for k, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            parts = re.split(r"(`[^`]*`)", line)
            parts[::2] = [re.sub(r"([|*\\]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
            lines[k] = "".join(parts)
