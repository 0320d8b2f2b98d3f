"""Chrome traces: annotated ops and their times; on a GPU those of the GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import Cluster, Device, Graph, InputError, Op
from placegap.instances.importers.measured_times import read_times, trace_times, with_times


def event(name: str, dur_us: Any, category: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": 1, "dur": dur_us, "pid": 1, "tid": 1}


def written(folder: Path, content: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(content))
    return path


def test_annotated_ops_have_their_times_and_other_events_none(tmp_path: Path) -> None:
    events = [{"ph": "M", "name": "process_name"}, event("aten::conv2d", 2, "cpu_op")]
    events += [event("op:conv", 2.5), event("op:conv", 3), event("relu", 1)]
    path = written(tmp_path, {"traceEvents": events, "schemaVersion": 1})
    assert trace_times(path) == {"conv": [2500.0, 3000.0], "relu": [1000.0]}
    # a bare list is a trace, also zipped, and on a GPU the times of the GPU count
    events = [event("op:a", 5), event("op:a", 900, "gpu_user_annotation")]
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
    assert trace_times(tmp_path / "trace.json.gz") == {"a": [900_000.0]}


def test_a_trace_counts_for_the_only_device_kind_of_the_cluster(tmp_path: Path) -> None:
    times = read_times(written(tmp_path, [event("op:a", 4)]))
    graph = Graph(name="net", ops=(Op(name="a"),))
    one = Cluster(name="c", devices=(Device(name="d", kind="T4"),))
    assert with_times(graph, times, one).graph.ops[0].time_ns == {"T4": 4000}
    two = one.model_copy(update={"devices": (*one.devices, Device(name="e", kind="P4"))})
    with pytest.raises(InputError, match="does not say on which of P4, T4 it was made"):
        with_times(graph, times, two)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"events": []}, "is no trace: it has no list 'traceEvents'"),
        ([], "holds no annotated op; run each op under record_function('op:' + its name)"),
        ([event("op:a", None)], "traceEvents[0]: dur must be a number of microseconds"),
        ([event("op:a", -1)], "traceEvents[0]: dur must be from 0 to 2**53 ns"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(
    tmp_path: Path, content: Any, message: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as error:
        read_times(path)
    assert str(error.value) == f"{path}: {message}"
