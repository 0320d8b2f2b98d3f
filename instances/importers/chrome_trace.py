"""Chrome traces, as ``torch.profiler`` writes them: how long each annotated op took.

An op is annotated by ``record_function("op:" + name)`` around it; the prefix may be left out. In a
trace of a GPU the same annotation stands twice: on the CPU, which only launches kernels
(``user_annotation``), and on the GPU (``gpu_user_annotation``). Where the latter is there, it alone
counts. Durations are in microseconds; an op that runs in several passes is there several times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placegap.instances.io.document import read_json
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import LARGEST

PREFIX = "op:"
ON_GPU = "gpu_user_annotation"
CATEGORIES = ("user_annotation", ON_GPU)
NS_PER_US = 1000


def is_trace(data: bytes) -> bool:
    """Whether the content of a file is JSON, and so a trace among files of times.

    Examples
    --------
    >>> is_trace(b'{"traceEvents": []}'), is_trace(b"name,device_kind,time_ns")
    (True, False)
    """
    return data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


def trace_times(path: str | Path) -> Mapping[str, list[float]]:
    """Times in ns of every annotated op of a trace, in the order of the file.

    Raises
    ------
    InputError
        If the file is no trace, or has no annotated op; one line that names the file and the event.
    """
    raw = read_json(path)
    events = raw.get("traceEvents") if isinstance(raw, dict) else raw
    if not isinstance(events, list):
        raise InputError("is no trace: it has no list 'traceEvents'", path)
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
