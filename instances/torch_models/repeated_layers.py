"""One layer of each kind is traced, and repeated in the graph.

The layers of a stack (a `ModuleList`) are of one kind where their modules, shapes and settings are
alike. While a model is traced, a stack keeps its first layer, its last, and between them one of
every kind beside every pair of neighbours; every other layer is a copy of the one with the same
neighbours. A layer reads from the layers next to it and from ops outside of the stack; a training
step passes the stack forward, and then backward. Names are those that a trace of the whole model
gives: nodes of one kind are numbered. Where layers of one kind were traced into different ops, or a
layer reads something else, the whole model is traced.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations, groupby
from typing import Any, NamedTuple

from placegap.instances.torch_models.fx_reader import FxProgram, module_path_of

# Settings that number layers: those of a layer differ where layers are alike, and lists of them in
# a stack's owner say that it tells layers apart by their number.
INDEX = re.compile(r"(^|_)(idx|id|index|indexes|indices|idxs)$")
# Lists of words, and of layers whose attention differs, which shows in their modules.
OTHER_LISTS = re.compile("token|attn")


class NotAlike(Exception):
    """Layers that look alike were traced into different ops."""


@dataclass(frozen=True)
class Stack:
    """A stack of layers, of which some are traced."""

    # `kinds` are the kinds of all layers, and `sources` the traced layer that each is like: itself,
    # if it is traced.
    path: str
    kinds: tuple[int, ...]
    sources: tuple[int, ...]

    @cached_property
    def traced(self) -> list[int]:
        """Numbers of the layers that are traced."""
        return sorted(set(self.sources))

    def layer_of(self, module: str | None) -> int | None:
        found = re.match(re.escape(self.path) + r"\.([0-9]+)(\.|$)", module or "")
        return None if found is None else int(found[1])

    def moved(self, module: str, layer: int) -> str:
        """The path of the same module in another layer."""
        rest = module[len(self.path) + 1 :].partition(".")
        return f"{self.path}.{layer}{rest[1]}{rest[2]}"


@contextmanager
def shortened(module: Any, bits: Mapping[str, Fraction] | None = None) -> Iterator[list[Stack]]:
    """Within it, a module's stacks lack the layers that need no trace of their own."""
    # `bits` are those that weights are stored in, by name.
    from torch.nn import ModuleList

    known = bits or {}
    stacks: list[Stack] = []
    undo: list[Callable[[], None]] = []
    owners = dict(module.named_modules())
    for path, layers in owners.items():
        inside = any(path.startswith(f"{stack.path}.") for stack in stacks)
        owner = owners[path.rpartition(".")[0]]
        if inside or not isinstance(layers, ModuleList) or not layers or _lists_numbers(owner):
            continue
        if _reads_a_layer(module, owner):
            continue
        config = getattr(owner, "config", owner)
        kind, computed = type(config), _lists_of_layers(_computed(config), len(layers))
        lists = list(_lists_of_layers(vars(config), len(layers)).values())
        stored = [
            {name: known.get(f"{path}.{at}.{name}") for name, _ in layer.named_parameters()}
            for at, layer in enumerate(layers)
        ]
        alike = [*zip(_signatures(layers), stored, *lists, *computed.values(), strict=True)]
        stack = stack_of(path, [alike.index(kind) for kind in alike])
        if len(stack.traced) == len(layers):
            continue
        stacks.append(stack)
        for each in lists:
            undo.append(partial(each.__setitem__, slice(None), list(each)))
            each[:] = [each[at] for at in stack.traced]
        for name, value in computed.items():
            undo.append(partial(setattr, kind, name, getattr(kind, name)))
            setattr(kind, name, [value[at] for at in stack.traced])
        undo.append(partial(_refill, layers._modules, dict(layers._modules)))
        for at in set(range(len(layers))).difference(stack.traced):
            del layers._modules[str(at)]
    try:
        yield stacks
    finally:
        for step in undo:
            step()


def _refill(own: dict[str, Any], whole: dict[str, Any]) -> None:
    own.clear()
    own.update(whole)


