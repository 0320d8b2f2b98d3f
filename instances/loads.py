"""max_load: what each device does per sample of a full pipeline (Tarnawski et al.)."""

from __future__ import annotations

import numpy as np

from placegap.instances.index import Ints
from placegap.instances.model import Instance
from placegap.instances.semantics import LoadRule


def device_loads(instance: Instance, device: Ints) -> tuple[Ints, Ints, Ints]:
    """Compute, incoming and outgoing communication of every device, (K,) each, in ns.

    A tensor that leaves a device, or enters it, costs host_time(tensor, device) there, once
    however many consumers it has on the other side. Hosts pay no communication. O(n + m log m).

    Parameters
    ----------
    instance : Instance
    device : (n,) int64
        Device of each op, each able to run it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> [part.tolist() for part in device_loads(example(), np.array([0, 0, 1, 0]))]
    [[33, 10], [10, 20], [20, 10]]
    """
    arrays, k = instance.arrays, instance.num_devices
    index = arrays.index
    compute, incoming, outgoing = (np.zeros(k, np.int64) for _ in range(3))
    np.add.at(compute, device, arrays.time_ns[np.arange(len(device)), device])
    remote = np.flatnonzero(device[index.producer] != device[index.consumer])
    leaving = np.unique(index.tensor[remote])
    source = device[index.tensor_producer[leaving]]
    np.add.at(outgoing, source, arrays.host_ns[leaving, source])
    entering, target = np.divmod(
        np.unique(index.tensor[remote] * k + device[index.consumer[remote]]), k
    )
    np.add.at(incoming, target, arrays.host_ns[entering, target])
    incoming[arrays.is_host] = 0
    outgoing[arrays.is_host] = 0
    return compute, incoming, outgoing


def combine(rule: LoadRule, compute: Ints, incoming: Ints, outgoing: Ints) -> Ints:
    """Load of every device: the sum, or the larger of compute and communication.

    Examples
    --------
    >>> parts = np.array([33, 10]), np.array([10, 20]), np.array([20, 10])
    >>> combine("add", *parts).tolist(), combine("overlap", *parts).tolist()
    ([63, 40], [33, 30])
    """
    communication = incoming + outgoing
    return compute + communication if rule == "add" else np.maximum(compute, communication)
