"""Memory of a pipeline: what its stages hold for the microbatches that are in flight.

A device holds the resident bytes of its ops, which are those of one microbatch, and for each
further microbatch that one of its stages has begun forward and not ended backward that stage's
*stash*: the tensors that the stage's forward ops make or read, and its backward ops read. How many
microbatches these are follows from the schedule alone: m for ``gpipe``, min(m, S - s) for stage s
of S of ``1f1b``. Under ``zero_bubble`` a microbatch whose backward event is over and whose weight
event is not leaves what that reads: tensors of the forward pass, and gradients. Not counted: what
has arrived and waits for its event, and what is being sent.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.gradient_exchange import exchanged_edges
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import PipelineIteration
from placegap.instances.referee.memory import Holdings
from placegap.instances.referee.pipeline.device_orders import device_orders, held_beside
from placegap.instances.referee.pipeline.stages import PlanStages
from placegap.instances.referee.plan import Plan, Violation


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
    >>> from placegap.instances.referee.pipeline.stages import plan_stages
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
    >>> from placegap.instances.referee.pipeline.stages import plan_stages
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
    state = np.zeros(instance.num_devices, np.int64)
    np.add.at(state, plan.devices, instance.arrays.resident_bytes)
    held = [int(each) for each in state]
    stash, kept = stash_bytes(instance, stages).tolist(), kept_bytes(instance, stages).tolist()
    for order in device_orders(semantics, stages.num_devices, trains=stages.trains):
        for s, pairs in held_beside(order).items() if stages.trains else ():
            most = max(begun * stash[s] + waiting * kept[s] for begun, waiting in pairs)
            held[int(stages.device[s])] += most
    return Holdings(np.array(held, np.int64), state, np.zeros_like(state))


def in_flight_violations(instance: Instance, held: Holdings) -> list[Violation]:
    """A sentence for each device that holds more than it can."""
    found = []
    for k in np.flatnonzero(held.bytes > instance.arrays.memory_bytes).tolist():
        name, limit = instance.cluster.devices[k].name, int(instance.arrays.memory_bytes[k])
        total, state = int(held.bytes[k]), int(held.state_bytes[k])
        found.append(
            Violation(
                "memory",
                f"device {name!r} holds {total} bytes, {total - limit} more than its {limit}:"
                f" {state} of its ops, and {total - state} of further microbatches in flight",
                device=name,
            )
        )
    return found
