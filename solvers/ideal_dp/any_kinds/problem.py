"""The problem of the ideal DP over any devices: blocks, nets, kinds of devices, pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import Blocks, IdleRule, contract
from placegap.instances.problem.graph_index import freeze, group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.loads import (
    border_costs,
    server_costs,
    server_numbers,
    why_not_two_levels,
)
from placegap.solvers.chains.kinds_problem import Pool, build_pool, merge_alike, widths
from placegap.solvers.chains.problem import (
    LARGEST_LOAD,
    ChainProblem,
    CutNets,
    assemble,
    kind_costs,
)

LARGEST_SYNC = 2**49
"""With replicas loads and parameters stay below: see `ideal_dp.sharing.sync_ns`."""


@dataclass(frozen=True, eq=False)
class KindsProblem:
    """b blocks with e nets, to be cut into a chain of ideals; D kinds of devices.

    Attributes
    ----------
    guide : ChainProblem
        Blocks, arcs and nets. Its first kind has the largest costs of all kinds, which is good
        enough to choose orders by; it has no device.
    time, need, weight : (D, b), (D, b), (D, e) int64
        Time of each block on each kind, 0 where it cannot run; what it takes of a device's room,
        more than all where it cannot run; what each kind pays for a net that is cut.
    room : (D,) int64
        0 where memory holds everything.
    parameter_bytes : (b,) int64
    pool : Pool
        All devices, servers aside.
    servers : tuple of Pool
        Servers, alike ones together; none with one level of communication.
    border : (servers, e) int64
        What each server pays for a net that is cut.
    """

    guide: ChainProblem
    time: Ints
    need: Ints
    weight: Ints
    room: Ints
    parameter_bytes: Ints
    pool: Pool
    servers: tuple[Pool, ...]
    border: Ints

    @property
    def blocks(self) -> Blocks:
        """The blocks."""
        return self.guide.blocks

    @property
    def num_kinds(self) -> int:
        """Number of kinds of devices."""
        return len(self.room)

    @property
    def counts(self) -> Ints:
        """Devices of each kind, (D,)."""
        return self.pool.of_kinds(self.pool.counts, self.num_kinds)

    @property
    def fits(self) -> Flags:
        """Whether a device of each kind can run and hold each block, (D, b) bool."""
        return np.asarray(self.need <= self.room[:, None])

    @property
    def largest_load(self) -> int:
        """No device or server of a plan without replicas has more load than this."""
        work = int(self.time.max(axis=0).sum())
        return work + sum(int(w.max(axis=0, initial=0).sum()) for w in (self.weight, self.border))


def why_not_kinds(instance: Instance, semantics: MaxLoad) -> str | None:
    """What the DP lacks for an instance, or None: servers, or sums that fit 64 bits."""
    if semantics.levels == 2:
        reason = why_not_two_levels(instance)
        if reason is not None:
            return reason
    arrays, devices = instance.arrays, instance.num_devices
    total = int(arrays.resident_bytes.sum())
    paid = int(border_costs(instance, semantics).max(axis=1, initial=0).sum())
    if semantics.levels == 2:
        paid += int(server_costs(instance).max(axis=1, initial=0).sum())
    most = int(np.maximum(arrays.time_ns, 0).max(axis=1).sum()) + 2 * paid
    if max(most * devices, (total + 1) * instance.num_ops) > LARGEST_LOAD:
        return "adds in 64 bits: times or bytes are too large"
    if semantics.replicas:
        weights = sum(op.parameter_bytes for op in instance.graph.ops)
        bandwidths = [x.bandwidth_bytes_per_s for x in instance.cluster.all_links.entries] or [1]
        slowest = 2 * weights * NS_PER_S // min(bandwidths)
        large = max(slowest, devices * max(bandwidths)) > LARGEST_LOAD
        if most > LARGEST_SYNC or weights > LARGEST_SYNC or large:
            return "adds in 64 bits: times, parameters or bandwidths are too large"
    return None


def build_kinds(
    instance: Instance,
    semantics: MaxLoad,
    rule: IdleRule | None = None,
    labels: Sequence[object] | None = None,
) -> KindsProblem:
    """Contract an instance, whatever its devices are.

    `rule` says which idle blocks join others, and which devices' memory cannot end; `labels` what
    else tells devices apart.

    Examples
    --------
    >>> from placegap.instances import example
    >>> problem = build_kinds(example(), MaxLoad(plans="chain"))
    >>> problem.pool.copies, problem.time.tolist(), problem.weight.tolist()
    ((((0, 1),),), [[5, 20, 10, 8]], [[1, 20, 1, 10]])
    """
    arrays, two = instance.arrays, semantics.levels == 2
    rule = rule or IdleRule(parameters=semantics.replicas)
    blocks = contract(instance, rule=rule)
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    server = server_numbers(instance)[1] if two else np.zeros(instance.num_devices, np.int64)
    many = two and int(server.max()) > 0
    border = server_costs(instance) if many else np.zeros((len(cost), 0), np.int64)
    net_ptr, pin, weight = _nets(instance, blocks.block, np.hstack([cost, border]))
    own_costs = [kind_costs(instance, blocks, k) for k in range(instance.num_devices)]
    kind, first = _kinds(instance, semantics, own_costs, cost, weight, labels)
    costs = [own_costs[k] for k in first]
    time, need = (np.stack([part[at] for part in costs]) for at in (0, 1))
    block_ptr, net_at = group_by(pin, blocks.num_blocks)
    net = np.repeat(np.arange(len(weight)), np.diff(net_ptr))[net_at]
    own = np.ascontiguousarray(weight[:, first].T)
    borders = np.ascontiguousarray(weight[:, instance.num_devices :].T)
    heaviest = np.vstack([own, borders]).max(axis=0)
    none = np.zeros_like(time[:1])
    guide = assemble(
        blocks,
        ((), ()),
        (np.vstack([time.max(axis=0), none]), np.vstack([none, none]), np.zeros(2, np.int64)),
        CutNets(block_ptr, net, np.diff(net_ptr), heaviest),
        net_ptr,
        pin,
        overlap=semantics.load == "overlap",
    )
    parameters = np.zeros(blocks.num_blocks, np.int64)
    held = np.array([op.parameter_bytes for op in instance.graph.ops], np.int64)
    np.add.at(parameters, blocks.block, np.where(blocks.held, held, 0))
    width = widths(instance) if semantics.replicas else None
    pools = [
        build_pool(np.flatnonzero(server == v).tolist(), kind, width) for v in range(len(borders))
    ]
    servers, home = merge_alike(pools, [own.tobytes() for own in borders])
    problem = KindsProblem(
        guide=guide,
        time=time,
        need=need,
        weight=own,
        room=np.array([part[2] for part in costs], np.int64),
        parameter_bytes=parameters,
        pool=build_pool(range(instance.num_devices), kind, width),
        servers=servers,
        border=borders[np.unique(home, return_index=True)[1]],
    )
    freeze(problem)
    return problem


def _kinds(
    instance: Instance,
    semantics: MaxLoad,
    costs: list[tuple[Ints, Ints, int]],
    cost: Ints,
    weight: Ints,
    labels: Sequence[object] | None,
) -> tuple[list[int], list[int]]:
    """Kind of each device, by what the blocks and nets cost there; the first device of each.

    With replicas, devices that may not share a stage are of different kinds
    (`replication.equal_devices`; servers aside).
    """
    arrays = instance.arrays
    number: dict[object, int] = {}
    kind: list[int] = []
    first: list[int] = []
    for k in range(instance.num_devices):
        time, need, room = costs[k]
        key: tuple[object, ...] = time.tobytes(), need.tobytes(), room, weight[:, k].tobytes()
        if semantics.replicas:
            key += int(arrays.memory_bytes[k]), bool(arrays.is_host[k])
            key += arrays.time_ns[:, k].tobytes(), cost[:, k].tobytes()
        if labels is not None:
            key += (labels[k],)
        kind.append(number.setdefault(key, len(number)))
        if kind[k] == len(first):
            first.append(k)
    return kind, first


def _nets(instance: Instance, block: Ints, cost: Ints) -> tuple[Ints, Ints, Ints]:
    """Nets as in `instances.structure.nets`, at any costs (t, columns): net_ptr, pin, weight (e,
    columns).
    """
    index, num_blocks = instance.arrays.index, int(block.max()) + 1
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    where = np.concatenate([block[index.tensor_producer], block[index.consumer]])
    pairs = np.unique(tensor * num_blocks + where)
    owner, start, count = np.unique(pairs // num_blocks, return_index=True, return_counts=True)
    pin = pairs % num_blocks
    number: dict[bytes, int] = {}
    pins: list[Ints] = []
    weights: list[Ints] = []
    for tensor_at, begin, size in zip(owner, start, count, strict=True):
        if size == 1 or not cost[tensor_at].any():
            continue
        own = pin[begin : begin + size]
        at = number.setdefault(own.tobytes(), len(pins))
        if at == len(pins):
            pins.append(own)
            weights.append(np.zeros(cost.shape[1], np.int64))
        weights[at] += cost[tensor_at]
    pointer = np.cumsum([0, *(len(own) for own in pins)]).astype(np.int64)
    table = np.array(weights, np.int64).reshape(len(pins), cost.shape[1])
    return pointer, np.concatenate([np.zeros(0, np.int64), *pins]), table
