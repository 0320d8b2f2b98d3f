"""Malformed model files: what each is, and the place that its error must name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = "task c_task dir_succ dir_succ_add p0 p1 pc00 pc01 pc10 pc11 mi m0 m1"
Change = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class BadFile:
    """A file's name and content, and a fragment that the error about it must contain."""

    file: str
    content: bytes
    place: str


def write_bad_files(folder: Path) -> dict[str, Path]:
    """Write every malformed file into the folder; paths by the name of what is wrong."""
    paths = {}
    for name, bad in bad_files().items():
        paths[name] = folder / bad.file
        paths[name].write_bytes(bad.content)
    return paths


def bad_files() -> dict[str, BadFile]:
    """All cases, by the name of what is wrong."""
    return {**_text_cases(), **_document_cases(), **_dnn_cases(), **_workbook_cases()}


def good_document() -> dict[str, Any]:
    """A document without a fault: three ops in a chain on two devices."""
    return {
        "format": "placegap",
        "version": 1,
        "name": "good",
        "graph": {
            "name": "good",
            "ops": [
                {"name": "first", "time_ns": {"gpu": 5}, "resident_bytes": 1},
                {"name": "second", "time_ns": {"gpu": 6}, "colocation": "pair"},
                {"name": "third", "time_ns": {"gpu": 7}, "colocation": "pair"},
            ],
            "edges": [
                {"producer": "first", "consumer": "second", "bytes": 8},
                {"producer": "second", "consumer": "third", "bytes": 8},
            ],
        },
        "cluster": {
            "name": "two",
            "devices": [
                {"name": "g0", "kind": "gpu", "memory_bytes": 16},
                {"name": "g1", "kind": "gpu", "memory_bytes": 16},
            ],
            "links": [
                {"source": "g0", "target": "g1", "bandwidth_bytes_per_s": 1000},
                {"source": "g1", "target": "g0", "bandwidth_bytes_per_s": 1000},
            ],
        },
    }


def good_dnn() -> dict[str, Any]:
    """A dnn-partitioning input without a fault: a forward pair and its backward pair."""
    nodes = [
        {"id": 1, "isBackwardNode": 0},
        {"id": 2, "isBackwardNode": False},
        {"id": 3, "isBackwardNode": 1},
        {"id": 4, "isBackwardNode": True},
    ]
    rest = {"supportedOnFpga": 1, "cpuLatency": 2.5, "fpgaLatency": 0.25, "size": 8.0}
    arcs = [(1, 2, 0.5), (2, 3, 0.5), (1, 4, 0.5), (3, 4, 0.5)]
    return {
        "maxSizePerFPGA": 64.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [{"name": f"node{node['id']}", **node, **rest} for node in nodes],
        "edges": [{"sourceId": a, "destId": b, "cost": c, "size": 4.0} for a, b, c in arcs],
    }


def good_piper() -> dict[str, Any]:
    """A Piper input without a fault: two layers in two modes each, the second for two devices."""
    option = {"parameterSize": 10, "syncTimeFw": {}, "syncTimeBw": {}}
    keep = {"id": "keep", "timePerSample": 0.25, "memoryUsageA": 6.5, "memoryUsageB": 20}
    again = {"id": "again", "timePerSample": 0.5, "memoryUsageA": 1.0, "memoryUsageB": 26}
    wide = {**keep, **option, "timePerSample": 0.15, "syncTimeFw": {"0": 4.0}}
    both = [{**keep, **option}, {**again, **option}]
    return {
        "maxDevices": 4,
        "maxMemoryPerDevice": 80.0,
        "bandwidth": 1000.0,
        "mbsInBatch": 8,
        "nodes": [
            {"id": 0, "name": "embed", "TMPCs": {"1": both}},
            {"id": 1, "name": "block", "TMPCs": {"1": both, "2": [wide]}},
        ],
        "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 12.0}],
    }


