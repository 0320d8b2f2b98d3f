"""The referee of max_context: tokens that fit on each device, and the loads that are limited."""

from __future__ import annotations

from dataclasses import replace

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import (
    MOST_TOKENS,
    Evaluation,
    Instance,
    MaxContext,
    Plan,
    Violation,
)
from placegap.instances.referee.loads import combine, device_loads, device_uses
from placegap.instances.referee.rules import check_placement, check_shape, foreign_fields


def evaluate(instance: Instance, plan: Plan, semantics: MaxContext) -> Evaluation:
    """The tokens that every device has room for; loads and memory are those with them."""
    check_shape(instance, plan)
    placed = check_placement(instance, plan, semantics)
    foreign = tuple(foreign_fields(plan, semantics))
    if foreign:
        return Evaluation(None, foreign, unit="tokens")
    parts = device_loads(instance, plan.devices)
    load = combine(semantics.load, *parts)
    tokens = tokens_per_device(instance, plan)
    least = max(0, min(tokens))
    held = [0] * instance.num_devices  # on a device without a limit, perhaps beyond 64 bits
    for op, k in zip(instance.graph.ops, plan.devices.tolist(), strict=True):
        held[k] += op.bytes_at(least)
    uses = device_uses(instance, plan, parts, load, held)
    uses = tuple(replace(use, tokens=most) for use, most in zip(uses, tokens, strict=True))
    broken = _context_violations(instance, semantics, tokens, load)
    return Evaluation(least, (*broken, *placed), uses, unit="tokens")


def tokens_per_device(instance: Instance, plan: Plan) -> list[int]:
    """Most tokens whose caches fit each device; -1 where it does not even hold the rest."""
    # What a device holds grows with the tokens, piece by piece less steeply, as windows fill up.
    # `MOST_TOKENS` stands for no limit.
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


def _context_violations(
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
