"""scotch: a k-way partition of the graph by Scotch's program ``gpart``, placed by load."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.worker_process import end_with_parent
from placegap.solvers.placers.partitioners import Parting, place_parts, why_not_parts

PROGRAMS = "scotch_gpart", "gpart"
"""Its names: Debian's first, where ``gpart`` is another program."""


def scotch(task: Task, params: Params | None = None) -> Outcome:
    """Partition the groups into one part per accelerator by Scotch, and place the parts by load.

    Pellegrini, Roman, "SCOTCH: a software package for static mapping by dual recursive
    bipartitioning" (HPCN Europe 1996); the ``-scotch`` of Tarnawski et al. (NeurIPS 2020), which
    writes the same graph: time as the weight of vertices, the host times of the tensors between two
    of them, each once, as that of edges, and the program's default strategy. A heuristic whose
    objective is the sum of cut edges; it balances compute alone and sees no direction. Deviations:
    colour classes that feed each other in a cycle stay apart; memory and support are
    mended (`part_mending`), where the authors ignore the one and refuse graphs with ops that
    no accelerator runs; parts are equal also where devices are not, and the heaviest goes to the
    device that is done with it first. The program has a fixed seed of its own.
    """
    return place_parts(task, _partition)


def _partition(parting: Parting) -> Ints:
    with tempfile.TemporaryDirectory() as folder:
        graph, mapping = Path(folder, "graph.grf"), Path(folder, "parts.map")
        graph.write_text(graph_file(parting))
        command = [_program() or "", str(parting.num_parts), str(graph), str(mapping)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=end_with_parent
        )
        if done.returncode or not mapping.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise InputError(f"scotch: {command[0]} failed: {said[-1] if said else 'no message'}")
        return parts_of(mapping.read_text(), len(parting.weight))


def _program() -> str | None:
    """Path of the program, or None where it is not installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def graph_file(parting: Parting) -> str:
    """The graph in Scotch's format: version, sizes, base and flags, then a line per vertex.

    A vertex has its weight, its degree, and the weight and number of each neighbour.
    """
    pointer, neighbour, weight = parting.graph()
    lines = ["0", f"{len(parting.weight)} {len(neighbour)}", "0 011"]
    ends = np.stack([weight, neighbour], axis=1)
    for v, own in enumerate(parting.weight.tolist()):
        arcs = ends[pointer[v] : pointer[v + 1]]
        lines.append(" ".join(map(str, [own, len(arcs), *arcs.ravel().tolist()])))
    return "\n".join(lines) + "\n"


def parts_of(text: str, num_vertices: int) -> Ints:
    r"""Part of each vertex, (v,), from a mapping: a count, then lines of vertex and part.

    Examples
    --------
    >>> parts_of("2\n1\t5\n0\t3\n", 2).tolist()
    [3, 5]
    """
    pairs = np.array(text.split()[1:], np.int64).reshape(-1, 2)
    part = np.zeros(num_vertices, np.int64)
    part[pairs[:, 0]] = pairs[:, 1]
    return part


def missing() -> str | None:
    """How to install Scotch, or None."""
    if _program() is None:
        return "needs Scotch's program gpart on the PATH (Debian: apt install scotch)"
    return None


register(
    Method(
        name="scotch",
        claim="heuristic",
        objectives=("makespan", "max_load", "max_load_fwd_bwd"),
        scope="makespan, loads, any plans",
        paper="Pellegrini and Roman 1996",
        cites=("pellegrini1996",),
        summary="graph partitioner, where installed",
        starts={"makespan": Cost(20.0, 10.0), "max_load": Cost(20.0, 10.0)},
        run=scotch,
        params=Params,
        applies=why_not_parts,
        missing=missing,
    )
)
