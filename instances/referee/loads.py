"""max_load: what each device does per sample of a full pipeline (Tarnawski et al.)."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import GraphIndex
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import LoadRule


def device_loads(
    instance: Instance,
    device: Ints,
    *,
    cost_ns: Ints | None = None,
    backward: bool | None = None,
) -> tuple[Ints, Ints, Ints]:
    """Compute, incoming and outgoing communication of every device, (K,) each, in ns.

    A tensor that leaves a device, or enters it, costs host_time(tensor, device) there, once
    however many consumers it has on the other side. Hosts pay no communication. O(n + m log m).

    Parameters
    ----------
    instance : Instance
    device : (n,) int64
        Device of each op, each able to run it.
    cost_ns : (t, K) int64, optional
        What a tensor costs at a device's border, in place of host_time.
    backward : bool, optional
        Count only backward (True) or forward (False) ops and the tensors that they produce: a
        forward tensor belongs to the forward load also where only backward ops read it
        (Tarnawski et al., Appendix C).

    Examples
    --------
    >>> from placegap.instances import example
    >>> [part.tolist() for part in device_loads(example(), np.array([0, 0, 1, 0]))]
    [[33, 10], [10, 20], [20, 10]]
    """
    arrays = instance.arrays
    index = arrays.index
    time_ns = arrays.time_ns[np.arange(len(device)), device]
    cost = arrays.host_ns if cost_ns is None else cost_ns
    cost = np.where(arrays.is_host, 0, cost)
    if backward is not None:
        time_ns = np.where(arrays.backward == backward, time_ns, 0)
        counted = arrays.backward[index.tensor_producer] == backward
        cost = np.where(counted[:, None], cost, 0)
    compute = np.zeros(instance.num_devices, np.int64)
    np.add.at(compute, device, time_ns)
    return compute, *crossing_costs(index, device, cost)


def crossing_costs(index: GraphIndex, region: Ints, cost_ns: Ints) -> tuple[Ints, Ints]:
    """What enters and what leaves each region, (R,) each, in ns: every tensor once per region.

    Parameters
    ----------
    index : GraphIndex
    region : (n,) int64
        Region (device, server) of each op.
    cost_ns : (t, R) int64
        What it costs a region that a tensor crosses its border.
    """
    num_regions = cost_ns.shape[1]
    incoming, outgoing = np.zeros(num_regions, np.int64), np.zeros(num_regions, np.int64)
    remote = np.flatnonzero(region[index.producer] != region[index.consumer])
    leaving = np.unique(index.tensor[remote])
    source = region[index.tensor_producer[leaving]]
    np.add.at(outgoing, source, cost_ns[leaving, source])
    entering, target = np.divmod(
        np.unique(index.tensor[remote] * num_regions + region[index.consumer[remote]]), num_regions
    )
    np.add.at(incoming, target, cost_ns[entering, target])
    return incoming, outgoing


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
