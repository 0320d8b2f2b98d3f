"""The referee: one evaluation for every plan, whatever made it, and every rule that it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import (
    DeviceUse,
    Evaluation,
    HybridPipeline,
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxContext,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Plan,
    PlanClass,
    Schedule,
    Semantics,
    ServerUse,
    Times,
    TransferTimes,
    Violation,
    has_replicas,
    has_two_levels,
    plan_class,
)
from placegap.instances.reading.errors import paused_collector
from placegap.instances.referee.channels import channel_name, channels_of
from placegap.instances.referee.context import context_violations, tokens_per_device
from placegap.instances.referee.hybrid import evaluate_hybrid
from placegap.instances.referee.iteration import (
    Iteration,
    check_iteration,
    in_flight_violations,
    iteration_holdings,
    simulate_iteration,
)
from placegap.instances.referee.loads import (
    border_costs,
    check_replicas,
    check_semantics,
    combine,
    device_loads,
    server_numbers,
    server_uses,
    share_load,
    share_part,
)
from placegap.instances.referee.memory import Holdings, held_bytes, memory_violations
from placegap.instances.referee.simulate import PlanError, check_shape, simulate
from placegap.instances.referee.simulate_calls import simulate_subgraphs

NO_VALUE = ("shape", "order", "fields", "replicas")
"""Rules without which a plan has no value at all."""


def evaluate(instance: Instance, plan: Plan, semantics: Semantics) -> Evaluation:
    """Judge a plan: its value, every rule it breaks, and what each device does.

    Parameters
    ----------
    instance : Instance
    plan : Plan
    semantics : Semantics

    Returns
    -------
    Evaluation
        `value_ns` is given whenever the plan can be executed, also if it breaks a rule (memory,
        colocation, class of plans); only a feasible plan counts.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs (`check_semantics`).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> verdict = evaluate(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    if isinstance(semantics, PipelineIteration):
        return _of_iteration(instance, plan, semantics)
    if isinstance(semantics, HybridPipeline):
        return _of_hybrid(instance, plan, semantics)
    if isinstance(semantics, MaxContext):
        return _of_context(instance, plan, semantics)
    violations, schedule, held = check_and_simulate(instance, plan, semantics)
    if held is None or any(violation.rule in NO_VALUE for violation in violations):
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices, cost_ns=border_costs(instance, semantics))
    servers: tuple[ServerUse, ...] = ()
    value_ns: int | None
    if isinstance(semantics, MaxLoad):
        load, servers, value_ns = _max_load(instance, plan, semantics, parts)
    elif isinstance(semantics, MaxLoadFwdBwd):
        load, value_ns = _max_load_fwd_bwd(instance, plan, semantics)
    else:  # the end of one pass
        load, value_ns = combine("add", *parts), None if schedule is None else schedule.makespan_ns
    uses = _device_uses(instance, plan, parts, load, held.bytes.tolist())
    return Evaluation(value_ns, violations, uses, schedule, servers)


def feasible_ns(instance: Instance, plan: Plan, semantics: Semantics) -> int | None:
    """The value of a plan; None where it breaks a rule."""
    verdict = evaluate(instance, plan, semantics)
    return verdict.value_ns if verdict.feasible else None


def _of_iteration(instance: Instance, plan: Plan, semantics: PipelineIteration) -> Evaluation:
    """The end of an iteration; loads of devices are those of one microbatch, without updates."""
    violations, iteration, held = check_and_run(instance, plan, semantics)
    if iteration is None or held is None:
        return Evaluation(None, violations)
    parts = device_loads(instance, plan.devices)
    late = np.flatnonzero(instance.arrays.update)
    on = plan.devices[late]
    np.subtract.at(parts[0], on, instance.arrays.time_ns[late, on])
    load = combine("add", *parts)
    uses = _device_uses(instance, plan, parts, load, held.bytes.tolist())
    return Evaluation(iteration.value_ns, violations, uses)


def _of_hybrid(instance: Instance, plan: Plan, semantics: HybridPipeline) -> Evaluation:
    """The longest stage of a batch."""
    foreign = tuple(_foreign_fields(plan, semantics))
    return Evaluation(None, foreign) if foreign else evaluate_hybrid(instance, plan, semantics)


