from . import experiments, formulations, instances, solvers
from .solving import Solution, StopSearch, solve
from .version import __version__

__all__ = [
    "Solution",
    "StopSearch",
    "__version__",
    "experiments",
    "formulations",
    "instances",
    "solve",
    "solvers",
]
