from .bounds.portfolio import bound
from .core.method import Limits, Method, Task
from .core.registry import METHODS
from .core.result import Outcome, Result, SolverDisagreement
from .solving.solve import default_method, solve

__all__ = [
    "METHODS",
    "Limits",
    "Method",
    "Outcome",
    "Result",
    "SolverDisagreement",
    "Task",
    "bound",
    "default_method",
    "solve",
]