def _of_context(instance: Instance, plan: Plan, semantics: MaxContext) -> Evaluation:
    """The tokens that every device has room for, below 0; loads and memory are those with them."""
    check_semantics(instance, semantics)
    try:
        check_shape(instance, plan, replicas=False)
    except PlanError as error:
        return Evaluation(None, (Violation("shape", str(error)),))
    foreign = tuple(_foreign_fields(plan, semantics))
    if foreign:
        return Evaluation(None, foreign)
    parts = device_loads(instance, plan.devices)
    load = combine(semantics.load, *parts)
    tokens = tokens_per_device(instance, plan)
    least = max(0, min(tokens))
    held = [0] * instance.num_devices  # on a device without a limit, perhaps beyond 64 bits
    for op, k in zip(instance.graph.ops, plan.devices.tolist(), strict=True):
        held[k] += op.bytes_at(least)
    uses = _device_uses(instance, plan, parts, load, held)
    uses = tuple(replace(use, tokens=most) for use, most in zip(uses, tokens, strict=True))
    broken = context_violations(instance, semantics, tokens, load)
    return Evaluation(-least, (*broken, *check_placement(instance, plan, semantics)), uses)


def _max_load(
    instance: Instance, plan: Plan, semantics: MaxLoad, parts: tuple[Ints, ...]
) -> tuple[Ints, tuple[ServerUse, ...], int]:
    """Load of each device and, with two levels, of each server; the heaviest of them."""
    load = share_load(instance, plan, combine(semantics.load, *parts))
    servers = server_uses(instance, plan.devices) if semantics.levels == 2 else ()
    return load, servers, max([int(load.max()), *(use.load_ns for use in servers)])


def _max_load_fwd_bwd(instance: Instance, plan: Plan, semantics: MaxLoadFwdBwd) -> tuple[Ints, int]:
    """Load of each device in both passes; the heaviest forward + the heaviest backward load."""
    forward, backward = (
        combine(semantics.load, *device_loads(instance, plan.devices, backward=which))
        for which in (False, True)
    )
    return forward + backward, int(forward.max()) + int(backward.max())


def _device_uses(
    instance: Instance, plan: Plan, parts: tuple[Ints, ...], load: Ints, memory: Sequence[int]
) -> tuple[DeviceUse, ...]:
    """What each device does."""
    on = np.array([k for devices in plan.placement for k in devices], np.int64)
    count = np.bincount(on, minlength=instance.num_devices)
    columns = [column.tolist() for column in (count, *(share_part(plan, part) for part in parts))]
    rows = zip(*columns, memory, load.tolist(), strict=True)
    specs = instance.cluster.devices
    return tuple(DeviceUse(spec.name, *row) for spec, row in zip(specs, rows, strict=True))


def check(instance: Instance, plan: Plan, semantics: Semantics) -> tuple[Violation, ...]:
    """All rules that the plan breaks; an empty tuple means that the plan is feasible.

    The rules: one known device per op that can run it; no field that the semantics does not
    define; memory; colocation; replicated stages; the class of plans; orders that can be executed.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs (`check_semantics`).

    Examples
    --------
    >>> from placegap.instances import example
    >>> check(example(), Plan.on([0, 0, 1]), Makespan())[0].rule
    'shape'
    """
    return check_and_simulate(instance, plan, semantics)[0]


def check_and_simulate(
    instance: Instance, plan: Plan, semantics: Semantics
) -> tuple[tuple[Violation, ...], Schedule | None, Holdings | None]:
    """All broken rules; the schedule where the semantics has one and the plan can be run; and what
    the devices hold, where that is known.
    """
    check_semantics(instance, semantics)
    if isinstance(semantics, HybridPipeline | MaxContext):
        return evaluate(instance, plan, semantics).violations, None, None
    if isinstance(semantics, PipelineIteration):
        violations, _, held = check_and_run(instance, plan, semantics)
        return violations, None, held
    try:
        check_shape(instance, plan, replicas=has_replicas(semantics))
    except PlanError as error:
        return (Violation("shape", str(error)),), None, None
    foreign = tuple(_foreign_fields(plan, semantics))
    placed, late = check_placement(instance, plan, semantics), list[Violation]()
    schedule = None
    if not foreign:
        try:
            if isinstance(semantics, Makespan):
                schedule = simulate(instance, plan, semantics)
            elif isinstance(semantics, LatencySubgraphs):
                schedule = simulate_subgraphs(instance, plan, semantics)
        except PlanError as error:
            late.append(Violation("order", str(error)))
    held = held_bytes(instance, plan, semantics, schedule)
    full = [] if held is None else memory_violations(instance, plan, semantics, schedule, held)
    return (*foreign, *full, *placed, *late), schedule, held


