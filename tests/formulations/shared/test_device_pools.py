"""Pools of devices: fast links join them, and what one has no room for crosses slow ones."""

import numpy as np
import pytest
from draws import draw

from placegap.formulations.shared.devices import device_pools
from placegap.instances import Device, Edge, Instance, Link, Op, load_cluster, load_corpus


def two_ops(room: dict[str, int | None], width: dict[str, int]) -> Instance:
    """Two ops of 4 bytes, with an edge between, on devices whose links have bandwidths by name."""
    ops = tuple(Op(name=x, time_ns={"gpu": 1}, resident_bytes=4) for x in "ab")
    edges = (Edge(producer="a", consumer="b", bytes=1000),)
    devices = tuple(Device(name=x, kind="gpu", memory_bytes=size) for x, size in room.items())
    links = tuple(
        Link(source=x, target=y, bandwidth_bytes_per_s=wide * 10**9)
        for pair, wide in width.items()
        for x, y in (pair, pair[::-1])
    )
    return draw.instance_of("two", ops, edges, devices, links)


@pytest.mark.parametrize(
    ("width", "room", "pools", "rooms"),
    [
        # x and y are joined, z is not; 8 bytes in all, of which a device holds no more
        ({"xy": 10, "xz": 1, "yz": 1}, {"x": 3, "y": 3, "z": 6}, [0, 0, 1], [6, 6]),
        ({"xy": 10, "xz": 1, "yz": 1}, {"x": 3, "y": 3, "z": 100}, [0, 0, 1], [6, 8]),
        # no limit is room for everything
        ({"xy": 10, "xz": 1, "yz": 1}, {"x": 3, "y": 3, "z": None}, [0, 0, 1], [6, 8]),
        # of three speeds the largest step counts: 10 to 1, not 20 to 10
        ({"xy": 20, "xz": 10, "yz": 1}, {"x": 3, "y": 3, "z": 3}, [0, 0, 0], []),
        # links that are about alike make no pools, and pools that hold everything say nothing
        ({"xy": 10, "xz": 6, "yz": 6}, {"x": 3, "y": 3, "z": 6}, [0, 0, 0], []),
        ({"xy": 10, "xz": 1, "yz": 1}, {"x": 8, "y": 8, "z": 8}, [0, 0, 1], []),
    ],
)
def test_fast_links_join_devices(
    width: dict[str, int], room: dict[str, int | None], pools: list[int], rooms: list[int]
) -> None:
    found = device_pools(two_ops(room, width).arrays)
    assert (found.pool.tolist(), found.room_bytes.tolist()) == (pools, rooms)


def test_one_device_is_no_pool() -> None:
    assert device_pools(two_ops({"x": 8}, {}).arrays).room_bytes.size == 0


def test_the_servers_of_a_cluster_are_its_pools() -> None:
    cluster = load_cluster("fd-dps-2x4P100-containers")
    instance = load_corpus("gpt3-13b-train").instance(cluster)
    found = device_pools(instance.arrays)
    assert found.pool.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.room_bytes.tolist() == [4 * instance.arrays.memory_bytes[0]] * 2
    assert np.all(found.room_bytes < instance.arrays.group_bytes.sum())
