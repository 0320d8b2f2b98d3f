"""Instance in, result out: exact algorithms, solver back ends, bounds and placers.

Importing this package fills the registry.
"""

from placegap.solvers.registry import METHODS, Limits, Method, Task, solve
from placegap.solvers.result import Outcome, Result, SolverDisagreement

__all__ = [
    "METHODS",
    "Limits",
    "Method",
    "Outcome",
    "Result",
    "SolverDisagreement",
    "Task",
    "solve",
]
