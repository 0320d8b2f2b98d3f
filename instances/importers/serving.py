"""Clusters that serve a model of equal layers, from a small YAML file: rates in tokens per second.

The file states layers, the throughput of each kind with 1, 2, .. layers, machines and links::

    layers: 80
    kinds: {A100: [24422.7, 11751.7, 7569.1], T4: [4113.2, 1905.5]}
    machines: {A100: 2, T4: [left, right]}        # how many (A100-0, A100-1), or their names
    links:
      - {between: all, tokens_per_s: 61035}       # every pair of machines, both ways
      - {from: left, to: right, tokens_per_s: 610.35}  # in place of what was said of it above
      - {from: source, to: A100-0, tokens_per_s: 5e8}

Where no link of ``source`` is stated, tokens enter everywhere, and without one of ``sink`` they
leave everywhere.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise, permutations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from placegap.instances.files.document import Document
from placegap.instances.problem import (
    Cluster,
    Device,
    Edge,
    Graph,
    InstancePart,
    Link,
    Name,
    Op,
    Positive,
    Provenance,
    ServingFlow,
)
from placegap.instances.problem.flow_problem import (
    MOST_RATE,
    SINK,
    SOURCE,
    UNITS,
    FlowProblem,
    Machine,
)
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.reading.errors import InputError, as_input_error

COORDINATOR = "coordinator"
"""The device that stands for source and sink; it holds no layer."""

TOKEN_BYTES = 1_000_000
"""Of a token, in instances whose files state tokens per second: links then have exact rates."""

TokensPerS = Annotated[Decimal, Field(gt=0, le=MOST_RATE // UNITS)]
MostLayers = Annotated[int, Field(gt=0, le=10_000)]


class ServingLink(InstancePart):
    """Links of one pair, or of every pair."""

    between: Literal["all"] | None = None
    source: Annotated[Name | None, Field(alias="from")] = None
    target: Annotated[Name | None, Field(alias="to")] = None
    tokens_per_s: TokensPerS


class ServingFile(InstancePart):
    """The content of a file."""

    name: Name | None = None
    layers: MostLayers
    kinds: dict[Name, Annotated[tuple[TokensPerS, ...], Field(min_length=1)]]
    machines: dict[Name, Annotated[Positive, Field(le=1024)] | tuple[Name, ...]]
    links: Annotated[tuple[ServingLink, ...], Field(min_length=1)]
    partial_inference: bool = False


def is_serving(raw: Any) -> bool:
    """Whether parsed YAML states layers, kinds and machines."""
    return isinstance(raw, dict) and {"layers", "kinds", "machines"} <= raw.keys()


def load_serving(raw: Any, path: str | Path) -> Document:
    """The document of parsed YAML that comes from a file."""
    with as_input_error(raw, path):
        file = ServingFile.model_validate(raw)
    machines = list[Machine]()
    for kind, stated in file.machines.items():
        if kind not in file.kinds:
            raise InputError(f"machines: {kind!r} is none of the kinds; add its table", path)
        names = stated if isinstance(stated, tuple) else numbered_names(kind, stated)
        machines += [Machine(name, kind) for name in names]
    number = {machine.name: i for i, machine in enumerate(machines)}
    if len(number) < len(machines):
        raise InputError("machines: a name appears twice", path)
    ends = {**number, "source": SOURCE, "sink": SINK}
    links: dict[tuple[int, int], int] = {}
    for at, entry in enumerate(file.links):
        rate = whole(entry.tokens_per_s)
        pair = [end for end in (entry.source, entry.target) if end is not None]
        if len(pair) != (2 if entry.between is None else 0):
            raise InputError(f"links[{at}]: state from and to, or between: all", path)
        if not pair:
            links |= dict.fromkeys(permutations(range(len(machines)), 2), rate)
            continue
        for end in pair:
            if end not in ends:
                raise InputError(f"links[{at}]: there is no machine {end!r}", path)
        a, b = (ends[end] for end in pair)
        if a in (b, SINK) or b == SOURCE:
            raise InputError(f"links[{at}]: leads from {pair[0]!r} to {pair[1]!r}", path)
        links[a, b] = rate
    named = {number for ends in links for number in ends if number < 0}
    for i in range(len(machines)) if named else ():
        links |= {} if SOURCE in named else {(SOURCE, i): MOST_RATE}
        links |= {} if SINK in named else {(i, SINK): MOST_RATE}
    tables = {kind: tuple(map(whole, file.kinds[kind])) for kind in file.machines}
    problem = FlowProblem(file.layers, tuple(machines), tables, links, file.partial_inference)
    name = file.name or Path(path).stem
    return as_document(problem, name, Provenance(source=Path(path).name), path)


def numbered_names(kind: str, count: int) -> tuple[str, ...]:
    """Names of machines of a kind."""
    return (kind,) if count == 1 else tuple(f"{kind}-{i}" for i in range(count))


def whole(rate: Decimal) -> int:
    """A rate in tokens per second as an integer, rounded down."""
    return max(1, int(rate * UNITS))


def as_document(
    problem: FlowProblem, name: str, provenance: Provenance, path: str | Path
) -> Document:
    """The layers of a problem as ops in a row, on its machines and a coordinator."""
    # An op's time is that of one token on a machine that holds the op alone.
    times = {kind: max(1, NS_PER_S * UNITS // table[0]) for kind, table in problem.tables.items()}
    ops = [Op(name=f"layer{i}", kind="Layer", time_ns=times) for i in range(problem.num_layers)]
    edges = [Edge(producer=a.name, consumer=b.name, bytes=TOKEN_BYTES) for a, b in pairwise(ops)]
    devices = [Device(name=machine.name, kind=machine.kind) for machine in problem.machines]
    names = [machine.name for machine in problem.machines]
    has_ends = any(SOURCE in pair or SINK in pair for pair in problem.links)
    if has_ends:
        devices.append(Device(name=COORDINATOR, kind=COORDINATOR, is_host=True))
        names.append(COORDINATOR)
    links = tuple(
        Link(source=names[max(a, -1)], target=names[max(b, -1)], bandwidth_bytes_per_s=rate)
        for (a, b), rate in problem.links.items()
    )
    with as_input_error(source=path):
        graph = Graph(
            name=name,
            ops=tuple(ops),
            edges=tuple(edges),
            throughputs=dict(problem.tables),
            provenance=provenance,
        )
        cluster = Cluster(
            name=f"{name}-machines", devices=tuple(devices), links=links, provenance=provenance
        )
        document = Document(
            name=name,
            graph=graph,
            cluster=cluster,
            semantics=ServingFlow(partial_inference=problem.partial),
        )
    return document.read_from(path)
