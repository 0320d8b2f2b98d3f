from .bounds.portfolio import bound
from .core.method import Cost, Limits, Method, Params, Task
from .core.registry import METHODS, register, use_module
from .core.result import Bound, Outcome, Result, SolverDisagreement
from .solving.run_method import default_method, run_method, solve

__all__ = [
    "METHODS",
    "Bound",
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
    "run_method",
    "solve",
    "use_module",
]
