"""Instance in, result out: exact algorithms, solver back ends, bounds and placers.

Importing this package fills the registry, exact methods first.
"""

# isort: off
from placegap.solvers import brute_force as brute_force
from placegap.solvers import ideal_dp as ideal_dp
from placegap.solvers import moirai_milp as moirai_milp
from placegap.solvers import throughput_ip as throughput_ip
from placegap.solvers import cp_sat as cp_sat
from placegap.solvers import single_device as single_device
from placegap.solvers import m_topo as m_topo
from placegap.solvers import etf as etf
from placegap.solvers import m_etf as m_etf
from placegap.solvers import heft as heft
from placegap.solvers import peft as peft
# isort: on

from placegap.solvers.registry import METHODS, Limits, Method, Task, solve
from placegap.solvers.result import Outcome, Result, SolverDisagreement

__all__ = [
    "METHODS",
    "Limits",
    "Method",
    "Outcome",
    "Result",
    "SolverDisagreement",
    "Task",
    "solve",
]
