"""Benchmarks of models: seconds from an instance to a solver that holds the model, without solving.

The models are built as a method would build them without a known plan, compiled and handed over to
HiGHS. On published inputs where they are at hand, else on generated graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyomo.environ as pyo

from placegap.experiments.research.bench.measuring import workbooks
from placegap.formulations import archer, getf, latency_ip, moirai, pesto, throughput_ip
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.io.document import Document
from placegap.instances.io.reader import read_model
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import LatencySubgraphs, Makespan, MaxLoad
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends.highs import hand_over
from placegap.solvers.core.method import Limits

Bench = tuple[str, Callable[[], object], Callable[[Any], str]]
Size = tuple[int, int]

PORT = Makespan(channels="port")
LINK = Makespan(channels="link")


def model_benches(inputs: Path) -> Iterator[Bench]:
    """Building and hand-off of every formulation."""
    for name, instance in _instances(inputs):
        for label, build in _builds(instance):
            yield (
                f"build {label} {name}",
                lambda b=build: size_after_hand_over(b),  # type: ignore[misc]
                lambda size: f"{size[0]} rows, {size[1]} columns",
            )


def size_after_hand_over(build: Callable[[], pyo.ConcreteModel]) -> Size:
    """Build a model, hand it over, and return its rows and columns."""
    with paused_collector():
        model = build()
        _, lp, _ = hand_over(model, Limits())
    return lp.num_row_, lp.num_col_


def _instances(inputs: Path) -> Iterator[tuple[str, Instance]]:
    cluster = load_cluster("celeritas-4xV100-pcie")
    yield "inception_v1", load_corpus("inception_v1").instance(cluster)
    for workbook in workbooks(inputs, "GoogLeNet.xls"):
        yield "GoogLeNet", read_model(workbook).instance()
    # as many pairs as make about 450,000 rows of Moirai's published model
    graph = generate("layered", {"ops": 184, "width": 8, "density": 0.2}, seed=4)
    yield "layered-184", Document(name="layered-184", graph=graph).instance(cluster)


def _builds(instance: Instance) -> Iterator[tuple[str, Callable[[], pyo.ConcreteModel]]]:
    yield "moirai as published", lambda: moirai.build(instance, PORT, "as_published")
    yield "moirai strengthened", lambda: moirai.build(instance, PORT, symmetry=True)
    if instance.graph.name.startswith("layered"):
        return
    yield "pesto strengthened", lambda: pesto.build(instance, LINK)
    yield "getf milp", lambda: getf.build(instance)
    load, chain = MaxLoad(), MaxLoad(plans="chain")
    yield "throughput any", lambda: throughput_ip.build(instance, load, symmetry=True)
    yield "throughput chain", lambda: throughput_ip.build(instance, chain, symmetry=True)
    yield "archer three blocks", lambda: archer.build_three_blocks(instance, chain)
    calls = LatencySubgraphs()
    yield "latency strengthened", lambda: latency_ip.build(instance, calls, symmetry=True)
