"""What a bound rests on: a proof that our code computes, or the word of a solver."""

from __future__ import annotations

from importlib.metadata import version

PROOF = "proof"
"""Our own argument, in integers: a dynamic program, a path, a sum, LP duals recomputed."""

SOLVERS = {"ortools": "CP-SAT", "highspy": "HiGHS", "pyscipopt": "SCIP"}
"""Distributions and the solvers they bring."""


def word_of(distribution: str) -> str:
    """The solver of a distribution and its version, as results name what they rest on.

    Examples
    --------
    >>> word_of("ortools").split()[0]
    'CP-SAT'
    """
    return f"{SOLVERS[distribution]} {version(distribution)}"
