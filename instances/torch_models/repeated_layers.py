"""One layer of each kind is traced, and repeated in the graph.

The layers of a stack (a `ModuleList`) are alike where their modules, shapes and settings are. Of a
run of alike blocks - a layer, or a period of several kinds - the first two and the last stay in the
model while it is traced. The second is copied for all that were left out: it reads from the block
before it and from what comes before the stack, and the last block shows that the next one does so,
too. Names are those that a trace of the whole model gives: nodes of one kind are numbered, and
every block takes as many numbers. Where blocks are not alike, the whole model is traced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from placegap.instances.torch_models.fx_reader import FxProgram, module_path_of

INDEX = re.compile(r"(^|_)(idx|id|index|indexes|indices|idxs)$")
"""Settings that number layers: those of a layer differ where layers are alike, and lists of them
in a stack's owner say that it tells layers apart by their number.
"""


class NotAlike(Exception):
    """Blocks that look alike were traced into different ops."""


@dataclass(frozen=True)
class Stack:
    """A stack of layers without its middle: `period` layers are a block, the first at `begin`.

    Blocks 0, 1 and `blocks` - 1 are traced.
    """

    path: str
    begin: int
    period: int
    blocks: int

    @property
    def left_out(self) -> range:
        """Numbers of the layers that are not traced."""
        return range(self.begin + 2 * self.period, self.begin + (self.blocks - 1) * self.period)

    def block_of(self, module: str | None) -> int | None:
        """The block that a module is a part of."""
        prefix = f"{self.path}."
        if module is None or not module.startswith(prefix):
            return None
        number = re.match(r"[0-9]+", module[len(prefix) :])
        at = -1 if number is None else int(number[0]) - self.begin
        return at // self.period if 0 <= at < self.blocks * self.period else None

    def moved(self, module: str, blocks: int) -> str:
        """The path of the same module so many blocks later."""
        if self.block_of(module) is None:
            return module
        number, dot, rest = module[len(self.path) + 1 :].partition(".")
        return f"{self.path}.{int(number) + blocks * self.period}{dot}{rest}"


@contextmanager
def shortened(module: Any) -> Iterator[list[Stack]]:
    """Within it, a module's stacks lack the layers that need no trace of their own."""
    from torch.nn import ModuleList

    stacks: list[Stack] = []
    undo: list[Callable[[], None]] = []
    owners = dict(module.named_modules())
    for path, layers in owners.items():
        inside = any(path.startswith(f"{stack.path}.") for stack in stacks)
        owner = owners[path.rpartition(".")[0]]
        if inside or not isinstance(layers, ModuleList) or _tells_apart(owner):
            continue
        if _reads_a_layer(module, owner):
            continue
        stack = _longest_run(path, [_signature(layer) for layer in layers])
        if stack is None:
            continue
        stacks.append(stack)
        kinds = getattr(getattr(owner, "config", None), "layer_types", None)
        if isinstance(kinds, list) and len(kinds) == len(layers):
            undo.append(partial(_refill_list, kinds, list(kinds)))
            kinds[:] = [kind for at, kind in enumerate(kinds) if at not in stack.left_out]
        undo.append(partial(_refill, layers._modules, dict(layers._modules)))
        for at in stack.left_out:
            del layers._modules[str(at)]
    try:
        yield stacks
    finally:
        for step in undo:
            step()


def _refill(own: dict[str, Any], whole: dict[str, Any]) -> None:
    own.clear()
    own.update(whole)


def _refill_list(own: list[Any], whole: list[Any]) -> None:
    own[:] = whole


def _tells_apart(owner: Any) -> bool:
    """Whether the owner of a stack, or its configuration, has lists of numbers of layers."""
    settings = {**vars(getattr(owner, "config", owner)), **vars(owner)}
    return any(
        isinstance(value, list | tuple | set) and value and INDEX.search(name)
        for name, value in settings.items()
    )


def _reads_a_layer(module: Any, owner: Any) -> bool:
    """Whether a model reads a layer of its tower by number, as LLaVA the last but one."""
    config = getattr(module, "config", None)
    if config is None or getattr(config, "vision_feature_layer", None) is None:
        return False
    own = getattr(getattr(owner, "config", None), "model_type", None)
    return bool(own == config.vision_config.model_type)


def _signature(layer: Any) -> tuple[Any, ...]:
    """What a layer's ops follow from: classes, settings and shapes of its modules."""
    simple = (int, float, str, bool, type(None))
    return tuple(
        (
            path,
            type(part),
            tuple(
                (name, value)
                for name, value in vars(part).items()
                if isinstance(value, simple) and not name.startswith("_") and not INDEX.search(name)
            ),
            tuple((name, p.shape, p.dtype) for name, p in part.named_parameters(recurse=False)),
            tuple((name, b.shape, b.dtype) for name, b in part.named_buffers(recurse=False)),
        )
        for path, part in layer.named_modules()
    )


