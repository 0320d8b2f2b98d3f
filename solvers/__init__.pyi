from .bounds.portfolio import bound
from .core.method import Cost, Limits, Method, Params, Task
from .core.registry import METHODS, method, register, use_module
from .core.result import Bound, Outcome, Result, SolverDisagreement
from .solving.run_method import DEFAULT_METHOD, run_method, solve

__all__ = [
    "DEFAULT_METHOD",
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
    "method",
    "register",
    "run_method",
    "solve",
    "use_module",
]
