"""Malformed model files: what each is, and the place that its error must name."""

import gzip
import io
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Change = Callable[[Any], object]
Cases = dict[str, "BadFile"]


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


def bad_files() -> Cases:
    """All cases, by the name of what is wrong."""
    return {**_text_cases(), **_document_cases(), **_dnn_cases(), **_workbook_cases()}


GOOD = yaml.safe_load("""
document:
  format: placegap
  version: 1
  name: good
  graph:
    name: good
    ops:
      - {name: first, time_ns: {gpu: 5}, resident_bytes: 1}
      - {name: second, time_ns: {gpu: 6}, colocation: pair}
      - {name: third, time_ns: {gpu: 7}, colocation: pair}
    edges:
      - {producer: first, consumer: second, bytes: 8}
      - {producer: second, consumer: third, bytes: 8}
  cluster:
    name: two
    devices:
      - {name: g0, kind: gpu, memory_bytes: 16}
      - {name: g1, kind: gpu, memory_bytes: 16}
    links:
      - {source: g0, target: g1, bandwidth_bytes_per_s: 1000}
      - {source: g1, target: g0, bandwidth_bytes_per_s: 1000}
dnn:
  maxSizePerFPGA: 64.0
  maxFPGAs: 2
  maxCPUs: 1
  nodes:
    - {name: node1, id: 1, isBackwardNode: 0}
    - {name: node2, id: 2, isBackwardNode: false}
    - {name: node3, id: 3, isBackwardNode: 1}
    - {name: node4, id: 4, isBackwardNode: true}
  edges:
    - {sourceId: 1, destId: 2, cost: 0.5, size: 4.0}
    - {sourceId: 2, destId: 3, cost: 0.5, size: 4.0}
    - {sourceId: 1, destId: 4, cost: 0.5, size: 4.0}
    - {sourceId: 3, destId: 4, cost: 0.5, size: 4.0}
piper:
  maxDevices: 4
  maxMemoryPerDevice: 80.0
  bandwidth: 1000.0
  mbsInBatch: 8
  edges:
    - {sourceId: 0, destId: 1, communicationCost: 12.0}
rows:
  - [task, c_task, dir_succ, dir_succ_add, p0, p1, pc00, pc01, pc10, pc11, mi, m0, m1]
  - [0, "3,4", "1,2", "3,4,1,2", 5, "0.25", "0,0", "1,2", "3,4", "0.0,0.0", 2, 10, 20]
  - [1, null, 2, 2, 1, 1, null, null, null, null, 1, null, null]
  - [2, null, null, null, 0, 0, null, null, null, null, 1, null, null]
""")


def good_document() -> Any:
    """A document without a fault: three ops in a chain on two devices."""
    return deepcopy(GOOD["document"])


def good_dnn() -> Any:
    """A dnn-partitioning input without a fault: a forward pair and its backward pair."""
    content = deepcopy(GOOD["dnn"])
    for node in content["nodes"]:
        node.update(supportedOnFpga=1, cpuLatency=2.5, fpgaLatency=0.25, size=8.0)
    return content


def good_piper() -> Any:
    """A Piper input without a fault: two layers in two modes each, the second for two devices."""
    option = {"parameterSize": 10, "syncTimeFw": {}, "syncTimeBw": {}}
    keep = {"id": "keep", "timePerSample": 0.25, "memoryUsageA": 6.5, "memoryUsageB": 20}
    again = {"id": "again", "timePerSample": 0.5, "memoryUsageA": 1.0, "memoryUsageB": 26}
    wide = {**keep, **option, "timePerSample": 0.15, "syncTimeFw": {"0": 4.0}}
    both = [{**keep, **option}, {**again, **option}]
    nodes = [
        {"id": 0, "name": "embed", "TMPCs": {"1": both}},
        {"id": 1, "name": "block", "TMPCs": {"1": both, "2": [wide]}},
    ]
    return {**deepcopy(GOOD["piper"]), "nodes": nodes}


def good_rows() -> Any:
    """The rows of a Moirai workbook without a fault: 0 feeds 1 and 2 through flows 3 and 4."""
    return deepcopy(GOOD["rows"])


def workbook(rows: Any) -> bytes:
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


def changed(content: Any, change: Change) -> bytes:
    """The JSON of a content after a change."""
    change(content)
    return json.dumps(content).encode()