def _lists_of_layers(settings: Mapping[str, Any], num_layers: int) -> dict[str, list[Any]]:
    """Settings that say something of every layer, and not a number of its own."""
    return {
        name: value
        for name, value in settings.items()
        if isinstance(value, list)
        and "layer" in name
        and len({*map(str, value)}) < len(value) == num_layers
    }


def _computed(config: Any) -> dict[str, Any]:
    """The properties of a configuration that describe layers."""
    names = (name for name in dir(config) if "layer" in name)
    own = (name for name in names if isinstance(getattr(type(config), name, None), property))
    return {name: getattr(config, name, None) for name in own}


def _lists_numbers(owner: Any) -> bool:
    """Whether the owner of a stack, or its configuration, has lists of numbers of layers."""
    settings = {**vars(getattr(owner, "config", owner)), **vars(owner)}
    return any(
        INDEX.search(name) and not OTHER_LISTS.search(name)
        if isinstance(value, list | tuple | set)
        else name.endswith("_every")
        for name, value in settings.items()
        if value
    )


def _reads_a_layer(module: Any, owner: Any) -> bool:
    """Whether a model reads a layer of its tower by number, as LLaVA the last but one."""
    config = getattr(module, "config", None)
    if config is None or getattr(config, "vision_feature_layer", None) is None:
        return False
    own = getattr(getattr(owner, "config", None), "model_type", None)
    return bool(own == config.vision_config.model_type)


def _signatures(layers: Iterable[Any]) -> list[dict[tuple[str, str], Any]]:
    """What the ops of each layer follow from: classes, settings and shapes of its modules."""
    # A fraction of which every layer has one of its own (a schedule over the depth) is no part of
    # it.
    found = [_settings(layer) for layer in layers]
    for at, value in list(found[0].items()) if found else ():
        if isinstance(value, float) and len({each.get(at) for each in found}) == len(found):
            for each in found:
                each.pop(at, None)
    return found


def _settings(layer: Any) -> dict[tuple[str, str], Any]:
    """Classes, settings and shapes, by the paths of modules and names."""
    simple = (int, float, str, bool, type(None))
    found: dict[tuple[str, str], Any] = {}
    for path, part in layer.named_modules():
        found[path, ""] = type(part)
        for name, value in vars(part).items():
            if isinstance(value, simple) and not name.startswith("_") and not INDEX.search(name):
                found[path, name] = value
        for own in (part.named_parameters(recurse=False), part.named_buffers(recurse=False)):
            found |= {(path, name): (tensor.shape, tensor.dtype) for name, tensor in own}
    return found


def stack_of(path: str, kinds: Sequence[int]) -> Stack:
    """A stack of layers of these kinds, without those that need no trace of their own."""
    around = list(zip([None, *kinds], kinds, [*kinds[1:], None], strict=False))
    last, kept = len(kinds) - 1, [0]

    def may_follow(after: int) -> bool:
        """Whether the layers before that one are copies of kept ones, beside alike neighbours."""
        at, between = kept[-1], range(kept[-1] + 1, after)
        seen = {around[each] for each in kept}
        counts = Counter(kinds[each] for each in {*kept, after, last})
        return (
            kinds[at : at + 2] == kinds[after - 1 : after + 1]
            and seen.issuperset(around[each] for each in between)
            and all(counts[kinds[each]] > 1 for each in between)
        )

    while kept[-1] < last:
        kept.append(next(filter(may_follow, range(last, kept[-1], -1))))
    first = {around[at]: at for at in reversed(kept)}
    sources = [at if at in kept else first[around[at]] for at in range(len(kinds))]
    return Stack(path, tuple(kinds), tuple(sources))


class LayerPass(NamedTuple):
    """A layer of a stack in one of the two passes: forward, or backward (`back`)."""

    stack: Stack
    layer: int
    back: bool

    @property
    def begin(self) -> int:
        return len(self.stack.kinds) - 1 if self.back else 0

    def ahead(self, layer: int) -> int:
        """How many layers further that one is, of those that are traced."""
        return self.stack.traced.index(layer) - self.stack.traced.index(self.layer)