def check_and_run(
    instance: Instance, plan: Plan, semantics: PipelineIteration
) -> tuple[tuple[Violation, ...], Iteration | None, Holdings | None]:
    """All broken rules of an iteration's plan; the iteration and what devices hold, if it runs."""
    check_iteration(instance, semantics)
    try:
        check_shape(instance, plan, replicas=False)
    except PlanError as error:
        return (Violation("shape", str(error)),), None, None
    foreign = tuple(_foreign_fields(plan, semantics))
    placed = tuple(_colocation(instance, plan.devices, pooled=False))
    if foreign:
        return (*foreign, *placed), None, None
    try:
        with paused_collector():
            iteration = simulate_iteration(instance, plan, semantics)
            held = iteration_holdings(instance, plan, iteration.stages, semantics)
    except PlanError as error:
        return (*placed, Violation("order", str(error))), None, None
    return (*in_flight_violations(instance, held, semantics), *placed), iteration, held


def check_placement(instance: Instance, plan: Plan, semantics: Semantics) -> tuple[Violation, ...]:
    """The rules about where ops are: colocation, replicated stages, class of plans."""
    device = plan.devices  # a replicated stage is where its first device is
    pooled = semantics.objective == "latency_subgraphs"  # hosts are one pool there
    found = [*_colocation(instance, device, pooled)]
    if has_replicas(semantics):
        found += check_replicas(instance, plan, semantics)
    names = [spec.name for spec in instance.cluster.devices]
    found += check_class(instance, plan_class(semantics), device, names, "device")
    if has_two_levels(semantics):
        servers, server = server_numbers(instance)
        found += check_class(instance, plan_class(semantics), server[device], servers, "server")
    return tuple(found)


