from .bounds.portfolio import bound
from .core.method import Cost, Limits, Method, Params, Task
from .core.registry import METHODS, register, use_module
from .core.result import Outcome, Result, SolverDisagreement
from .solving.solve import default_method, solve

__all__ = [
    "METHODS",
    "Cost",
    "Limits",
    "Method",
    "Outcome",
    "Params",
    "Result",
    "SolverDisagreement",
    "Task",
    "bound",
    "default_method",
    "register",
    "solve",
    "use_module",
]
