"""Instance in, result out: exact algorithms, solver back ends, bounds and placers.

Importing this package fills the registry, exact methods first.
"""

# isort: off
from placegap.solvers import brute_force as brute_force
from placegap.solvers import ideal_dp as ideal_dp
from placegap.solvers import moirai_milp as moirai_milp
from placegap.solvers import pesto as pesto
from placegap.solvers import throughput_ip as throughput_ip
from placegap.solvers import archer_exact as archer_exact
from placegap.solvers import noncontiguous as noncontiguous
from placegap.solvers import latency_ip as latency_ip
from placegap.solvers import latency as latency
from placegap.solvers import cp_sat as cp_sat
from placegap.solvers import decomposition as decomposition
from placegap.solvers import single_device as single_device
from placegap.solvers import m_topo as m_topo
from placegap.solvers import greedy as greedy
from placegap.solvers import local_search as local_search
from placegap.solvers import slicing_dp as slicing_dp
from placegap.solvers import slicegraph as slicegraph
from placegap.solvers import pipedream as pipedream
from placegap.solvers import metis as metis
from placegap.solvers import mt_kahypar as mt_kahypar
from placegap.solvers import scotch as scotch
from placegap.solvers import data_parallel as data_parallel
from placegap.solvers import expert as expert
from placegap.solvers import etf as etf
from placegap.solvers import m_etf as m_etf
from placegap.solvers import heft as heft
from placegap.solvers import peft as peft
from placegap.solvers import cpop as cpop
from placegap.solvers import annealing as annealing
from placegap.solvers import order_place as order_place
from placegap.solvers import celeritas as celeritas
from placegap.solvers import d_dps as d_dps
from placegap.solvers import fd_dps as fd_dps
from placegap.solvers import fastt as fastt
from placegap.solvers import mp_dps as mp_dps
from placegap.solvers import m_sct as m_sct
from placegap.solvers import getf as getf
from placegap.solvers import lc_glb as lc_glb
from placegap.solvers import dsc_glb as dsc_glb
from placegap.solvers import round_robin as round_robin
from placegap.solvers import random_placement as random_placement
from placegap.solvers import getf_milp as getf_milp
from placegap.solvers import getf_lp as getf_lp
from placegap.solvers import m_sct_lp as m_sct_lp
from placegap.solvers import archer_bounds as archer_bounds
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
