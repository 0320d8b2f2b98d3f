"""Fusion coarsening: ops that an inference backend runs as one become one op.

Moirai (Zhang et al.), section III-B, Algorithm 1. Its listing is not in the text at hand; its prose
and figure 7 are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from placegap.instances.files.document import Version
from placegap.instances.problem import Instance, InstancePart, Name
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.transforms.colocation import Together
from placegap.instances.transforms.merge import Merge, merge_groups


def fuse_by_rules(
    instance: Instance,
    rules: FusionRules | None = None,
    placement: Sequence[tuple[int, ...]] | None = None,
) -> Merge:
    """Fuse ops along edges whose ends match consecutive steps of a rule (Moirai, Algorithm 1).

    Edges are met depth first from the sources. What has been fused so far at the producer and at
    the consumer is fused if

    - the types of both, one after the other, are a rule or a run of steps within one;
    - the producer has no other consumer: the connection is direct, or multi-input where the
      consumer has other inputs, but never multi-output;
    - the consumer is the first op of what it has been fused to;
    - both are on one device, where a `placement` is given, as at run time.

    What is only part of a rule in the end (tagged, in the paper) is released into what it was made
    of, down to single ops or whole rules.

    Every fused op is a path whose inner ops have one consumer each, so that no cycle arises: a
    second way from one of its ops to a later one would need a second consumer.

    Filled in: sources and consumers in input order; a released part keeps the whole rules within
    (the example has none); rules are tried in whatever order edges are met, so that an op which two
    rules could take belongs to the first, as in the paper. Added: ops of one pass only, and only if
    some device runs and holds them with their colocation groups. Not modelled: that a backend runs
    a fused op in less than the sum of the times. Fused ops are in the order of their first ops;
    their kinds join those of their ops by "+". O(V + E) for rules of bounded size and number.
    """
    chosen = default_rules() if rules is None else rules
    paths = _Paths(instance, chosen, placement or [()] * instance.num_ops)
    for producer, consumer in _depth_first_edges(instance):
        paths.try_fuse(producer, consumer)
    return _as_merge(instance, paths.released())


class _Path(NamedTuple):
    """Ops that follow one another, and the two paths that this one was fused from."""

    ops: tuple[int, ...]
    parts: tuple[_Path, ...] = ()


class _Paths:
    """The paths as they grow: `first` of each op, and the path of each first op."""

    def __init__(
        self, instance: Instance, rules: FusionRules, on: Sequence[tuple[int, ...]]
    ) -> None:
        self.rules, self.on = rules, on
        self.kind = [op.kind for op in instance.graph.ops]
        self.backward = instance.arrays.backward.tolist()
        self.group = instance.arrays.group.tolist()
        self.num_consumers = [len(set(targets)) for targets in _consumers(instance)]
        self.together = Together(instance)
        self.path = {i: _Path((i,)) for i in range(instance.num_ops)}
        self.first = list(range(instance.num_ops))
        self.known: dict[tuple[str, ...], str | None] = {}

    def match(self, ops: tuple[int, ...]) -> str | None:
        """Whether the ops' types are a rule ("whole"), a part of one ("part"), or neither."""
        types = tuple(self.kind[i] for i in ops)
        if types not in self.known:
            self.known[types] = self.rules.matches(types)
        return self.known[types]

    def try_fuse(self, producer: int, consumer: int) -> None:
        """Fuse what the ends of an edge belong to, if connection and rules allow it."""
        if self.num_consumers[producer] != 1 or self.first[consumer] != consumer:
            return  # with one consumer outside its path, the producer is the path's last op
        one, two = self.path[self.first[producer]], self.path[consumer]
        if (
            self.on[producer] != self.on[consumer]
            or self.backward[producer] != self.backward[consumer]
            or self.match(one.ops + two.ops) is None
            or not self.together.may_join(self.group[producer], self.group[consumer])
        ):
            return
        self.together.join(self.group[producer], self.group[consumer])
        del self.path[consumer]
        self.path[one.ops[0]] = _Path(one.ops + two.ops, (one, two))
        for i in two.ops:
            self.first[i] = one.ops[0]

    def released(self) -> list[tuple[int, ...]]:
        """The ops of every path, once those that are no whole rule are taken apart."""
        work, kept = list(self.path.values()), []
        while work:
            path = work.pop()
            if not path.parts or self.match(path.ops) == "whole":
                kept.append(path.ops)
            else:
                work += path.parts
        return kept


