"""The stand-alone checker: what it accepts is true, and wrong certificates get one line each."""

import ast
import copy
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op
from placegap.instances.certificates import certificate_checker
from placegap.instances.certificates.certificate_checker import Rejected, check, digest, main
from placegap.instances.certificates.certificate_file import plain_document

Content = dict[str, Any]
RULES = {"objective": "makespan", "transfers": "per_edge", "channels": "port", "memory": "sum"}
SECOND = 10**9


def row_of_three() -> Instance:
    """Ops of 4, 3 and 5 s in a row, one of 1 s beside the middle one; two devices, 2 s between.

    All but the short op on one device is best: 12 s, on a path of 12 s.
    """
    times = {"a": 4, "b": 3, "c": 5, "side": 1}
    links = draw.links(2, lambda a, b: (1, 0))
    ops = tuple(Op(name=name, time_ns={"gpu": time * SECOND}) for name, time in times.items())
    pairs = (("a", "b"), ("b", "c"), ("a", "side"), ("side", "c"))
    edges = tuple(Edge(producer=a, consumer=b, bytes=2) for a, b in pairs)
    return draw.instance_of("row", ops, edges, draw.devices(["gpu"] * 2), links)


DOCUMENT: Content = json.loads(json.dumps(plain_document(row_of_three())))


def certificate(proof: Content, bound_ns: int) -> Content:
    return {
        "format": "placegap-certificate",
        "version": 1,
        "instance": "row",
        "instance_hash": row_of_three().content_hash,
        "semantics": dict(RULES),
        "bound_ns": bound_ns,
        "proof": proof,
    }


