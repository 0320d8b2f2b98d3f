"""Devices of less memory: what they hold, to the byte, and what stays as it was."""

from __future__ import annotations

import pytest

from placegap.instances import Cluster, Device, Graph, Instance, Op
from placegap.instances.problem.memory_pressure import with_device_memory


def sized(*sizes: int) -> Instance:
    ops = tuple(
        Op(name=f"o{i}", time_ns={"gpu": 1}, resident_bytes=size) for i, size in enumerate(sizes)
    )
    devices = (Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu", memory_bytes=1))
    return Instance(
        name="net@pair",
        graph=Graph(name="net", ops=ops),
        cluster=Cluster(name="pair", devices=devices),
    )


@pytest.mark.parametrize(
    ("share", "held"),
    [
        (0.3, 30),
        (0.29, 29),  # 100 x 0.29 is 28.999999999999996 in floats
        (0.295, 29),  # rounded down
        (2.0, 200),
    ],
)
def test_every_device_holds_the_share_of_all_bytes(share: float, held: int) -> None:
    tight = with_device_memory(sized(60, 40), share)
    assert [device.memory_bytes for device in tight.cluster.devices] == [held, held]


def test_another_memory_is_another_instance_with_a_name_of_its_own() -> None:
    instance = sized(60, 40)
    tight = with_device_memory(instance, 0.5)
    assert (tight.name, tight.cluster.name) == ("net@pair, memory 50%", "pair, memory 50%")
    assert tight.content_hash != instance.content_hash
    assert tight.graph == instance.graph


def test_bytes_beyond_floats_are_shared_out_exactly() -> None:
    # (2^53 + 1 + 2^53 + 2) / 2 is 2^53 + 1.5; floats know no odd number above 2^53
    tight = with_device_memory(sized(2**53 + 1, 2**53 + 2), 0.5)
    assert tight.cluster.devices[0].memory_bytes == 2**53 + 1
