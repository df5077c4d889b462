"""HTML pages from the templates; everything is escaped."""

import math
from typing import Any

from jinja2 import Environment, PackageLoader


def render(template: str, **values: Any) -> str:
    """Return the page made from a template in ``templates/``."""
    environment = Environment(loader=PackageLoader("hebbseg.reporting"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["sort_key"] = sort_key
    return environment.get_template(template).render(**values)


def sort_key(value: float | None) -> str:
    """Return a number in JavaScript syntax."""
    if value is None:
        return ""
    return repr(float(value)) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
