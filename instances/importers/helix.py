"""Helix's released files: LP models of its MILP, their solutions, and lists of layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from placegap.instances.files.document import Document
from placegap.instances.importers.serving import as_document, whole
from placegap.instances.problem import Provenance
from placegap.instances.problem.flow_problem import (
    SINK,
    SOURCE,
    FlowProblem,
    Machine,
    Range,
    Ranges,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import read_content

ROW = re.compile(r"^ (\w+): ", re.MULTILINE)
TERM = re.compile(r"([+-]?) ?([\d.]+(?:e[+-]?\d+)?)? ?([a-z]\w*)")
ENDS = {"source": SOURCE, "sink": SINK}


class LpRow(NamedTuple):
    """A row of an LP file."""

    terms: dict[str, Decimal]
    sense: str  # "<=", ">=" or "="
    right: Decimal


def lp_rows(text: str) -> Iterator[tuple[str, LpRow]]:
    """Name and content of each row of an LP file that Gurobi wrote."""
    body = text[text.index("Subject To") : text.index("Bounds")]
    _, *parts = ROW.split(body)
    for name, row in zip(parts[::2], parts[1::2], strict=True):
        left, sense, right = re.split(r"([<>]?=)", " ".join(row.split()))
        terms = {
            variable: Decimal(f"{sign}{number or 1}")
            for sign, number, variable in TERM.findall(left)
        }
        yield name, LpRow(terms, sense, Decimal(right.strip()))


def is_helix(data: bytes) -> bool:
    """Whether the content of a file is an LP model of Helix."""
    return data.startswith(b"\\ Model ") and b"node_throughput_constraint_" in data


def load_helix_model(path: str | Path) -> Document:
    """The document of an LP file: layers in a row, machines, and a coordinator at both ends."""
    folder = Path(path).resolve().parent.name
    provenance = Provenance(
        source="Helix (Mei et al., ASPLOS 2025), LP file of Thesys-lab/Helix-ASPLOS25",
        licence="Apache-2.0",
        changes=("rates rounded down to millionths of a token per second",),
    )
    return as_document(load_helix(path), f"helix-{folder}", provenance, path)


def load_helix(path: str | Path, *, partial: bool = False) -> FlowProblem:
    """The problem of an LP file (``ilp_model.lp.gz``).

    Kinds take their names from ``simulator_cluster.ini`` beside it, where that fits.
    """
    layers, tables, links = 0, dict[int, tuple[int, ...]](), dict[tuple[int, int], int]()
    for name, row in lp_rows(read_content(path).decode()):
        family, *at = re.split(r"_(?=\d+(?:_|$)|source_|sink$)", name)
        if family == "end_constraint":
            layers = int(row.right)
        elif family == "node_throughput_constraint":
            held = [rate for variable, rate in row.terms.items() if variable.startswith("hold_")]
            tables[int(at[0])] = tuple(whole(-rate) for rate in held)
        elif family == "edge_flow_constr":
            a, b = (ENDS[end] if end in ENDS else int(end) for end in at)
            links[a, b] = whole(-next(c for v, c in row.terms.items() if v.startswith("switch_")))
    if not (layers and tables and links) or sorted(tables) != list(range(len(tables))):
        raise InputError("has no rows of Helix's model; name its ilp_model.lp.gz", path)
    kinds = _kinds(path, [tables[i] for i in range(len(tables))])
    machines = tuple(Machine(f"compute_node_{i + 2}", kind) for i, kind in enumerate(kinds))
    return FlowProblem(
        layers, machines, {kind: tables[i] for i, kind in enumerate(kinds)}, links, partial
    )


def _kinds(path: str | Path, tables: list[tuple[int, ...]]) -> list[str]:
    """A name for each machine's table: its machine type if that has no other table."""
    beside = Path(path).parent / "simulator_cluster.ini"
    found = [f"kind{tables.index(table)}" for table in tables]
    if beside.exists():
        types = re.findall(r'^machine_type="(\w+)"', beside.read_text(), re.MULTILINE)
        pairs = set(zip(types, tables, strict=False))
        if len(types) == len(tables) and len(pairs) == len(set(types)) == len(set(tables)):
            return types
    return found


def load_ranges(path: str | Path, problem: FlowProblem) -> Ranges:
    """The plan of a solution (``.sol``) or of a list of layers (``_sol.ini``)."""
    text = read_content(path).decode()
    size, found = problem.num_machines, dict[int, Range]()
    if "[Solution]" in text:
        offset = re.search(r"^offset=(\d+)", text, re.MULTILINE)
        for number, listed in re.findall(r"^compute_node_(\d+)=\[(.*)\]", text, re.MULTILINE):
            layers = [int(layer) for layer in listed.split(",")]
            at = int(number) - int(offset[1] if offset else 0)
            if layers != list(range(layers[0], layers[0] + len(layers))):
                raise InputError(f"compute_node_{number} has layers that do not follow", path)
            found[at] = Range(layers[0], len(layers))
    else:
        # Gurobi writes 0.99999 as well as 1
        values = {k: round(float(v)) for k, v in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}
        for variable, value in values.items():
            if value == 1 and variable.startswith("hold_"):
                i, layers_held = map(int, variable.split("_")[1:])
                found[i] = Range(values[f"start_{i}"], layers_held)
    if not found or max(found) >= size:
        raise InputError(f"is no plan for {size} machines", path)
    return tuple(found.get(i) for i in range(size))