def check_schedule(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> tuple[Violation, ...]:
    """Verify the times of a makespan schedule, independently of how they came about.

    Every op runs after its inputs have arrived, every transfer after its producer, each for its
    full duration; devices and channels serve one at a time.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
        As `evaluate` or `simulate` return it, in ns.
    semantics : Makespan

    Examples
    --------
    >>> from placegap.instances import Makespan, Plan, evaluate, example
    >>> found = evaluate(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> check_schedule(example(), found.schedule, Makespan())
    ()
    """
    return (
        *_transfers_cover_edges(instance, schedule, semantics),
        *_durations(instance, schedule, semantics),
        *_exclusive(instance, schedule, semantics),
    )


def check_times(
    instance: Instance, plan: Plan, semantics: Makespan, times: Times
) -> tuple[Violation, ...]:
    """Verify the times that are stated for a makespan plan, whatever clock they are from.

    As `check_schedule`; and no transfer is there that no op waits for.
    """
    device, index = plan.devices, instance.arrays.index
    moves = sorted(times.transfers)
    item = np.array([move.item for move in moves], np.int64)
    target = np.array([move.destination for move in moves], np.int64)
    tensor = index.tensor[item] if semantics.transfers == "per_edge" else item
    producer = index.tensor_producer[tensor]
    spans = np.array([times.transfers[move] for move in moves], np.int64).reshape(-1, 2)
    table = TransferTimes(item, producer, device[producer], target, spans[:, 0], spans[:, 1])
    ops = np.array(times.ops, np.int64)
    schedule = Schedule(device, ops[:, 0], ops[:, 1], table)
    return (
        *check_schedule(instance, schedule, semantics),
        *_needless_transfers(instance, schedule, semantics),
    )


def _needless_transfers(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> Iterator[Violation]:
    index, device, table = instance.arrays.index, schedule.device, schedule.transfers
    item = index.tensor if semantics.transfers == "per_tensor" else np.arange(len(index.tensor))
    remote = device[index.producer] != device[index.consumer]
    needed = set(zip(item[remote].tolist(), device[index.consumer[remote]].tolist(), strict=True))
    rows = zip(
        table.item.tolist(), table.destination.tolist(), table.producer.tolist(), strict=True
    )
    for move, target, producer in rows:
        if (move, target) not in needed:
            name = instance.graph.ops[producer].name
            where = instance.cluster.devices[target].name
            yield Violation(
                "transfer", f"nothing on {where!r} waits for the output of {name!r}", op=name
            )


def _foreign_fields(plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    if semantics.objective != "latency_subgraphs" and plan.call is not None:
        yield Violation("fields", f"call is not defined under {semantics.label}")
    if not isinstance(semantics, PipelineIteration | HybridPipeline) and plan.stage is not None:
        yield Violation("fields", f"stage is not defined under {semantics.label}")
    for name, given in (("tensor", plan.tensor), ("mode", plan.mode)):
        if given is not None and not isinstance(semantics, HybridPipeline):
            yield Violation("fields", f"{name} is not defined under {semantics.label}")
    if semantics.objective != "makespan":
        if plan.device_order is not None:
            yield Violation("fields", f"device_order is not defined under {semantics.label}")
        if plan.channel_order is not None:
            yield Violation("fields", f"channel_order is not defined under {semantics.label}")
    elif semantics.channels == "free" and plan.channel_order:
        yield Violation("fields", "channel_order is not defined: channels are free")


def _colocation(instance: Instance, device: Ints, pooled: bool) -> Iterator[Violation]:
    """Ops of a group share a device or, where the hosts are one pool, any of the hosts."""
    is_host = instance.arrays.is_host
    home: dict[str, int] = {}
    for i, op in enumerate(instance.graph.ops):
        if op.colocation is None:
            continue
        first = home.setdefault(op.colocation, i)
        if device[first] != device[i] and not (
            pooled and is_host[device[first]] and is_host[device[i]]
        ):
            here, there = (instance.cluster.devices[device[j]].name for j in (i, first))
            yield Violation(
                "colocation",
                f"op {op.name!r} is on {here!r}, but {instance.graph.ops[first].name!r} of its"
                f" group {op.colocation!r} is on {there!r}",
                op=op.name,
                device=here,
            )


def _transfers_cover_edges(
    instance: Instance, schedule: Schedule, semantics: Makespan
) -> Iterator[Violation]:
    index, ops = instance.arrays.index, instance.graph.ops
    table = schedule.transfers
    arrival = {
        (item, destination): end
        for item, destination, end in zip(
            table.item.tolist(), table.destination.tolist(), table.end_ns.tolist(), strict=True
        )
    }
    for e in range(len(index.producer)):
        a, b = int(index.producer[e]), int(index.consumer[e])
        start = int(schedule.start_ns[b])
        where = int(schedule.device[b])
        if schedule.device[a] == where:
            ready: int | None = int(schedule.end_ns[a])
        else:
            item = e if semantics.transfers == "per_edge" else int(index.tensor[e])
            ready = arrival.get((item, where))
        name = instance.cluster.devices[where].name
        if ready is None:
            yield Violation(
                "transfer",
                f"{ops[b].name!r} never receives the output of {ops[a].name!r}",
                op=ops[b].name,
                device=name,
                time_ns=start,
            )
        elif start < ready:
            yield Violation(
                "precedence",
                f"op {ops[b].name!r} starts at {start} ns, before its input from {ops[a].name!r}"
                f" is there at {ready} ns",
                op=ops[b].name,
                device=name,
                time_ns=start,
            )


def _durations(instance: Instance, schedule: Schedule, semantics: Makespan) -> Iterator[Violation]:
    arrays, ops, devices = instance.arrays, instance.graph.ops, instance.cluster.devices
    for i, op in enumerate(ops):
        k, start = int(schedule.device[i]), int(schedule.start_ns[i])
        if start < 0 or schedule.end_ns[i] - start != arrays.time_ns[i, k]:
            yield Violation(
                "duration",
                f"op {op.name!r} does not run for its time from {start} ns on",
                op=op.name,
                device=devices[k].name,
                time_ns=start,
            )
    table = schedule.transfers
    for row in range(len(table.item)):
        item, a, b = int(table.item[row]), int(table.source[row]), int(table.destination[row])
        tensor = int(arrays.index.tensor[item]) if semantics.transfers == "per_edge" else item
        producer, start = int(arrays.index.tensor_producer[tensor]), int(table.start_ns[row])
        needed = int(arrays.transfer_ns[tensor, arrays.link_class[a, b]])
        if a != schedule.device[producer] or start < schedule.end_ns[producer]:
            yield Violation(
                "transfer",
                f"the output of {ops[producer].name!r} is sent before it is there",
                op=ops[producer].name,
                device=devices[a].name,
                time_ns=start,
            )
        if table.end_ns[row] - start != needed:
            yield Violation(
                "duration",
                f"the transfer of {ops[producer].name!r} does not take {needed} ns",
                op=ops[producer].name,
                device=devices[b].name,
                time_ns=start,
            )


def _exclusive(instance: Instance, schedule: Schedule, semantics: Makespan) -> Iterator[Violation]:
    ops, devices = instance.graph.ops, instance.cluster.devices
    uses: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for i in range(instance.num_ops):
        row = (int(schedule.start_ns[i]), int(schedule.end_ns[i]), i)
        uses.setdefault(("device", int(schedule.device[i])), []).append(row)
    table = schedule.transfers
    for row_number in range(len(table.item)):
        pair = int(table.source[row_number]), int(table.destination[row_number])
        row = (
            int(table.start_ns[row_number]),
            int(table.end_ns[row_number]),
            int(table.producer[row_number]),
        )
        for channel in channels_of(semantics.channels, instance.num_devices, *pair):
            if channel >= 0:
                uses.setdefault(("channel", channel), []).append(row)
    for (what, number), rows in uses.items():
        rows.sort()
        latest = rows[0]
        for row in rows[1:]:
            if row[0] < latest[1]:
                name = (
                    devices[number].name
                    if what == "device"
                    else channel_name(semantics.channels, instance.cluster, number)
                )
                yield Violation(
                    f"{what}_overlap",
                    f"{what} '{name}' serves {ops[latest[2]].name!r} and {ops[row[2]].name!r} at"
                    f" once at {row[0]} ns",
                    op=ops[row[2]].name,
                    device=name if what == "device" else None,
                    time_ns=row[0],
                )
            latest = max(latest, row, key=lambda r: r[1])


def check_class(
    instance: Instance, plans: PlanClass, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """What keeps regions (devices or servers, as `noun` says) from being of a class of plans."""
    if plans == "convex":
        yield from _convex(instance, region, names, noun)
    elif plans == "chain":
        yield from _chain(instance, region, names, noun)


def _convex(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """No path over forward ops leaves a region and comes back (Tarnawski et al., contiguity)."""
    arrays = instance.arrays
    index = arrays.index
    # left[i]: regions that some forward path into op i has left; bits of a Python integer
    left = [0] * instance.num_ops
    for i in index.topological_order.tolist():
        if arrays.backward[i]:
            continue
        for e in index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]].tolist():
            j = int(index.producer[e])
            if not arrays.backward[j]:
                left[i] |= left[j] | ((1 << int(region[j])) if region[j] != region[i] else 0)
        if left[i] >> int(region[i]) & 1:
            op, name = instance.graph.ops[i].name, names[region[i]]
            yield Violation(
                "convex",
                f"a path leaves {noun} {name!r} and comes back to it at op {op!r}",
                op=op,
                device=name if noun == "device" else None,
            )


def _chain(
    instance: Instance, region: Ints, names: Sequence[str], noun: str
) -> Iterator[Violation]:
    """The forward parts of the regions form a chain: no cycle in the graph of regions.

    A colour class without a forward op counts as a forward block whose edges mirror its backward
    edges (Tarnawski et al., orphans). Colour classes are whole by the colocation rule.
    """
    arrays = instance.arrays
    index, backward = arrays.index, arrays.backward
    has_forward = np.zeros(arrays.num_groups, np.bool_)
    has_forward[arrays.group[~backward]] = True
    orphan = ~has_forward[arrays.group]
    tail, head = index.producer, index.consumer
    forward = ~backward[tail] & ~backward[head]
    mirrored = backward[tail] & backward[head] & (orphan[tail] | orphan[head])
    arcs: dict[tuple[int, int], tuple[int, int]] = {}
    for mask, ends in ((forward, (tail, head)), (mirrored, (head, tail))):
        for a, b in zip(ends[0][mask].tolist(), ends[1][mask].tolist(), strict=True):
            if region[a] != region[b]:
                arcs.setdefault((int(region[a]), int(region[b])), (a, b))
    order = TopologicalSorter[int]()
    for a, b in arcs:
        order.add(b, a)
    try:
        order.prepare()
    except CycleError as found:
        cycle = list(pairwise(found.args[1]))
    else:
        return
    around = [names[a] for a, _ in cycle]
    a, b = (instance.graph.ops[i].name for i in arcs[cycle[-1]])
    yield Violation(
        "chain",
        f"the {noun}s feed each other in a cycle: {' -> '.join([*around, around[0]])}"
        f" (for instance {a!r} feeds {b!r})",
        op=a,
        device=around[0] if noun == "device" else None,
    )
