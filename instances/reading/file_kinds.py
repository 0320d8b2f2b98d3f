"""What a parsed file is, for messages about a file that was named in the place of another."""

from __future__ import annotations

from typing import Any

from placegap.instances.reading.errors import InputError


def kind_of(raw: Any) -> str | None:
    """What parsed JSON or YAML looks like, None where it looks like nothing of placegap's.

    Examples
    --------
    >>> kind_of({"name": "s", "tables": []}), kind_of({"devices": []}), kind_of([1])
    ('a study', 'a cluster', None)
    """
    if not isinstance(raw, dict):
        return None
    if raw.get("format") == "placegap-plan" or {"placement", "semantics"} <= raw.keys():
        return "a plan"
    if raw.get("format") == "placegap-certificate":
        return "a certificate"
    if "graph" in raw or raw.get("format") == "placegap":
        return "a model"
    if "nodes" in raw:
        return "a dnn-partitioning input"
    if "tables" in raw:
        return "a study"
    return "a cluster" if "devices" in raw else None


def refuse_other(raw: Any, wanted: str, source: object) -> None:
    """Say what a file is, if it is plainly something else than wanted."""
    found = kind_of(raw)
    if found not in (None, wanted):
        raise InputError(f"is {found}; name {wanted} here", str(source))
