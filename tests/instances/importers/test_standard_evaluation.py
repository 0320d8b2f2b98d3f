"""Standard Evaluation: lines through small batches, and everything that speaks against them."""

from collections.abc import Sequence

import numpy as np
import pytest

from placegap.instances import Document, example
from placegap.instances.importers.measurements import Table, deviations, fit_links, with_links
from placegap.instances.importers.standard_evaluation import Estimate, standard_evaluation

DIAMOND = Document.of(example())
CLUSTER = example().cluster
OPS = [op.name for op in example().graph.ops]

Row = tuple[str, str, int, float, float]


def places(file: str, rows: int) -> tuple[str, ...]:
    return tuple(f"{file}: row {number}" for number in range(2, 2 + rows))


def ops_table(rows: Sequence[Row]) -> Table:
    """Rows of (op, kind, batch, time, memory)."""
    ops, kinds, batches, times, memory = zip(*rows, strict=True)
    figures = {"time_ns": np.array(times, float), "memory_bytes": np.array(memory, float)}
    keys = tuple(zip(ops, kinds, strict=True))
    return Table(keys, np.array(batches, np.int64), figures, places("m.csv", len(rows)))


def pairs_table(
    keys: Sequence[tuple[str, str]], sizes: Sequence[int], figure: str, values: Sequence[float]
) -> Table:
    figures = {figure: np.array(values, float)}
    return Table(tuple(keys), np.array(sizes, np.int64), figures, places("p.csv", len(keys)))


def straight(batches: Sequence[int], ops: Sequence[str] = OPS) -> list[Row]:
    """Times 10 + 3 batch, memory 1000 + 64 batch."""
    return [(op, "gpu", b, 10 + 3 * b, 1000 + 64 * b) for op in ops for b in batches]


def about(found: Estimate) -> dict[str, tuple[str, ...]]:
    return {caution.about: caution.items for caution in found.warnings}


def test_exact_lines_are_extrapolated_exactly() -> None:
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([1, 2, 4])), 512)
    ops = found.document.graph.ops
    assert [op.time_ns["gpu"] for op in ops] == [10 + 3 * 512] * 4
    assert [op.resident_bytes for op in ops] == [1000 + 64 * 512] * 4
    assert found.measured_batches == (1, 2, 4)
    assert found.document.graph.provenance.changes[-1] == (
        "Standard Evaluation at batch 512: lines through batches 1, 2, 4; rounded half to even"
    )
    assert list(about(found)) == ["tensor sizes of the model file, whatever its batch"]


def test_iterations_of_one_batch_weigh_alike() -> None:
    # batch 1: 10 and 14; batch 2: 20. Mean x 4/3, mean y 44/3; slope 8: at 4 it is 12 + 3 * 8
    rows: list[Row] = [("op1", "gpu", 1, 10, 0), ("op1", "gpu", 1, 14, 0), ("op1", "gpu", 2, 20, 0)]
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table([*straight([1, 2], OPS[1:]), *rows]), 4)
    assert found.document.graph.ops[0].time_ns["gpu"] == 36


@pytest.mark.parametrize(
    ("batches", "time_ns", "doubt"),
    [([8], 34, "measured at one size only"), ([2, 8], 202, "nothing shows whether a line fits")],
)
def test_one_batch_is_not_extrapolated_and_two_leave_the_line_unchecked(
    batches: list[int], time_ns: int, doubt: str
) -> None:
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight(batches)), 64)
    assert {op.time_ns["gpu"] for op in found.document.graph.ops} == {time_ns}
    (key,) = (key for key in about(found) if doubt in key)
    assert len(about(found)[key]) == 8  # time and memory of four ops


@pytest.mark.parametrize(
    ("times", "batch", "time_ns", "doubt", "item"),
    [
        # the largest measurement takes the place of a line that falls
        ({1: 49, 2: 48, 4: 46}, 1000, 49, "falls", "time of op1 on gpu"),
        # 10 x batch - 50
        ({6: 10, 8: 30, 10: 50}, 1, 0, "the line is below zero", "time of op1 on gpu"),
        # slope 50 / 5, which explains 500 of the 5100: 0.098
        ({1: 10, 2: 90, 3: 10, 4: 70}, 8, 100, "a line fits badly (R2)", "on gpu (R2 0.098)"),
    ],
)
def test_a_line_that_does_not_fit_says_so(
    times: dict[int, int], batch: int, time_ns: int, doubt: str, item: str
) -> None:
    rows = [("op1", "gpu", b, t, 100) for b, t in times.items()]
    table = ops_table([*straight([*times], OPS[1:]), *rows])
    found = standard_evaluation(DIAMOND, CLUSTER, table, batch)
    assert found.document.graph.ops[0].time_ns["gpu"] == time_ns
    (key,) = (key for key in about(found) if key.startswith(doubt))
    assert item in about(found)[key][0]
    trusting = about(standard_evaluation(DIAMOND, CLUSTER, table, batch, min_r2=0.0))
    assert (key in trusting) == ("R2" not in key)


def test_rows_of_the_batch_itself_are_held_out_and_compared() -> None:
    held: list[Row] = [("op1", "gpu", 16, 100, 2024), ("op2", "gpu", 16, 58, 1012)]
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([1, 2, 4]) + held), 16)
    assert found.document.graph.ops[0].time_ns["gpu"] == 58  # not 100
    # time: |58 - 100| / 100 and 0; memory: 0 and |2024 - 1012| / 1012
    assert found.deviations["time"].relative.tolist() == [0.0, 0.42]
    assert found.deviations["memory"].relative.tolist() == [0.0, 1.0]
    assert found.deviations["time"].mean == pytest.approx(0.21)