def _longest_run(path: str, kinds: Sequence[Any]) -> Stack | None:
    """The run of alike blocks that leaves out most layers; the shortest blocks of such."""
    best, most = None, 0
    number = {kind: at for at, kind in reversed(list(enumerate(kinds)))}
    names = [number[kind] for kind in kinds]
    for period in range(1, len(names) // 4 + 1):
        begin = 0
        for at in range(period, len(names) + 1):
            if at < len(names) and names[at] == names[at - period]:
                continue
            stack = Stack(path, begin, period, (at - begin) // period)
            if len(stack.left_out) > most:
                best, most = stack, len(stack.left_out)
            begin = at - period + 1
    return best


Nodes = list[tuple[str, str | None]]
"""Names of the nodes of a graph, in order, and the modules that they were traced in."""


def repeat_layers(program: FxProgram, graph: Any, stacks: Iterable[Stack]) -> None:
    """Add the ops of the layers that were left out, and number the later ones after them.

    Raises
    ------
    NotAlike
    """
    nodes: Nodes = [
        (node.name, module_path_of(node)) for node in graph.nodes if node.op == "call_function"
    ]
    for stack in stacks:
        nodes = _repeat(program, nodes, stack)
    names = [op["name"] for op in program.ops]
    if len(set(names)) < len(names):
        raise NotAlike


def alike(weight: str, stacks: Iterable[Stack]) -> list[str]:
    """A weight, and those of the same place in the layers that were left out."""
    for stack in stacks:
        if stack.block_of(weight) == 1:
            return [stack.moved(weight, blocks) for blocks in range(stack.blocks - 2)]
    return [weight]


def _repeat(program: FxProgram, nodes: Nodes, stack: Stack) -> Nodes:
    """Repeat the second block of one stack; the nodes as a whole trace would have them."""
    blocks = [stack.block_of(module) for _, module in nodes]
    second = [at for at, block in enumerate(blocks) if block == 1]
    last = [at for at, block in enumerate(blocks) if block == stack.blocks - 1]
    if not second or len(second) != len(last) or second[-1] - second[0] >= len(second):
        raise NotAlike
    names = [name for name, _ in nodes]
    steps: dict[str, int] = {}
    for one, other in zip(second, last, strict=True):
        (base, number), (again, next_number) = _split(names[one]), _split(names[other])
        if base != again or steps.setdefault(base, next_number - number) != next_number - number:
            raise NotAlike
    of_block = dict(zip(names, blocks, strict=True))
    behind = set(names[second[-1] + 1 :])

    inner = {name for name, block in of_block.items() if block in (0, 1)}

    def moved(text: str, distance: int, paths: int) -> str:
        """A name so many blocks later in the numbers of nodes, and in the paths of modules."""
        parts = []
        for part in text.split("/"):
            head, dot, rest = part.partition(".")
            if head in inner:
                base, number = _split(head)
                number += distance * steps.get(base, 0)
                parts.append(f"{base}_{number}{dot}{rest}" if number else part)
            else:
                parts.append(stack.moved(part, paths))
        return "/".join(parts)

    def op_moved(op: dict[str, Any], distance: int, paths: int) -> dict[str, Any]:
        shared = op["shared_state"].items()
        found = {
            **op,
            "name": moved(op["name"], distance, paths),
            "shared_state": {moved(name, distance, paths): size for name, size in shared},
        }
        for name in ("module", "colocation"):
            if op.get(name) is not None:
                found[name] = stack.moved(op[name], paths)
        return found

    def edge_moved(edge: dict[str, Any], distance: int, paths: int) -> dict[str, Any]:
        ends = ("producer", "consumer", "tensor")
        return {**edge, **{name: moved(edge[name], distance, paths) for name in ends}}

    copies, skipped = stack.blocks - 3, stack.blocks - 2
    edges: dict[str, list[dict[str, Any]]] = {}
    for edge in program.edges:
        edges.setdefault(edge["consumer"], []).append(edge)
        source, target = (of_block.get(edge[end]) for end in ("producer", "consumer"))
        if source in (0, 1) and target not in (source, 1 if source == 0 else stack.blocks - 1):
            raise NotAlike  # something else than the next block reads it
    block_ops = [op for op in program.ops if of_block[op["name"]] == 1]
    of_last = [op for op in program.ops if of_block[op["name"]] == stack.blocks - 1]
    if [op_moved(op, 1, skipped) for op in block_ops] != of_last:
        raise NotAlike
    for op in block_ops:
        found = [edge_moved(edge, 1, skipped) for edge in edges.get(op["name"], [])]
        if found != edges.get(moved(op["name"], 1, 0), []):
            raise NotAlike
    made = [(op, edges.get(op["name"], [])) for op in program.ops if op["name"] not in behind]
    for copy in range(1, copies + 1):
        for op in block_ops:
            own = [edge_moved(edge, copy, copy) for edge in edges.get(op["name"], [])]
            made.append((op_moved(op, copy, copy), own))
    inner |= behind
    for op in program.ops:
        if op["name"] in behind:
            own = [edge_moved(edge, copies, 0) for edge in edges.get(op["name"], [])]
            made.append((op_moved(op, copies, 0), own))
    uncounted = [text.partition(" ") for text in program.uncounted]
    program.uncounted[:] = [
        f"{moved(name, copy, 0)} {kind}"
        for name, _, kind in uncounted
        for copy in (
            (copies,) if name in behind else range(copies + 1) if of_block[name] == 1 else (0,)
        )
    ]
    program.ops[:] = [op for op, _ in made]
    program.edges[:] = [edge for _, own in made for edge in own]
    return [
        *nodes[: second[-1] + 1],
        *(
            (moved(names[at], copy, 0), stack.moved(str(nodes[at][1]), copy))
            for copy in range(1, copies + 1)
            for at in second
        ),
        *((moved(name, copies, 0), module) for name, module in nodes[second[-1] + 1 :]),
    ]


def _split(name: str) -> tuple[str, int]:
    """A node's name without its number, and that; the first of a name has none."""
    base, bar, number = name.rpartition("_")
    return (base, int(number)) if bar and number.isdigit() else (name, 0)
