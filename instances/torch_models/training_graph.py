"""From a joint program to the ops and edges of one training step.

What becomes what, beyond what `fx_reader` says:

- A backward op is in the colocation group of its forward op. What a forward op writes and a
  backward op reads (a stashed activation) is an edge like any other.
- An op that reads only weights is a part of the first op that reads what it writes. Updates of
  buffers (running means) are no outputs.
- Each forward op that reads parameters has an update op ``<name>/<optimizer>`` in its group, which
  depends on the ops that write their gradients.
- ``state_bytes`` of a forward op: its weights, and for those that are trained their gradients and
  what the optimizer holds (`optimizers`); its backward ops read the weights there and hold
  none. What several forward ops read is ``shared_state``. A gradient has its place in the state: it
  is no output of its backward op besides, and moves nothing to an update op on the same device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from torch import fx

from placegap.instances.torch_models.fx_nodes import is_drawn, is_getitem, is_view
from placegap.instances.torch_models.fx_reader import FxProgram, Held, read_fx_graph
from placegap.instances.torch_models.joint_program import JointProgram, is_backward
from placegap.instances.torch_models.optimizers import optimizer_bytes, update_bytes
from placegap.instances.torch_models.options import Optimizer, Tied


def read_training_graph(
    step: JointProgram,
    optimizer: Optimizer = "adam",
    tied: Tied = "copy",
    labels: Callable[[Any], Iterable[str]] = lambda node: (),
    bits: Mapping[str, Fraction] | None = None,
) -> FxProgram:
    """Read a joint program as ops and edges of one training step, updates included."""
    # `bits` are those that frozen weights are stored in. Optimizer "none" makes no update ops.
    # `tied` and `labels`, of forward nodes, are those of `read_fx_graph`.
    graph = step.graph_module.graph
    held = held_in(step, bits)
    program = read_fx_graph(
        graph,
        held,
        fold_parameters=False,
        backward=is_backward,
        module_path=lambda node: step.module_of.get(node.name),
        labels=lambda node: () if is_backward(node) else labels(node),
        join=_joins(graph, held).get,
        tied=tied,
    )
    _colocate(program, step)
    _hold(program, step, optimizer, tied)
    return program


def held_in(step: JointProgram, bits: Mapping[str, Fraction] | None = None) -> dict[str, Held]:
    """Which inputs of a joint program are weights, buffers or constants."""
    # `bits` are those that frozen weights are stored in.
    graph, stored = step.graph_module.graph, bits or {}
    return {
        **{
            node: Held("parameter", name, stored.get(name))
            for node, name in step.parameter_of.items()
        },
        **{node: Held("buffer", name) for node, name in step.buffer_of.items()},
        **{n.name: Held("constant", str(n.target)) for n in graph.find_nodes(op="get_attr")},
    }


def _joins(graph: fx.Graph, held: Mapping[str, Held]) -> dict[fx.Node, fx.Node]:
    """For every op that reads only weights and constants, the first op that reads its result."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    fixed: set[fx.Node] = set()
    targets = {}
    for node in graph.nodes:
        is_call = node.op == "call_function" and not is_drawn(node)
        if node.name in held or (is_call and fixed.issuperset(node.all_input_nodes)):
            fixed.add(node)
            readers = _readers(node) if is_call and not _is_alias(node) else []
            if readers:
                targets[node] = min(readers, key=order.__getitem__)
    return targets


def _readers(node: fx.Node) -> list[fx.Node]:
    """The ops that read what a node returns, also through views."""
    found: dict[fx.Node, None] = {}
    waiting = [*node.users]
    while waiting:
        user = waiting.pop()
        if user.op == "call_function" and _is_alias(user):
            waiting += user.users
        elif user.op == "call_function":
            found[user] = None
    return [*found]


def _is_alias(node: fx.Node) -> bool:
    return is_getitem(node) or (is_view(node) and bool(node.all_input_nodes))


def _colocate(program: FxProgram, step: JointProgram) -> None:
    """Put every backward op into the group of its forward op."""
    ops = {op["name"]: op for op in program.ops}
    nodes = {node.name: node for node in step.graph_module.graph.nodes}
    for op in reversed(program.ops):  # readers of a backward op come first
        if not op["backward"]:
            continue
        partner = _forward_op(program, nodes[step.forward_of[op["name"]]], ops)
        if partner is None:
            readers = [e["consumer"] for e in program.edges if e["producer"] == op["name"]]
            group = next((ops[name].get("colocation") for name in readers), None)
        else:
            group = partner.setdefault("colocation", partner["name"])
        if group is None:
            raise ValueError(f"node {op['name']!r}: belongs to no forward op")
        op["colocation"] = group


