"""What share of all memory a graph would fill, and devices that hold such a share."""

import pytest
from draws import draw

from placegap.instances import Device, Instance, Op, example
from placegap.instances.problem.memory_pressure import memory_pressure, with_device_memory


def sized(sizes: list[int], devices: list[Device]) -> Instance:
    ops = (
        Op(name=f"o{i}", time_ns={"gpu": 1, "cpu": 1}, resident_bytes=size)
        for i, size in enumerate(sizes)
    )
    return draw.instance_of("net", ops, (), devices)


PAIR = draw.devices(["gpu"] * 2, lambda k: 40 * (k + 1))
HOST = Device(name="host", kind="cpu", is_host=True, memory_bytes=100)


def test_all_bytes_are_compared_with_the_memory_of_all_accelerators() -> None:
    assert memory_pressure(sized([30, 20], PAIR)) == pytest.approx(50 / (40 + 80))
    assert memory_pressure(sized([30, 20], [*PAIR, HOST])) == pytest.approx(50 / (40 + 80))
    # hosts count where nothing else is there
    assert memory_pressure(sized([30, 20], [HOST])) == pytest.approx(0.5)


def test_without_limits_or_without_memory_there_is_none() -> None:
    assert memory_pressure(example()) is None
    empty = Device(name="gpu0", kind="gpu", memory_bytes=0)
    assert memory_pressure(sized([30, 20], [empty])) is None


@pytest.mark.parametrize(
    ("share", "held"),
    [
        (0.29, 29),  # 100 x 0.29 is 28.999999999999996 in floats
        (0.295, 29),  # rounded down
        (2.0, 200),
    ],
)
def test_every_device_holds_the_share_of_all_bytes(share: float, held: int) -> None:
    instance = sized([60, 40], PAIR)
    tight = with_device_memory(instance, share)
    assert [device.memory_bytes for device in tight.cluster.devices] == [held, held]
    assert tight.content_hash != instance.content_hash
    assert tight.graph == instance.graph


def test_another_memory_is_another_instance_with_a_name_of_its_own() -> None:
    instance = sized([60, 40], PAIR).model_copy(update={"name": "a@net"})
    tight = with_device_memory(instance, 0.5)
    assert (tight.name, tight.cluster.name) == ("a@net, memory 50%", "net, memory 50%")


def test_bytes_beyond_floats_are_shared_out_exactly() -> None:
    # (2^53 + 1 + 2^53 + 2) / 2 is 2^53 + 1.5; floats know no odd number above 2^53
    tight = with_device_memory(sized([2**53 + 1, 2**53 + 2], PAIR), 0.5)
    assert tight.cluster.devices[0].memory_bytes == 2**53 + 1