def test_the_second_step_takes_what_was_measured() -> None:
    held: list[Row] = [("op1", "gpu", 16, 100, 2024)]
    table = ops_table(straight([1, 2, 4]) + held)
    found = standard_evaluation(DIAMOND, CLUSTER, table, 16, use_measured=True)
    assert [op.time_ns["gpu"] for op in found.document.graph.ops] == [100, 58, 58, 58]
    assert len(about(found)["not measured at batch 16: the estimate stays"]) == 6
    only = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([16])), 16, use_measured=True)
    assert [op.time_ns["gpu"] for op in only.document.graph.ops] == [58] * 4
    assert only.measured_batches == ()
    # what was not measured at all stays, with a warning
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([1, 2, 4], OPS[1:])), 8)
    assert found.document.graph.ops[0].time_ns == DIAMOND.graph.ops[0].time_ns
    assert about(found)["not measured: the time of the model file stays"] == ("op1 on gpu",)


def test_tensors_grow_with_the_batch_and_share_one_size() -> None:
    keys = [(edge.producer, edge.consumer) for edge in DIAMOND.graph.edges]
    table = pairs_table(
        [key for key in keys for _ in "123"], [1, 2, 3] * 4, "bytes", [100, 200, 300] * 4
    )
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([1, 2, 4])), 10, tensors=table)
    assert {edge.bytes for edge in found.document.graph.edges} == {1000}
    assert about(found) == {}


def test_measured_links_take_the_place_of_explicit_transfer_times() -> None:
    times = {"transfer_ns": ((0, 7), (7, 0))}
    edges = tuple(edge.model_copy(update=times) for edge in DIAMOND.graph.edges)
    graph = DIAMOND.graph.model_copy(update={"edges": edges})
    explicit = DIAMOND.model_copy(update={"graph": graph})
    ops = ops_table(straight([1, 2, 4]))
    tensors = pairs_table([("op1", "op2")] * 3, [1, 2, 4], "bytes", [10, 20, 40])
    links = pairs_table([("gpu0", "gpu1")] * 2, [100, 200], "time_ns", [100, 200])
    stay = "explicit transfer times of the model file stay, whatever the size"
    without = standard_evaluation(explicit, CLUSTER, ops, 8, tensors=tensors)
    assert about(without)[stay] == ("op1 -> op2",)
    found = standard_evaluation(explicit, CLUSTER, ops, 8, tensors=tensors, links=links)
    assert stay not in about(found)
    out = "explicit transfer times of the model file are left out: links were measured"
    assert len(about(found)[out]) == 4
    first = found.document.graph.edges[0]
    assert (first.bytes, first.transfer_ns) == (80, None)


def test_links_replace_those_of_the_cluster() -> None:
    # 4 ns per byte and 7 ns: 250 MB/s
    table = pairs_table([("gpu0", "gpu1")] * 3, [0, 10, 100], "time_ns", [7, 47, 407])
    found = standard_evaluation(DIAMOND, CLUSTER, ops_table(straight([1, 2, 4])), 8, links=table)
    assert found.document.cluster is not None
    links = {(x.source, x.target): x for x in found.document.cluster.links}
    fitted = links["gpu0", "gpu1"]
    assert (fitted.bandwidth_bytes_per_s, fitted.latency_ns) == (250_000_000, 7)
    assert links["gpu1", "gpu0"] == next(x for x in CLUSTER.links if x.source == "gpu1")
    assert about(found)["not measured: the cluster's own figures stay"] == ("link gpu1 -> gpu0",)


@pytest.mark.parametrize(
    ("sizes", "times", "bandwidth", "latency", "doubt"),
    [
        ([100, 200, 300], [50, 40, 30], 10_000_000_000, 0, "no rising line"),
        ([100, 200], [50, 90], 2_500_000_000, 10, "measured at two sizes only"),
        ([100, 200, 300], [10, 110, 210], 1_000_000_000, 0, "begins below zero"),
        # slope 87.5 / 5, intercept 51.25 - 17.5 * 2.5
        ([1, 2, 3, 4], [10, 90, 10, 95], 57_142_857, 8, "fits badly"),
    ],
)
def test_a_link_without_a_good_line_says_so(
    sizes: list[int], times: list[int], bandwidth: int, latency: int, doubt: str
) -> None:
    table = pairs_table([("gpu0", "gpu1")] * len(sizes), sizes, "time_ns", times)
    (fit,) = fit_links(table, CLUSTER)
    assert (fit.bandwidth_bytes_per_s, fit.latency_ns) == (bandwidth, latency)
    assert any(doubt in text for text in fit.doubts)
    assert with_links(CLUSTER, [fit])[0].links[0].latency_ns == latency


def test_deviations_without_a_base_are_counted_apart() -> None:
    found = deviations(np.array([3.0, 0.0, 8.0]), np.array([0.0, 0.0, 10.0]))
    assert (found.relative.tolist(), found.undefined) == ([0.0, 0.2], 1)
    assert deviations(np.array([3.0]), np.array([0.0])).mean is None
    assert [found.share_within(x) for x in (0.0, 0.1, 0.2)] == [0.5, 0.5, 1.0]
    assert (found.quantile(0.5), found.quantile(0.9)) == (0.0, 0.2)
