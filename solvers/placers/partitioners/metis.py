"""metis: a k-way partition of the graph by METIS (extra ``metis``), placed by load."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from pydantic import Field

from placegap.instances.problem.array_types import Ints
from placegap.solvers.core.method import Cost, Method, Params, Task, why_not_installed
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.partitioners import (
    Parting,
    place_parts,
    why_not_parts,
)


class MetisParams(Params):
    """Parameters of ``metis``.

    Attributes
    ----------
    imbalance : int
        A part may be so many thousandths heavier than its share (METIS' ``ufactor``).
    """

    imbalance: int = Field(default=30, ge=1)


def metis(task: Task, params: MetisParams) -> Outcome:
    """Partition the groups into one part per accelerator by METIS, and place the parts by load.

    Karypis, Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs"
    (SIAM J. Sci. Comput. 20, 1998), through pymetis, as the placement papers use it: compute is
    the weight of vertices, communication that of edges (here the host times of the tensors, each
    once per pair of groups, so that unequal links count). A heuristic whose objective is the sum of
    cut edges: it sees no direction, pays a tensor per pair and not per device, and balances compute
    alone. Filled in: shares by the devices' speeds, parts to devices heaviest first, and the repair
    of `part_mending` for memory and support; ops that no accelerator runs go to a host by it.
    """
    return place_parts(task, lambda parting: _partition(parting, params.imbalance))


def _partition(parting: Parting, imbalance: int) -> Ints:
    package = import_module("pymetis")
    pointer, neighbour, weight = parting.graph()
    # METIS draws from a C generator: seeds of 32 bits
    options = package.Options(seed=parting.seed % 2**31, ufactor=imbalance)
    result = package.part_graph(
        parting.num_parts,
        adjacency=package.CSRAdjacency(pointer, neighbour),
        vweights=parting.weight,
        eweights=weight,
        tpwgts=parting.share.tolist(),
        options=options,
    )
    return np.array(result.vertex_part, np.int64)


def missing() -> str | None:
    """How to install METIS's package, or None."""
    return why_not_installed("pymetis", "metis")


register(
    Method(
        name="metis",
        claim="heuristic",
        objectives=("makespan", "max_load", "max_load_fwd_bwd"),
        scope="makespan, loads, any plans",
        paper="Karypis and Kumar 1998",
        cites=("karypis1998",),
        summary="graph partitioner, where installed",
        starts={"makespan": Cost(1.7, 3.0), "max_load": Cost(1.7, 3.0)},
        run=metis,
        params=MetisParams,
        applies=why_not_parts,
        missing=missing,
        packages=("pymetis",),
    )
)
