"""From an FX graph of ATen calls to ops and edges.

What becomes what:

- Views, and copies that change nothing, are no ops: what they return is the tensor they were made
  of. A smaller view (a slice) is a tensor of its own; a larger one (an expand) keeps its root's
  size. An element of a tuple is a tensor of its own.
- A node that reads only weights, buffers and constants is folded: what it returns is a constant of
  the ops that read it, no larger than what it was computed from where that is quantized: weights
  stay as they are stored, and are unpacked where they are read. Dead nodes and checks go.
- A constant that is computed from no stored data (a mask of positions) is made anew in each pass:
  it is ``workspace_bytes`` of the ops that read it, and no state. One number everywhere (zeros, an
  empty tensor) has no bytes at all: the op that writes parts of it writes its own output.
- An op is a node that is left. An edge is one tensor that it hands to another op. The inputs of the
  program are no ops.
- ``state_bytes``: the weights and constants that no other op reads; ``shared_state``: those that
  several ops read, by name. ``parameter_bytes`` is the sum of both, and ``resident_bytes`` adds
  the outputs.
- ``bytes_moved``: inputs + constants + outputs; an embedding reads what it writes.
- ``kernel``: of matrix products, and of convolutions as such; `inference_phase` has the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from math import prod
from typing import Any, Literal

from placegap.instances.costing.weight_formats import stored_bytes
from placegap.instances.problem import MatrixProduct
from placegap.instances.problem.graph_index import DisjointSets
from placegap.instances.torch_models.fx_nodes import (
    COPIES,
    FACTORS,
    READS_WHAT_IT_WRITES,
    bytes_of,
    bytes_without_repeats,
    count_node_flops,
    dtype_name,
    is_check,
    is_drawn,
    is_fill,
    is_getitem,
    is_view,
    kernel_of_node,
    kind_of_node,
    num_tensors_before,
    reads_matrix_unknown,
    schema_name,
    sizes_of,
    tensors_in,
)
from placegap.instances.torch_models.options import Tied

HeldKind = Literal["parameter", "buffer", "constant", "temporary"]


@dataclass(frozen=True)
class Held:
    """What an input node of a program stands for, if it is no input of the model."""

    # Nodes of one `name` are one tensor (tied weights). `bits` is how many a weight is stored in,
    # where that is another number than its type has. `quantized` says whether it is stored as
    # integers or in 8 bits or fewer, or computed from what is, and `made_from` what a constant is
    # computed from, by name, and its bytes. A temporary is a constant that no stored data is in.
    kind: HeldKind
    name: str
    bits: Fraction | None = None
    quantized: bool = False
    made_from: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class FxTensor:
    """A tensor of the program."""

    # `op` is the node whose op writes it; an input of the model and a constant have none.
    name: str
    bytes: int
    op: str | None = None
    held: Held | None = None

    def is_packed(self, tensor: Any) -> bool:
        """Whether it is a weight that is stored in another number of bits than it is read in."""
        is_quantized = self.held is not None and self.held.quantized
        return is_quantized and self.bytes != bytes_without_repeats(tensor)


@dataclass
class FxProgram:
    """Ops and edges as the fields of a `Graph`, and where they came from."""

    #: ops, edges: Fields of `Op` and `Edge`.
    ops: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    #: The op of every node that is a part of one, by the names of both.
    op_of: dict[str, str] = field(default_factory=dict)
    #: The parameters that each op reads, and their bytes, by name; folded ones are left out.
    weights_of: dict[str, dict[str, int]] = field(default_factory=dict)
    #: What each node with one tensor returns, views resolved.
    read_of: dict[str, FxTensor] = field(default_factory=dict)
    #: Nodes that read a matrix of weights and whose FLOPs no rule counts, with what they call.
    uncounted: list[str] = field(default_factory=list)


def module_path_of(node: Any) -> str | None:
    """Path of the innermost module that a node was traced in."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = str(next(reversed(stack.values()))[0])
    return path or None