# a flow of 1e9 along a, b, c: T >= 4 + 3 + 5 s. The cases of b change nothing.
FLOW = {"flows": [[0, SECOND], [1, SECOND]]}
TREE = certificate(
    {"kind": "tree", "tree": {"op": 1, "cases": [[0], [1]], "nodes": [FLOW, FLOW]}}, 12 * SECOND
)
PATH = certificate({"kind": "path"}, 12 * SECOND)
# 13 s of work on two devices: 6.5 s
WORK = certificate({"kind": "work", "weights": [1, 1]}, 13 * SECOND // 2)
# a and c are apart: 2 s for a transfer before b or after it; paths see that by themselves. Between
# a and c on one device, half of b and side together is 2 s at least, by a window of work.
ROWS = [{"start": 0, "end": 0, "tree": {"windows": [{"ops": [0, 1, 3, 2], "devices": [1, 1]}]}}]
CHAIN = certificate(
    {"kind": "chain", "ops": [0, 2], "arcs": [{"inside": [1, 3], "rows": ROWS}]}, 12 * SECOND
)
GOOD = {"tree": TREE, "path": PATH, "work": WORK, "chain": CHAIN}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_proven_is_accepted(name: str) -> None:
    check(DOCUMENT, GOOD[name])


def put(*path: Any, value: Any) -> Callable[[Content], None]:
    """A change of one value of a certificate; `...` removes it."""

    def change(content: Content) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


def ops(*numbers: Any) -> Callable[[Content], None]:
    return put("proof", "ops", value=list(numbers))


NODES = "proof", "tree", "nodes"
ROW = "proof", "arcs", 0, "rows", 0
SAID = {"start": 0, "end": 0, "of": "CP-SAT 9.15", "bound_ns": 9 * SECOND}
WINDOW = *ROW, "tree", "windows", 0
WRONG: dict[str, tuple[Content, Callable[[Content], None], str]] = {
    "path 1 ns too high": (PATH, put("bound_ns", value=12 * SECOND + 1), "claims 12000000001"),
    "work 1 ns too high": (WORK, put("bound_ns", value=13 * SECOND // 2 + 1), "it claims"),
    "tree 1 ns too high": (TREE, put("bound_ns", value=12 * SECOND + 1), "it claims"),
    "chain 1 ns too high": (CHAIN, put("bound_ns", value=12 * SECOND + 1), "it claims"),
    # 1e-9 less flow through c, of 5 s: 5 ns less in one leaf, and so in all
    "a dual off by 1e-9": (TREE, put(*NODES, 0, "flows", 1, 1, value=SECOND - 1), "it claims"),
    "a price": (TREE, put(*NODES, 0, "prices", value=[[0, 0, 0, 10**30]]), "it claims"),
    "a weak window": (TREE, put(*NODES, 0, "windows", value=[{"devices": [9, 9]}]), "it claims"),
    "no multipliers": (TREE, put(*NODES, 0, value={}), "it claims"),
    "another instance": (PATH, put("instance_hash", value="0" * 64), "another instance"),
    "no instance": (PATH, put("instance_hash", value=...), "malformed: KeyError"),
    "other semantics": (PATH, put("semantics", "objective", value="max_load"), "proves nothing"),
    "another format": (PATH, put("format", value="placegap-plan"), "not a certificate"),
    "another version": (PATH, put("version", value=2), "version"),
    "NaN": (PATH, put("bound_ns", value=math.nan), "out of its range"),
    "true": (PATH, put("bound_ns", value=True), "out of its range"),
    "a negative bound": (PATH, put("bound_ns", value=-1), "out of its range"),
    "no proof": (PATH, put("proof", value=...), "malformed: KeyError"),
    "a method for a proof": (PATH, put("proof", "kind", value="__init__"), "proves nothing"),
    "a negative weight": (WORK, put("proof", "weights", value=[3, -1]), "out of its range"),
    "weights of 0": (WORK, put("proof", "weights", value=[0, 0]), "no weights"),
    "a weight too few": (WORK, put("proof", "weights", value=[1]), "2 numbers"),
    "an op twice": (WORK, ops(0, 0, 1, 2), "counts twice"),
    "an op as another number": (WORK, ops(0, 1, 2, 3, 0.0), "counts twice"),
    "an op from the end": (WORK, ops(-1), "out of its range"),
    "a negative flow": (TREE, put(*NODES, 0, "flows", 0, 1, value=-1), "out of its range"),
    "an edge from the end": (TREE, put(*NODES, 0, "flows", 0, 0, value=-1), "malformed: KeyError"),
    "a flow beside": (TREE, put(*NODES, 0, "alone", value=[[0, -SECOND]]), "out of its range"),
    "a leaf missing": (TREE, put(*NODES, value=[FLOW]), "not leaves"),
    "a case missing": (TREE, put("proof", "tree", "cases", value=[[0], []]), "leave out a device"),
    "cases of no op": (TREE, put("proof", "tree", "op", value=9), "malformed: KeyError"),
    # of a memory without limit
    "a price of memory": (TREE, put(*NODES, 0, "memory", value=[1, 0]), "out of its range"),
    "an op off the path": (CHAIN, put("proof", "ops", value=[1, 3]), "on no path"),
    "a chain that stands still": (CHAIN, put("proof", "ops", value=[0, 0]), "no path|twice"),
    "an arc missing": (CHAIN, put("proof", "arcs", value=[]), "one arc less"),
    "an op of the chain": (CHAIN, put("proof", "arcs", 0, "inside", value=[2]), "on no path"),
    "an op between twice": (CHAIN, put("proof", "arcs", 0, "inside", value=[1, 1]), "twice"),
    "an arc between unknown devices": (CHAIN, put(*ROW, "end", value=7), "out of its range"),
    "an arc without a tree": (CHAIN, put(*ROW, "tree", value=...), "malformed: KeyError"),
    "what a solver is said to have proven": (CHAIN, put(*ROW, value=SAID), "malformed: KeyError"),
    "a window below 0": (CHAIN, put(*WINDOW, "devices", value=[2, -1]), "range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_certificate_is_rejected_in_one_line(name: str) -> None:
    good, change, reason = WRONG[name]
    content = copy.deepcopy(good)
    change(content)
    with pytest.raises(Rejected, match=reason) as error:
        check(DOCUMENT, content)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_a_certificate_is_worth_nothing_for_a_changed_instance() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["graph"]["ops"][0]["time_ns"]["gpu"] += 1
    with pytest.raises(Rejected, match="another instance"):
        check(document, PATH)


@pytest.mark.parametrize(("part", "field"), [("ops", "colocation"), ("edges", "tensor")])
def test_what_the_digest_leaves_out_joins_nothing(part: str, field: str) -> None:
    # with all ops in one group the longest path takes 13 s, if the hash is that of the row
    document = copy.deepcopy(DOCUMENT)
    for content in document["graph"][part]:
        content[field] = 0
    check(document, PATH)
    with pytest.raises(Rejected, match=r"12000000001 ns, .* 12000000000 ns"):
        check(document, certificate({"kind": "path"}, 12 * SECOND + 1))


def test_the_digest_is_the_hash_of_the_instance() -> None:
    for seed in range(6):
        instance = tiny_instance(seed, hosts=seed % 2, backward=True)
        document = json.loads(json.dumps(plain_document(instance)))
        graph, cluster = document["graph"], document["cluster"]
        parts = {
            "devices": cluster["devices"],
            "edges": graph.get("edges", []),
            "links": cluster.get("links", []),
            "ops": graph["ops"],
        }
        assert digest(parts) == instance.content_hash


def leaves_of(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        return [path, *(leaf for key, part in items for leaf in leaves_of(part, (*path, key)))]
    return [path]


NASTY = [0, 1, -1, 10**30, 0.5, math.nan, True, None, "0", [], {}, [[0, 1]], 13 * SECOND]


@pytest.mark.parametrize("name", GOOD)
def test_damaged_certificates_prove_nothing_false(name: str) -> None:
    # 12 s is the optimum, also where another rule for channels or transfers comes in
    rng = random.Random(name)
    for _ in range(100):
        content = copy.deepcopy(GOOD[name])
        for _ in range(rng.choice([1, 1, 2, 3])):
            path = rng.choice([p for p in leaves_of(content) if p and p[0] != "semantics"])
            put(*path, value=rng.choice(NASTY))(content)
        with suppress(Rejected):
            check(DOCUMENT, content)
            assert content["bound_ns"] <= 12 * SECOND


BAD_FILES = {
    "truncated": json.dumps(TREE)[:-9],
    "nested": "[" * 100_000,
    "digits": '{"bound_ns": ' + "9" * 10_000 + "}",
    "exponent": json.dumps(PATH).replace("12000000000", "12e999999999"),
    "binary": "\x00\x01",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_read_does_not_hold(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "i.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "c.json").write_text(BAD_FILES[name])
    assert main([str(tmp_path / "i.json"), str(tmp_path / "c.json")]) == 1
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "does not hold" in out


def test_it_runs_alone(tmp_path: Path) -> None:
    file = Path(certificate_checker.__file__)
    alone = tmp_path / "checker.py"
    alone.write_text(file.read_text())
    for name, content in (("i", DOCUMENT), ("c", TREE)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    command = [sys.executable, "-I", "-S", str(alone), "i.json", "c.json"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "c.json: no plan is below 12000000000 ns, by a proof that was checked\n"


def test_it_is_short_and_imports_the_standard_library_alone() -> None:
    text = Path(certificate_checker.__file__).read_text()
    assert text.count("\n") <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)