def _forward_op(
    program: FxProgram, node: fx.Node, ops: Mapping[str, dict[str, Any]]
) -> dict[str, Any] | None:
    """The forward op of a forward node: its own, that of a view's root, or a reader's."""
    root = program.read_of.get(node.name)
    names = [
        program.op_of.get(node.name),
        None if root is None else root.op,
        *(program.op_of.get(reader.name) for reader in _readers(node)),
    ]
    found = (ops[name] for name in names if name is not None)
    return next((op for op in found if not op["backward"]), None)


def _hold(program: FxProgram, step: JointProgram, optimizer: Optimizer, tied: Tied) -> None:
    """Give forward ops the state of training, add the update ops, and take weights off the rest."""
    weight_bytes = {  # of one weight of each parameter
        step.parameter_of[node.name]: int(node.meta["val"].dtype.itemsize)
        for node in step.graph_module.graph.find_nodes(op="placeholder")
        if node.name in step.parameter_of
    }
    num_readers: dict[str, int] = defaultdict(int)
    for op in program.ops:
        if not op["backward"]:
            for name in program.weights_of[op["name"]]:
                num_readers[name] += 1

    def trained(name: str, size: int) -> int:
        item = weight_bytes[_whole(name)]
        if _whole(name) not in step.gradient_of:
            return size
        return 2 * size + optimizer_bytes(optimizer, size // item, item)

    in_place = _gradients_in_place(program, step)
    updated: set[str] = set()
    updates = []
    for op in program.ops:
        weights = program.weights_of[op["name"]]
        written = op["resident_bytes"] - op["parameter_bytes"] - in_place.get(op["name"], 0)
        fixed = {n: size for n, size in op["shared_state"].items() if n not in weights}
        alone = op["state_bytes"] - sum(
            size for name, size in weights.items() if name not in op["shared_state"]
        )
        if op["backward"]:
            weights = {}
        own = {name: size for name, size in weights.items() if num_readers[name] == 1}
        shared = {name: size for name, size in weights.items() if num_readers[name] > 1}
        op["parameter_bytes"] = alone + sum(fixed.values()) + sum(weights.values())
        op["state_bytes"] = alone + sum(trained(*item) for item in own.items())
        op["shared_state"] = {**fixed, **{n: trained(n, size) for n, size in shared.items()}}
        op["resident_bytes"] = op["state_bytes"] + sum(op["shared_state"].values()) + written
        due = {
            name: size
            for name, size in weights.items()
            if _whole(name) in step.gradient_of and not (tied == "together" and name in updated)
        }
        if due and optimizer != "none":
            updated.update(due)
            moved = 0
            for name, size in due.items():
                item = weight_bytes[_whole(name)]
                moved += update_bytes(optimizer, size // item, item)
            op.setdefault("colocation", op["name"])  # its gradient may be another op's
            updates.append(_update(op, optimizer, moved))
            program.edges += _gradient_edges(program, step, [*due], op, updates[-1]["name"])
    program.ops += updates


def _whole(name: str) -> str:
    """Name of the parameter that a view of one, ``name/view``, is a part of."""
    return name.partition("/")[0]


def _gradients_in_place(program: FxProgram, step: JointProgram) -> dict[str, int]:
    """Bytes of the gradients that each op writes into the state of its group, and no op reads."""
    read = {(edge["producer"], edge["tensor"]) for edge in program.edges}
    groups = {op["name"]: op.get("colocation") for op in program.ops}
    holders = {
        (groups[op["name"]], _whole(name))
        for op in program.ops
        if not op["backward"]
        for name in program.weights_of[op["name"]]
    }
    found: dict[str, int] = defaultdict(int)
    seen = set()
    for name, node in step.gradient_of.items():
        tensor = program.read_of[node]
        place = (tensor.op, tensor.name)
        if tensor.op is None or place in read or place in seen:
            continue
        if (groups[tensor.op], name) in holders:
            seen.add(place)
            found[tensor.op] += tensor.bytes
    return found


def _update(op: Mapping[str, Any], optimizer: Optimizer, bytes_moved: int) -> dict[str, Any]:
    return {
        "name": f"{op['name']}/{optimizer}",
        "kind": optimizer,
        "flops": 0,
        "bytes_moved": bytes_moved,
        "backward": True,
        "update": True,
        "colocation": op["colocation"],
        "module": op["module"],
    }


def _gradient_edges(
    program: FxProgram, step: JointProgram, names: list[str], op: Mapping[str, Any], update: str
) -> list[dict[str, Any]]:
    """An update waits for its gradients; those of the op's own group lie in its state already."""
    groups = {own["name"]: own.get("colocation") for own in program.ops}
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for name in dict.fromkeys(_whole(name) for name in names):
        tensor = program.read_of[step.gradient_of[name]]
        if tensor.op is None:  # an input: the gradient of an output
            continue
        is_near = groups[tensor.op] == op["colocation"]
        label, size = ("gradients", 0) if is_near else (tensor.name, tensor.bytes)
        edges[tensor.op, label] = {
            "producer": tensor.op,
            "consumer": update,
            "bytes": size,
            "tensor": label,
        }
    return [*edges.values()]