def _consumers(instance: Instance) -> list[list[int]]:
    """Consumer of every edge out of each op, in input order."""
    index = instance.arrays.index
    target, ptr = index.consumer[index.succ_edge].tolist(), index.succ_ptr.tolist()
    return [target[ptr[i] : ptr[i + 1]] for i in range(instance.num_ops)]


def _depth_first_edges(instance: Instance) -> Iterator[tuple[int, int]]:
    """Every edge, on the way down from the sources; what is behind an edge comes right after it."""
    consumers = _consumers(instance)
    waiting = np.diff(instance.arrays.index.pred_ptr)
    seen = [False] * instance.num_ops
    for source in np.flatnonzero(waiting == 0).tolist():
        stack = [(source, iter(consumers[source]))]
        while stack:
            op, rest = stack[-1]
            consumer = next(rest, None)
            if consumer is None:
                stack.pop()
                continue
            yield op, consumer
            if not seen[consumer]:
                seen[consumer] = True
                stack.append((consumer, iter(consumers[consumer])))


def _as_merge(instance: Instance, paths: list[tuple[int, ...]]) -> Merge:
    first = {i: ops[0] for ops in paths for i in ops}
    kind = [op.kind for op in instance.graph.ops]
    kinds = {ops[0]: "+".join(kind[i] for i in ops) for ops in paths if len(ops) > 1}
    return merge_groups(instance, [first[i] for i in range(len(kind))], "fused", "Moirai", kinds)


Steps = Annotated[tuple[Name, ...], Field(min_length=2, max_length=100)]


class FusionRules(InstancePart):
    """Rules of operator fusion (Moirai, Table I)."""

    format: Literal["placegap-fusion-rules"] = "placegap-fusion-rules"
    version: Version = 1
    #: Whether the rules and kinds that ship with the package hold beside these; kinds of one name
    #: are joined.
    extends: Literal["default"] | None = None
    #: The op types that a name of the rules stands for; one that is absent stands for itself.
    kinds: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    #: Names in the order of the data flow.
    rules: tuple[Steps, ...] = ()

    @model_validator(mode="after")
    def _some_rules_each_once(self) -> Self:
        if not self.rules and self.extends is None:
            raise ValueError(
                "rules: the list is empty; state at least one, or say extends: default"
            )
        for number, rule in enumerate(self.rules):
            if rule in self.rules[:number]:
                raise ValueError(f"rules[{number}]: [{', '.join(rule)}] appears twice")
        return self

    def matches(self, types: tuple[str, ...]) -> Literal["whole", "part"] | None:
        """Whether a sequence of op types is a whole rule, or a run of steps within one."""
        found: Literal["part"] | None = None
        for rule in self.rules:
            for at in range(len(rule) - len(types) + 1):
                steps = rule[at : at + len(types)]
                if all(t in self.kinds.get(s, (s,)) for s, t in zip(steps, types, strict=True)):
                    if len(rule) == len(types):
                        return "whole"
                    found = "part"
        return found


@cache
def default_rules() -> FusionRules:
    """The rules that ship with the package, for convolution nets and transformers."""
    return _parse(data_path("fusion-rules.yaml"))


def load_rules(path: str | Path) -> FusionRules:
    """Read a YAML file of `kinds` and `rules`; ``extends: default`` keeps the default ones."""
    own = _parse(path)
    found = own if own.extends is None else _joined(default_rules(), own)
    used = set(chain.from_iterable(found.rules))
    for name in own.kinds:
        if name not in used:
            raise InputError(f"kinds.{name}: no rule names it; correct it or drop it", path)
    return found


def _joined(base: FusionRules, own: FusionRules) -> FusionRules:
    kinds = dict(base.kinds)
    for name, types in own.kinds.items():
        kinds[name] = tuple(dict.fromkeys((*kinds.get(name, ()), *types)))
    return FusionRules(kinds=kinds, rules=tuple(dict.fromkeys((*base.rules, *own.rules))))


def _parse(path: str | Path) -> FusionRules:
    raw = read_yaml(path)
    if not isinstance(raw, dict) or "rules" not in raw:
        raise InputError("is not a file of fusion rules: it has no 'rules'", path)
    with as_input_error(raw, path):
        return FusionRules.model_validate(raw)
