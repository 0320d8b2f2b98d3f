"""max_context: for how many tokens each device has room beside its weights (`Cache`)."""

from __future__ import annotations

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import MOST_TOKENS, Instance, MaxContext, Plan, Violation


def tokens_per_device(instance: Instance, plan: Plan) -> list[int]:
    """Most tokens whose caches fit each device; -1 where it does not even hold the rest.

    What a device holds grows with the tokens, piece by piece less steeply, as windows fill up.
    `MOST_TOKENS` stands for no limit.

    Examples
    --------
    >>> from placegap.instances import Cache, Cluster, Device, Graph, Op
    >>> op = Op(name="a", time_ns={"gpu": 1}, resident_bytes=50, caches=(
    ...     Cache(token_bytes=4, tokens=10), Cache(token_bytes=6, most_tokens=5)))
    >>> gpu = Device(name="gpu", kind="gpu", memory_bytes=100)
    >>> one = Instance(name="one", graph=Graph(name="one", ops=(op,)),
    ...     cluster=Cluster(name="gpu", devices=(gpu,)))
    >>> tokens_per_device(one, Plan.on([0]))  # 100 - 10 of weights - 30 of the window, by 4
    [15]
    """
    num_devices = instance.num_devices
    held, growth = [0] * num_devices, [0] * num_devices
    ends: list[list[tuple[int, int]]] = [[] for _ in range(num_devices)]
    for op, on in zip(instance.graph.ops, plan.placement, strict=True):
        k = on[0]
        held[k] += op.resident_bytes
        for cache in op.caches:
            held[k] -= cache.held_bytes(cache.tokens)
            growth[k] += cache.token_bytes
            if cache.most_tokens is not None:
                ends[k].append((cache.most_tokens, cache.token_bytes))
    found = []
    for k, device in enumerate(instance.cluster.devices):
        left, tokens, slope = device.memory_bytes, 0, growth[k]
        if left is None:
            found.append(MOST_TOKENS)
            continue
        left -= held[k]
        for end, less in [*sorted(ends[k]), (MOST_TOKENS, 0)]:
            further = min(end, MOST_TOKENS) - tokens
            if left >= 0 and further > 0:
                more = further if slope == 0 else min(further, left // slope)
                tokens, left = tokens + more, left - more * slope
                if more < further:
                    break
            slope -= less
        found.append(tokens if left >= 0 else -1)
    return found


def context_violations(
    instance: Instance, semantics: MaxContext, tokens: list[int], load_ns: Ints
) -> list[Violation]:
    """Devices that do not hold their weights, or have more to do than is allowed."""
    found = []
    for device, most, load in zip(instance.cluster.devices, tokens, load_ns.tolist(), strict=True):
        if most < 0:
            said = f"{device.name!r} does not hold its ops without any token"
            found.append(Violation("memory", said, device=device.name))
        if semantics.at_most_ns is not None and load > semantics.at_most_ns:
            said = f"{device.name!r} has {load} ns to do, of at most {semantics.at_most_ns}"
            found.append(Violation("load", said, device=device.name))
    return found
