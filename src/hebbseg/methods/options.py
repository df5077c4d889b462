"""Options of methods, rules and initializers, read from their signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import Field, ValidationError, create_model

from hebbseg.errors import HebbsegError, did_you_mean

Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Owner = type | Callable[..., Any]
"""A class with options as keywords of its constructor, or a function with options as keywords."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Name, type in words, default and description of an option."""

    name: str
    kind: str
    default: Any
    description: str


def options_of(cls: Owner) -> list[Option]:
    """Return the options: the keywords of the constructor that have a default."""
    explained = _explained(inspect.getdoc(cls) or "")
    return [
        Option(name=name, kind=_in_words(hint), default=default, description=explained.get(name, ""))
        for name, (hint, default) in _signature(cls).items()
    ]


def checked_options(owner: str, cls: Owner, options: Mapping[str, Any], *, kind: str = "Method") -> dict[str, Any]:
    """Return all options with validated types and defaults; raise an error for an unknown option or a value out of range."""
    fields = _signature(cls)
    for name in options:
        if name not in fields:
            remedy = did_you_mean(name, fields) if fields else "It has no options."
            raise HebbsegError(f"{kind} {owner} has no option {name!r}. {remedy}")
    try:
        # The stub of create_model requires literal keywords.
        made = create_model("Options", **fields)(**options)  # type: ignore[call-overload]
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = next(option.description for option in options_of(cls) if option.name == name)
        raise HebbsegError(f"{kind} {owner}, option {name}={first['input']!r} ({meaning}): {first['msg']}.") from None
    return {name: getattr(made, name) for name in fields}


def help_text(method: str, cls: Owner) -> str:
    """Return the output of ``--help-method``: the docstring, then the options with types and defaults."""
    about = re.split(r"\n\s*Options:\n", inspect.getdoc(cls) or "")[0].rstrip()
    options = [f"  {o.name}={_shown(o.default)}  ({o.kind}) {o.description}" for o in options_of(cls)]
    return "\n".join([f"{method}: {about}", "", "Options:" if options else "This method has no options.", *options])


def _shown(default: Any) -> str:
    text = f"{default:.4g}" if isinstance(default, float) else str(default)
    return text.lower() if isinstance(default, bool) else text


@cache
def _signature(cls: Owner) -> dict[str, tuple[Any, Any]]:
    """Return {name: (type, default)} of the keywords with a default."""
    constructor = cls if inspect.isfunction(cls) else cls.__dict__.get("__init__")
    if constructor is None:
        return {}
    hints = get_type_hints(constructor, include_extras=True)
    parameters = inspect.signature(constructor).parameters.values()
    return {p.name: (hints[p.name], p.default) for p in parameters if p.default is not p.empty and p.name != "augment"}


def _explained(docstring: str) -> dict[str, str]:
    """Return {name: description} from the "Options:" section of a docstring."""
    section = re.split(r"\n(?=\S)", docstring.partition("\nOptions:")[2])[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in entries}


def _in_words(hint: Any) -> str:
    """Describe a type: ``Annotated[float, Field(ge=0, le=1)]`` → "number ≥ 0, ≤ 1"; ``Literal["a", "b"]`` → "a or b"."""
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    base, limits = (hint, []) if get_origin(hint) is not Annotated else (get_args(hint)[0], get_args(hint)[1].metadata)
    words = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
    kind = {float: "number", int: "integer", bool: "true or false", str: "text"}.get(base, str(base))
    bounds = [words[key].format(getattr(limit, key)) for limit in limits for key in words if hasattr(limit, key)]
    return f"{kind} {', '.join(bounds)}".rstrip()
