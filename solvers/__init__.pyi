from .bounds.certificates.write import certify
from .bounds.portfolio import bound
from .core.back_ends import solve_model
from .core.method import Cost, Limits, Method, Params, Task
from .core.progress import report
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
    "certify",
    "method",
    "register",
    "report",
    "run_method",
    "solve",
    "solve_model",
    "use_module",
]