def _text_cases() -> Cases:
    text = json.dumps(good_document())
    time, plan = "graph.ops[0] 'first'.time_ns.gpu", b'{"format": "placegap-plan"}'
    latin = text.replace("first", "f\xfcrst").encode("latin-1")
    cases: dict[str, tuple[str, str, str | bytes]] = {
        "empty file": ("empty.json", "is empty", b" \n\n"),
        "truncated JSON": ("cut.json", "line 1 column", text[:200]),
        "not UTF-8": ("latin.json", "position", latin),
        "truncated gzip": ("cut.json.gz", "gzip", gzip.compress(text.encode())[:60]),
        "damaged gzip": ("junk.json.gz", "gzip", b"\x1f\x8b" + b"junk" * 20),
        "deep nesting": ("deep.json", "nested too deeply", "[" * 200_000),
        "duplicate key": (
            "keys.json",
            "'name' appears twice",
            text.replace("{", '{"name": "x", ', 1),
        ),
        "half a letter": ("half.json", "half a letter", text.replace('"two"', r'"\ud800"')),
        "NaN": ("nan.json", time, text.replace(": 5", ": NaN")),
        "5000 digits": ("digits.json", "digits", text.replace(": 5", ": " + "9" * 5000)),
        "no known kind": ("other.json", "of no kind", '{"layers": []}'),
        "binary junk": ("junk.bin", "of no kind", bytes(range(200, 256)) * 9),
        "a plan": ("plan.json", "is a plan", plan),
        "a split": ("split.json", "is a split", '{"fpgas": [], "cpus": []}'),
    }
    return {
        name: BadFile(file, text.encode() if isinstance(text, str) else text, place)
        for name, (file, place, text) in cases.items()
    }


def _spoilt(kind: str, good: Callable[[], Any], cases: dict[str, tuple[str, Change]]) -> Cases:
    """Files of a kind, whose good content each case changes."""
    return {
        kind + name: BadFile(
            "-".join((kind + name).split()) + ".json", changed(good(), change), place
        )
        for name, (place, change) in cases.items()
    }


def _document_cases() -> Cases:
    def op(**fields: Any) -> Change:
        return lambda d: d["graph"]["ops"][1].update(fields)

    def time(value: Any) -> tuple[str, Change]:
        return f"{op_1}.time_ns.gpu", op(time_ns={"gpu": value})

    def ops(**fields: Any) -> Change:
        return lambda d: [one.update(fields) for one in d["graph"]["ops"]]

    def edge(**fields: Any) -> Change:
        return lambda d: d["graph"]["edges"][1].update(fields)

    def new_edge(producer: str, consumer: str, **fields: Any) -> Change:
        new = {"producer": producer, "consumer": consumer, **fields}
        return lambda d: d["graph"]["edges"].append(new)

    def device(**fields: Any) -> Change:
        return lambda d: d["cluster"]["devices"][1].update(fields)

    def link(**fields: Any) -> Change:
        return lambda d: d["cluster"]["links"][1].update(fields)

    def top(**fields: Any) -> Change:
        return lambda d: d.update(fields)

    def both(*changes: Change) -> Change:
        return lambda d: [change(d) for change in changes]

    op_1 = "graph.ops[1] 'second'"
    matrix = "edges[1] 'second -> third': transfer_ns"
    cases = {
        "wrong version": ("version", top(version=3)),
        "wrong format": ("format", top(format="dot")),
        "missing graph": ("graph", lambda d: d.pop("graph")),
        "missing op name": ("graph.ops[1].name", lambda d: d["graph"]["ops"][1].pop("name")),
        "unknown field": (f"{op_1}.colour", op(colour="red")),
        "no ops": ("graph.ops", lambda d: d["graph"].update(ops=[], edges=[])),
        "op no object": ("graph.ops[1]", lambda d: d["graph"]["ops"].__setitem__(1, 5)),
        "duplicate op": ("'first' appears twice", op(name="first")),
        "negative time": time(-1),
        "fractional time": time(1.5),
        "time as text": time("5"),
        "time 1e30": time(1e30),
        "time sum overflow": ("sum of the times", ops(time_ns={"gpu": 2**61})),
        "memory sum overflow": ("sum of the resident bytes", ops(resident_bytes=2**61)),
        "transfer sum overflow": ("2**62", both(link(bandwidth_bytes_per_s=1), edge(bytes=2**60))),
        "backward 1": (f"{op_1}.backward", op(backward=1)),
        "cycle": ("third -> second", new_edge("third", "second")),
        "self-loop": ("third -> third", new_edge("third", "third")),
        "dangling edge": (
            "edges[2] 'third -> fourth': there is no op 'fourth'",
            new_edge("third", "fourth"),
        ),
        "duplicate edge": (
            "'first -> second': appears twice",
            new_edge("first", "second", bytes=9),
        ),
        "matrix of wrong width": (matrix, edge(transfer_ns=[[0, 1], [1]])),
        "unsupported op": ("ops[1] 'second'", op(time_ns={"tpu": 5})),
        "impossible colocation": ("group 'pair'", both(device(kind="tpu"), op(time_ns={"tpu": 1}))),
        "no devices": ("cluster.devices", lambda d: d["cluster"].update(devices=[], links=[])),
        "no cluster": ("--cluster", lambda d: d.pop("cluster")),
        "duplicate device": ("'g0' appears twice", device(name="g0")),
        "link to an unknown device": ("links[1]: there is no device 'g7'", link(target="g7")),
        "zero bandwidth": ("cluster.links[1].bandwidth_bytes_per_s", link(bandwidth_bytes_per_s=0)),
    }
    return _spoilt("", good_document, cases)


