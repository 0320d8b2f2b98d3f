"""``archer-exact`` finds the optimum of chains on identical accelerators."""

from __future__ import annotations

import pytest
from draws import draw

from placegap.instances import (
    Device,
    Edge,
    InputError,
    Instance,
    MaxLoad,
    Op,
    Plan,
)
from placegap.solvers import run_method
from placegap.solvers.models import archer

ADD, OVERLAP = (MaxLoad(plans="chain", load=w) for w in ("add", "overlap"))


def test_a_row_of_three_is_cut_where_that_costs_least() -> None:
    # 4 ns each, tensors of 3 and 1 ns: a b | c is 8 + 1 and 1 + 4; a | b c: 7 and 11
    result = run_method(row((3, 1)), ADD, "archer-exact")
    assert (result.status, result.value_ns) == ("optimal", 9)
    assert result.plan in (Plan.on([0, 0, 1]), Plan.on([1, 1, 0]))


def test_plans_that_exceed_memory_by_a_byte_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ops of a little over 10**12 bytes, tensors of 9 ns. The rows of memory, a millionth wide, let
    # two of them onto a device of 2 * 10**12: 8 + 9 and 9 + 4. In truth each has its own device.
    monkeypatch.setattr(archer, "STARTS", ())
    big = 10**12
    instance = row((9, 9), devices=3, memory=2 * big, sizes=(big + 1, big + 2, big + 3))
    result = run_method(instance, ADD, "archer-exact", {"start": False})
    assert (result.status, result.value_ns) == ("optimal", 22)  # b pays 9 + 4 + 9


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ((("gpu", False), ("cpu", True)), "no host"),
        ((("gpu", False), ("tpu", False)), "times differ"),
    ],
)
def test_other_clusters_are_declined(devices: tuple[tuple[str, bool], ...], reason: str) -> None:
    each = tuple(
        Device(name=f"d{k}", kind=kind, is_host=host) for k, (kind, host) in enumerate(devices)
    )
    ops = (Op(name="a", time_ns={"gpu": 1, "cpu": 2, "tpu": 3}),)
    instance = draw.instance_of("one", ops, (), each)
    with pytest.raises(InputError, match=reason):
        run_method(instance, ADD, "archer-exact")


def row(
    costs: tuple[int, int],
    *,
    devices: int = 2,
    memory: int | None = None,
    sizes: tuple[int, ...] = (0, 0, 0),
) -> Instance:
    """a -> b -> c, 4 ns each."""
    ops = tuple(
        Op(name=name, time_ns={"gpu": 4}, resident_bytes=size)
        for name, size in zip("abc", sizes, strict=True)
    )
    edges = [
        Edge(producer=a, consumer=b, host_time_ns=cost)
        for (a, b), cost in zip(("ab", "bc"), costs, strict=True)
    ]
    return draw.instance_of("row", ops, edges, draw.devices(["gpu"] * devices, lambda k: memory))
