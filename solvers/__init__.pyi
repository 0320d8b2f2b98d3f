from .bounds.portfolio import bound
from .core.method import Limits, Method, Task
from .core.registry import METHODS
from .core.result import Outcome, Result, SolverDisagreement
from .solving.default_methods import default_method
from .solving.solve import solve

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
