"""Graph partitions as plans, by METIS, Mt-KaHyPar and Scotch, each loaded when it is used.

Vertices are the colocation groups, weighted by time. A partitioner balances their sums over the
accelerators (over the hosts where there is no accelerator) and cuts little communication. Parts
then go to devices by load, and what memory or support forbids there moves on, group by group, until
it is allowed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.blocks import Blocks
from placegap.instances.problem.graph_index import group_by, sum_by
from placegap.instances.problem.integers import UNSUPPORTED, to_whole
from placegap.instances.problem.nets import Nets, build_nets
from placegap.instances.reading.errors import InputError
from placegap.solvers.chains.problem import arc_lists
from placegap.solvers.core.method import Params, Task, why_not_installed
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.worker_process import end_with_parent
from placegap.solvers.placers.movable_units import (
    State,
    fits_nowhere,
    free_units,
    move,
    paid_change,
    start,
    why_not_one_level,
)

TOTAL = 2**28  # weights are scaled to about this sum: partitioners count in 32 bits


@dataclass(frozen=True, eq=False)
class Parting:
    """The input of a partitioner."""

    instance: Instance
    nets: Nets  # over the vertices
    devices: Ints  # (p,) int64: The devices that parts are made for
    weight: Ints  # (v,) int64: Scaled mean time of each vertex, at least 1
    share: Floats  # (p,): share of the weight for each part, by the device's speed; the sum is 1
    seed: int

    @property
    def num_parts(self) -> int:
        return len(self.devices)

    def graph(self, *, counts: bool = False) -> tuple[Ints, Ints, Ints]:
        """Pointers, neighbours and scaled weights of an undirected graph, each edge both ways."""
        # An edge weighs the mean host times of the tensors between two vertices, each tensor once;
        # with `counts` it is the number of these tensors. O(m log m).
        arrays = self.instance.arrays
        index, v = arrays.index, len(self.weight)
        a, b = arrays.group[index.producer], arrays.group[index.consumer]
        apart = a != b
        pair = np.minimum(a, b)[apart] * v + np.maximum(a, b)[apart]
        once = np.unique(np.stack([pair, index.tensor[apart]]), axis=1)
        pairs, at = np.unique(once[0], return_inverse=True)
        each = np.ones(once.shape[1]) if counts else self._host_time()[once[1]]
        cost = np.bincount(at, weights=each, minlength=len(pairs))
        weight = scaled(cost)
        low, high = np.divmod(pairs, v)
        pointer, order = group_by(np.concatenate([low, high]), v)
        return pointer, np.concatenate([high, low])[order], np.tile(weight, 2)[order]

    def net_weights(self) -> Ints:
        """Scaled weight of each net, the mean over the devices."""
        return scaled(self.nets.weight_ns[:, self.devices].mean(axis=1))

    def _host_time(self) -> Floats:
        return np.asarray(self.instance.arrays.host_ns[:, self.devices].mean(axis=1), np.float64)


def scaled(amount: Floats | Ints) -> Ints:
    """Positive integers in proportion to some amounts, with a sum of about `TOTAL`."""
    total = float(amount.sum())
    return to_whole(amount.astype(np.float64) * (TOTAL / max(total, 1.0))) + 1


def why_not_parts(task: Task, params: Params) -> str | None:
    """Why a partition makes no plan for a task, or None."""
    if task.semantics.plan_class != "any":
        return f"its parts are neither convex nor chains: not {task.semantics.label}"
    return why_not_one_level(task, params)


def place_parts(task: Task, partition: Callable[[Parting], Ints], *, mends: bool = True) -> Outcome:
    """The plan of a partition; `mends` says whether memory and support are repaired."""
    # `partition` is called only if there are two parts, and more vertices than parts.
    instance, units = task.instance, free_units(task.instance)
    nets = build_nets(instance, units.block)
    parting = _parting(task, units, nets)
    part = np.arange(units.num_blocks)
    if parting.num_parts == 1:
        part[:] = 0
    elif units.num_blocks > parting.num_parts:
        part = partition(parting)
    device = _devices_of(part, units, parting, instance.arrays.memory_bytes)
    if not mends:
        return Outcome(Plan.on(device[units.block].tolist()))
    overlap = task.semantics.overlaps
    state, moved, stuck = mend(instance, units, nets, device, overlap=overlap)
    details = {"vertices": units.num_blocks, "parts": parting.num_parts, "mended": moved}
    if stuck is not None:
        why = "fits on no device once the parts are placed"
        return fits_nowhere(instance, units, stuck, why)
    return Outcome(Plan.on(state.device[units.block].tolist()), details=details)


def _parting(task: Task, units: Blocks, nets: Nets) -> Parting:
    is_host = task.instance.arrays.is_host
    devices = np.flatnonzero(is_host == is_host.all())
    time = units.time_ns[:, devices]
    runs = time != UNSUPPORTED
    time = np.where(runs, time, 0).astype(np.float64)
    mean = time.sum(axis=1) / np.maximum(runs.sum(axis=1), 1)
    # speed: how much less than the mean a device takes for what it can run
    usual, took = np.where(runs, mean[:, None], 0).sum(axis=0), time.sum(axis=0)
    speed = np.where(took > 0, usual / np.maximum(took, 1), 1.0) + 1e-3
    return Parting(
        task.instance, nets, devices, scaled(mean), speed / speed.sum(), task.limits.seed
    )


def _devices_of(part: Ints, units: Blocks, parting: Parting, memory: Ints) -> Ints:
    """Heaviest part first: of the free devices, the one that is done first."""
    # Before time counts how many groups the device cannot run, then the bytes that it cannot hold.
    p = parting.num_parts
    weight, size = sum_by(part, parting.weight, p), sum_by(part, units.resident_bytes, p)
    own = units.time_ns[:, parting.devices]
    time, refused = sum_by(part, np.maximum(own, 0), p), sum_by(part, own == UNSUPPORTED, p)
    device_of, free = np.zeros(p, np.int64), list(range(p))
    for a in np.argsort(-weight, kind="stable").tolist():
        room = memory[parting.devices]
        best = min(free, key=lambda k: (refused[a, k], max(0, size[a] - room[k]), time[a, k]))
        device_of[a] = parting.devices[best]
        free.remove(best)
    return device_of[part]


def mend(
    instance: Instance, units: Blocks, nets: Nets, device: Ints, *, overlap: bool
) -> tuple[State, int, int | None]:
    """Move units off devices that cannot run or hold them."""
    # First go units that their device cannot run, the largest first; then, from each device that is
    # too full, the smallest unit that makes up for all that is too much or, while there is none,
    # the largest. Each goes to the device with room for it whose load is least with it (ties:
    # index). A simple repair, which may fail where a plan exists. O(u K log u), apart from the
    # moves' own. `device` is changed in place. It returns the state, how many units moved, and one
    # that fits nowhere, or None.
    runs, size = units.time_ns != UNSUPPORTED, units.resident_bytes
    memory, time = instance.arrays.memory_bytes, np.maximum(units.time_ns, 0)
    time.setflags(write=False)  # as the units' own: one kernel for both
    net, arcs = nets.lists, arc_lists(units)
    state = start(device, time, size, net, arcs)
    moved = 0

    def away(v: int) -> bool:
        able = runs[v] & (state.used_bytes + size[v] <= memory)
        able[state.device[v]] = False
        targets = np.flatnonzero(able)
        if len(targets) == 0:
            return False
        joined = [paid_change(state, net, v, k, True) for k in targets.tolist()]
        work, paid = (state.compute + time[v])[targets], state.paid[targets] + joined
        loads = np.maximum(work, paid) if overlap else work + paid
        move(state, time, size, net, arcs, v, int(targets[np.argmin(loads)]))
        return True

    refused = np.flatnonzero(~runs[np.arange(len(size)), device])
    for v in refused[np.argsort(-size[refused], kind="stable")].tolist():
        if not away(v):
            return state, moved, v
        moved += 1
    for k in np.flatnonzero(state.used_bytes > memory).tolist():
        here = np.flatnonzero(state.device == k)
        left = here[np.argsort(size[here], kind="stable")].tolist()
        while state.used_bytes[k] > memory[k]:
            excess = int(state.used_bytes[k] - memory[k])
            at = int(np.searchsorted(size[left], excess))
            tries = [*range(at, len(left)), *range(at - 1, -1, -1)]
            found = next((i for i in tries if size[left[i]] > 0 and away(left[i])), None)
            if found is None:
                return state, moved, left[-1]
            left.pop(found)
            moved += 1
    return state, moved, None


class MetisParams(Params):
    #: A part may be this many thousandths heavier than its share (METIS' ``ufactor``).
    imbalance: int = Field(default=30, ge=1)
    #: What a cut between two groups costs: its transfers, or how many edges it cuts.
    edges: Literal["time", "count"] = "time"
    #: Whether what memory forbids moves on; else the parts stay as METIS makes them.
    mend: bool = True


@method(
    "metis",
    objectives=("makespan", "max_load", "max_load_fwd_bwd"),
    cites="Karypis and Kumar 1998",
    scope="makespan, loads, any plans",
    applies=why_not_parts,
    missing=partial(why_not_installed, "pymetis", "metis"),
    packages=("pymetis",),
    seeded=True,
)
def metis(task: Task, params: MetisParams) -> Outcome:
    """Graph partitioner, where installed.

    Groups become one part per accelerator, and parts are placed by load. Karypis, Kumar, "A fast
    and high quality multilevel scheme for partitioning irregular graphs" (SIAM J. Sci. Comput. 20,
    1998), through pymetis, as the placement papers use it: compute is the weight of vertices,
    communication that of edges (here the host times of the tensors, each once per pair of groups,
    so that unequal links count). A heuristic whose objective is the sum of cut edges: it sees no
    direction, pays a tensor per pair and not per device, and balances compute alone.

    Deviations: parts are in proportion to the devices' speeds and go to devices heaviest first;
    what does not fit or run there moves on (`mend`).
    """
    return place_parts(task, lambda parting: _by_metis(parting, params), mends=params.mend)


def _by_metis(parting: Parting, params: MetisParams) -> Ints:
    package = import_module("pymetis")
    pointer, neighbour, weight = parting.graph(counts=params.edges == "count")
    # METIS draws from the C library's generator: seeds of 32 bits
    options = package.Options(seed=parting.seed % 2**31, ufactor=params.imbalance)

    def parts() -> Ints:
        result = package.part_graph(
            parting.num_parts,
            adjacency=package.CSRAdjacency(pointer, neighbour),
            vweights=parting.weight,
            eweights=weight,
            tpwgts=parting.share.tolist(),
            options=options,
        )
        return np.array(result.vertex_part, np.int64)

    found = parts()
    for _ in range(METIS_TRIES - 1):
        before, found = found, parts()
        if np.array_equal(before, found):
            break
    return found


# Runs of METIS at most, until two in a row agree. The process has one generator: where a thread of
# another library draws from it meanwhile, as ZeroMQ's does in a notebook, the parts are not the
# seed's (measured: with a draw in each 0.1 ms ten runs gave ten partitions).
METIS_TRIES = 8


class MtKahyparParams(Params):
    #: A part may be heavier than its share by this fraction (``epsilon``).
    imbalance: float = Field(default=0.03, gt=0, lt=1)


@method(
    "mt-kahypar",
    objectives=("makespan", "max_load", "max_load_fwd_bwd"),
    paper="Gottesbüren et al. 2024",
    cites="Gottesbueren et al. 2024",
    scope="makespan, loads, any plans",
    applies=why_not_parts,
    missing=partial(why_not_installed, "mtkahypar", "kahypar"),
    packages=("mtkahypar",),
    seeded=True,
)
def mt_kahypar(task: Task, params: MtKahyparParams) -> Outcome:
    """Hypergraph partitioner, where installed.

    The hypergraph of the tensors becomes one part per accelerator, and parts are placed by load.
    Gottesbueren, Heuer, Maas, Sanders, Schlag, "Scalable high-quality hypergraph partitioning" (ACM
    Trans. Algorithms 20, 2024), with the objective km1: sum over nets of weight x (parts - 1). Nets
    are those of `instances.problem.nets`: a tensor's pins are its producer and its consumers, so
    that a tensor is paid once per part that it reaches and not per edge, which is what max_load
    counts but for the producer's side. A heuristic: it minimizes the sum over the devices, balances
    compute alone, and sees no direction. The deterministic preset on one thread.

    Deviations: as for metis.
    """
    return place_parts(task, lambda parting: _by_kahypar(parting, params.imbalance))


@cache
def _package() -> tuple[Any, Any]:
    """The package and its one pool of threads: it can be opened once in a process."""
    package = import_module("mtkahypar")
    return package, package.initialize(1)


def _by_kahypar(parting: Parting, imbalance: float) -> Ints:
    package, pool = _package()
    context = pool.context_from_preset(package.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(parting.num_parts, imbalance, package.Objective.KM1)
    context.logging = False
    # where devices differ: each part's limit, which no single vertex may exceed either
    limit = to_whole(np.ceil(parting.share * parting.weight.sum() * (1 + imbalance)))
    if parting.share.max() > parting.share.min():
        context.set_individual_target_block_weights(
            np.maximum(limit, parting.weight.max()).tolist()
        )
    package.set_seed(parting.seed % 2**31)
    nets = np.split(parting.nets.pin, parting.nets.net_ptr[1:-1]) if parting.nets.num_nets else []
    hypergraph = pool.create_hypergraph(
        context,
        len(parting.weight),
        len(nets),
        [pins.tolist() for pins in nets],
        parting.weight.tolist(),
        parting.net_weights().tolist(),
    )
    return np.array(hypergraph.partition(context).get_partition(), np.int64)


PROGRAMS = "scotch_gpart", "gpart"  # its names: Debian's first, where ``gpart`` is another program


def why_no_scotch() -> str | None:
    """How to install Scotch, or None."""
    if _program() is None:
        return "needs Scotch's program gpart on the PATH (Debian: apt install scotch)"
    return None


@method(
    "scotch",
    objectives=("makespan", "max_load", "max_load_fwd_bwd"),
    cites="Pellegrini and Roman 1996",
    scope="makespan, loads, any plans",
    applies=why_not_parts,
    missing=why_no_scotch,
    seeded=True,
)
def scotch(task: Task, params: Params | None = None) -> Outcome:
    """Graph partitioner, where installed.

    Groups become one part per accelerator, and parts are placed by load. Pellegrini, Roman,
    "SCOTCH: a software package for static mapping by dual recursive bipartitioning" (HPCN Europe
    1996); the ``-scotch`` of Tarnawski et al. (NeurIPS 2020), which writes the same graph: time as
    the weight of vertices, the host times of the tensors between two of them, each once, as that of
    edges, and the program's default strategy. A heuristic whose objective is the sum of cut edges;
    it balances compute alone and sees no direction. The program has a fixed seed of its own, but
    its parts depend on how vertices are numbered: a seed above 0 draws their numbers.

    Deviations: colour classes that feed each other in a cycle stay apart; memory and support are
    mended, which the authors ignore and refuse; parts are equal also where devices are not.
    """
    return place_parts(task, _by_scotch)


def _by_scotch(parting: Parting) -> Ints:
    number: Ints = np.arange(len(parting.weight))
    if parting.seed:
        number = np.random.default_rng(parting.seed).permutation(number)
    with tempfile.TemporaryDirectory() as folder:
        graph, mapping = Path(folder, "graph.grf"), Path(folder, "parts.map")
        graph.write_text(graph_file(parting, number))
        command = [_program() or "", str(parting.num_parts), str(graph), str(mapping)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=end_with_parent
        )
        if done.returncode or not mapping.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise InputError(f"scotch: {command[0]} failed: {said[-1] if said else 'no message'}")
        return parts_of(mapping.read_text(), len(number))[number]


def _program() -> str | None:
    """Path of the program, or None where it is not installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def graph_file(parting: Parting, number: Ints) -> str:
    """The graph in Scotch's format: version, sizes, base and flags, then a line per vertex."""
    # A vertex has its weight, its degree, and the weight and number of each neighbour.
    pointer, neighbour, weight = parting.graph()
    lines = ["0", f"{len(parting.weight)} {len(neighbour)}", "0 011"]
    ends = np.stack([weight, number[neighbour]], axis=1)
    for v in np.argsort(number).tolist():
        arcs = ends[pointer[v] : pointer[v + 1]]
        lines.append(" ".join(map(str, [parting.weight[v], len(arcs), *arcs.ravel().tolist()])))
    return "\n".join(lines) + "\n"


def parts_of(text: str, num_vertices: int) -> Ints:
    r"""Part of each vertex, (v,), from a mapping: a count, then lines of vertex and part."""
    pairs = np.array(text.split()[1:], np.int64).reshape(-1, 2)
    part = np.zeros(num_vertices, np.int64)
    part[pairs[:, 0]] = pairs[:, 1]
    return part
