"""The options of a method, rule or initializer: its keywords, explained in its docstring, checked before it is called."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, ValidationError, create_model

from hebbseg.errors import HebbsegError, did_you_mean

Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Owner = type | Callable[..., Any]
"""What has options: a class, by the keywords of its constructor, or a function, by its own."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a method: its name, its type in words, its default and what it means."""

    name: str
    kind: str
    default: Any
    description: str


def options_of(cls: Owner) -> list[Option]:
    """The options of a method: keywords of its own constructor that have a default."""
    explained = _explained(inspect.getdoc(cls) or "")
    return [
        Option(name=name, kind=_in_words(hint), default=default, description=explained.get(name, ""))
        for name, (hint, default) in _signature(cls).items()
    ]


def checked_options(owner: str, cls: Owner, options: Mapping[str, Any], *, kind: str = "Method") -> dict[str, Any]:
    """The options with their right types, or an error that names the option, what it got and what it takes."""
    fields = _signature(cls)
    for name in options:
        if name not in fields:
            remedy = did_you_mean(name, fields) if fields else "It has no options."
            raise HebbsegError(f"{kind} {owner} has no option {name!r}. {remedy}")
    try:
        made = _model(cls)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = next(option.description for option in options_of(cls) if option.name == name)
        raise HebbsegError(f"{kind} {owner}, option {name}={first['input']!r} ({meaning}): {first['msg']}.") from None
    return {name: getattr(made, name) for name in fields}


def help_text(method: str, cls: Owner) -> str:
    """What ``--help-method`` prints: the docstring without its list of options, then the options with their defaults."""
    about = re.split(r"\n\s*Options:\n", inspect.getdoc(cls) or "")[0].rstrip()
    options = options_of(cls)
    lines = [f"{method}: {about}", ""]
    lines += ["Options:"] if options else ["It has no options of its own."]
    lines += [f"  {o.name}={_shown(o.default)}  ({o.kind}) {o.description}" for o in options]
    return "\n".join(lines)


def _shown(default: Any) -> str:
    return f"{default:.3g}" if isinstance(default, float) else str(default)


@cache
def _model(cls: Owner) -> Any:
    # pydantic's stub wants literal keywords.
    return create_model("Options", __config__=ConfigDict(extra="forbid"), **_signature(cls))  # type: ignore[call-overload]


@cache
def _signature(cls: Owner) -> dict[str, tuple[Any, Any]]:
    """Name → (type, default) of every keyword of its own."""
    constructor = cls if inspect.isfunction(cls) else cls.__dict__.get("__init__")
    if constructor is None:
        return {}
    hints = get_type_hints(constructor, include_extras=True)
    parameters = inspect.signature(constructor).parameters.values()
    return {p.name: (hints[p.name], p.default) for p in parameters if p.default is not p.empty and p.name != "augment"}


def _explained(docstring: str) -> dict[str, str]:
    """The lines under "Options:", by name; a line that is indented further goes on with the one before."""
    _, _, section = docstring.partition("\nOptions:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def _in_words(hint: Any) -> str:
    """``Annotated[float, Field(ge=0, le=1)]`` → "number, from 0, up to 1"; ``Literal["a", "b"]`` → "a, b"."""
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    base, limits = (hint, []) if get_origin(hint) is not Annotated else (get_args(hint)[0], get_args(hint)[1].metadata)
    words = {"ge": "from {}", "gt": "above {}", "le": "up to {}", "lt": "below {}"}
    kind = {float: "number", int: "whole number", bool: "true or false", str: "text"}.get(base, str(base))
    bounds = [words[key].format(getattr(limit, key)) for limit in limits for key in words if hasattr(limit, key)]
    return ", ".join([kind, *bounds])