def read_fx_graph(
    graph: Any,
    held: Mapping[str, Held],
    *,
    fold_parameters: bool = True,
    backward: Callable[[Any], bool] = lambda node: False,
    module_path: Callable[[Any], str | None] = module_path_of,
    labels: Callable[[Any], Iterable[str]] = lambda node: (),
    join: Callable[[Any], Any] = lambda node: None,
    tied: Tied = "copy",
) -> FxProgram:
    """Read an FX graph; O(nodes + edges)."""
    # Every node has ``meta["val"]``; sizes are numbers. `held` has the ``placeholder`` and
    # ``get_attr`` nodes that are weights, buffers or constants; the others are inputs. With
    # `fold_parameters`, nodes that read only weights are folded (inference); without it, those that
    # read nothing but buffers and constants (training, where weights change). `backward` says
    # whether a node belongs to the backward pass. Ops that share one of `labels` form a colocation
    # group. `join` gives the later node whose op this one becomes a part of. `tied` says whether
    # ops that read one parameter may each hold a copy, or form a colocation group.
    live = live_nodes(graph)
    reading = _Reading(held, fold_parameters, FxProgram())
    joined = {node: target for node in live if (target := join(node)) is not None}
    parts: dict[Any, list[Any]] = {}
    for node in graph.nodes:
        if node not in live:
            continue
        try:
            if not reading.resolve(node):
                lead = node
                while lead in joined:
                    lead = joined[lead]
                parts.setdefault(lead, []).append(node)
                reading.program.op_of[node.name] = lead.name
                reading.enter(node, lead.name)
        except ValueError as error:
            raise ValueError(f"node {node.name!r} ({kind_of_node(node)}): {error}") from None
    if not parts:
        raise ValueError("no op is left after folding constants; the model computes nothing")
    order = {node: at for at, node in enumerate(graph.nodes)}
    ops = sorted(parts.items(), key=lambda item: order[item[0]])
    _describe(reading, ops, backward, module_path)
    _colocate(reading.program, ops, labels, tied)
    return reading.program


def live_nodes(graph: Any) -> dict[Any, None]:
    """The nodes that an output depends on."""
    found: dict[Any, None] = {}
    waiting = [node for node in graph.nodes if node.op == "output"]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node not in found and not is_check(node):
                found[node] = None
                waiting.append(node)
    return found


