"""Why a plan takes so long: the chain of ops and transfers that ends last, or the heaviest load.

Under makespan, latency_subgraphs and pipeline_iteration, each thing begins at 0 or at the very
moment when another one ends: what it needs, or what ran before it in its place. So a chain of such
ends leads from the last end back to 0 without a pause, and its lengths add up to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from placegap.experiments.show.figures import format_gap, format_ns
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import shorten

MOST_STEPS = 14  # steps of the critical path that are printed; the middle of longer ones is not
LONGEST_NAME = 48  # characters of a name in a sentence

Reason = Literal["start", "data", "turn"]


class PathPart(NamedTuple):
    """A part of the chain: an op, a call, an event or a transfer, on a device."""

    # `why` says what it waited for: nothing (it began at 0), its data, or its turn on the device or
    # channel. `target` is where a transfer goes, -1 for other parts; `bytes` are those of a
    # transfer.
    name: str
    device: int
    start_ns: int
    end_ns: int
    why: Reason
    op: int = -1
    target: int = -1
    bytes: int = 0


def walk(
    things: dict[Hashable, PathPart], waits: Callable[[Hashable], Iterable[tuple[Hashable, Reason]]]
) -> tuple[PathPart, ...]:
    """Back from the last end, over what ended when each thing began, to time 0."""
    last = max(things, key=lambda key: (things[key].end_ns, things[key].start_ns), default=None)
    if last is None:
        return ()
    seen, path = {last}, [last]
    tried = [iter(waits(last))]
    why: dict[Hashable, Reason] = {}
    while path:
        here = path[-1]
        if things[here].start_ns == 0:
            break
        for before, reason in tried[-1]:
            if before in seen or things[before].end_ns != things[here].start_ns:
                continue
            seen.add(before)
            path.append(before)
            why[here] = reason
            tried.append(iter(waits(before)))
            break
        else:  # things without length may lead nowhere
            path.pop()
            tried.pop()
    return tuple(things[key]._replace(why=why.get(key, "start")) for key in reversed(path))


def path_sentences(
    path: Sequence[PathPart], names: Sequence[str], value_ns: int, what: str = "ops"
) -> list[str]:
    """The critical path step by step, on devices of these names."""
    total = max(1, value_ns)
    run = sum(link.end_ns - link.start_ns for link in path if link.target < 0)
    sent = sum(link.end_ns - link.start_ns for link in path if link.target >= 0)
    turns = sum(link.why == "turn" for link in path)
    first = (
        f"The critical path takes {format_ns(run + sent)}: {format_ns(run)}"
        f" ({format_gap(run / total)}) for {what}, {format_ns(sent)} ({format_gap(sent / total)})"
        " for transfers."
    )
    if turns:
        first += f" {turns} of its {len(path)} parts waited for a device or a channel."
    steps = [_step(group, names) for group in _stretches(path)]
    if len(steps) > MOST_STEPS:
        half = MOST_STEPS // 2
        left_out = f"... {len(steps) - 2 * half} more steps ..."
        steps = [*steps[:half], left_out, *steps[-half:]]
    return [first, *steps]


def _stretches(path: Sequence[PathPart]) -> list[list[PathPart]]:
    """Neighbours that run on one device, and transfers one by one."""
    numbered = list(enumerate(path))
    stretches = groupby(numbered, lambda at: (at[1].device, -1 if at[1].target < 0 else at[0]))
    return [[link for _, link in stretch] for _, stretch in stretches]


def _step(group: Sequence[PathPart], names: Sequence[str]) -> str:
    first, last = group[0], group[-1]
    took = format_ns(last.end_ns - first.start_ns)
    turn = ", after a wait" if first.why == "turn" else ""
    if first.target >= 0:
        size = (
            f"The {format_bytes(first.bytes)} of {short_name(first.name)}"
            if first.bytes
            else (short_name(first.name)[:1].upper() + short_name(first.name)[1:])
        )
        verb = "go" if first.bytes else "goes"
        return f"{size} {verb} from {names[first.device]} to {names[first.target]} ({took}{turn})."
    if len(group) == 1:
        return f"{names[first.device]} runs {short_name(first.name)} ({took}{turn})."
    waits = sum(link.why == "turn" for link in group[1:])
    queue = f", {waits} of them delayed because the device was busy" if waits else ""
    return (
        f"{names[first.device]} runs {len(group)} in a row, {short_name(first.name)} to"
        f" {short_name(last.name)} ({took}{turn}{queue})."
    )


def short_name(name: str) -> str:
    """A name in a sentence."""
    return shorten(name, LONGEST_NAME)