def repeat_layers(
    program: FxProgram,
    graph: Any,
    stacks: Sequence[Stack],
    module_path: Callable[[Any], str | None] = module_path_of,
) -> None:
    """Add the ops of the layers that were left out, and number the later ones after them."""
    if not stacks:
        return
    calls = (node for node in graph.nodes if node.op == "call_function")
    names = _Names([(node.name, module_path(node)) for node in calls], stacks)
    ops = {op["name"]: op for op in program.ops}
    homes = {name: names.homes[name.partition("/")[0]] for name in ops}
    edges: dict[str, list[dict[str, Any]]] = {name: [] for name in ops}
    for edge in program.edges:
        edges[edge["consumer"]].append(edge)
    _compare(names, ops, homes, edges)
    order = list(_unrolled([*ops], homes))
    uncounted = dict(text.split(" ", 1) for text in program.uncounted)
    moved = [names.moved(ops[name], homes[name], layer) for name, layer in order]
    program.uncounted[:] = [
        f"{op['name']} {uncounted[name]}"
        for (name, _), op in zip(order, moved, strict=True)
        if name in uncounted
    ]
    program.ops[:] = moved
    program.edges[:] = [
        names.moved(edge, homes[name], layer) for name, layer in order for edge in edges[name]
    ]
    if len({op["name"] for op in program.ops}) < len(order):
        raise NotAlike


def alike(weight: str, stacks: Iterable[Stack]) -> list[str]:
    """A weight, and those of the same place in the layers that were left out."""
    for stack in stacks:
        own = stack.layer_of(weight)
        if own is not None:
            layers = (layer for layer, source in enumerate(stack.sources) if source == own)
            return [stack.moved(weight, layer) for layer in layers]
    return [weight]


class _Names:
    """What the nodes of a traced program are called in the whole one."""

    def __init__(self, nodes: Sequence[tuple[str, str | None]], stacks: Sequence[Stack]) -> None:
        # `homes` are the layers of nodes, `parts` the nodes of each, the last first, and `whole`
        # the names of nodes in the layers that they stand for.
        self.homes = _homes(nodes, stacks)
        self.parts: dict[LayerPass | None, list[str]] = {}
        self.at: dict[str, int] = {}
        for name, home in reversed(self.homes.items()):
            part = self.parts.setdefault(home, [])
            self.at[name] = len(part)
            part.append(name)
        last: dict[str, int] = {}
        steps = {}
        for name in self.homes:
            base, number = _split(name)
            steps[name] = number - last.get(base, -1)
            last[base] = number
        last = {}
        self.whole: dict[tuple[str, int | None], str] = {}
        for name, layer in _unrolled([*self.homes], self.homes):
            base, _ = _split(name)
            number = last[base] = last.get(base, -1) + steps[name]
            self.whole[name, layer] = f"{base}_{number}" if number else base

    def moved(self, fields: Mapping[str, Any], home: LayerPass | None, layer: int | None) -> Any:
        """An op of a home, or an edge to it, where that stands for another layer."""
        found: dict[str, Any] = {
            field: self._text(fields[field], home, layer)
            for field in ("name", "module", "colocation", "producer", "consumer", "tensor")
            if fields.get(field) is not None
        }
        if "shared_state" in fields:
            shared = fields["shared_state"].items()
            found["shared_state"] = {self._text(name, home, layer): size for name, size in shared}
        return {**fields, **found}

    def _text(self, text: str, home: LayerPass | None, layer: int | None) -> str:
        """A name of a node, the path of a module, or both."""
        parts = []
        for part in text.split("/"):
            head, dot, rest = part.partition(".")
            own = None if home is None else home.stack.layer_of(part)
            if head in self.homes:
                part = f"{self._node(head, home, layer)}{dot}{rest}"
            elif home is not None and layer is not None and own is not None:
                part = home.stack.moved(part, layer + home.ahead(own))
            parts.append(part)
        return "/".join(parts)

    def _node(self, name: str, home: LayerPass | None, layer: int | None) -> str:
        own = self.homes[name]
        if own is None:
            return self.whole[name, None]
        if home is None or layer is None or home.stack != own.stack:
            if own.layer not in (0, len(own.stack.kinds) - 1):
                raise NotAlike  # outside of a stack only its ends are read
            return self.whole[name, own.layer]
        ahead = home.ahead(own.layer)
        if abs(ahead) > 1:
            raise NotAlike
        part = self.parts[own._replace(layer=own.stack.sources[layer + ahead])]
        at = self.at[name]
        if at >= len(part) or _split(part[at])[0] != _split(name)[0]:
            raise NotAlike  # as the first layer may be
        return self.whole[part[at], layer + ahead]


