"""Why no plan fits, and what would help: cheap necessary conditions on memory, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.additive_memory import relax_memory, with_resident
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import (
    NO_LIMIT,
    UNSUPPORTED,
    ceil_div,
    format_bytes,
    to_whole,
)
from placegap.instances.problem.semantics import Semantics

MAX_SETS = 4096  # sets of devices that the capacity check looks at; the smallest come first
MOST_NAMED = 3  # ops that fit nowhere and are named; more are counted
# How the sources of graphs begin whose bytes are those of numbers of a known type.
STATES_DTYPE = ("traced from ", "ONNX model ")
# Bits of a weight by the number type of its op; None stands for float32.
WIDTHS = {None: 32, "float64": 64, "float16": 16, "bfloat16": 16}
# What int4 takes with its scales.
SMALLER_WEIGHTS, BITS = "weights of fewer bits (--weights int4 of hf:, py: and ONNX models", 4.5


@dataclass(frozen=True)
class _Reason:
    """A condition that no plan meets, and how many more devices like one of them would meet it."""

    # `more` is 0 where no number of them would.
    sentence: str
    more: int = 0
    like: int = 0


@dataclass(frozen=True)
class _Group:
    """A colocation group, or an op of its own, and the devices that run all of it."""

    label: str
    num_ops: int
    size_bytes: int
    runs_on: frozenset[int]
    fits_on: frozenset[int]


def explain_infeasible(instance: Instance) -> tuple[str, ...]:
    """Reasons why no plan can fit into memory; an empty tuple if none was found.

    Three conditions are checked, all necessary, none sufficient: every op, or colocation group,
    fits on a device that runs it; all ops that can run only on a set of devices fit on these
    together (Hall's condition, over unions of the sets that occur); ops or groups that need more
    than half of each device they fit on are no more than the devices. Ops that no device runs, and
    groups without a common device kind, are refused when an instance is made. O(n K + g S) for g
    groups and S sets of devices, S <= 4096.

    Examples
    --------
    >>> from placegap.instances import Cluster, Device, Graph, Op
    >>> instance = Instance(
    ...     name="tight",
    ...     graph=Graph(name="g", ops=(Op(name="a", time_ns={"gpu": 1}, resident_bytes=9),)),
    ...     cluster=Cluster(name="c", devices=(Device(name="d", kind="gpu", memory_bytes=8),)),
    ... )
    >>> explain_infeasible(instance)
    ("op 'a' needs 9 B; the devices that run it have at most 8 B (d): 1 B short",)
    """
    return tuple(reason.sentence for reason in _reasons(instance))


class NoRoom(NamedTuple):
    """What memory is missing, and last what would help; whether no plan can exist."""

    sentences: tuple[str, ...] = ()
    proven: bool = False


def why_no_room(instance: Instance, semantics: Semantics) -> NoRoom:
    """Of a placement that ends without a plan: what memory is missing, and last what would help."""
    # No sentences where memory is no cause: one device could hold all ops.
    floor, _ = relax_memory(instance, semantics)
    reasons = _reasons(floor)
    limits = [spec.memory_bytes for spec in instance.cluster.devices]
    if not reasons and (_one_holds_all(floor) or not any(limits)):
        return NoRoom()
    helps = _helps(instance, semantics, floor, reasons)
    what = [reason.sentence for reason in reasons]
    if not what:
        room = sum(limit or 0 for limit in limits)
        together = "have no limit" if None in limits else f"hold {format_bytes(room)} together"
        needed = format_bytes(_total(floor))
        what.append(
            f"all {instance.num_ops} ops need at least {needed}, and the devices {together}, but no"
            " plan was found that divides the ops to fit"
        )
    return NoRoom((*what, f"what would help: {', or '.join(helps)}"), bool(reasons))


def _one_holds_all(instance: Instance) -> bool:
    arrays = instance.arrays
    runs_all = (arrays.time_ns != UNSUPPORTED).all(axis=0)
    return bool((runs_all & (arrays.memory_bytes >= _total(instance))).any())


def _total(instance: Instance) -> int:
    return int(instance.arrays.resident_bytes.sum())


def _helps(
    instance: Instance, semantics: Semantics, floor: Instance, reasons: list[_Reason]
) -> list[str]:
    """What would leave room: another rule, smaller numbers, more devices or a larger one."""
    helps, state = [], instance.memory_arrays
    peak = None
    counted = state.state_bytes.any() or len(state.shared_bytes)
    if counted and semantics.memory_rule == "sum" and "memory" in semantics.rules():
        at_peak = semantics.model_copy(update={"memory": "peak"})
        peak, _ = relax_memory(instance, at_peak)
        if not _reasons(peak):
            helps.append(f"--memory peak ({format_bytes(_total(peak))} in all, at least)")
    if _has_wide_numbers(instance):
        half = _halved(floor)
        smaller = "numbers of half the bytes (--dtype bfloat16 of hf: models"
        if not _reasons(half):
            helps.append(f"{smaller}; {format_bytes(_total(half))} in all)")
        elif peak is not None and not helps and not _reasons(half := _halved(peak)):
            helps.append(f"both --memory peak and {smaller}; {format_bytes(_total(half))} in all)")
    more = max(reasons, key=lambda reason: reason.more, default=_Reason("", 1, _roomiest(instance)))
    if all(reason.more for reason in reasons):
        spec = instance.cluster.devices[more.like]
        number = "one more device" if more.more == 1 else f"{more.more} more devices"
        helps.append(f"{number} like {spec.name} ({format_bytes(spec.memory_bytes or 0)})")
        if reasons:
            helps.append(_larger(instance, floor))
    else:
        largest = max(group.size_bytes for group in _groups(floor) if not group.fits_on)
        helps.append(f"a device of {format_bytes(largest)} or more")
    has_rates = all(op.flops is not None for op in instance.graph.ops)
    hosts = any(spec.is_host for spec in instance.cluster.devices)
    if has_rates and not hosts and semantics.allows_hosts:
        helps.append("a host (+host in --cluster)")
    small = _small_weights(instance, floor)
    if small is not None:
        still = ", still too much" if _reasons(small) else ""
        helps.append(f"{SMALLER_WEIGHTS}; {format_bytes(_total(small))} in all{still})")
    return helps


def _larger(instance: Instance, floor: Instance) -> str:
    """Devices of as much memory as all ops need, in the place of those that are no hosts."""
    devices = instance.cluster.devices
    num = sum(not spec.is_host for spec in devices) or len(devices)
    held = sum(spec.memory_bytes or 0 for spec in devices if spec.is_host)
    each = format_bytes(ceil_div(max(0, _total(floor) - held), num))
    return f"a device of {each} or more" if num == 1 else f"{num} devices of {each} or more"


def _small_weights(instance: Instance, floor: Instance) -> Instance | None:
    """The instance with weights of few bits; None where they are, or where they are trained."""
    graph, provenance = instance.graph, instance.graph.provenance
    if not provenance.source.startswith(STATES_DTYPE) or "weights" in provenance.parameters:
        return None
    if any(op.backward or (op.parameter_bytes and op.dtype not in WIDTHS) for op in graph.ops):
        return None
    saved = [op.parameter_bytes * (1 - BITS / WIDTHS.get(op.dtype, BITS)) for op in graph.ops]
    rest = floor.arrays.resident_bytes - to_whole(np.array(saved))
    return with_resident(floor, np.maximum(rest, 0))


def _has_wide_numbers(instance: Instance) -> bool:
    """Whether numbers of the ops that hold bytes have 4 bytes or more each, as far as is known."""
    if not instance.graph.provenance.source.startswith(STATES_DTYPE):
        return False
    return all(op.dtype in (None, "float64") for op in instance.graph.ops if op.parameter_bytes)


def _halved(instance: Instance) -> Instance:
    return with_resident(instance, -(-instance.arrays.resident_bytes // 2))


def _roomiest(instance: Instance) -> int:
    limits = instance.arrays.memory_bytes
    return int(np.argmax(np.where(limits == NO_LIMIT, -1, limits)))


def _reasons(instance: Instance) -> list[_Reason]:
    groups = list(_groups(instance))
    placeable = [group for group in groups if group.fits_on]
    misfits = [group for group in groups if not group.fits_on]
    misfits.sort(key=lambda group: -group.size_bytes)
    named = [_too_large(instance, group) for group in misfits[:MOST_NAMED]]
    if len(misfits) > MOST_NAMED:
        rest = len(misfits) - MOST_NAMED
        named.append(
            f"{rest} more ops or colocation groups are too large for every device that runs them"
        )
    return [
        *map(_Reason, named),
        *_over_capacity(instance, placeable),
        *_too_many_large(instance, placeable),
    ]


def _groups(instance: Instance) -> Iterator[_Group]:
    arrays, ops = instance.arrays, instance.graph.ops
    _, first, count = np.unique(arrays.group, return_index=True, return_counts=True)
    size, runs = arrays.group_bytes, arrays.group_runs
    fits = runs & (size[:, None] <= arrays.memory_bytes)
    sets: dict[bytes, frozenset[int]] = {}  # few differ, so they are made once
    rows = zip(first.tolist(), count.tolist(), size.tolist(), runs, fits, strict=True)
    for at, num_ops, total, *masks in rows:
        op = ops[at]
        for mask in masks:
            if mask.tobytes() not in sets:
                sets[mask.tobytes()] = frozenset(np.flatnonzero(mask).tolist())
        runs_on, fits_on = (sets[mask.tobytes()] for mask in masks)
        single = op.colocation is None or num_ops == 1
        yield _Group(
            label=f"op {op.name!r}" if single else f"colocation group {op.colocation!r}",
            num_ops=num_ops,
            size_bytes=total,
            runs_on=runs_on,
            fits_on=fits_on,
        )


def _too_large(instance: Instance, group: _Group) -> str:
    devices = instance.cluster.devices
    largest = max(sorted(group.runs_on), key=lambda k: devices[k].memory_bytes or 0)
    ops = "" if group.num_ops == 1 else f" for its {group.num_ops} ops"
    limit = devices[largest].memory_bytes or 0
    return (
        f"{group.label} needs {format_bytes(group.size_bytes)}{ops}; the devices that run it have"
        f" at most {format_bytes(limit)} ({devices[largest].name}):"
        f" {format_bytes(group.size_bytes - limit)} short"
    )


def _over_capacity(instance: Instance, groups: list[_Group]) -> Iterator[_Reason]:
    devices = instance.cluster.devices
    demand: dict[frozenset[int], tuple[int, int]] = {}
    for group in groups:
        num_ops, size = demand.get(group.fits_on, (0, 0))
        demand[group.fits_on] = (num_ops + group.num_ops, size + group.size_bytes)
    found: list[frozenset[int]] = []
    for where in _unions(list(demand)):
        limits = {k: devices[k].memory_bytes for k in sorted(where)}
        if None in limits.values() or any(other < where for other in found):
            continue
        capacity = sum(limit or 0 for limit in limits.values())
        inside = [demand[known] for known in demand if known <= where]
        missing = sum(size for _, size in inside) - capacity
        if missing > 0:
            found.append(where)
            num_ops = sum(number for number, _ in inside)
            like = max(limits, key=lambda k: limits[k] or 0)
            yield _Reason(
                f"{_what(instance, num_ops)} {format_bytes(capacity + missing)} on"
                f" {_names(instance, where)}: {format_bytes(capacity)} together,"
                f" {format_bytes(ceil_div(missing, len(where)))} per device short",
                ceil_div(missing, limits[like] or 1),
                like,
            )


def _unions(sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """The sets and their unions, smallest first, at most `MAX_SETS` of them and the largest."""
    known: dict[frozenset[int], None] = dict.fromkeys(sets)
    for one in sets:
        for other in list(known):
            if len(known) < MAX_SETS:
                known[one | other] = None
    known[frozenset().union(*sets)] = None
    return sorted(known, key=lambda where: (len(where), sorted(where)))


def _too_many_large(instance: Instance, groups: list[_Group]) -> Iterator[_Reason]:
    """Two groups that each need more than half of every device they fit on cannot share one."""
    devices = instance.cluster.devices
    large = []
    for group in groups:
        limits = [devices[k].memory_bytes for k in group.fits_on]
        if all(limit is not None and 2 * group.size_bytes > limit for limit in limits):
            large.append(group)
    where = frozenset[int]().union(*(group.fits_on for group in large))
    if len(large) > len(where):
        yield _Reason(
            f"{len(large)} ops or colocation groups, such as {large[0].label}, need more than half"
            f" of any device they fit on, and there are {len(where)}: {_names(instance, where)}",
            len(large) - len(where),
            max(sorted(where), key=lambda k: devices[k].memory_bytes or 0),
        )


def _what(instance: Instance, num_ops: int) -> str:
    if num_ops == instance.num_ops:
        return f"all {num_ops} ops need"
    return f"{num_ops} of {instance.num_ops} ops need"


def _names(instance: Instance, where: frozenset[int]) -> str:
    names = [instance.cluster.devices[k].name for k in sorted(where)]
    shown = names if len(names) <= 6 else [*names[:5], f".. {len(names)} devices"]
    return ", ".join(shown)
