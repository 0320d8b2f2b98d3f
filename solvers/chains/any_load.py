"""The ideal DP under a load of your own: the best chain for any function of a set of ops.

Tarnawski et al. state the recurrence for a ``load(S)`` that can be arbitrary (poster, "Dynamic
Programming"). The engines of `ideal-dp` gain their speed from what they know of max_load; here
nothing is known of the load, so every pair of nested ideals is looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.blocks import Blocks, contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.reading.errors import InputError
from placegap.solvers.chains.ideals import ideals_as_bits

StageLoad = Callable[[frozenset[str], str], float]
"""Names of a stage's ops, and the kind of its device -> what it takes; infinity: not at all."""

MAX_IDEALS = 5_000
"""By default; all pairs of nested ideals are some ten million."""

Counts = tuple[int, ...]
"""How many devices of each kind."""


@dataclass(frozen=True)
class ChainOfStages:
    """The best chain under a load."""

    #: The heaviest stage's load, in the unit of the load; infinity where there is no chain.
    value: float
    #: Device and ops of each stage, in the order of the chain; devices without ops are left out.
    stages: tuple[tuple[str, frozenset[str]], ...] = ()
    plan: Plan | None = None


def chain_under_load(
    instance: Instance, load: StageLoad, *, max_ideals: int = MAX_IDEALS
) -> ChainOfStages:
    """Split a graph into a chain of stages so that the largest load is least.

    Exact for *any* function of the set of ops and the kind of device: it need not grow with the
    set, need not be a sum, and may be infinite where a stage does not fit. Memory is the load's
    affair; colocation groups, backward ops and ops that a kind cannot run are observed. A device
    without ops costs nothing, and the load is not asked about it. The load must give the same
    answer whenever it is asked; it is asked at most once for each set and kind.

    For N ideals, K kinds and L vectors of device counts O(N^2 K) loads and O(L K N^2) steps.

    Parameters
    ----------
    load : callable
        ``load(names of the ops, kind of the device)``, a number that is not NaN.
    max_ideals : int
        With more ideals than this there is an error.
    """
    blocks = contract(instance, merge_idle=False)
    ideals = _ideals(blocks, max_ideals)
    kinds = Counter(device.kind for device in instance.cluster.devices)
    names = tuple(kinds)
    able = _able(instance, blocks, names)
    asked = _remembered(instance, blocks, load)
    vectors = list(product(*(range(number + 1) for number in kinds.values())))
    value: dict[tuple[Counts, int], float] = {(u, 0): 0.0 for u in vectors}
    step: dict[tuple[Counts, int], tuple[int, int]] = {}
    for at, ideal in enumerate(ideals[1:], start=1):
        within = [before for before in ideals[:at] if before & ideal == before]
        for u in vectors:
            best, chosen = math.inf, None
            for k, name in enumerate(names):
                if not u[k]:
                    continue
                fewer = (*u[:k], u[k] - 1, *u[k + 1 :])
                if value[fewer, ideal] < best:  # this device stays without ops
                    best, chosen = value[fewer, ideal], (k, ideal)
                for before in within:
                    known, stage = value[fewer, before], ideal & ~before
                    if known >= best or stage & ~able[k]:
                        continue
                    worst = max(known, asked(stage, name))
                    if worst < best:
                        best, chosen = worst, (k, before)
            value[u, ideal] = best
            if chosen is not None:
                step[u, ideal] = chosen
    full, everyone = ideals[-1], tuple(kinds.values())
    if math.isinf(value[everyone, full]):
        return ChainOfStages(math.inf)
    return _traced(instance, blocks, value[everyone, full], _walk(step, everyone, full), names)


def _ideals(blocks: Blocks, max_ideals: int) -> list[int]:
    needed = [0] * blocks.num_blocks
    for tail, head in zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True):
        needed[head] |= 1 << tail
    found = ideals_as_bits(needed, max_ideals)
    if found is None:
        raise InputError(
            f"more than {max_ideals} ideals, and every pair would be looked at: coarsen the"
            " graph, or raise max_ideals"
        )
    return found


def _able(instance: Instance, blocks: Blocks, names: tuple[str, ...]) -> list[int]:
    """Blocks that each kind can run, as bits."""
    kinds = [device.kind for device in instance.cluster.devices]
    columns = [blocks.time_ns[:, kinds.index(name)] for name in names]
    return [
        sum(1 << int(block) for block in (column != UNSUPPORTED).nonzero()[0]) for column in columns
    ]


def _remembered(instance: Instance, blocks: Blocks, load: StageLoad) -> Callable[[int, str], float]:
    """The load of a set of blocks, asked once for each set and kind."""
    members: list[list[str]] = [[] for _ in range(blocks.num_blocks)]
    for op, block in zip(instance.graph.ops, blocks.block.tolist(), strict=True):
        members[block].append(op.name)
    known: dict[tuple[int, str], float] = {}

    def asked(stage: int, kind: str) -> float:
        if (stage, kind) not in known:
            ops = frozenset(name for block in _bits(stage) for name in members[block])
            answer = load(ops, kind)
            if not isinstance(answer, int | float) or math.isnan(answer):
                raise InputError(
                    f"the load of {len(ops)} ops on {kind!r} is {answer!r}: it must be a number,"
                    " or infinity where they do not fit"
                )
            known[stage, kind] = answer
        return known[stage, kind]

    return asked


def _walk(
    step: dict[tuple[Counts, int], tuple[int, int]], counts: Counts, ideal: int
) -> Iterator[tuple[int, int]]:
    """Kind and blocks of each stage, the last one first; devices without ops are left out."""
    while ideal:
        k, before = step[counts, ideal]
        counts = (*counts[:k], counts[k] - 1, *counts[k + 1 :])
        if before != ideal:
            yield k, ideal & ~before
        ideal = before


def _traced(
    instance: Instance,
    blocks: Blocks,
    value: float,
    stages: Iterator[tuple[int, int]],
    names: tuple[str, ...],
) -> ChainOfStages:
    devices = instance.cluster.devices
    free = {name: [k for k, d in enumerate(devices) if d.kind == name] for name in names}
    device_of = [0] * blocks.num_blocks
    chain = []
    for kind, stage in reversed(list(stages)):
        device = free[names[kind]].pop(0)
        for block in _bits(stage):
            device_of[block] = device
        inside = frozenset(
            op.name
            for op, block in zip(instance.graph.ops, blocks.block.tolist(), strict=True)
            if stage >> block & 1
        )
        chain.append((devices[device].name, inside))
    return ChainOfStages(value, tuple(chain), Plan.on(device_of[b] for b in blocks.block.tolist()))


def _bits(stage: int) -> Iterator[int]:
    """Numbers of the blocks of a set."""
    while stage:
        lowest = stage & -stage
        yield lowest.bit_length() - 1
        stage ^= lowest
