"""explain_infeasible: each condition on an instance that fails it, and none on feasible ones."""

from __future__ import annotations

from itertools import product

from draws.tiny import tiny_instance

from placegap.instances import Cluster, Device, Graph, Instance, Link, MaxLoad, Op, Plan, check
from placegap.instances.structure.explain import explain_infeasible


def build(ops: list[Op], memory: dict[str, tuple[str, int | None]]) -> Instance:
    """Ops without edges on devices given as name: (kind, memory)."""
    names = list(memory)
    return Instance(
        name="x",
        graph=Graph(name="x", ops=tuple(ops)),
        cluster=Cluster(
            name="x",
            devices=tuple(
                Device(name=name, kind=kind, memory_bytes=limit)
                for name, (kind, limit) in memory.items()
            ),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=1)
                for a, b in product(names, names)
                if a != b
            ),
        ),
    )


def op(name: str, size: int, *kinds: str, group: str | None = None) -> Op:
    return Op(
        name=name, resident_bytes=size, time_ns=dict.fromkeys(kinds or ("gpu",), 1),
        colocation=group,
    )  # fmt: skip


def test_an_op_larger_than_every_device_that_runs_it() -> None:
    # the cpu has room, but does not run it
    instance = build([op("a", 9), op("b", 1)], {"g": ("gpu", 8), "c": ("cpu", 99)})
    assert explain_infeasible(instance) == (
        "op 'a' needs 9 bytes; the devices that run it have at most 8 (g)",
    )


def test_a_colocation_group_that_fits_nowhere() -> None:
    # 5 + 4 > 8, though each op fits; only the gpu runs both
    ops = [op("a", 5, "gpu", "cpu", group="t"), op("b", 4, group="t")]
    instance = build(ops, {"g": ("gpu", 8), "c": ("cpu", None)})
    assert explain_infeasible(instance) == (
        "colocation group 't' needs 9 bytes for its 2 ops; the devices that run it have at most"
        " 8 (g)",
    )


def test_more_than_all_devices_hold_together() -> None:
    instance = build([op(f"o{i}", 3) for i in range(6)], {"g": ("gpu", 8), "h": ("gpu", 9)})
    assert explain_infeasible(instance) == ("all 6 ops need 18 bytes on g, h: 17 bytes together",)


def test_ops_that_only_some_devices_run_overflow_those() -> None:
    # 9 bytes that only the two gpus run, of 4 bytes each; the cpu would hold everything
    ops = [op(f"o{i}", 3) for i in range(3)] + [op("free", 5, "cpu")]
    instance = build(ops, {"g": ("gpu", 4), "h": ("gpu", 4), "c": ("cpu", None)})
    found = explain_infeasible(instance)
    assert found[0] == "3 of 4 ops need 9 bytes on g, h: 8 bytes together"


def test_unions_of_device_sets_count() -> None:
    # {g}: 4 of 4, {h}: 4 of 4 and 1 byte that fits on g or h: only the union of all overflows
    ops = [op("a", 4, "x"), op("b", 4, "y"), op("c", 1, "x", "y")]
    instance = build(ops, {"g": ("x", 4), "h": ("y", 4), "k": ("z", 4)})
    assert explain_infeasible(instance) == ("all 3 ops need 9 bytes on g, h: 8 bytes together",)


def test_more_large_ops_than_devices() -> None:
    # 3 ops of 5 bytes, 2 devices of 9 bytes: 15 <= 18, but no two share a device
    instance = build([op(f"o{i}", 5) for i in range(3)], {"g": ("gpu", 9), "h": ("gpu", 9)})
    assert explain_infeasible(instance) == (
        "3 ops or colocation groups, such as op 'o0', need more than half of any device they fit"
        " on, and there are 2: g, h",
    )


def test_nothing_is_said_about_instances_that_a_plan_fits() -> None:
    semantics = MaxLoad()
    explained = 0
    for seed in range(120):
        instance = tiny_instance(seed, num_ops=4, num_devices=3)
        devices = [
            [k for k, device in enumerate(instance.cluster.devices) if device.kind in spec.time_ns]
            for spec in instance.graph.ops
        ]
        feasible = any(not check(instance, Plan.on(p), semantics) for p in product(*devices))
        if explain_infeasible(instance):
            explained += 1
            assert not feasible
    assert explained >= 3
