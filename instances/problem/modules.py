"""Modules of a network as wholes: layers, and colocation groups that keep them on one device.

The ops of a graph say by `Op.module` which module made them. A *layer* is a numbered module
(``model.layers.3``) or a module beside the lists of them (``model.embed_tokens``): the smallest
modules whose borders are the only places where tensors cross. A numbered module that does
nothing itself and holds numbered modules (a stage of ResNet) is divided further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from placegap.instances.objectives.base import BY_OBJECTIVE
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.graph_index import DisjointSets
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.op import Op
from placegap.instances.reading.errors import InputError

Granularity = Literal["module", "experts", "layer", "op"]


def layer_of(graph: Graph) -> tuple[str | None, ...]:
    """The layer of each op; None for ops of modules that hold layers, and of none."""
    paths = list(dict.fromkeys(op.module for op in graph.ops if op.module))
    own = set(paths)
    holding = {prefix for path in paths for prefix in _numbered(path)[:-1]}
    divided = {""}
    for path in paths:
        whole = [at for at in _numbered(path) if at in own or at not in holding]
        if whole:
            divided.update(_prefixes(whole[0])[:-1])
    return tuple(
        next((at for at in _prefixes(op.module or "") if at not in divided), None)
        for op in graph.ops
    )


def leaf_module_of(graph: Graph) -> tuple[str | None, ...]:
    """The module of each op; None for ops of modules that hold other modules, and of none."""
    paths = {op.module for op in graph.ops if op.module}
    parents = {prefix for path in paths for prefix in _prefixes(path)[:-1]}
    return tuple(None if op.module in parents else op.module or None for op in graph.ops)


def is_expert(op: Op) -> bool:
    """Whether an op is of the experts of its layer, by its module."""
    return "experts" in (op.module or "").split(".")


def with_granularity(
    instance: Instance, granularity: Granularity, *, join_ends: bool = False
) -> Instance:
    """The instance with each module, or each layer, as a colocation group."""
    # ``layer``: besides, a forward op outside of all layers is with the last layer that feeds it
    # (`feeders`): no hook of a framework moves its inputs. ``experts``: the same, but the experts
    # of each layer are a group of their own. ``module``: such ops, and those of modules that hold
    # others, are free. ``op``: the instance itself. With `join_ends`, what comes before the
    # numbered layers is one group, and what comes after them another, as in frameworks whose first
    # stage holds all embeddings and whose last one holds norm and head.
    if granularity == "op":
        return instance
    graph = instance.graph
    by_layer = granularity in ("layer", "experts")
    wholes = list(layer_of(graph) if by_layer else leaf_module_of(graph))
    if granularity == "experts":
        wholes = [
            f"{whole}.experts" if whole and is_expert(op) else whole
            for op, whole in zip(graph.ops, wholes, strict=True)
        ]
    if not any(wholes):
        raise InputError(
            f"no op of {graph.name} names its module, so there are no layers; trace the model (hf:,"
            " py:), or place single ops (--granularity op) and export csv"
        )
    if join_ends:
        _join_ends(instance, wholes)
    pairs = _chained(wholes) + _chained([op.colocation for op in graph.ops])
    if by_layer:
        backward = instance.arrays.backward
        pairs += [(a, b) for b, a in feeders(instance, wholes).items() if not backward[b]]
    groups = DisjointSets(len(graph.ops))
    for a, b in pairs:
        groups.join(a, b)
    group = [groups.find(i) for i in range(len(graph.ops))]
    label: dict[int, str] = {}
    for i, whole in enumerate(wholes):
        if whole is not None:
            label.setdefault(group[i], whole)
    for i, op in enumerate(graph.ops):
        if op.colocation is not None:
            label.setdefault(group[i], f"group of {op.name}")
    ops = tuple(
        op.model_copy(update={"colocation": label.get(at)})
        if op.colocation != label.get(at)
        else op
        for op, at in zip(graph.ops, group, strict=True)
    )
    return instance.with_graph(graph.model_copy(update={"ops": ops}))


def holds_ranges(instance: Instance, objective: str | None = None) -> bool:
    """Whether the objective, or the instance's own, is of ranges of layers."""
    own = None if instance.semantics is None else instance.semantics.objective
    rules = BY_OBJECTIVE.get(objective or own or "")
    return rules is not None and rules.holds_ranges


def row_of_layers(instance: Instance, objective: str | None = None) -> Instance:
    """The instance with whole layers, where `holds_ranges` and its ops name their modules."""
    if not holds_ranges(instance, objective) or not any(layer_of(instance.graph)):
        return instance
    return with_granularity(instance, "layer", join_ends=True)


