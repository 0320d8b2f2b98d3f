from .bounds.portfolio import bound
from .core.method import Cost, Limits, Method, Params, Task
from .core.registry import METHODS, register, use_module
from .core.result import Outcome, Result, SolverDisagreement
from .solving.default_methods import default_method
from .solving.solve import solve

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
