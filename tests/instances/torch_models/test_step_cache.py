"""What a step writes into its cache, without a trace."""

from typing import Any

from placegap.instances.torch_models.fx_reader import FxProgram
from placegap.instances.torch_models.step_cache import end_writes


def program(modules: dict[str, str | None], edges: str) -> FxProgram:
    """Ops in order with their modules, and edges as "ab bc"."""
    ops: list[dict[str, Any]] = [{"name": name, "module": path} for name, path in modules.items()]
    pairs = [{"producer": a, "consumer": b, "bytes": 8, "tensor": a} for a, b in edges.split()]
    return FxProgram(ops=ops, edges=pairs)


def added(found: FxProgram) -> list[str]:
    end_writes(found)
    order = [op["name"] for op in found.ops]
    consumers = [order.index(edge["consumer"]) for edge in found.edges]
    assert consumers == sorted(consumers)  # as the reader has them
    return [edge["producer"] + edge["consumer"] for edge in found.edges if not edge["bytes"]]


def test_writes_precede_the_end_of_their_layer() -> None:
    layers = {"a": "net.0.mixer", "w": "net.0.mixer", "b": "net.0", "c": "net.1.mixer"}
    found = program({**layers, "v": "net.1.mixer", "d": "net.1", "h": "head"}, "aw ab bc cv cd dh")
    assert added(found) == ["wb", "vd"]


def test_writes_behind_the_end_of_their_layer_or_of_none_precede_the_end_of_the_step() -> None:
    # w is behind all ops of its layer that others read, v is in no layer
    found = program({"a": "net.0", "w": "net.0", "v": None, "h": "head"}, "aw av ah")
    assert added(found) == ["wh", "vh"]


def test_what_ops_read_and_what_the_step_returns_stay() -> None:
    found = program({"a": "net.0", "b": "net.0", "h": "head"}, "ab bh")
    assert added(found) == []