def feeders(instance: Instance, wholes: Sequence[str | None]) -> dict[int, int]:
    """For each op outside of all modules, the op that it is with."""
    # Of those that feed it, that is the one whose module begins last. An op that reads both ends of
    # a model is so with the later one, and the other tensor is sent.
    index = instance.arrays.index
    begin: dict[str, int] = {}
    rank, found = [0] * len(wholes), dict[int, int]()
    for at, i in enumerate(index.topological_order.tolist()):
        edges = index.pred_edge[index.pred_ptr[i] : index.pred_ptr[i + 1]]
        whole = wholes[i]
        rank[i] = at if whole is None else begin.setdefault(whole, at)
        if whole is None and len(edges):
            found[i] = max(index.producer[edges].tolist(), key=rank.__getitem__)
            rank[i] = rank[found[i]]
    return found


def with_content(instance: Instance, content_hash: str) -> tuple[Instance, Granularity] | None:
    """The instance with that content: itself, or with whole modules or layers; else None."""
    if instance.content_hash == content_hash:
        return instance, "op"
    wholes: tuple[Granularity, ...] = ("layer", "experts", "module")
    for granularity in wholes:
        for join_ends in (False, True):
            try:
                whole = with_granularity(instance, granularity, join_ends=join_ends)
            except InputError:  # no op names its module, or no device runs a whole one
                continue
            if whole.content_hash == content_hash:
                return whole, granularity
    return None


# Modules that turn images or sound into tokens, by their names in transformers.
TOWER = re.compile(r"(^|\.)(vision|visual|image|audio)[^.]*(\.|$)")


def is_tower(path: str) -> bool:
    """Whether a module is a part of what turns images or sound into tokens."""
    return TOWER.search(path) is not None


def numbered_layers(layers: Sequence[str | None]) -> dict[str, list[str]]:
    """The numbered layers by the list that holds them, in the order in which they first come."""
    # Beside a list of others those of a tower count as modules that run before it.
    found: dict[str, list[str]] = {}
    for layer in dict.fromkeys(layers):
        owner, _, last = (layer or "").rpartition(".")
        if layer is not None and last.isdecimal():
            found.setdefault(owner, []).append(layer)
    of_text = {owner: own for owner, own in found.items() if not is_tower(owner)}
    return of_text or found


def layer_ends(instance: Instance, wholes: Sequence[str | None]) -> dict[str, bool]:
    """Of each module outside the longest list of layers, whether it runs before that list."""
    # The forward op of a module may be a part of its reader's. What has backward ops alone runs
    # before the layers if its backward ops come after one of theirs.
    lists = numbered_layers(wholes)
    longest = max((len(found) for found in lists.values()), default=0)
    inner = set(next((found for found in lists.values() if len(found) == longest), []))
    order = instance.arrays.index.topological_order.tolist()
    end: dict[str, bool] = {}
    for backward in (False, True):
        seen = False
        for i in order:
            whole = wholes[i]
            if instance.arrays.backward[i] == backward and whole is not None:
                seen = seen or whole in inner
                if whole not in inner:
                    end.setdefault(whole, seen == backward)
    return end


def homes_by_layer(instance: Instance, split: Sequence[int]) -> list[int]:
    """The device of each op where layers go to devices in their order."""
    # `split` has the device of what is before the numbered layers, of each of these, and of what is
    # after them. Ops of no layer are with the layer that feeds them last, and colocated ops with
    # the first of them.
    layers, index = layer_of(instance.graph), instance.arrays.index
    numbered = [layer for found in numbered_layers(layers).values() for layer in found]
    home = dict(zip(numbered, split[1:-1], strict=True))
    for layer, is_before in layer_ends(instance, layers).items():
        home.setdefault(layer, split[0] if is_before else split[-1])
    of_group: dict[int, int] = {}
    fed_by, group = feeders(instance, layers), instance.arrays.group.tolist()
    found = [split[0]] * instance.num_ops
    for i in index.topological_order.tolist():
        layer, fed = layers[i], found[fed_by.get(i, i)]
        found[i] = of_group.setdefault(group[i], fed if layer is None else home[layer])
    return found


def _join_ends(instance: Instance, wholes: list[str | None]) -> None:
    """Name what is before the longest list of layers ``first``, and what is after it ``last``."""
    names = {True: "(before the layers)", False: "(after the layers)"}
    end = layer_ends(instance, wholes)
    wholes[:] = [names[end[whole]] if whole in end else whole for whole in wholes]


def _chained(labels: Sequence[str | None]) -> list[tuple[int, int]]:
    """Pairs that link all positions of each label."""
    last: dict[str, int] = {}
    pairs = []
    for i, label in enumerate(labels):
        if label is not None:
            pairs.append((last.get(label, i), i))
            last[label] = i
    return pairs


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def _numbered(path: str) -> list[str]:
    """The numbered modules on the way to a module, from the outside in, and itself if numbered."""
    return [at for at in _prefixes(path) if at.rpartition(".")[2].isdecimal()]


def clones_of(instance: Instance) -> tuple[int, ...]:
    """The clone of each op by its name, ``clone_0/conv`` as in TF-slim, -1 for what is shared."""
    found = (re.match(r"clone_(\d+)/", op.name) for op in instance.graph.ops)
    return tuple(-1 if match is None else int(match[1]) for match in found)
