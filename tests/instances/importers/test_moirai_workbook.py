"""Moirai workbooks: layout, pairing of flows, and the traps of the authors' samples."""

from pathlib import Path
from typing import Any

import pytest
from doubles.bad_files import good_rows, workbook
from draws.tiny import SHARED, needs_moirai

from placegap.instances import Edge, Graph, InputError, Makespan, Plan, evaluate
from placegap.instances.files.document import Document
from placegap.instances.importers.moirai_workbook import load_moirai_workbook

MS = 1_000_000


def read(folder: Path, rows: list[list[Any]], **options: Any) -> Document:
    (folder / "model.xlsx").write_bytes(workbook(rows))
    return load_moirai_workbook(folder / "model.xlsx", **options)


def edge(graph: Graph, producer: str, consumer: str) -> Edge:
    return next(e for e in graph.edges if (e.producer, e.consumer) == (producer, consumer))


def test_every_column_has_its_place(tmp_path: Path) -> None:
    document = read(tmp_path, good_rows())
    ops = document.graph.ops
    # p1 of task 0 is written as text, 0.25 ms
    assert (ops[0].name, ops[0].resident_bytes) == ("0", 2)
    assert ops[0].time_ns == {"gpu0": 5 * MS, "gpu1": MS // 4}
    # pc01 = "1,2", pc10 = "3,4": first entries belong to flow 3 -> 1, second ones to flow 4 -> 2
    assert edge(document.graph, "0", "1").transfer_ns == ((0, 1 * MS), (3 * MS, 0))
    assert edge(document.graph, "0", "2").transfer_ns == ((0, 2 * MS), (4 * MS, 0))
    # a successor without a flow: a virtual edge
    assert edge(document.graph, "1", "2").transfer_ns == ((0, 0), (0, 0))
    assert document.cluster is not None
    devices = [(d.name, d.kind, d.memory_bytes) for d in document.cluster.devices]
    assert devices == [("gpu0", "gpu0", 10), ("gpu1", "gpu1", 20)]
    assert document.semantics == Makespan(channels="port", transfers="per_edge")


def test_flows_are_paired_by_their_order_in_dir_succ_add(tmp_path: Path) -> None:
    rows = good_rows()
    rows[1][2] = "1"  # a list of successors that differs is not used
    rows[1][3] = "4,1,3,2"  # flow 4 leads to 1, flow 3 to 2; the times stay in c_task's order
    graph = read(tmp_path, rows).graph
    assert edge(graph, "0", "1").transfer_ns == ((0, 2 * MS), (4 * MS, 0))
    assert edge(graph, "0", "2").transfer_ns == ((0, 1 * MS), (3 * MS, 0))
    assert graph.provenance.changes == (
        "sheet 'model', row 2: dir_succ differs from the successors in dir_succ_add; unused",
    )


def test_blank_rows_and_notes_are_passed_over_below_the_data_alone(tmp_path: Path) -> None:
    rows = good_rows()
    spaced = [*rows[:2], [], *rows[2:], [], [], ["note: times are floats"], ["another"]]
    assert read(tmp_path, spaced).graph.ops == read(tmp_path, rows).graph.ops
    with pytest.raises(InputError, match="row 3, column task: "):
        read(tmp_path, [*rows[:2], ["a note"], *rows[2:]])


def test_the_first_sheet_with_the_columns_is_read(tmp_path: Path) -> None:
    import openpyxl

    read(tmp_path, good_rows())
    book = openpyxl.load_workbook(tmp_path / "model.xlsx")
    book.move_sheet("notes", -1)
    book.save(tmp_path / "moved.xlsx")
    moved = load_moirai_workbook(tmp_path / "moved.xlsx")
    assert moved.graph.ops == load_moirai_workbook(tmp_path / "model.xlsx").graph.ops


def test_the_time_unit_is_applied_and_rounding_recorded(tmp_path: Path) -> None:
    rows = good_rows()
    rows[2][4] = 0.0015
    document = read(tmp_path, rows, time_unit="us")
    assert document.graph.ops[1].time_ns == {"gpu0": 2, "gpu1": 1000}
    # 6 processing times, 2 flows x 4 pairs of devices
    assert document.graph.provenance.changes == (
        "1 of 14 times rounded half to even to whole ns, by at most 0.5 ns",
    )
    assert document.graph.provenance.parameters["time_unit"] == "us"


@needs_moirai
@pytest.mark.parametrize(
    ("name", "sizes", "best_ms"),
    [("example-1", (14, 19, 3), None), ("GoogLeNet", (141, 167, 4), 2.336)],
)
def test_the_authors_samples_are_read(
    name: str, sizes: tuple[int, ...], best_ms: float | None
) -> None:
    document = load_moirai_workbook(SHARED / "instances" / "moirai" / f"{name}.xls")
    instance = document.instance()
    assert (instance.num_ops, len(instance.graph.edges), instance.num_devices) == sizes
    assert instance.graph.provenance.changes == ()
    if best_ms is None:
        return
    # the best single device: shared/reference/moirai-semantics.md, "What was measured"
    assert document.semantics is not None
    plans = [Plan.on([k] * instance.num_ops) for k in range(instance.num_devices)]
    verdicts = [evaluate(instance, plan, document.semantics) for plan in plans]
    values = [v.value_ns for v in verdicts if v.feasible and v.value_ns is not None]
    assert min(values) == round(best_ms * MS)
