from . import experiments, formulations, instances, solvers
from .solving import Solution, solve
from .version import __version__

__all__ = [
    "Solution",
    "__version__",
    "experiments",
    "formulations",
    "instances",
    "solve",
    "solvers",
]