def good_rows() -> list[list[Any]]:
    """The rows of a Moirai workbook without a fault: 0 feeds 1 and 2 through flows 3 and 4."""
    return [
        [*COLUMNS.split()],
        [0, "3,4", "1,2", "3,4,1,2", 5, "0.25", "0,0", "1,2", "3,4", "0.0,0.0", 2, 10, 20],
        [1, None, 2, 2, 1, 1, None, None, None, None, 1, None, None],
        [2, None, None, None, 0, 0, None, None, None, None, 1, None, None],
    ]


def workbook(rows: list[list[Any]]) -> bytes:
    """An .xlsx file with these rows in its first sheet, and a sheet of scribbles."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "model"
    for row in rows:
        sheet.append(row)
    book.create_sheet("notes").append(["schedule", 1, 2])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def changed(content: dict[str, Any], change: Change) -> bytes:
    """The JSON of a content after a change."""
    change(content)
    return json.dumps(content).encode()


def _text_cases() -> dict[str, BadFile]:
    text = json.dumps(good_document())
    time = "graph.ops[0] 'first'.time_ns.gpu"

    def spoilt(old: str, new: str) -> bytes:
        return text.replace(old, new, 1).encode()

    cases = {
        "blank file": (b" \n\n", "is empty"),
        "truncated JSON": (text[:200].encode(), "line 1 column"),
        "not UTF-8": (text.replace("first", "f\xfcrst").encode("latin-1"), "position"),
        "damaged gzip": (b"\x1f\x8b" + b"junk" * 20, "gzip"),
        "deep nesting": (b"[" * 200_000, "nested too deeply"),
        "deep nesting in a field": (spoilt('"good"', "[" * 900 + "]" * 900), "name"),
        "duplicate key": (spoilt("{", '{"name": "x", '), "'name' appears twice"),
        "half a letter": (spoilt('"name": "two"', r'"name": "\ud800"'), "half a letter"),
        "NaN": (spoilt(": 5", ": NaN"), time),
        "Infinity": (spoilt(": 5", ": -Infinity"), time),
        "1e400": (spoilt(": 5", ": 1e400"), time),
        "a number of 5000 digits": (spoilt(": 5", ": " + "9" * 5000), "digits"),
        "a list": (b"[1, 2]", "of no kind"),
        "no known kind": (b'{"layers": []}', "of no kind"),
        "junk.bin": (bytes(range(200, 256)) * 9, "of no kind"),
        "a plan": (b'{"format": "placegap-plan"}', "is a plan"),
        "a split": (b'{"fpgas": [], "cpus": []}', "is a split"),
    }
    return {
        name: BadFile(name if "." in name else "-".join(name.split()) + ".json", content, place)
        for name, (content, place) in cases.items()
    }


def _document_cases() -> dict[str, BadFile]:
    def case(name: str, place: str, change: Change) -> tuple[str, BadFile]:
        file = "-".join(name.split()) + ".json"
        return name, BadFile(file, changed(good_document(), change), place)

    def op(**fields: Any) -> Change:
        return lambda d: d["graph"]["ops"][1].update(fields)

    def edge(**fields: Any) -> Change:
        return lambda d: d["graph"]["edges"][1].update(fields)

    def new_edge(**fields: Any) -> Change:
        return lambda d: d["graph"]["edges"].append(fields)

    def device(**fields: Any) -> Change:
        return lambda d: d["cluster"]["devices"][1].update(fields)

    def link(**fields: Any) -> Change:
        return lambda d: d["cluster"]["links"][1].update(fields)

    op_1, edge_1 = "graph.ops[1] 'second'", "graph.edges[1] 'second -> third'"
    square = [[0, 1], [1, 0]]
    return dict(
        [
            case("wrong version", "version", lambda d: d.update(version=2)),
            case("wrong format", "format", lambda d: d.update(format="dot")),
            case("missing graph", "graph", lambda d: d.pop("graph")),
            case("unknown field", f"{op_1}.colour", op(colour="red")),
            case("no ops", "graph.ops", lambda d: d["graph"].update(ops=[], edges=[])),
            case("empty name", "graph.ops[1]", op(name="")),
            case("duplicate op", "'first' appears twice", op(name="first")),
            case("negative time", f"{op_1}.time_ns.gpu", op(time_ns={"gpu": -1})),
            case("fractional time", f"{op_1}.time_ns.gpu", op(time_ns={"gpu": 1.5})),
            case("time as text", f"{op_1}.time_ns.gpu", op(time_ns={"gpu": "5"})),
            case("time true", f"{op_1}.time_ns.gpu", op(time_ns={"gpu": True})),
            case("time 2 to the 70", f"{op_1}.time_ns.gpu", op(time_ns={"gpu": 2**70})),
            case(
                "time sum overflow",
                "sum of the times",
                lambda d: [o["time_ns"].update(gpu=2**61) for o in d["graph"]["ops"]],
            ),
            case(
                "memory sum overflow",
                "sum of the resident bytes",
                lambda d: [o.update(resident_bytes=2**61) for o in d["graph"]["ops"]],
            ),
            case(
                "transfer sum overflow",
                "2**62",
                lambda d: [link(bandwidth_bytes_per_s=1)(d), edge(bytes=2**60)(d)],
            ),
            case("cycle", "third -> second", new_edge(producer="third", consumer="second")),
            case(
                "dangling edge",
                "edges[2] 'third -> fourth': there is no op 'fourth'",
                new_edge(producer="third", consumer="fourth"),
            ),
            case(
                "duplicate edge",
                "edges[2] 'first -> second': appears twice",
                new_edge(producer="first", consumer="second", bytes=9),
            ),
            case(
                "tensor mismatch",
                "edges[2] 'first -> third': tensor 'out'",
                lambda d: [
                    d["graph"]["edges"][0].update(tensor="out"),
                    new_edge(producer="first", consumer="third", tensor="out", bytes=9)(d),
                ],
            ),
            case(
                "matrix of wrong height",
                "edges[1] 'second -> third': transfer_ns",
                edge(transfer_ns=[[0, 1]]),
            ),
            case(
                "matrix with a negative",
                f"{edge_1}.transfer_ns[1][0]",
                edge(transfer_ns=[square[0], [-1, 0]]),
            ),
            case("op without times", "ops[1] 'second'", op(time_ns={})),
            case(
                "impossible colocation",
                "group 'pair'",
                lambda d: [device(kind="tpu")(d), op(time_ns={"tpu": 1})(d)],
            ),
            case(
                "no devices", "cluster.devices", lambda d: d["cluster"].update(devices=[], links=[])
            ),
            case("no cluster", "--cluster", lambda d: d.pop("cluster")),
            case("duplicate device", "'g0' appears twice", device(name="g0")),
            case(
                "unreachable devices",
                "no path leads from 'g1' to 'g0'",
                lambda d: d["cluster"]["links"].pop(),
            ),
            case(
                "link to an unknown device", "links[1]: there is no device 'g7'", link(target="g7")
            ),
            case("duplicate link", "links[1]", link(source="g0", target="g1")),
            case(
                "zero bandwidth",
                "cluster.links[1].bandwidth_bytes_per_s",
                link(bandwidth_bytes_per_s=0),
            ),
            case(
                "unknown objective",
                "semantics.objective",
                lambda d: d.update(semantics={"objective": "speed"}),
            ),
            case(
                "foreign semantics",
                "semantics",
                lambda d: d.update(semantics={"objective": "makespan", "load": "overlap"}),
            ),
        ]
    )


def _dnn_cases() -> dict[str, BadFile]:
    def case(name: str, place: str, change: Change) -> tuple[str, BadFile]:
        file = "dnn-" + "-".join(name.split()) + ".json"
        return f"dnn {name}", BadFile(file, changed(good_dnn(), change), place)

    def node(**fields: Any) -> Change:
        return lambda d: d["nodes"][1].update(fields)

    def arc(a: int, b: int, cost: float) -> Change:
        return lambda d: d["edges"].append({"sourceId": a, "destId": b, "cost": cost})

    node_1 = "nodes[1] 'node2'"
    return dict(
        [
            case("cycle", "2 -> 1", arc(2, 1, 0.5)),
            case("backward to forward", "edges[4] '3 -> 2'", arc(3, 2, 0.5)),
            case("disagreeing costs", "edges[4] '2 -> 4'", arc(2, 4, 0.75)),
            case("dangling edge", "edges[4] '1 -> 9': there is no node of id 9", arc(1, 9, 0.5)),
            case("text id", f"{node_1}.id", node(id="2")),
            case("duplicate id", "nodes[1]: id 1", node(id=1)),
            case("negative latency", f"{node_1}.cpuLatency", node(cpuLatency=-0.5)),
            case("NaN latency", f"{node_1}.cpuLatency", node(cpuLatency=float("nan"))),
            case(
                "negative accelerator latency",
                f"{node_1}.fpgaLatency: is negative",
                node(fpgaLatency=-1),
            ),
            case("huge latency", f"{node_1}.cpuLatency", node(cpuLatency=1e300)),
            case("latency above 2**62 ns", "nodes[1] of id 2", node(cpuLatency=1e13)),
            case(
                "missing accelerator latency",
                "nodes[1] of id 2: fpgaLatency",
                lambda d: d["nodes"][1].pop("fpgaLatency"),
            ),
            case("fractional size", f"{node_1}.size", node(size=0.5)),
            case("no devices", "maxFPGAs + maxCPUs", lambda d: d.update(maxFPGAs=0, maxCPUs=0)),
            case("a million devices", "maxFPGAs + maxCPUs", lambda d: d.update(maxCPUs=10**6)),
            case(
                "no CPU for an op",
                "ops[1] '2'",
                lambda d: [node(supportedOnFpga=0)(d), d.update(maxCPUs=0)],
            ),
            case("no nodes", "nodes", lambda d: d.update(nodes=[])),
        ]
    )


def _workbook_cases() -> dict[str, BadFile]:
    def case(name: str, place: str, change: Callable[[list[list[Any]]], object]) -> None:
        rows = good_rows()
        change(rows)
        cases[f"xlsx {name}"] = BadFile("-".join(name.split()) + ".xlsx", workbook(rows), place)

    def cell(row: int, column: str, value: Any) -> Callable[[list[list[Any]]], object]:
        return lambda rows: rows[row - 1].__setitem__(rows[0].index(column), value)

    whole = workbook(good_rows())
    cases = {
        "truncated xlsx": BadFile("cut.xlsx", whole[: len(whole) // 2], "not a whole workbook"),
        "truncated xls": BadFile(
            "cut.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "not a whole workbook"
        ),
    }
    case("missing column", "row 1: there is no column 'mi'", cell(1, "mi", None))
    case("unknown column", "unknown column 'who'", lambda rows: rows[0].append("who"))
    case("no data", "no row of data", lambda rows: rows.__delitem__(slice(1, None)))
    case("negative time", "row 3, column p1", cell(3, "p1", -1))
    case("task in the middle no number", "row 3, column task", cell(3, "task", "b"))
    case("duplicate task", "row 4, column task: 2 appears twice", cell(3, "task", 2))
    case("fractional memory", "row 3, column mi", cell(3, "mi", 0.5))
    case("device without memory", "row 2, column m1", cell(2, "m1", None))
    case("unknown successor", "row 3, column dir_succ_add: 9", cell(3, "dir_succ_add", 9))
    case(
        "too few flows",
        "row 2: 1 flows for 2 successors",
        lambda rows: [cell(2, "c_task", 3)(rows), cell(2, "dir_succ_add", "3,1,2")(rows)],
    )
    case("too few times", "row 2, column pc01: 1 times for 2 flows", cell(2, "pc01", "1"))
    case("transfer to itself", "row 2, column pc11", cell(2, "pc11", "0,1"))
    case("cycle", "2 -> 1", cell(4, "dir_succ_add", 1))
    return cases
