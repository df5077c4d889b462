"""The Hebbian rule that the settings name, with its parameters."""

from collections.abc import Mapping
from typing import Any

from hebbseg.errors import HebbsegError
from hebbseg.hebbian.rules import Rule, rule_class
from hebbseg.methods.options import checked_options, options_of


def make_rule(name: str, *, temperature: float, options: Mapping[str, Any]) -> Rule:
    """A rule with its parameters, or an error that names the wrong one and what is allowed.

    Args:
        name: built in or from an entry point in ``hebbseg.rules``.
        temperature: for rules that have a field of this name.
        options: all other parameters, by name.
    """
    cls = rule_class(name)
    if "temperature" in options:
        raise HebbsegError("rule_options.temperature: the temperature is a setting itself. Write temperature=VALUE.")
    shared = {"temperature": temperature} if "temperature" in {option.name for option in options_of(cls)} else {}
    return cls(**checked_options(name, cls, {**shared, **options}, kind="Rule"))
