"""explain_infeasible: each condition on an instance that fails it, and none on feasible ones."""

from itertools import permutations, product

import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import (
    Device,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Provenance,
    Semantics,
    check,
)
from placegap.instances.problem.explain import NoRoom, explain_infeasible, why_no_room


def build(ops: list[Op], memory: dict[str, tuple[str, int | None]]) -> Instance:
    """Ops without edges on devices given as name: (kind, memory)."""
    devices = [
        Device(name=name, kind=kind, memory_bytes=limit) for name, (kind, limit) in memory.items()
    ]
    links = [Link(source=a, target=b, bandwidth_bytes_per_s=1) for a, b in permutations(memory, 2)]
    return draw.instance_of("x", ops, (), devices, links)


def op(name: str, size: int, *kinds: str, group: str | None = None) -> Op:
    return Op(
        name=name,
        resident_bytes=size,
        time_ns=dict.fromkeys(kinds or ("gpu",), 1),
        colocation=group,
    )


def test_an_op_larger_than_every_device_that_runs_it() -> None:
    # the cpu has room, but does not run it
    instance = build([op("a", 9), op("b", 1)], {"g": ("gpu", 8), "c": ("cpu", 99)})
    assert explain_infeasible(instance) == (
        "op 'a' needs 9 B; the devices that run it have at most 8 B (g): 1 B short",
    )


def test_a_colocation_group_that_fits_nowhere() -> None:
    # 5 + 4 > 8, though each op fits; only the gpu runs both
    ops = [op("a", 5, "gpu", "cpu", group="t"), op("b", 4, group="t")]
    instance = build(ops, {"g": ("gpu", 8), "c": ("cpu", None)})
    assert explain_infeasible(instance) == (
        "colocation group 't' needs 9 B for its 2 ops; the devices that run it have at most"
        " 8 B (g): 1 B short",
    )


def test_more_than_all_devices_hold_together() -> None:
    instance = build([op(f"o{i}", 3) for i in range(6)], {"g": ("gpu", 8), "h": ("gpu", 9)})
    assert explain_infeasible(instance) == (
        "all 6 ops need 18 B on g, h: 17 B together, 1 B per device short",
    )


def test_unions_of_device_sets_count() -> None:
    # {g}: 4 of 4, {h}: 4 of 4 and 1 byte that fits on g or h: only the union of all overflows
    ops = [op("a", 4, "x"), op("b", 4, "y"), op("c", 1, "x", "y")]
    instance = build(ops, {"g": ("x", 4), "h": ("y", 4), "k": ("z", 4)})
    assert explain_infeasible(instance) == (
        "all 3 ops need 9 B on g, h: 8 B together, 1 B per device short",
    )


def test_more_large_ops_than_devices() -> None:
    # 3 ops of 5 bytes, 2 devices of 9 bytes: 15 <= 18, but no two share a device
    instance = build([op(f"o{i}", 5) for i in range(3)], {"g": ("gpu", 9), "h": ("gpu", 9)})
    assert explain_infeasible(instance) == (
        "3 ops or colocation groups, such as op 'o0', need more than half of any device they fit"
        " on, and there are 2: g, h",
    )


def test_nothing_is_said_about_instances_that_a_plan_fits() -> None:
    semantics = MaxLoad(plans="any")
    explained = 0
    for seed in range(60):
        instance = tiny_instance(seed, num_ops=4, num_devices=3)
        devices = [
            [k for k, device in enumerate(instance.cluster.devices) if device.kind in spec.time_ns]
            for spec in instance.graph.ops
        ]
        feasible = any(not check(instance, Plan.on(p), semantics) for p in product(*devices))
        if explain_infeasible(instance):
            explained += 1
            assert not feasible
    assert explained >= 1


GB = 10**9


def layers(number: int, dtype: str | None) -> list[Op]:
    """Ops of 6 GB each, 4 of them weights and 2 a tensor that no other op reads."""
    return [
        Op(
            name=f"o{i}",
            time_ns={"gpu": 1},
            resident_bytes=6 * GB,
            parameter_bytes=4 * GB,
            state_bytes=4 * GB,
            dtype=dtype,
        )
        for i in range(number)
    ]


