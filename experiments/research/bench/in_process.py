"""What is measured in this process, or in a fresh Python: models, starts, and traced models.

Models: seconds from an instance to a solver that holds the model, without solving. They are built
as a method would build them without a known plan, compiled and handed over to HiGHS, on published
inputs where they are at hand, else on generated graphs. Starts: what a newcomer waits for. Traced
models: seconds, ops, edges, peak memory, each in a fresh Python.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyomo.environ as pyo

from placegap.experiments.research.bench.measuring import workbooks
from placegap.formulations import archer, getf, latency_ip, moirai, pesto, throughput_ip
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Instance, LatencySubgraphs, Makespan, MaxLoad
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends.highs import hand_over
from placegap.solvers.core.method import Limits, why_not_installed

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
        yield "GoogLeNet", load_model(workbook).instance()
    # as many pairs as make about 450,000 rows of Moirai's published model
    graph = generate("layered", {"ops": 184, "width": 8, "density": 0.2}, seed=4)
    yield "layered-184", Document(name="layered-184", graph=graph).instance(cluster)


def _builds(instance: Instance) -> Iterator[tuple[str, Callable[[], pyo.ConcreteModel]]]:
    yield "moirai as published", lambda: moirai.build(instance, PORT, form="as_published")
    yield "moirai strengthened", lambda: moirai.build(instance, PORT, symmetry=True)
    if instance.graph.name.startswith("layered"):
        return
    yield "pesto strengthened", lambda: pesto.build(instance, LINK)
    yield "getf lp", lambda: getf.build(instance, PORT)
    load, chain = MaxLoad(plans="any"), MaxLoad(plans="chain")
    yield "throughput any", lambda: throughput_ip.build(instance, load, symmetry=True)
    yield "throughput chain", lambda: throughput_ip.build(instance, chain, symmetry=True)
    yield "archer exact", lambda: archer.build(instance, chain)
    calls = LatencySubgraphs()
    yield "latency strengthened", lambda: latency_ip.build(instance, calls, symmetry=True)


COMMAND = "from placegap.experiments.cli import main; main({!r})"

# Names of the rows, and what a fresh Python runs.
STARTS = {
    "start: python alone": "pass",
    "start: placegap --version": COMMAND.format(["--version"]),
    "start: placegap --help": COMMAND.format(["--help"]),
    "start: import placegap": "import placegap",
    "start: import placegap.instances": "import placegap.instances",
    "start: import placegap.solvers": "import placegap.solvers",
    "start: every name of placegap.instances": "from placegap.instances import *",
    "start: every method": "from placegap.solvers import METHODS; list(METHODS.values())",
    "start: place, one placer": COMMAND.format(
        ["place", "inception_v1", "--cluster", "celeritas-4xV100-pcie", "--method", "heft"]
    ),
    "start: place, defaults": COMMAND.format(
        ["place", "inception_v1", "--cluster", "celeritas-4xV100-pcie"]
    ),
    **{
        f"start: prove squeezenet, {objective}": COMMAND.format(
            ["place", "squeezenet", "--cluster", "celeritas-4xV100-pcie", "--objective", objective]
        )
        for objective in ("max_load", "makespan")
    },
}


def start_benches() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each start, in a process of its own; its CPU seconds count its children's."""
    for name, code in STARTS.items():
        yield name, partial(fresh_python, code)


def fresh_python(code: str) -> str:
    """What a fresh Python prints that runs this code."""
    # workers start as processes that import the main module: it must be a file, or nothing
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.strip()


TRACED = (
    "gpt2",
    "bert-base",
    "vit-base",
    "resnet50",
    "swin-tiny",
    "t5-small",
    "llama-7b",
    "gpt3-13b",
)

TRACED_TRAINING = ("gpt2", "bert-base", "vit-base", "resnet50", "swin-tiny", "t5-small", "llama-7b")

CODE = """
from placegap.experiments.research.bench.measuring import peak_bytes
from placegap.experiments.running.sources import find_model
from placegap.instances.torch_models.options import TraceOptions
graph = find_model({!r}, tracing=TraceOptions(train={!r})).graph
flops = sum(op.flops or 0 for op in graph.ops) / 1e9
parameters = graph.provenance.parameters["parameters"] / 1e6
print(
    f"{{len(graph.ops)}} ops, {{len(graph.edges)}} edges, {{flops:.2f}} GFLOP,"
    f" {{parameters:.2f}} M parameters, {{peak_bytes() / 1e6:.0f}} MB"
)
"""


def traced_benches() -> Iterator[tuple[str, Callable[[], str]]]:
    """Each model, in a process of its own, which says what it found; none without torch."""
    missing = why_not_installed("torch", "torch")
    if missing is not None:
        print(f"left out: traced models: {missing}")
        return
    for model in TRACED:
        yield f"trace hf:{model}", partial(fresh_python, CODE.format(f"hf:{model}", False))
    for model in TRACED_TRAINING:
        yield f"trace hf:{model} --train", partial(fresh_python, CODE.format(f"hf:{model}", True))
