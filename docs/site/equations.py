"""Tables of a model's equations, made from the functions that state them.

``python docs/site/equations.py`` fills the tables between ``<!-- equations: NAMES -->`` and ``<!--
end of equations -->``; ``make pages-check`` fails if something has changed. A name is a module of
`placegap.formulations`, or a function of one. A row has what stands before the colon of the
function's docstring (the paper's number), the components that it adds with their Sets, as models of
the example have them, and the docstring's paragraph in dollars.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pyomo.environ as pyo

from placegap.experiments.show.rendering import markdown_grid
from placegap.formulations import (
    archer,
    getf,
    helix,
    latency_ip,
    m_sct,
    moirai,
    pesto,
    sections,
    throughput_ip,
)
from placegap.instances import (
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    Provenance,
    ServingFlow,
    example,
)
from placegap.instances.importers.serving import as_document
from placegap.instances.problem.flow_problem import SINK, SOURCE, FlowProblem, Machine
from placegap.solvers.models.explain import index_text

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "placegap.formulations."
HEAD = ("paper", "components, of each", "mathematics", "function")
KINDS = (pyo.Var, pyo.Constraint, pyo.Expression, pyo.Objective)
TABLE = re.compile(r"(<!-- equations: ([\w. ]+) -->\n).*?(<!-- end of equations -->)", re.DOTALL)


def full_example() -> Instance:
    """The example with memory and a colocation group: it has rows of every family."""
    instance = example()
    ops = [op.model_copy(update={"resident_bytes": 1}) for op in instance.graph.ops]
    for i in (1, 2):
        ops[i] = ops[i].model_copy(update={"colocation": "pair"})
    return instance.with_graph(instance.graph.model_copy(update={"ops": tuple(ops)}))


def tight(instance: Instance) -> Instance:
    """The instance on devices that do not hold all ops."""
    devices = [d.model_copy(update={"memory_bytes": 1}) for d in instance.cluster.devices]
    cluster = instance.cluster.model_copy(update={"devices": tuple(devices)})
    return instance.model_copy(update={"cluster": cluster})


def on_servers(instance: Instance) -> Instance:
    """The instance with a server of its own for each device."""
    devices = [
        device.model_copy(update={"server": device.name}) for device in instance.cluster.devices
    ]
    cluster = instance.cluster.model_copy(update={"devices": tuple(devices)})
    return instance.model_copy(update={"cluster": cluster})


def fixed_ends(instance: Instance) -> Instance:
    """The instance with a first and a last op that run on one device only."""
    ops = list(instance.graph.ops)
    for i in (1, 2):
        ops[i] = ops[i].model_copy(update={"time_ns": {**ops[i].time_ns, "other": 1}})
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    first, second = instance.cluster.devices
    devices = (first, second.model_copy(update={"kind": "other"}))
    cluster = instance.cluster.model_copy(update={"devices": devices})
    return instance.model_copy(update={"graph": graph, "cluster": cluster})


def idle(instance: Instance) -> Instance:
    """The instance without times, on an accelerator and a host: calls may wait in a cycle."""
    ops = [op.model_copy(update={"time_ns": {"gpu": 0}}) for op in instance.graph.ops]
    edges = [edge.model_copy(update={"bytes": 0}) for edge in instance.graph.edges]
    graph = instance.graph.model_copy(update={"ops": tuple(ops), "edges": tuple(edges)})
    first, second = instance.cluster.devices
    devices = (first, second.model_copy(update={"is_host": True}))
    cluster = instance.cluster.model_copy(update={"devices": devices})
    return instance.model_copy(update={"graph": graph, "cluster": cluster})


def served() -> Instance:
    """Three equal layers on two machines, with links of source and sink."""
    machines, links = (Machine("a", "gpu"), Machine("b", "gpu")), {(0, 1): 9, (1, 0): 9}
    links |= {(SOURCE, 0): 9, (SOURCE, 1): 9, (0, SINK): 9, (1, SINK): 9}
    problem = FlowProblem(3, machines, {"gpu": (9, 5)}, links)
    return as_document(problem, "served", Provenance(), "served").instance()


def models() -> Iterator[pyo.ConcreteModel]:
    """Models that have all families between them; one of a new module is added here."""
    for instance in (full_example(), example()):
        for channels in ("port", "link"):
            rules = Makespan(channels=channels)
            yield moirai.build(instance, rules, symmetry=True)
    instance = full_example()
    yield moirai.build(instance, Makespan(channels="port"), form="as_published")
    for build in (partial(pesto.build, form="as_published"), pesto.build):
        yield build(instance, Makespan(channels="link"))
    yield getf.build(tight(instance), Makespan())
    yield m_sct.build(instance, Makespan())
    yield sections.build(fixed_ends(instance), Makespan(channels="port", transfers="per_tensor"))
    for calls in (1, 2):
        subgraphs = LatencySubgraphs(subgraphs=calls)
        yield latency_ip.build(instance, subgraphs, form="as_published")
        yield latency_ip.build(instance, subgraphs, symmetry=True)
        yield latency_ip.build(idle(instance), subgraphs)
    yield archer.build(tight(instance), MaxLoad(plans="chain"))
    for load in ("add", "overlap"):
        for replicas in (False, True):
            loads = MaxLoad(plans="chain", load=load, replicas=replicas)
            yield throughput_ip.build(instance, loads, symmetry=True)
    yield throughput_ip.build(on_servers(instance), MaxLoad(plans="convex", levels=2))
    for form in ("as_published", "strengthened"):
        yield helix.build(served(), ServingFlow(), form=form)


@cache
def components() -> dict[str, dict[str, str]]:
    """The components that each function adds, and the Sets that index them."""
    found: dict[str, dict[str, str]] = {}
    for model in models():
        for part in model.component_objects(KINDS):
            stated_by = getattr(part.parent_block(), "stated_by", {})
            by = stated_by.get(part.local_name, "").removeprefix(PACKAGE)
            sets = index_text(part)
            if by and "none" not in sets.split(" x "):
                found.setdefault(by, {}).setdefault(part.local_name, sets)
    return found


def functions(name: str) -> Iterator[tuple[str, FunctionType]]:
    """The functions of a module that state an equation, in its order, or the one of that name."""
    home, _, last = name.rpartition(".")
    package = import_module(f"{PACKAGE}{home}".rstrip("."))
    stated = getattr(package, last, None)
    if inspect.isfunction(stated):
        yield name, stated
        return
    module = import_module(PACKAGE + name)
    for own, function in vars(module).items():
        is_own = inspect.isfunction(function) and function.__module__ == module.__name__
        if is_own and mathematics(function):
            yield f"{name}.{own}", function


def mathematics(function: FunctionType) -> str:
    """The paragraph in dollars of a docstring, or nothing."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    (*_, last) = [" ".join(one.split()) for one in paragraphs]
    return last if last.startswith("$") and last.endswith("$") else ""


def row(name: str, function: FunctionType) -> tuple[str, ...]:
    """A row of a table."""
    said = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    head, colon, _ = said.partition(":")
    added = components().get(name, {})
    parts = (f"`{part}`{f' {sets}' if sets else ''}" for part, sets in added.items())
    is_variable = not colon or "[" in head
    paper = "variables" if is_variable else head
    return paper, "; ".join(parts), mathematics(function), f"`{name}`"


def with_tables(page: str) -> str:
    """A page with its tables made anew."""

    def table(found: re.Match[str]) -> str:
        names = found[2].split()
        rows = [row(*each) for name in names for each in functions(name)]
        lines = "\n".join(markdown_grid(HEAD, rows))
        return f"{found[1]}\n{lines}\n\n{found[3]}"

    return TABLE.sub(table, page)


def made() -> dict[Path, str]:
    """Every page with such tables, and what it has to be."""
    pages = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "course").glob("*.md")])
    texts = {page: page.read_text() for page in pages}
    return {page: with_tables(text) for page, text in texts.items() if TABLE.search(text)}


def main() -> None:
    """Write what has changed, and say so."""
    for path, text in made().items():
        if path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
