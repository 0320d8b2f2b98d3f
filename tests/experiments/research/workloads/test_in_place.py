"""Elementwise ops that overwrite an input: which do, and which have to keep it."""

import pytest
from draws import draw

from placegap.experiments.research.workloads.variants import written_in_place
from placegap.instances import Edge, Op


def sizes_of(kinds: str, edges: str, sizes: dict[str, int] | None = None) -> list[int]:
    """Resident bytes in place, of ops ``name:Kind`` of 8 bytes and edges ``a>b`` of 8."""
    given = {"": 8, **(sizes or {})}
    ops = tuple(
        Op(name=name, kind=kind, time_ns={"g": 1}, resident_bytes=given.get(name, 8))
        for name, kind in (word.split(":") for word in kinds.split())
    )
    ends = [word.split(">") for word in edges.split()]
    lines = (Edge(producer=a, consumer=b, bytes=8, tensor=f"of {a}") for a, b in ends)
    made = written_in_place(draw.instance_of("net", ops, lines, draw.devices(["g"])))
    return [int(size) for size in made.arrays.resident_bytes]


@pytest.mark.parametrize(
    ("kinds", "edges", "expected"),
    [
        ("a:Conv2D b:Relu", "a>b", [8, 0]),
        ("a:Conv2D b:Conv2D", "a>b", [8, 8]),  # no elementwise op
        ("a:Conv2D b:Relu c:Conv2D", "a>b a>c", [8, 8, 8]),  # c reads a's output, too
        ("a:VariableV2 b:Relu", "a>b", [8, 8]),  # the next step reads the variable
        ("a:Conv2D b:Conv2D c:Add d:Conv2D", "a>c b>c a>d", [8, 8, 0, 8]),  # over b's, not a's
        ("a:Conv2D b:Relu c:Tanh", "a>b b>c", [8, 0, 0]),  # one buffer for all three
    ],
)
def test_an_elementwise_op_overwrites_an_input_that_nobody_else_reads(
    kinds: str, edges: str, expected: list[int]
) -> None:
    assert sizes_of(kinds, edges) == expected


def test_an_input_of_another_size_is_not_overwritten() -> None:
    assert sizes_of("a:Conv2D b:Add", "a>b", {"b": 16}) == [8, 16]
