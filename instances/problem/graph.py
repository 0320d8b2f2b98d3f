"""A computation graph, and the checks of its parts against each other."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from placegap.instances.problem.graph_index import GraphIndex, index_graph
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.op import Edge, Op
from placegap.instances.problem.part import InstancePart, Name, Positive, Provenance, twice


class Graph(InstancePart):
    """A computation graph: a directed acyclic graph of ops.

    Examples
    --------
    >>> ops = (Op(name="a", time_ns={"gpu": 1}), Op(name="b", time_ns={"gpu": 2}))
    >>> graph = Graph(name="two", ops=ops, edges=(Edge(producer="a", consumer="b", bytes=4),))
    >>> graph.index.topological_order.tolist()
    [0, 1]
    """

    name: Name
    ops: Annotated[tuple[Op, ...], Field(min_length=1)]
    edges: tuple[Edge, ...] = ()
    provenance: Provenance = Provenance()
    #: serving_flow: millionths of a token per second that a device of each kind passes when it
    #: holds 1, 2, .. of the ops; it can hold no more. Without them they follow from the ops' times.
    throughputs: dict[Name, tuple[Positive, ...]] = Field(default_factory=dict)

    @property
    def tokens_per_pass(self) -> int:
        """Tokens that one pass makes: one of each sequence of a traced batch."""
        batch = self.provenance.parameters.get("batch")
        return batch if isinstance(batch, int) and not self.throughputs else 1

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Position of each op by name."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def index(self) -> GraphIndex:
        """Integer arrays of the graph's structure, built once."""
        return index_graph(self.op_index, self.edges)

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if len(self.op_index) < len(self.ops):
            raise ValueError(f"ops: {twice(op.name for op in self.ops)!r} appears twice")
        _ = self.index  # unknown ends, duplicate edges, tensors that disagree, cycles
        for what, total in (
            ("times", sum(max(op.time_ns.values(), default=0) for op in self.ops)),
            ("resident bytes", sum(op.resident_bytes for op in self.ops)),
            ("tensor bytes", tensors := sum(edge.bytes for edge in self.edges)),
            ("tensor, state and workspace bytes", tensors + self._check_state()),
        ):
            if total > LARGEST_SUM:
                raise ValueError(f"ops: the sum of the {what}, {total}, is above 2**62")
        if any(op.modes for op in self.ops):
            self._check_modes()
        return self

    def _check_modes(self) -> None:
        """Modes differ in name and tensor degree, and name the op's own neighbours."""
        preds: list[set[str]] = [set() for _ in self.ops]
        succs: list[set[str]] = [set() for _ in self.ops]
        for edge in self.edges:
            preds[self.op_index[edge.consumer]].add(edge.producer)
            succs[self.op_index[edge.producer]].add(edge.consumer)
        of_group: dict[str, tuple[str, frozenset[tuple[str, int]]]] = {}
        for number, op in enumerate(self.ops):
            seen = [(mode.name, mode.tensor) for mode in op.ways]
            for mode, key in zip(op.modes, seen, strict=False):
                place = f"ops[{number}] {op.name!r}: mode {mode.name!r} for tensor {mode.tensor}"
                if seen.count(key) > 1:
                    raise ValueError(f"{place} appears twice; give one of them another name")
                if mode.sharded_bytes + mode.gradient_bytes > mode.state_bytes:
                    raise ValueError(
                        f"{place} has more sharded_bytes and gradient_bytes than state_bytes, of"
                        " which they are parts"
                    )
                for field, ends, near in (
                    ("enter_bytes", mode.enter_bytes, preds[number]),
                    ("leave_bytes", mode.leave_bytes, succs[number]),
                ):
                    for end in ends:
                        if end not in near:
                            raise ValueError(f"{place} has {field} for {end!r}, with no such edge")
            if op.colocation is not None:
                first, names = of_group.setdefault(op.colocation, (op.name, frozenset(seen)))
                if names != set(seen):
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: its modes have other names or tensor degrees"
                        f" than those of {first!r} in its colocation group {op.colocation!r}; a"
                        " group chooses one mode by name: state the same for all its ops"
                    )

    def _check_state(self) -> int:
        """The sum of all state and workspace; shared state must have one size by each name."""
        total, first = 0, dict[str, tuple[int, str]]()
        for number, op in enumerate(self.ops):
            if sum(cache.held_bytes(cache.tokens) for cache in op.caches) > op.resident_bytes:
                raise ValueError(
                    f"ops[{number}] {op.name!r}: its caches hold more than its resident_bytes, of"
                    " which they are a part"
                )
            total += op.parameter_bytes if op.state_bytes is None else op.state_bytes
            total += op.workspace_bytes + sum(op.shared_state.values())
            for mark in ("weight_gradient", "update"):
                if getattr(op, mark) and not op.backward:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: is marked {mark}; mark it backward, too"
                    )
            for name, size in op.shared_state.items():
                other, holder = first.setdefault(name, (size, op.name))
                if other != size:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: shared_state {name!r} has {size} bytes here"
                        f" and {other} in {holder!r}; state it alike"
                    )
        return total
