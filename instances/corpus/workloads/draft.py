"""A graph while it is drawn: ops and edges by number, memory by the sum rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placegap.instances.problem.instance import Edge, Graph, Op, Provenance
from placegap.instances.reading.errors import paused_collector

SIDE, SHAPE = -1, -2
"""Parts of an op that are no equal ones: a small further output, and the shape of its output."""

LABELS = {SIDE: "side", SHAPE: "shape"}


class Input(NamedTuple):
    """A producer, which of its parts is read, and how large that is if not an equal part."""

    source: int
    part: int = 0
    size: int | None = None


class Draft:
    """Ops in an order in which producers come first, and the edges between them.

    Each op makes one tensor, or several equal parts. What is resident is state and output; views
    (reads, reshapes) hold nothing of their own and take no time.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.edges: list[Edge] = []
        self.out_bytes: list[int] = []
        self._parts: list[int] = []
        self._used: dict[str, int] = {}

    def add(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Input | int],
        out_bytes: int,
        *,
        flops: int = 0,
        view: bool = False,
        parts: int = 1,
        parameter_bytes: int = 0,
        state_bytes: int | None = None,
        shared: Mapping[str, int] | None = None,
        held_bytes: int | None = None,
        also_moved_bytes: int = 0,
        group: str | None = None,
        backward: bool = False,
        axes: Mapping[str, int] | None = None,
        after: Sequence[int] = (),
    ) -> int:
        """Add an op and an edge from every input; its number.

        `held_bytes` is what it keeps of its output, if not all; `also_moved_bytes` what it reads
        and writes beside inputs and outputs (weights that it holds itself). Edges from ops that it
        only comes `after` carry nothing.

        Examples
        --------
        >>> draft = Draft()
        >>> draft.add("b", "Relu", [draft.add("a", "Conv", [], 8, flops=10)], 8, flops=2)
        1
        >>> draft.edges[0].bytes, draft.ops[1].bytes_moved
        (8, 16)
        """
        name, number = self._fresh(name), len(self.ops)
        read_bytes = 0
        seen: dict[int, None] = {}
        for entry in inputs:
            source, part, size = entry if isinstance(entry, Input) else Input(entry)
            of = self._parts[source]
            size = self.out_bytes[source] // of if size is None else size
            read_bytes += size
            if source in seen:
                continue
            seen[source] = None
            self.edges.append(
                Edge(
                    producer=self.ops[source].name,
                    consumer=name,
                    bytes=size,
                    tensor=LABELS.get(part) or (f"out{part}" if of > 1 else "out"),
                )
            )
        for source in after:
            if source not in seen:
                producer = self.ops[source].name
                self.edges.append(Edge(producer=producer, consumer=name, tensor="control"))
        state = parameter_bytes if state_bytes is None else state_bytes
        shared = dict(shared or {})
        held = out_bytes if held_bytes is None else held_bytes
        self.ops.append(
            Op(
                name=name,
                kind=kind,
                resident_bytes=state + sum(shared.values()) + (0 if view else held),
                parameter_bytes=parameter_bytes,
                state_bytes=state_bytes,
                shared_state=shared,
                colocation=group,
                backward=backward,
                flops=0 if view else flops,
                bytes_moved=0 if view else read_bytes + out_bytes + also_moved_bytes,
                splittable_axes=tuple(axes or ()),
                axis_sizes=dict(axes or {}),
            )
        )
        self.out_bytes.append(out_bytes)
        self._parts.append(parts)
        return number

    def graph(self, name: str, provenance: Provenance) -> Graph:
        """The graph, validated: edges that do not fit, and cycles, are errors."""
        with paused_collector():
            return Graph(
                name=name, ops=tuple(self.ops), edges=tuple(self.edges), provenance=provenance
            )

    def _fresh(self, name: str) -> str:
        number = self._used.get(name, 0)
        self._used[name] = number + 1
        return f"{name}_{number}" if number else name
