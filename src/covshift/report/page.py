"""Self-contained HTML pages from a template and plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
    """The page of a template of this room, with every text escaped unless the template says not."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)
