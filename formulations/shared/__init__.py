"""Families of variables and rows that several papers use."""

from placegap.instances.problem import Semantics
from placegap.instances.reading.errors import InputError

NO_SOLUTION = "the model holds no solution to extract: none was found, or it was not solved yet"


def refuse(what: str, reason: str | None) -> None:
    """Raise an InputError with the reason for which a model does not fit, if there is one."""
    if reason is not None:
        raise InputError(f"{what} {reason}")


def require_makespan(what: str, semantics: Semantics) -> None:
    """Raise an InputError where a model that states every makespan is to state something else."""
    if semantics.objective != "makespan":
        refuse(what, f"states makespan, not {semantics.label}")