@dataclass
class _Reading:
    """What every node returns, as far as the graph was read."""

    held: Mapping[str, Held]
    fold_parameters: bool
    program: FxProgram
    values: dict[Any, list[FxTensor]] = field(default_factory=dict)
    is_list: dict[Any, bool] = field(default_factory=dict)

    def resolve(self, node: Any) -> bool:
        """Enter what a node that is no op returns; False if it is an op."""
        if node.op in ("placeholder", "get_attr"):
            held = self.held.get(node.name)
            tensors = tensors_in(node)
            if not tensors:  # a number, or a submodule of control flow
                self._set(node, [])
                return True
            name = node.name if held is None else held.name
            size = _held_bytes(held, tensors[0])
            if held is not None and held.kind == "constant" and prod(sizes_of(tensors[0])) == 1:
                held = replace(held, kind="temporary")  # a number that the program states
            if held is not None and (held.bits is not None or _is_quantized(held, tensors[0])):
                held = replace(held, quantized=True)
            self._set(node, [FxTensor(name, size, None, held)])
            return True
        if node.op != "call_function":
            raise ValueError(f"a node that is a {node.op} cannot be read; trace the model to ATen")
        tensors = tensors_in(node)
        if is_getitem(node):
            source, at = node.args
            inside = self.values[source]
            if tensors and self.is_list[source]:
                inside = [inside[num_tensors_before(source, at)]]
            self._set(node, inside)
            return True
        if not tensors and not hasattr(node.target, "_schema"):
            self._set(node, [])  # arithmetic on sizes
            return True
        if not hasattr(node.target, "_schema"):
            raise ValueError("control flow has no static graph; trace the model without it")
        reads = self.reads(node)
        if is_view(node) and reads:
            self._set(node, [self._view(node, at, t) for at, t in enumerate(tensors)])
            return True
        if not is_drawn(node) and all(self._folds(read) for read in reads):
            names = [_part(node, at, tensors) for at in range(len(tensors))]
            sources = [(read.name, read.bytes, read.held) for read in reads]
            made_from = dict(
                part
                for name, size, held in sources
                for part in ((held and held.made_from) or ((name, size),))
            )
            kinds = {held.kind for _, _, held in sources if held is not None}
            kind: HeldKind = "temporary" if kinds <= {"temporary"} else "constant"
            quantized = any(held is not None and held.quantized for _, _, held in sources)
            sizes = [bytes_of(tensor) for tensor in tensors]
            is_plain = is_fill(node) or schema_name(node) in COPIES
            if is_plain and not any(size for _, size, _ in sources):
                sizes = [0] * len(sizes)
            if quantized:
                sizes = [min(size, sum(made_from.values())) for size in sizes]
            self._set(
                node,
                [
                    FxTensor(
                        name, size, None, Held(kind, name, None, quantized, (*made_from.items(),))
                    )
                    for name, size in zip(names, sizes, strict=True)
                ],
            )
            return True
        return False

    def enter(self, node: Any, op: str) -> None:
        """Enter what an op's node returns."""
        tensors = tensors_in(node)
        self._set(
            node,
            [FxTensor(_part(node, at, tensors), bytes_of(t), op) for at, t in enumerate(tensors)],
        )

    def reads(self, node: Any) -> list[FxTensor]:
        """The tensors that a node reads, each once, in order; of a fill only the shape counts."""
        if is_fill(node):
            return []
        inputs = (tensor for source in node.all_input_nodes for tensor in self.values[source])
        return list(dict.fromkeys(inputs))

    def _set(self, node: Any, tensors: list[FxTensor]) -> None:
        self.values[node] = tensors
        self.is_list[node] = isinstance(node.meta.get("val"), tuple | list)
        if len(tensors) == 1:
            self.program.read_of[node.name] = tensors[0]

    def _view(self, node: Any, at: int, tensor: Any) -> FxTensor:
        """A view of the first input; a smaller one is a tensor of its own."""
        root = self.values[node.all_input_nodes[0]][0]
        size = _held_bytes(root.held, tensor)
        if size >= root.bytes:
            return root
        name = _part(node, at, tensors_in(node))
        held = root.held
        if held is not None:
            own = f"{held.name}/{name}"
            held = replace(held, name=own, made_from=())
        return FxTensor(name if held is None else held.name, size, root.op, held)

    def _folds(self, tensor: FxTensor) -> bool:
        if tensor.held is None:
            return False
        return self.fold_parameters or tensor.held.kind != "parameter"


def _held_bytes(held: Held | None, tensor: Any) -> int:
    """Size of a tensor as it is held."""
    if held is None or held.bits is None:
        return bytes_of(tensor)
    return stored_bytes(prod(sizes_of(tensor)), held.bits)


def _is_quantized(held: Held, tensor: Any) -> bool:
    """Whether a tensor of the model holds weights as integers or in 8 bits."""
    # It is a matrix of a type that positions and masks do not have.
    stored = tensor.dtype.itemsize == 1 or str(tensor.dtype) in ("torch.int16", "torch.int32")
    number = str(tensor.dtype) != "torch.bool"
    return held.kind != "constant" and len(tensor.shape) > 1 and stored and number


def _part(node: Any, at: int, tensors: Sequence[Any]) -> str:
    """Name of one of the tensors that a node returns."""
    return node.name if len(tensors) == 1 else f"{node.name}.{at}"


