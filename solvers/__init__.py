"""Instance in, result out: exact algorithms, solver back ends, bounds and placers.

Methods are loaded when they are asked for (`methods`).
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
