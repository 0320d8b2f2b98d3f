"""Memory of a pipeline: what its stages hold for the microbatches that are in flight.

A device holds the resident bytes of its ops, which are those of one microbatch, and for each
further microbatch that one of its stages has begun forward and not ended backward that stage's
*stash*: the tensors that the stage's forward ops make or read, and its backward ops read. How many
microbatches these are follows from the schedule alone: m for ``gpipe``, min(m, S - s) for stage s
of S of ``1f1b``. Under ``zero_bubble`` a microbatch whose backward event is over and whose weight
event is not leaves what that reads: tensors of the forward pass, and gradients. Not counted: what
has arrived and waits for its event, and what is being sent.

Under the rule `peak` it is state in place of resident bytes, and what the stage at work needs at
the fullest moment of its own passage of one microbatch: tensors, and the workspace of the op that
runs. Its ops are the events, one after another, in the order of max_load's steps, forward before
backward before weight gradients; a tensor is there from the first to the last of them that writes
or reads it. Other stages of the device keep a stash of the microbatch. So one microbatch in stages
of their own devices needs what it needs under max_load.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.gradients import exchanged_edges
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Violation
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.memory import Holdings, Spans, fullest, state_of
from placegap.instances.referee.stages import PlanStages, device_orders, held_beside


def stash_bytes(instance: Instance, stages: PlanStages) -> Ints:
    """What each stage keeps from its forward to its backward work on a microbatch, (S,).

    Examples
    --------
    An op whose output of 4 bytes is read by its own backward op:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Op
    >>> ops = (Op(name="a", time_ns={"gpu": 1}), Op(name="b", time_ns={"gpu": 1}, backward=True))
    >>> graph = Graph(name="g", ops=ops, edges=(Edge(producer="a", consumer="b", bytes=4),))
    >>> one = Cluster(name="c", devices=(Device(name="d", kind="gpu"),))
    >>> instance = Instance(name="i", graph=graph, cluster=one)
    >>> from placegap.instances.referee.stages import plan_stages
    >>> stash_bytes(instance, plan_stages(instance, Plan.on([0, 0]), PipelineIteration()))
    array([4])
    """
    arrays, index = instance.arrays, instance.arrays.index
    backward, count = arrays.backward, stages.num_stages
    stage = np.where(backward, 2 * count - 1 - stages.step, stages.step)
    kept = np.zeros(count, np.int64)
    for u, producer in enumerate(index.tensor_producer.tolist()):
        readers = index.consumer[index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]]
        touched = np.append(readers, producer)
        begun = set(stage[touched[~backward[touched]]].tolist())
        ended = set(stage[readers[backward[readers]]].tolist())
        for s in sorted(begun & ended):
            kept[s] += instance.memory_arrays.tensor_bytes[u]
    return kept


def kept_bytes(instance: Instance, stages: PlanStages) -> Ints:
    """What each stage keeps from its backward to its weight event on a microbatch, (S,).

    The tensors that its weight gradients read and do not make.

    Examples
    --------
    A weight gradient that reads what a forward op made, 4 bytes, and a gradient of 2 bytes:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Op
    >>> ops = [Op(name=name, time_ns={"gpu": 1}, backward=name != "f",
    ...           weight_gradient=name == "w", colocation="1") for name in ("f", "b", "w")]
    >>> edges = tuple(Edge(producer=a, consumer="w", bytes=n) for a, n in (("f", 4), ("b", 2)))
    >>> one = Cluster(name="c", devices=(Device(name="d", kind="gpu"),))
    >>> graph = Graph(name="g", ops=ops, edges=edges)
    >>> instance = Instance(name="i", graph=graph, cluster=one)
    >>> from placegap.instances.referee.stages import plan_stages
    >>> kept_bytes(instance, plan_stages(instance, Plan.on([0] * 3), PipelineIteration()))
    array([6])
    """
    arrays, index, count = instance.arrays, instance.arrays.index, stages.num_stages
    kept, stays = np.zeros(count, np.int64), ~exchanged_edges(instance)
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        readers = index.consumer[edges[stays[edges]]]
        readers = readers[arrays.weight_gradient[readers]]
        if not arrays.weight_gradient[producer]:
            held = np.unique(2 * count - 1 - stages.step[readers])
            kept[held] += instance.memory_arrays.tensor_bytes[u]
    return kept


def iteration_holdings(
    instance: Instance, plan: Plan, stages: PlanStages, semantics: PipelineIteration
) -> Holdings:
    """What each device holds at most, (K,)."""
    stash, kept = stash_bytes(instance, stages).tolist(), kept_bytes(instance, stages).tolist()
    alone = alone_bytes(instance, plan, stages, semantics)
    held = [int(each) for each in alone]
    for order in device_orders(semantics, stages.num_devices, trains=stages.trains):
        for s, pairs in held_beside(order).items() if stages.trains else ():
            most = max(begun * stash[s] + waiting * kept[s] for begun, waiting in pairs)
            held[int(stages.device[s])] += most
    state = alone
    if semantics.memory == "peak":
        state = state_of(instance, plan.devices, np.arange(instance.num_ops))
    return Holdings(np.array(held, np.int64), state, np.zeros_like(state))


def alone_bytes(
    instance: Instance, plan: Plan, stages: PlanStages, semantics: PipelineIteration
) -> Ints:
    """What each device holds while one microbatch alone passes, (K,).

    The resident bytes of its ops; or state, and what the stage at work needs beside what the others
    keep.
    """
    held = np.zeros(instance.num_devices, np.int64)
    if semantics.memory == "sum":
        np.add.at(held, plan.devices, instance.arrays.resident_bytes)
        return held
    stash, work = stash_bytes(instance, stages), working_bytes(instance, stages, semantics)
    np.maximum.at(held, stages.device, work - stash)
    np.add.at(held, stages.device, stash)
    return held + state_of(instance, plan.devices, np.arange(instance.num_ops))


def working_bytes(instance: Instance, stages: PlanStages, semantics: PipelineIteration) -> Ints:
    """What is live at the fullest moment of each stage's passage of one microbatch, (S,).

    Examples
    --------
    The second stage holds the 20 bytes that its first op reads and the 10 that it writes:

    >>> from placegap.instances import example
    >>> from placegap.instances.referee.stages import plan_stages
    >>> rules = PipelineIteration(memory="peak")
    >>> working_bytes(example(), plan_stages(example(), Plan.on([0, 0, 1, 1]), rules), rules)
    array([21, 30])
    """
    arrays, index, sizes = instance.arrays, instance.arrays.index, instance.memory_arrays
    stage = np.where(arrays.backward, 2 * stages.num_stages - 1 - stages.step, stages.step)
    late = arrays.weight_gradient & (semantics.schedule == "zero_bubble")
    place = np.empty(instance.num_ops, np.int64)
    place[np.lexsort((sizes.step, late, arrays.backward))] = np.arange(instance.num_ops)
    rows = []
    for u, producer in enumerate(index.tensor_producer.tolist()):
        readers = index.consumer[index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]]
        touched = np.append(readers, producer)
        for s in np.unique(stage[touched]).tolist():
            own = place[touched[stage[touched] == s]]
            rows.append((s, u, own.min(), own.max() + 1, sizes.tensor_bytes[u]))
    work = np.column_stack(
        [stage, np.full(instance.num_ops, -1), place, place + 1, sizes.workspace_bytes]
    )
    table = np.concatenate([np.array(rows, np.int64).reshape(-1, 5), work])
    return fullest(np.zeros(stages.num_stages, np.int64), Spans(*table.T)).bytes


def in_flight_violations(
    instance: Instance, held: Holdings, semantics: PipelineIteration
) -> list[Violation]:
    """A sentence for each device that holds more than it can."""
    own, rest = "of its ops", "of further microbatches in flight"
    if semantics.memory == "peak":
        own, rest = "of state", "of tensors and workspace of the microbatches in flight"
    found = []
    for k in np.flatnonzero(held.bytes > instance.arrays.memory_bytes).tolist():
        name, limit = instance.cluster.devices[k].name, int(instance.arrays.memory_bytes[k])
        total, state = int(held.bytes[k]), int(held.state_bytes[k])
        found.append(
            Violation(
                "memory",
                f"device {name!r} holds {total} bytes, {total - limit} more than its {limit}:"
                f" {state} {own}, and {total - state} {rest}",
                device=name,
            )
        )
    return found
