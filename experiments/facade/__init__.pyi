from . import experiments, formulations, instances, solvers
from .solvers.core.progress import StopSearch
from .solving import Solution, solve
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
