"""greedy: fill one accelerator after the other to its memory, the rest goes to the hosts."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import Blocks, contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import OBJECTIVES, plan_class
from placegap.solvers.core.method import Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import NOWHERE
from placegap.solvers.placers.movable_units import fits_nowhere, why_not_one_level


def greedy(task: Task, params: Params | None = None) -> Outcome:
    """Next-fit of the blocks, in topological order, by memory alone.

    The baseline of Tarnawski et al. (NeurIPS 2020; their program ``greedy.cpp``). A block is a
    colour class or, where classes feed each other in a cycle, several. The current accelerator
    takes blocks while they fit; one that no longer fits opens the next accelerator; a block that
    is larger than any accelerator goes to a host and closes the current accelerator, and after the
    last accelerator all goes to the hosts. A heuristic that looks at no time and no transfer.
    Deviations: an accelerator that cannot run a block counts as too small for it, where the
    program ignores support; with backward ops the blocks are those of
    `instances.problem.blocks`, where the program takes all edges for forward ones (so does this
    for latency_subgraphs). The program has one pool of hosts without a limit. Here a host has its
    own memory and, where plans must be a chain or convex, a host that was left is not used again;
    else a block goes to the host that has the least to do. Where no host takes a block either,
    accelerators that were closed are tried (plans of any kind only).
    O(b K) for b blocks, and O(n K + m log m) to find them.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Edge, Graph, Instance, MaxLoad, Op
    >>> ops = tuple(Op(name=x, time_ns={"gpu": 1, "cpu": 9}, resident_bytes=2) for x in "abcd")
    >>> devices = (Device(name="g0", kind="gpu", memory_bytes=4),
    ...            Device(name="g1", kind="gpu", memory_bytes=3),
    ...            Device(name="c", kind="cpu", is_host=True))
    >>> instance = Instance(name="four", graph=Graph(name="four", ops=ops),
    ...                     cluster=Cluster(name="three", devices=devices))
    >>> greedy(Task(instance, MaxLoad())).plan.placement
    ((0,), (0,), (1,), (2,))
    """
    instance, semantics = task.instance, task.semantics
    one_pass = semantics.objective == "latency_subgraphs"
    blocks = contract(instance, merge_idle=False, one_pass=one_pass)
    one_way = plan_class(semantics) != "any"
    returns = not one_way and not one_pass
    device, stuck = _fill(
        blocks,
        instance.arrays.memory_bytes,
        instance.arrays.is_host,
        one_way=one_way,
        returns=returns,
    )
    if stuck != NOWHERE:
        return fits_nowhere(instance, blocks, stuck, "fits on no device that greedy still fills")
    return Outcome(Plan.on(device[blocks.block].tolist()))


def _fill(
    blocks: Blocks, memory: Ints, is_host: Flags, *, one_way: bool, returns: bool
) -> tuple[Ints, int]:
    """Device of each block, and the block that fits nowhere or -1."""
    fits = (blocks.time_ns != UNSUPPORTED) & (blocks.resident_bytes[:, None] <= memory)
    accelerators, hosts = np.flatnonzero(~is_host), np.flatnonzero(is_host).tolist()
    goes_in = fits[:, accelerators].any(axis=1).tolist()
    to_fill, closed = accelerators.tolist(), list[int]()  # to_fill[0] is being filled
    able, size, time = fits.tolist(), blocks.resident_bytes.tolist(), blocks.time_ns.tolist()
    free, work, used = memory.tolist(), [0] * len(memory), [False] * len(memory)
    device = np.full(len(size), NOWHERE)
    last = NOWHERE
    for v in range(len(size)):
        candidates = [k for k in (to_fill if goes_in[v] else []) if able[v][k]]
        at = next((k for k in candidates if size[v] <= free[k]), NOWHERE)
        if at == NOWHERE:
            stay = last if one_way else NOWHERE
            here = [k for k in hosts if able[v][k] and size[v] <= free[k]]
            at = min(here, key=lambda k: (k != stay, work[k]), default=NOWHERE)
        if at == NOWHERE and returns:
            at = next((k for k in closed if able[v][k] and size[v] <= free[k]), NOWHERE)
        if at == NOWHERE:
            return device, v
        if at in to_fill:
            while to_fill[0] != at:
                closed.append(to_fill.pop(0))
        elif at in hosts and to_fill and used[to_fill[0]]:
            closed.append(to_fill.pop(0))
        if one_way and last in hosts and at != last:
            hosts.remove(last)
        device[v] = last = at
        free[at] -= size[v]
        work[at] += time[v][at]
        used[at] = True
    return device, NOWHERE


register(
    Method(
        name="greedy",
        claim="heuristic",
        objectives=OBJECTIVES,
        scope="all; a chain where the semantics asks for one",
        paper="Tarnawski et al. 2020",
        cites=("tarnawski2020",),
        summary="fills devices in topological order, by memory alone",
        starts={
            "makespan": Cost(0.5, 3.6),
            "max_load": Cost(0.4, 0.7),
            "pipeline_iteration": Cost(0.4, 2.0),
        },
        run=greedy,
        params=Params,
        applies=why_not_one_level,
    )
)