def on_two(number: int, source: str = "") -> Instance:
    """Layers on two devices of 16 GB."""
    instance = build(layers(number, None), {"g": ("gpu", 16 * GB), "h": ("gpu", 16 * GB)})
    graph = instance.graph.model_copy(update={"provenance": Provenance(source=source)})
    return instance.model_copy(update={"graph": graph})


TRACED = "traced from hf:net"
INT4 = "weights of fewer bits (--weights int4 of hf:, py: and ONNX models"


@pytest.mark.parametrize(
    ("instance", "semantics", "missing", "helps"),
    [
        # 7 x 6 = 42 of 32 GB: 10 are missing. Their state is 28 GB, or 14 of half the bytes;
        # weights of 4.5 in place of 32 bits are 28 x 27.5 / 32 = 24.06 GB less
        (
            on_two(7, TRACED),
            MaxLoad(plans="any"),
            "all 7 ops need 42 GB on g, h: 32 GB together, 5 GB per",
            "--memory peak (28 GB in all, at least), or numbers of half the bytes (--dtype bfloat16"
            " of hf: models; 21 GB in all), or one more device like g (16 GB), or 2 devices of"
            f" 21 GB or more, or {INT4}; 17.94 GB in all)",
        ),
        # 12 x 6 = 72 GB, 48 at the peak, 36 of half the bytes; 40 missing are 3 devices. 24 GB of
        # both
        (
            on_two(12, TRACED),
            Makespan(),
            "72 GB on g, h: 32 GB together, 20 GB per device",
            "both --memory peak and numbers of half the bytes (--dtype bfloat16 of hf: models; 24"
            " GB in all), or 3 more devices like g (16 GB), or 2 devices of 36 GB or more, or"
            f" {INT4}; 30.75 GB in all)",
        ),
        # of numbers nobody knows the type; and the objective has no other rule
        (
            on_two(7),
            LatencySubgraphs(),
            "5 GB per device short",
            "one more device like g (16 GB), or 2 devices of 21 GB or more",
        ),
        # 5 ops of 6 GB are 30 of 32 GB, and no reason is found; two fit on each device
        (
            on_two(5),
            LatencySubgraphs(),
            "all 5 ops need at least 30 GB, and the devices hold 32 GB together, but no plan was",
            "one more device like g (16 GB)",
        ),
        (
            build([op("a", 9 * GB)], {"g": ("gpu", 8 * GB), "h": ("gpu", 4 * GB)}),
            Makespan(),
            "op 'a' needs 9 GB; the devices that run it have at most 8 GB (g): 1 GB short",
            "a device of 9 GB or more",
        ),
    ],
)
def test_what_is_missing_and_what_would_help(
    instance: Instance, semantics: Semantics, missing: str, helps: str
) -> None:
    found, offered = why_no_room(instance, semantics).sentences
    assert missing in found
    assert offered == f"what would help: {helps}"


def test_a_host_would_help_where_ops_have_rates_and_small_weights_at_least_a_part() -> None:
    # 4 ops of 6 GB on one card of 12 GB; their 16 GB of weights in 4.5 of 16 bits are 4.5 GB, so
    # that 12.5 remain
    ops = [op.model_copy(update={"flops": 1}) for op in layers(4, "float16")]
    one = build(ops, {"g": ("gpu", 12 * GB)})
    graph = one.graph.model_copy(update={"provenance": Provenance(source=TRACED)})
    one = one.model_copy(update={"graph": graph})
    missing = "all 4 ops need 24 GB on g: 12 GB together, 12 GB per device short"
    helps = (
        "what would help: one more device like g (12 GB), or a device of 24 GB or more, or a host"
        f" (+host in --cluster), or {INT4}; 12.5 GB in all, still too much)"
    )
    assert why_no_room(one, Makespan()) == NoRoom((missing, helps), proven=True)


def test_nothing_is_missing_where_one_device_holds_all() -> None:
    assert (
        why_no_room(build([op("a", 9)], {"g": ("gpu", 9), "h": ("gpu", 4)}), Makespan()) == NoRoom()
    )
    assert why_no_room(build([op("a", 9)], {"g": ("gpu", None)}), Makespan()) == NoRoom()


def test_many_ops_that_fit_nowhere_are_counted() -> None:
    found = explain_infeasible(build([op(f"o{i}", 9 + i) for i in range(5)], {"g": ("gpu", 8)}))
    assert [sentence[:7] for sentence in found] == ["op 'o4'", "op 'o3'", "op 'o2'", "2 more "]
