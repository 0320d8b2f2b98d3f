"""Replicas of a training graph that share their variables, as TF-slim deploys clones.

Every clone runs a whole batch of its own (weak scaling). There is one copy of each variable, of
what is colocated with it, and of what lies between its gradient and its update; the clones read the
variable, and their gradients are added up before the update. Summaries and moving averages are
those of the first clone. Where the cluster has a host, what there is once runs there, and clones
run on the other devices (TF-slim: model_deploy.py and train_image_classifier.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from placegap.instances.costing.catalogue import specs_of
from placegap.instances.costing.costing import roofline_ns
from placegap.instances.problem import Cluster, DeviceSpec, Edge, Graph, Instance, Op
from placegap.instances.reading.errors import as_input_error, paused_collector
from placegap.instances.transforms.split_gradients import is_update, works_on_weights

NONE, MANY = -1, -2  # in place of an update op: an op leads to none, or to several


class Role(IntEnum):
    """How often an op is there."""

    SHARED = 0
    FIRST = 1
    EACH = 2


def roles(graph: Graph) -> list[Role]:
    """Which ops there are once, once in the first clone, and in each clone."""
    ops, index = graph.ops, graph.index
    order = index.topological_order.tolist()
    before, after = _neighbours(graph)
    of_weights, leads = works_on_weights(graph), leads_to(graph, after)
    held = {op.colocation for op in ops if is_update(op) or op.kind.startswith("Variable")}
    role = [Role.EACH] * len(ops)
    for i in order:
        op = ops[i]
        if op.colocation is not None and op.colocation in held:
            role[i] = Role.SHARED
        elif of_weights[i] and not op.backward:
            role[i] = min((role[a] for a in before[i]), default=Role.EACH)
        elif op.backward and leads[i] != MANY:
            # what follows the gradient of one variable
            follows = all(
                of_weights[a] or (ops[a].backward and leads[a] != MANY) for a in before[i]
            )
            role[i] = Role.SHARED if follows else Role.EACH
        if role[i] == Role.EACH and leads[i] == NONE:
            role[i] = Role.FIRST
    for i in reversed(order):  # constants that nothing but shared ops read
        if of_weights[i] and role[i] == Role.EACH and after[i]:
            role[i] = max(role[b] for b in after[i])
    return role


def leads_to(graph: Graph, after: list[list[int]]) -> list[int]:
    """The one update op behind each op, `NONE` or `MANY`."""
    found = [NONE] * len(graph.ops)
    for i in reversed(graph.index.topological_order.tolist()):
        ends = {b if is_update(graph.ops[b]) else found[b] for b in after[i]} - {NONE}
        found[i] = NONE if not ends else ends.pop() if len(ends) == 1 else MANY
    return found


def _neighbours(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in graph.ops]
    after: list[list[int]] = [[] for _ in graph.ops]
    ends = zip(graph.index.producer.tolist(), graph.index.consumer.tolist(), strict=True)
    for a, b in ends:
        before[b].append(a)
        after[a].append(b)
    return before, after


def with_clones(instance: Instance, clones: int) -> Instance:
    """The instance of several clones of a training graph, which share its variables."""
    # Op ``x`` of clone j is called ``clone_j/x``, as in TF-slim; what is shared keeps its name.
    # Sums of gradients take the time of their rooflines. The instance's name stays. O(clones (V +
    # E)).
    graph, specs = instance.graph, specs_of(instance.cluster)
    role = roles(graph)
    with paused_collector():
        ops: list[Op] = []
        for op, each in zip(graph.ops, role, strict=True):
            copies = clones if each == Role.EACH else 1
            one = _pinned(op, instance.cluster, to_hosts=each == Role.SHARED)
            ops += [one] if each == Role.SHARED else [_cloned(one, j) for j in range(copies)]
        sums: dict[int, Op] = {}
        edges = tuple(_edges(graph, role, clones, sums, specs))
        update = {
            "ops": (*ops, *(_pinned(op, instance.cluster, to_hosts=True) for op in sums.values())),
            "edges": edges,
            "provenance": graph.provenance.noting(f"{clones} clones that share their variables"),
        }
        with as_input_error(source=instance.name):  # sums beyond 2**62
            return instance.with_graph(graph.model_copy(update=update), instance.name)


def _pinned(op: Op, cluster: Cluster, *, to_hosts: bool) -> Op:
    """The op with its times on hosts alone, or on all other devices; as it is without hosts."""
    hosts = {device.kind for device in cluster.devices if device.is_host}
    times = {kind: ns for kind, ns in op.time_ns.items() if (kind in hosts) == to_hosts}
    return op.model_copy(update={"time_ns": times}) if hosts else op


def _cloned(op: Op, j: int) -> Op:
    update: dict[str, object] = {"name": f"clone_{j}/{op.name}"}
    if op.colocation is not None:
        update["colocation"] = f"clone_{j}/{op.colocation}"
    if op.shared_state:
        held = {f"clone_{j}/{name}": size for name, size in op.shared_state.items()}
        update["shared_state"] = held
    return op.model_copy(update=update)


def _edges(
    graph: Graph,
    role: list[Role],
    clones: int,
    sums: dict[int, Op],
    specs: Mapping[str, DeviceSpec],
) -> Iterator[Edge]:
    """All edges; `sums` receives the ops that add up gradients, by tensor."""
    index = graph.index
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    for e, (edge, (a, b)) in enumerate(zip(graph.edges, ends, strict=True)):
        tail, head = graph.ops[a].name, graph.ops[b].name
        if role[a] == Role.EACH and role[b] == Role.EACH:
            for j in range(clones):
                yield _between(edge, f"clone_{j}/{tail}", f"clone_{j}/{head}", f"clone_{j}/")
        elif (
            role[a] == Role.EACH and role[b] == Role.SHARED and graph.ops[a].backward and clones > 1
        ):
            u = int(index.tensor[e])
            if u not in sums:
                sums[u] = Op(
                    name=f"{tail}/AddN_{u}",
                    kind="AddN",
                    backward=True,
                    time_ns={
                        kind: roofline_ns(
                            (clones - 1) * (edge.bytes // 4), (clones + 1) * edge.bytes, specs[kind]
                        )
                        if kind in specs
                        else 0
                        for kind in graph.ops[a].time_ns
                    },
                    resident_bytes=edge.bytes,
                )
                for j in range(clones):
                    yield _between(edge, f"clone_{j}/{tail}", sums[u].name, f"clone_{j}/")
            yield edge.model_copy(update={"producer": sums[u].name})
        elif role[b] == Role.EACH:  # a variable, or another shared op
            for j in range(clones):
                yield edge.model_copy(update={"consumer": f"clone_{j}/{head}"})
        else:
            own = role[a] != Role.SHARED
            yield _between(
                edge,
                f"clone_0/{tail}" if own else tail,
                f"clone_0/{head}" if role[b] == Role.FIRST else head,
                "clone_0/" if own else "",
            )


def _between(edge: Edge, producer: str, consumer: str, prefix: str) -> Edge:
    tensor = None if edge.tensor is None else f"{prefix}{edge.tensor}"
    return edge.model_copy(update={"producer": producer, "consumer": consumer, "tensor": tensor})
