"""What a bound rests on: a proof that our code computes, or the word of a solver."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

PROOF = "proof"
"""Our own argument, in integers: a dynamic program, a path, a sum, LP duals recomputed."""

SOLVERS = {"ortools": "CP-SAT", "highspy": "HiGHS", "pyscipopt": "SCIP"}
"""Distributions and the solvers they bring."""


@cache
def installed_version(distribution: str) -> str:
    """The version of a distribution; its metadata, which take a millisecond, are read once.

    Examples
    --------
    >>> installed_version("highspy").split(".")[0]
    '1'
    """
    return version(distribution)


def word_of(distribution: str) -> str:
    """The solver of a distribution and its version, as results name what they rest on.

    Examples
    --------
    >>> word_of("ortools").split()[0]
    'CP-SAT'
    """
    return f"{SOLVERS[distribution]} {installed_version(distribution)}"


def describe_basis(origin: str, rests_on: str) -> str:
    """Who proved a bound and what it rests on, as results print it.

    Examples
    --------
    >>> describe_basis("ideal-dp", PROOF)
    'ideal-dp, proof of ours'
    >>> describe_basis("cp-sat", "CP-SAT 9.15.6755")
    'cp-sat, the word of CP-SAT 9.15.6755'
    >>> describe_basis("column generation", "")
    'column generation'
    """
    words = {PROOF: "proof of ours", "": ""}.get(rests_on, f"the word of {rests_on}")
    return ", ".join(filter(None, [origin, words]))
