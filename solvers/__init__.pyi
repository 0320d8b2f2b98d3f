from .bounds.portfolio import bound
from .core.method import Cost, Limits, Method, Params, Task
from .core.registry import METHODS, method, register, use_module
from .core.result import Outcome, Result, SolverDisagreement
from .solving.run_method import default_method, run_method, solve

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
    "method",
    "register",
    "run_method",
    "solve",
    "use_module",
]
