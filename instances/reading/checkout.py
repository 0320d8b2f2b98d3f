"""What a checkout has and a wheel does not (`experiments/research`), loaded where it is there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from placegap.instances.reading.errors import InputError

RESEARCH = "placegap.experiments.research"

# Whose workloads are built by name; a wheel has only those of the corpus.
PAPERS = ("celeritas", "fd-dps", "moirai", "tarnawski")


def has_research() -> bool:
    """Whether this is a checkout."""
    return find_spec(RESEARCH) is not None


def is_workload(name: str) -> bool:
    """Whether a name begins with a paper's name and a colon, as those of workloads do."""
    return name.partition(":")[0] in PAPERS and ":" in name


def research(module: str, wanted: str) -> Any:
    """A module of research; in a wheel, an error says that what is wanted needs a checkout."""
    if not has_research():
        raise InputError(f"{wanted} needs a checkout of placegap; wheels do not contain it")
    return import_module(f"{RESEARCH}.{module}")