def _describe(
    reading: _Reading,
    ops: Sequence[tuple[Any, list[Any]]],
    backward: Callable[[Any], bool],
    module_path: Callable[[Any], str | None],
) -> None:
    """Fields of the ops and of the edges between them."""
    program = reading.program
    used = {tensor for node in reading.values for tensor in _used(reading, node)}
    constants: dict[str, dict[Held, int]] = {}
    workspace: dict[str, int] = {}
    readers: dict[Held, int] = {}
    for lead, parts in ops:
        found = {
            read.held: read.bytes
            for part in parts
            for read in reading.reads(part)
            if read.held is not None
        }
        temporary = {held: size for held, size in found.items() if held.kind == "temporary"}
        workspace[lead.name] = sum(temporary.values())
        constants[lead.name] = found = {h: found[h] for h in found if h not in temporary}
        for held in found:
            readers[held] = readers.get(held, 0) + 1
    for lead, parts in ops:
        name = lead.name
        outputs = [t for part in parts for t in reading.values[part] if t in used]
        if not outputs:  # other nodes depend on a number that it returns
            outputs = reading.values[lead][:1]
        output_bytes = sum(tensor.bytes for tensor in outputs)
        found = constants[name]
        alone = sum(size for held, size in found.items() if readers[held] == 1)
        shared = {held.name: size for held, size in found.items() if readers[held] > 1 and size > 0}
        held_bytes = alone + sum(shared.values())
        inputs = [tensor for node in lead.all_input_nodes for tensor in tensors_in(node)]
        program.ops.append(
            {
                "name": name,
                "kind": kind_of_node(lead),
                "flops": sum(_flops(reading, part) for part in parts),
                "bytes_moved": sum(_bytes_moved(reading, part, used) for part in parts),
                "parameter_bytes": held_bytes,
                "state_bytes": alone,
                "shared_state": shared,
                "resident_bytes": held_bytes + output_bytes,
                "workspace_bytes": workspace[name],
                "backward": backward(lead),
                "module": module_path(lead),
                "dtype": dtype_name([*inputs, *tensors_in(lead)]),
                "kernel": _kernel(reading, lead) if len(parts) == 1 else None,
            }
        )
        program.weights_of[name] = {
            held.name: size for held, size in found.items() if held.kind == "parameter"
        }
        for read in dict.fromkeys(read for part in parts for read in reading.reads(part)):
            if read.op is not None and read.op != name:
                program.edges.append(
                    {
                        "producer": read.op,
                        "consumer": name,
                        "bytes": read.bytes,
                        "tensor": read.name,
                    }
                )


def _used(reading: _Reading, node: Any) -> list[FxTensor]:
    """What other nodes read of a node: of a tuple, the elements that are taken out."""
    if not reading.is_list[node] or is_getitem(node):
        return reading.values[node]
    return []


def _flops(reading: _Reading, node: Any) -> int:
    flops = count_node_flops(node)
    if flops is not None:
        return flops
    weights = [
        tensor
        for source in node.all_input_nodes
        for tensor, read in zip(tensors_in(source), reading.values[source], strict=False)
        if read.held is not None and read.held.kind == "parameter"
    ]
    if reads_matrix_unknown(node, weights):
        reading.program.uncounted.append(f"{node.name} ({kind_of_node(node)})")
    return 0


def _kernel(reading: _Reading, node: Any) -> MatrixProduct | None:
    """The product of a node, unless it unpacks a weight besides."""
    for at in FACTORS.get(kind_of_node(node), ()):
        (tensor,), (read,) = tensors_in(node.args[at]), reading.values[node.args[at]]
        if read.is_packed(tensor):
            return None
    return kernel_of_node(node, lambda factor: reading.values[factor][0].held is not None)


def _bytes_moved(reading: _Reading, node: Any, used: set[FxTensor]) -> int:
    outputs = [t for t in reading.values[node] if t in used] or reading.values[node][:1]
    written = sum(tensor.bytes for tensor in outputs)
    reads = reading.reads(node)
    if kind_of_node(node) in READS_WHAT_IT_WRITES and reads:
        first, *rest = reads
        return min(first.bytes, written) + sum(tensor.bytes for tensor in rest) + written
    return sum(tensor.bytes for tensor in reads) + written


def _colocate(
    program: FxProgram,
    ops: Sequence[tuple[Any, list[Any]]],
    labels: Callable[[Any], Iterable[str]],
    tied: Tied,
) -> None:
    """Ops that share a label, directly or through others, form a group of its first label."""
    label_lists = []
    for lead, parts in ops:
        found = [label for part in parts for label in labels(part)]
        if tied == "together":
            found += program.weights_of[lead.name]
        label_lists.append(list(dict.fromkeys(found)))
    number = {label: at for at, label in enumerate(dict.fromkeys(chain(*label_lists)))}
    labelled, classes = [*number], DisjointSets(len(number))
    for found in label_lists:
        for label in found:
            classes.join(number[found[0]], number[label])
    groups = [labelled[classes.find(number[f[0]])] if f else None for f in label_lists]
    sizes = Counter(groups)
    for op, group in zip(program.ops, groups, strict=True):
        if group is not None and sizes[group] > 1:
            op["colocation"] = group
