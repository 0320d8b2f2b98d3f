"""The diamond, with names that would harm whoever shows them as they are."""

from placegap.instances import Graph, Instance, example


def hostile_diamond(text: str) -> Instance:
    """The diamond; a text is in all that a file may name."""
    base = example()
    named = {op.name: f"{op.name}{text}" for op in base.graph.ops}
    ops = [
        {"name": named[op.name], "kind": text, "module": f"{text}.{i // 2}.part"}
        | {"time_ns": {text: op.time_ns["gpu"]}}
        for i, op in enumerate(base.graph.ops)
    ]
    edges = tuple(
        edge.model_copy(update={"producer": named[edge.producer], "consumer": named[edge.consumer]})
        for edge in base.graph.edges
    )
    said = {"source": text, "licence": text, "changes": (text,)}
    graph = Graph(
        name=text,
        ops=tuple(op.model_copy(update=new) for op, new in zip(base.graph.ops, ops, strict=True)),
        edges=edges,
        provenance=base.graph.provenance.model_copy(update=said),
    )
    devices = tuple(
        device.model_copy(update={"name": f"{k}{text}", "kind": text})
        for k, device in enumerate(base.cluster.devices)
    )
    links = tuple(
        link.model_copy(update={"source": devices[a].name, "target": devices[1 - a].name})
        for a, link in enumerate(base.cluster.links)
    )
    cluster = base.cluster.model_copy(update={"name": text, "devices": devices, "links": links})
    return Instance(name=text, graph=graph, cluster=cluster)
