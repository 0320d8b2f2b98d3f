"""What it takes to trace models: seconds, ops, edges, peak memory, each in a fresh Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

from placegap.solvers.core.method import why_not_installed

MODELS = (
    "gpt2",
    "bert-base",
    "vit-base",
    "resnet50",
    "swin-tiny",
    "t5-small",
    "llama-7b",
    "gpt3-13b",
)

TRAINED = ("gpt2", "bert-base", "vit-base", "resnet50", "swin-tiny", "t5-small", "llama-7b")

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
    for model in MODELS:
        yield f"trace hf:{model}", partial(_run, CODE.format(f"hf:{model}", False))
    for model in TRAINED:
        yield f"trace hf:{model} --train", partial(_run, CODE.format(f"hf:{model}", True))


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.strip()