def _dnn_cases() -> Cases:
    def node(**fields: Any) -> Change:
        return lambda d: d["nodes"][1].update(fields)

    def arc(a: int, b: int, cost: float) -> Change:
        return lambda d: d["edges"].append({"sourceId": a, "destId": b, "cost": cost})

    def top(**fields: Any) -> Change:
        return lambda d: d.update(fields)

    node_1, counts = "nodes[1] 'node2'", "maxFPGAs + maxCPUs"
    cases = {
        "cycle": ("2 -> 1", arc(2, 1, 0.5)),
        "backward to forward": ("edges[4] '3 -> 2'", arc(3, 2, 0.5)),
        "disagreeing costs": ("edges[4] '2 -> 4'", arc(2, 4, 0.75)),
        "dangling edge": ("edges[4] '1 -> 9': there is no node of id 9", arc(1, 9, 0.5)),
        "missing id": (f"{node_1}.id", lambda d: d["nodes"][1].pop("id")),
        "duplicate id": ("nodes[1]: id 1", node(id=1)),
        "unknown field": (f"{node_1}.gpuLatency", node(gpuLatency=1)),
        "negative latency": (f"{node_1}.cpuLatency", node(cpuLatency=-0.5)),
        "negative accelerator latency": (
            f"{node_1}.fpgaLatency: is negative",
            node(fpgaLatency=-1),
        ),
        "huge latency": (f"{node_1}.cpuLatency", node(cpuLatency=1e300)),
        "latency above 2**62 ns": ("nodes[1] of id 2", node(cpuLatency=1e13)),
        "missing accelerator latency": (
            "nodes[1] of id 2: fpgaLatency",
            lambda d: d["nodes"][1].pop("fpgaLatency"),
        ),
        "no devices": (counts, top(maxFPGAs=0, maxCPUs=0)),
        "a million devices": (counts, top(maxCPUs=10**6)),
        "no CPU for an op": (
            "ops[1] '2'",
            lambda d: [node(supportedOnFpga=0)(d), d.update(maxCPUs=0)],
        ),
        "no edges field": ("edges", lambda d: d.pop("edges")),
    }
    return _spoilt("dnn ", good_dnn, cases)


def _workbook_cases() -> Cases:
    def cell(row: int, column: str, value: Any) -> Change:
        return lambda rows: rows[row - 1].__setitem__(rows[0].index(column), value)

    def few_flows(rows: Any) -> None:
        cell(2, "c_task", 3)(rows)
        cell(2, "dir_succ_add", "3,1,2")(rows)

    cases: dict[str, tuple[str, Change]] = {
        "missing column": ("row 1: there is no column 'mi'", cell(1, "mi", None)),
        "unknown column": ("unknown column 'who'", lambda rows: rows[0].append("who")),
        "no data": ("no row of data", lambda rows: rows.__delitem__(slice(1, None))),
        "negative time": ("row 3, column p1", cell(3, "p1", -1)),
        "task in the middle no number": ("row 3, column task", cell(3, "task", "b")),
        "duplicate task": ("row 4, column task: 2 appears twice", cell(3, "task", 2)),
        "device without memory": ("row 2, column m1", cell(2, "m1", None)),
        "unknown successor": ("row 3, column dir_succ_add: 9", cell(3, "dir_succ_add", 9)),
        "too few flows": ("row 2: 1 flows for 2 successors", few_flows),
        "too few times": ("row 2, column pc01: 1 times for 2 flows", cell(2, "pc01", "1")),
        "cycle": ("2 -> 1", cell(4, "dir_succ_add", 1)),
    }
    whole, magic = workbook(good_rows()), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    found = {
        "truncated xlsx": BadFile("cut.xlsx", whole[: len(whole) // 2], "not a whole workbook"),
        "truncated xls": BadFile("cut.xls", magic + bytes(100), "not a whole workbook"),
    }
    for name, (place, change) in cases.items():
        rows = good_rows()
        change(rows)
        found[f"xlsx {name}"] = BadFile("-".join(name.split()) + ".xlsx", workbook(rows), place)
    return found
