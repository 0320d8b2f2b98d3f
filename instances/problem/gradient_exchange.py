"""Gradients of weights that several layers share: what their stages exchange once per iteration.

Two stages that hold a copy of one weight add up its gradients after the last microbatch, beside
the pipeline: such an edge leads from any stage to any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placegap.instances.problem.array_types import Flags

if TYPE_CHECKING:
    from placegap.instances.problem.instance import Instance


def exchanged_edges(instance: Instance) -> Flags:
    """Which edges of a training step are such exchanges, (m,).

    An edge from layer to layer (colocation group) between two `weight_gradient` ops; or, where
    those are not told apart, one whose producer is the sum of a shared weight's gradients: a
    backward op whose readers are backward ops that feed nothing (updates), one of them in its own
    layer. O(n + m).

    Examples
    --------
    Layers 1 and 2 update their copies of a weight by ops u1 and u2, from one sum of gradients:

    >>> from placegap.instances import Cluster, Device, Edge, Graph, Instance, Op
    >>> layer = {"f1": "1", "sum": "1", "u1": "1", "f2": "2", "u2": "2"}
    >>> ops = [Op(name=n, time_ns={"gpu": 1}, colocation=g, backward=n[0] != "f")
    ...        for n, g in layer.items()]
    >>> ends = ("f1", "f2"), ("sum", "u1"), ("sum", "u2")
    >>> edges = [Edge(producer=a, consumer=b) for a, b in ends]
    >>> graph = Graph(name="tied", ops=ops, edges=edges)
    >>> one = Cluster(name="one", devices=(Device(name="d", kind="gpu"),))
    >>> exchanged_edges(Instance(name="i", graph=graph, cluster=one)).tolist()
    [False, False, True]
    """
    arrays, index = instance.arrays, instance.arrays.index
    a, b = index.producer, index.consumer
    apart = arrays.group[a] != arrays.group[b]
    feeds = np.zeros(instance.num_ops, np.bool_)
    feeds[a] = True
    updates = arrays.backward & ~feeds
    is_sum = arrays.backward.copy()
    is_sum[a[~updates[b]]] = False
    at_home = np.zeros(instance.num_ops, np.bool_)
    at_home[a[~apart]] = True
    late = arrays.weight_gradient
    return np.asarray(apart & ((is_sum & at_home)[a] | late[a] & late[b]))
