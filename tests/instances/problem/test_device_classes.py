"""Devices that may change places are found, and what tells two of them apart."""

from __future__ import annotations

import numpy as np
from draws import draw

from placegap.instances import Edge, Instance, Op
from placegap.instances.problem.device_classes import (
    classes_of,
    device_kinds,
    equal_columns,
    first_identical,
    identical_devices,
    links_alike,
)


def four_gpus() -> Instance:
    """An op on four identical devices."""
    links = draw.links(4, lambda a, b: (10**9, 0))
    op = Op(name="op", time_ns={"gpu": 1})
    return draw.instance_of("four", (op,), (), draw.devices(["gpu"] * 4), links)


def test_equal_devices_that_are_linked_alike_are_identical() -> None:
    assert identical_devices(four_gpus()) == ((0, 1, 2, 3),)


def pair_beside_a_third(
    latency_ns: dict[tuple[int, int], int] | None = None, edges: int = 1, **second: object
) -> Instance:
    """Two equal devices and a third; `latency_ns` of links and `second`, the second device, differ.

    A second edge takes 5 ns, but 9 from the second device to the third.
    """
    first, other, third = draw.devices(["gpu", "gpu", "cpu"])
    ops = [Op(name=name, time_ns={"gpu": 2, "cpu": 5, "other": 3}) for name in ("p", "q")]
    matrix = ((0, 5, 5), (5, 0, 9), (5, 5, 0))
    both = (
        Edge(producer="p", consumer="q", bytes=4),
        Edge(producer="p", consumer="q", bytes=4, tensor="t", transfer_ns=matrix),
    )
    links = draw.links(3, lambda a, b: (10**9, (latency_ns or {}).get((a, b), 1)))
    devices = (first, other.model_copy(update=second), third)
    return draw.instance_of("pair", ops, both[:edges], devices, links)


def test_what_tells_two_devices_apart() -> None:
    assert identical_devices(pair_beside_a_third()) == ((0, 1),)
    different = {
        "time": pair_beside_a_third(kind="other"),
        "memory": pair_beside_a_third(memory_bytes=7),
        "being a host": pair_beside_a_third(is_host=True),
        "the link to a third": pair_beside_a_third({(1, 2): 2}),
        "the link from a third": pair_beside_a_third({(2, 1): 2}),
        "the two ways between them": pair_beside_a_third({(0, 1): 2}),
        "one tensor": pair_beside_a_third(edges=2),
    }
    assert {why: identical_devices(instance) for why, instance in different.items()} == (
        dict.fromkeys(different, ())
    )


def test_labels_tell_devices_apart() -> None:
    instance = four_gpus()
    assert identical_devices(instance, labels=["s", "t", "s", "t"]) == ((0, 2), (1, 3))
    assert first_identical(instance, labels=["s", "t", "s", "t"]).tolist() == [0, 1, 0, 1]


def test_links_tell_identical_devices_apart_but_not_equal_ones() -> None:
    far = pair_beside_a_third({(1, 2): 2})
    assert device_kinds(far).tolist() == [0, 0, 1]
    assert not links_alike(far)
    assert links_alike(pair_beside_a_third())


def test_columns_are_numbered_by_the_first_that_equals_them() -> None:
    number = equal_columns(np.array([[5, 3, 5, 3], [1, 1, 1, 2]]), [True, False, True, False])
    assert number.tolist() == [0, 1, 0, 2]
    assert classes_of(number) == ((0, 2), (1,), (3,))
