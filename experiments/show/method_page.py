"""A method in words: what it does, what it proves, its paper and what its parameters mean."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

from placegap.solvers.core.method import AnyMethod, Claim, Params

# What comes back.
PROVES: dict[Claim, str] = {
    "exact": "a plan and a bound at any time limit; both are equal if the time suffices",
    "heuristic": "a plan, and a bound only where its line names one",
    "bound": "a bound, without a plan",
}

FIELD = re.compile(r"((?:^ +#:.*\n)*)^ {4}(\w+): ", re.MULTILINE)


class Parameter(NamedTuple):
    name: str
    default: Any
    meaning: str


def parameters(params: type[Params]) -> list[Parameter]:
    """Parameters with the comments above them in their class or its bases."""
    meanings: dict[str, str] = {}
    for base in params.__mro__:
        if not issubclass(base, Params):
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # a class of one's own whose file is not at hand
            continue
        for comment, name in FIELD.findall(source):
            words = " ".join(line.strip().removeprefix("#:") for line in comment.splitlines())
            meanings.setdefault(name, " ".join(words.split()))
    return [
        Parameter(name, field.get_default(call_default_factory=True), meanings.get(name, ""))
        for name, field in params.model_fields.items()
    ]


def plain(value: Any) -> str:
    """A value as ``--param`` takes it; a dash where it is left open."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ",".join(f"{key}:{plain(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def details(method: AnyMethod) -> str:
    """The docstring below its first paragraph, which is the summary."""
    return (inspect.getdoc(method.run) or "").partition("\n\n")[2]
