"""An instance whose costs are off: what a placer sees that trusts a cost model."""

from __future__ import annotations

import random

from placegap.instances.problem.instance import Edge, Instance, Op


def with_wrong_costs(instance: Instance, off: float, seed: int) -> Instance:
    """The instance with each op's times and each tensor's size off by a factor of its own.

    Parameters
    ----------
    instance : Instance
    off : float
        From 0 to below 1: factors are uniform in [1 - off, 1 + off]. The kinds of devices of an op
        share its factor, and so do the edges of a tensor; what is 0 stays 0.
    seed : int
        The same factors for the same graph, whatever `off` is, but for their spread.

    Examples
    --------
    >>> from placegap.instances import example
    >>> wrong = with_wrong_costs(example(), 0.3, seed=1)
    >>> with_wrong_costs(example(), 0.0, seed=1).content_hash == example().content_hash
    True
    >>> all(abs(new / old - 1) < 0.4 for new, old in
    ...     zip(wrong.arrays.time_ns.ravel(), example().arrays.time_ns.ravel()))
    True
    """
    draw = random.Random(seed)

    def factor() -> float:
        return 1 + off * draw.uniform(-1, 1)

    ops = tuple(_wrong_op(op, factor()) for op in instance.graph.ops)
    of_tensor: dict[tuple[str, str], float] = {}
    edges = []
    for number, edge in enumerate(instance.graph.edges):
        tensor = (edge.producer, str(number) if edge.tensor is None else f"named {edge.tensor}")
        edges.append(_wrong_edge(edge, of_tensor.setdefault(tensor, factor())))
    graph = instance.graph.model_copy(update={"ops": ops, "edges": tuple(edges)})
    return instance.model_copy(update={"graph": graph, "best_known": ()})


def _wrong_op(op: Op, factor: float) -> Op:
    times = {kind: round(factor * time_ns) for kind, time_ns in op.time_ns.items()}
    return op.model_copy(update={"time_ns": times})


def _wrong_edge(edge: Edge, factor: float) -> Edge:
    update: dict[str, object] = {"bytes": round(factor * edge.bytes)}
    if edge.host_time_ns is not None:
        update["host_time_ns"] = round(factor * edge.host_time_ns)
    if edge.transfer_ns is not None:
        update["transfer_ns"] = tuple(
            tuple(round(factor * time_ns) for time_ns in row) for row in edge.transfer_ns
        )
    return edge.model_copy(update=update)
