"""What every device does under a plan, as a table."""

from __future__ import annotations

from rich.table import Table

from placegap.experiments.show.figures import format_ns
from placegap.experiments.show.rendering import plain_table
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.plan import Evaluation
from placegap.instances.problem.semantics import LoadSemantics, Semantics, memory_rule


def device_table(instance: Instance, verdict: Evaluation, semantics: Semantics) -> Table:
    """One line per device: ops, compute, communication, memory (and load, for max_load)."""
    communication = _communication_ns(verdict, instance.num_devices)
    is_load = isinstance(semantics, LoadSemantics)
    rows = []
    for use, spec, moved in zip(verdict.uses, instance.cluster.devices, communication, strict=True):
        memory = format_bytes(use.memory_bytes)
        if spec.memory_bytes is not None:
            memory += f" of {format_bytes(spec.memory_bytes)}"
        row = (use.device, spec.kind, str(use.num_ops), format_ns(use.compute_ns), format_ns(moved))
        rows.append((*row, *((format_ns(use.load_ns),) if is_load else ()), memory))
    head = ("device", "kind", "ops", "compute", "communication")
    held = "peak memory" if memory_rule(semantics) == "peak" else "memory"
    return plain_table(None, (*head, *(("load",) if is_load else ()), held), rows)


def server_lines(verdict: Evaluation) -> list[str]:
    """One line per server, with two levels of communication: what crosses its border."""
    return [f"server {use.server}: {format_ns(use.load_ns)}" for use in verdict.servers]


def _communication_ns(verdict: Evaluation, num_devices: int) -> list[int]:
    """Time each device sends and receives: the schedule's transfers, or max_load's counting."""
    if verdict.schedule is None:
        return [use.in_ns + use.out_ns for use in verdict.uses]
    moved = [0] * num_devices
    transfers = verdict.schedule.transfers
    lengths = (transfers.end_ns - transfers.start_ns).tolist()
    for ends in (transfers.source.tolist(), transfers.destination.tolist()):
        for device, length in zip(ends, lengths, strict=True):
            moved[device] += length
    return moved