def _homes(
    nodes: Sequence[tuple[str, str | None]], stacks: Sequence[Stack]
) -> dict[str, LayerPass | None]:
    """The layer of every node."""
    # A pass enters the next layer with the first node of that layer, a sum of gradients; nodes of
    # the layer before may follow. Nodes that follow the whole pass count as outside of the stack.

    def passed(node: tuple[str, str | None]) -> Stack | None:
        return next((each for each in stacks if each.layer_of(node[1]) is not None), None)

    homes: dict[str, LayerPass | None] = {}
    for stack, run in groupby(nodes, passed):
        found = [(name, None if stack is None else stack.layer_of(module)) for name, module in run]
        layers = {layer for _, layer in found if layer is not None}
        if stack is None or (len(layers) == 1 and layers <= {0, len(stack.kinds) - 1}):
            homes |= dict.fromkeys(name for name, _ in found)
            continue
        at = found[0][1] or 0
        back = at > 0
        for name, layer in found:
            at = (min if back else max)(at, layer or 0)
            homes[name] = LayerPass(stack, at, back)
    return homes


def _unrolled(
    names: Sequence[str], homes: Mapping[str, LayerPass | None]
) -> Iterator[tuple[str, int | None]]:
    """Names of a traced program in the order of the whole one, each with its layer there."""
    # A pass runs from the first layer to the last, or from the last to the first.

    def pass_of(name: str) -> tuple[Stack, bool] | None:
        home = homes[name]
        return None if home is None else (home.stack, home.back)

    for key, run in groupby(names, pass_of):
        if key is None:
            yield from ((name, None) for name in run)
            continue
        stack, back = key
        parts = [(home.layer, list(part)) for home, part in groupby(run, homes.get) if home]
        if [layer for layer, _ in parts] not in (stack.traced, stack.traced[::-1]):
            raise NotAlike
        found, order = dict(parts), range(len(stack.sources))
        for layer in reversed(order) if back else order:
            yield from ((name, layer) for name in found[stack.sources[layer]])


def _compare(
    names: _Names,
    ops: Mapping[str, dict[str, Any]],
    homes: Mapping[str, LayerPass | None],
    edges: Mapping[str, list[dict[str, Any]]],
) -> None:
    """Compare the traced layers of a kind: their ops, and edges where neighbours are alike."""
    # The layer that a pass begins with may differ.
    parts: dict[LayerPass, list[str]] = {}
    for name, home in homes.items():
        if home is not None:
            parts.setdefault(home, []).append(name)
    for one, other in combinations(parts, 2):
        kinds = dict(enumerate(one.stack.kinds))
        if one[::2] != other[::2] or kinds[one.layer] != kinds[other.layer]:
            continue
        if one.begin in (one.layer, other.layer):
            continue
        nodes = zip(names.parts[one], names.parts[other], strict=False)
        if any(_split(name)[0] != _split(same)[0] for name, same in nodes):
            raise NotAlike
        found = []
        for home in (one, other):
            mine: list[Any] = [len(names.parts[home])]
            for name in parts[home]:
                op = names.moved(ops[name], home, other.layer)
                if kinds.get(one.layer + 1) != kinds.get(other.layer + 1):
                    op.pop("colocation", None)  # with a sum of gradients, which the last one lacks
                mine.append(op)
                for edge in edges[name]:
                    source = names.homes[edge["producer"]]
                    near = [-1, 1] if home.back else [-1]  # what may stand outside of the stack
                    if source is not None and source.stack == home.stack:
                        near = [home.ahead(source.layer)]
                    if all(kinds.get(one.layer + n) == kinds.get(other.layer + n) for n in near):
                        mine.append(names.moved(edge, home, other.layer))
            found.append(mine)
        if found[0] != found[1]:
            raise NotAlike


def _split(name: str) -> tuple[str, int]:
    """A node's name without its number, and that; the first of a name has none."""
    base, bar, number = name.rpartition("_")
    return (base, int(number)) if bar and number.isdigit() else (name, 0)
