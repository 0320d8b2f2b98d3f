"""Devices of less memory: how an instance gets harder as its memory binds."""

from __future__ import annotations

from fractions import Fraction

from placegap.instances.problem.instance import Instance


def with_device_memory(instance: Instance, share: float) -> Instance:
    """The instance where every device holds `share` of all bytes that the ops hold together.

    Parameters
    ----------
    instance : Instance
    share : float
        Above 0. What every device holds is rounded down to the byte; nothing is known of the
        new instance's values.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Graph, Instance, Op
    >>> sized = Op(name="a", time_ns={"gpu": 1}, resident_bytes=99)
    >>> gpus = (Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu", memory_bytes=7))
    >>> alone = Instance(name="a@pair", graph=Graph(name="a", ops=(sized,)),
    ...                  cluster=Cluster(name="pair", devices=gpus))
    >>> tight = with_device_memory(alone, 0.5)
    >>> tight.name, [device.memory_bytes for device in tight.cluster.devices]
    ('a@pair, memory 50%', [49, 49])
    """
    exact = Fraction(str(share))  # what was written, not its binary neighbour
    held = int(exact * sum(instance.arrays.resident_bytes.tolist()))
    before = instance.cluster
    devices = tuple(device.model_copy(update={"memory_bytes": held}) for device in before.devices)
    name = f"{before.name}, memory {float(100 * exact):g}%"
    cluster = before.model_copy(update={"devices": devices, "name": name})
    renamed = instance.name
    if renamed.endswith(f"@{before.name}"):
        renamed = f"{renamed.removesuffix(before.name)}{name}"
    update = {"name": renamed, "cluster": cluster, "best_known": ()}
    return instance.model_copy(update=update)
