"""Measured times of ops, from a CSV file or a trace, in the place of modelled ones.

A CSV file has the columns ``name,device_kind,time_ns`` in any order (or ``time_us``, ``time_ms``,
``time_s``). An op that is measured several times gets the median. Names that no op has are counted
and named, not refused: a trace holds much besides ops.

In a trace, as ``torch.profiler`` writes them, an op is annotated by ``record_function("op:" +
name)`` around it; the prefix may be left out. In a trace of a GPU the same annotation stands twice:
on the CPU, which only launches kernels (``user_annotation``), and on the GPU
(``gpu_user_annotation``). Where the latter is there, it alone counts. Durations are in
microseconds; an op that runs in several passes is there several times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from placegap.instances.files.document import read_json
from placegap.instances.problem import Cluster, Graph
from placegap.instances.reading.errors import InputError, as_input_error, shorten
from placegap.instances.reading.input_files import (
    LARGEST,
    TIME_COLUMNS,
    csv_rows,
    find_columns,
    number_of,
    read_content,
)

# Parameter of the provenance that says how many ops are measured, and which names match none.
MEASURED = "measured_times"
FIRST_NAMES = 5  # how many of the names that match no op are printed


@dataclass(frozen=True)
class MeasuredTimes:
    """Times of ops by name and device kind."""

    source: str  # the file
    #: Name of an op and a device kind, and all times measured; None where the file, a trace, does
    #: not say on which kind of device it was made.
    samples_ns: Mapping[tuple[str, str | None], Sequence[float]]


@dataclass(frozen=True)
class TimedGraph:
    """A graph with measured times, and what the measurements leave open."""

    graph: Graph
    num_ops: int  # ops that have a measured time
    unmatched: tuple[str, ...]  # measured names that no op has, in the order of the file


def load_times(path: str | Path) -> MeasuredTimes:
    r"""Read a CSV file of times, or a Chrome trace (also gzipped)."""
    if is_trace(read_content(path)):
        return MeasuredTimes(
            str(path), {(name, None): times for name, times in trace_times(path).items()}
        )
    rows = csv_rows(path)
    line, head = next(rows)
    columns = find_columns(path, line, head, ("name", "device_kind", "time"))
    unit = head[columns["time"]].strip()
    samples: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for line, cells in rows:
        place = f"{path}: row {line}"
        name, kind = (cells[columns[column]].strip() for column in ("name", "device_kind"))
        if not name or not kind:
            raise InputError(f"{'device_kind' if name else 'name'} is empty; name it", place)
        time = number_of(cells[columns["time"]], unit, place)
        samples[name, kind].append(time * TIME_COLUMNS[unit])
    if not samples:
        raise InputError("has a header but no rows; add the measurements", path)
    return MeasuredTimes(str(path), dict(samples))


def with_times(graph: Graph, times: MeasuredTimes, cluster: Cluster) -> TimedGraph:
    """The graph with measured times in place of what its ops state; costing leaves them alone."""
    # The cluster's device kinds decide which times count; a trace counts for the only kind it has.
    # Medians are rounded half to even to whole ns. O(ops + samples).
    kinds = sorted({device.kind for device in cluster.devices})
    medians = {
        (name, _kind(kind, kinds, times.source)): round(median(found))
        for (name, kind), found in times.samples_ns.items()
    }
    if not any(kind in kinds for _, kind in medians):
        stated = ", ".join(sorted({kind for _, kind in medians})[:9])
        raise InputError(
            f"has times on {stated}, none on the cluster's {', '.join(kinds)}; measure there",
            times.source,
        )
    ops, num_ops = [], 0
    for op in graph.ops:
        own = {kind: medians[op.name, kind] for kind in kinds if (op.name, kind) in medians}
        num_ops += bool(own)
        ops.append(op.model_copy(update={"time_ns": {**op.time_ns, **own}}) if own else op)
    if not num_ops:
        first = next(iter(times.samples_ns))[0]
        raise InputError(
            f"no name in it is an op of {graph.name!r} (the first are {first!r} and"
            f" {graph.ops[0].name!r}); measure this model, e.g. with placegap profile",
            times.source,
        )
    unmatched = tuple(dict.fromkeys(n for n, _ in medians if n not in graph.op_index))
    sentence = _sentence(times.source, num_ops, len(ops), unmatched)
    change = f"measured times of {num_ops} ops"
    provenance = graph.provenance.noting(change, {MEASURED: sentence})
    with as_input_error(source=times.source):
        graph = graph.model_copy(update={"ops": tuple(ops), "provenance": provenance})
    return TimedGraph(graph, num_ops, unmatched)


def _sentence(source: str, num_ops: int, of: int, unmatched: Sequence[str]) -> str:
    """One line on how many ops are measured, and which names match none."""
    line = f"{source}: measured times for {num_ops} of {of} ops"
    if unmatched:
        names = ", ".join(unmatched[:FIRST_NAMES])
        match = "1 name matches" if len(unmatched) == 1 else f"{len(unmatched)} names match"
        line += f"; {match} no op: {names}{', ...' if len(unmatched) > FIRST_NAMES else ''}"
    return shorten(" ".join(line.split()))


def _kind(kind: str | None, kinds: Sequence[str], source: str) -> str:
    if kind is not None:
        return kind
    if len(kinds) > 1:
        raise InputError(
            f"does not say on which of {', '.join(kinds)} it was made; write its times as CSV:"
            " name,device_kind,time_ns",
            source,
        )
    return kinds[0]


PREFIX = "op:"

ON_GPU = "gpu_user_annotation"

CATEGORIES = ("user_annotation", ON_GPU)

NS_PER_US = 1000


def is_trace(data: bytes) -> bool:
    """Whether the content of a file is JSON, and so a trace among files of times."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


def trace_times(path: str | Path) -> Mapping[str, list[float]]:
    """Times in ns of every annotated op of a trace, in the order of the file."""
    raw = read_json(path)
    events = raw.get("traceEvents") if isinstance(raw, dict) else raw
    if not isinstance(events, list):
        raise InputError("is not a trace: it has no list 'traceEvents'", path)
    found: dict[bool, dict[str, list[float]]] = {flag: defaultdict(list) for flag in (False, True)}
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue  # counters, flows, names of threads
        category, name = event.get("cat"), event.get("name")
        if category not in CATEGORIES or not isinstance(name, str) or not name:
            continue
        time = _duration_ns(event.get("dur"), f"{path}: traceEvents[{number}]")
        found[category == ON_GPU][name.removeprefix(PREFIX)].append(time)
    times = found[True] or found[False]
    if not times:
        raise InputError(
            "holds no annotated op; run each op under record_function('op:' + its name)", path
        )
    return times


def _duration_ns(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("dur must be a number of microseconds", place)
    if not 0 <= value <= LARGEST / NS_PER_US:  # nor is NaN
        raise InputError("dur must be from 0 to 2**53 ns", place)
    return float(value) * NS_PER_US
