from .core.registry import METHODS, Limits, Method, Task, solve
from .core.result import Outcome, Result, SolverDisagreement

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
