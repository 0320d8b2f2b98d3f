"""Measured times: what tables and traces say, what takes their place in a graph, and notes."""

import gzip
import json
from pathlib import Path
from typing import Any

from draws.draw import cluster_of as cluster

from placegap.instances import Graph, Op
from placegap.instances.importers.measured_times import load_times, trace_times, with_times

HEAD = "name,device_kind,time_ns\n"


def written(folder: Path, text: str, name: str = "times.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


GRAPH = Graph(name="net", ops=(Op(name="a", time_ns={"T4": 9}), Op(name="b", flops=10**9)))


def test_an_op_that_is_measured_several_times_gets_the_median(tmp_path: Path) -> None:
    rows = "".join(f"a,T4,{time}\n" for time in (0.9, 0.02, 0.022, 0.021, 0.024))
    head = HEAD.replace("time_ns", "time_us")
    measured = with_times(GRAPH, load_times(written(tmp_path, head + rows)), cluster("T4"))
    assert measured.graph.ops[0].time_ns == {"T4": 22}
    times = load_times(written(tmp_path, HEAD + "a,T4,2\na,T4,3\n"))  # 2.5, half to even
    assert with_times(GRAPH, times, cluster("T4")).graph.ops[0].time_ns == {"T4": 2}


def test_measured_times_stand_in_place_of_stated_and_of_modelled_ones(tmp_path: Path) -> None:
    from placegap.instances.files.document import Document

    times = load_times(written(tmp_path, HEAD + "a,T4,5\na,P4,6\nb,P4,7\n"))
    both = cluster("T4", "P4")
    measured = with_times(GRAPH, times, both)
    assert [op.time_ns for op in measured.graph.ops] == [{"T4": 5, "P4": 6}, {"P4": 7}]
    # a kind that the cluster has not is left aside
    assert with_times(GRAPH, times, cluster("P4")).graph.ops[0].time_ns == {"T4": 9, "P4": 6}
    assert measured.num_ops == 2
    costed = Document(name="net", graph=measured.graph).instance(both).graph.ops[1].time_ns
    assert costed["P4"] == 7
    # 5 us + 1 GFLOP / (0.79 * 8.1 TFLOP/s) = 161,274.6 ns
    assert costed["T4"] == 161_275
    assert "measured times of 2 ops" in measured.graph.provenance.changes[-1]


def test_names_that_no_op_has_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    rows = "".join(f"{name},T4,1\n" for name in ("z", "a", "y", "x", "w", "v", "u"))
    measured = with_times(GRAPH, load_times(written(tmp_path, HEAD + rows)), cluster("T4"))
    assert measured.unmatched == ("z", "y", "x", "w", "v", "u")
    assert measured.graph.provenance.parameters["measured_times"] == (
        f"{tmp_path / 'times.csv'}: measured times for 1 of 2 ops;"
        " 6 names match no op: z, y, x, w, v, ..."
    )


def event(name: str, dur_us: Any, category: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": 1, "dur": dur_us, "pid": 1, "tid": 1}


def trace(folder: Path, content: Any) -> Path:
    return written(folder, json.dumps(content), "trace.json")


def test_annotated_ops_have_their_times_and_other_events_none(tmp_path: Path) -> None:
    events = [{"ph": "M", "name": "process_name"}, event("aten::conv2d", 2, "cpu_op")]
    events += [event("op:conv", 2.5), event("op:conv", 3), event("relu", 1)]
    path = trace(tmp_path, {"traceEvents": events, "schemaVersion": 1})
    assert trace_times(path) == {"conv": [2500.0, 3000.0], "relu": [1000.0]}
    # a bare list is a trace, also zipped, and on a GPU the times of the GPU count
    events = [event("op:a", 5), event("op:a", 900, "gpu_user_annotation")]
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
    assert trace_times(tmp_path / "trace.json.gz") == {"a": [900_000.0]}


def test_a_trace_counts_for_the_only_device_kind_of_the_cluster(tmp_path: Path) -> None:
    times = load_times(trace(tmp_path, [event("op:a", 4)]))
    assert with_times(GRAPH, times, cluster("T4")).graph.ops[0].time_ns == {"T4": 4000}
