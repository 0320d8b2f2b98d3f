"""The workloads of ``workloads.yaml``, ``paper:network``, each with what its paper says of it.

Everything that a paper leaves open is a choice of ours, and stated: `Workload.note`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from placegap.experiments.research.workloads.convolutional import (
    holography,
    inception_v3,
    nasnet_large,
    pnasnet_mobile,
    resnet,
    vgg16,
)
from placegap.experiments.research.workloads.lowering import lower
from placegap.experiments.research.workloads.tape import MODULES, Dialect, Tape
from placegap.experiments.research.workloads.transformers import (
    bert,
    bert_layers,
    evoformer,
    gpt3,
    swin,
    transformer,
)
from placegap.experiments.research.workloads.translation import gnmt, nmt
from placegap.instances.costing.costing import with_costs
from placegap.instances.files.document import Document
from placegap.instances.problem import Provenance
from placegap.instances.reading.errors import InputError, look_up, paused_collector
from placegap.instances.reading.yaml_file import read_yaml

LARGEST_SIZE = 65_536  # of a batch or a number of steps: a limit against slips
MOST_STEPS = 1_024  # of time steps, each of which is hundreds of ops


@dataclass(frozen=True)
class Workload:
    """A network at the size that a paper placed it."""

    write: Callable[..., None]  # writes the network on a tape; takes the tape and `sizes` by name
    dialect: Dialect  # framework and phase; which kinds of ops the graph has beside the layers'
    sizes: Mapping[str, int]  # what may be chosen: ``batch``, and ``steps`` of sentences
    cluster: str  # the paper's cluster, among those that ship
    #: ops, edges: What the paper counts.
    ops: int | None
    edges: int | None = None
    ccr: float | None = None  # its communication-to-computation ratio
    #: Millions of them in the published architecture, `cited` from there.
    parameters: float | None = None
    cited: str = ""
    note: str = ""  # what the paper leaves open, and what was chosen


# What ``workloads.yaml`` names.
NETWORKS: Mapping[str, Callable[..., None]] = {
    write.__name__: write
    for write in (
        bert,
        bert_layers,
        evoformer,
        gnmt,
        gpt3,
        holography,
        inception_v3,
        nasnet_large,
        nmt,
        pnasnet_mobile,
        resnet,
        swin,
        transformer,
        vgg16,
    )
}


@cache
def workloads() -> Mapping[str, Workload]:
    papers = read_yaml(Path(__file__).resolve().with_name("workloads.yaml"))
    dialects = {name: Dialect(**fields) for name, fields in papers.pop("dialects").items()}
    found = {}
    for paper, rows in papers.items():
        for name, row in rows["networks"].items():
            write = partial(NETWORKS[row.pop("network")], **row.pop("shape", {}))
            dialect = dialects[row.pop("dialect")]
            found[f"{paper}:{name}"] = Workload(write, dialect, cluster=rows["cluster"], **row)
    return found


def find_workload(name: str) -> Workload:
    """A workload by name; an unknown name is an InputError that offers others."""
    return look_up("workload", name, workloads(), "placegap instances")


def build_workload(name: str, params: Mapping[str, Any] | None = None) -> Document:
    """The graph of a workload ``paper:network``, without a cluster and not costed yet."""
    # `params` are sizes other than the paper's: ``batch``, and ``steps`` where there are sentences.
    workload = find_workload(name)
    sizes = {**workload.sizes, **_read_sizes(name, workload, params or {})}
    with paused_collector():
        tape = Tape(workload.dialect)
        workload.write(tape, **sizes)
        provenance = Provenance(
            source=f"placegap generate {name}: the architecture as published, not a paper's file",
            changes=tuple(filter(None, (workload.note,))),
            parameters={**sizes, "dialect": workload.dialect.means},
        )
        graph = lower(tape, name, provenance)
    return Document(name=name, graph=with_costs(graph, "roofline"))


def _read_sizes(name: str, workload: Workload, params: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for key, value in params.items():
        if key not in workload.sizes:
            known = ", ".join(workload.sizes)
            raise InputError(f"{name} has no parameter {key!r}; choose from {known}")
        most = MOST_STEPS if key == "steps" else LARGEST_SIZE
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= most):
            raise InputError(f"{name}: {key} must be an integer from 1 to {most} (got {text!r})")
        found[key] = int(text)
    return found


def count_parameters(name: str) -> int:
    """Trained parameters of a workload's network, without heads that only training has."""
    workload = find_workload(name)
    framework = workload.dialect.framework
    tape = Tape(MODULES if framework == "modules" else Dialect(framework))
    with paused_collector():
        workload.write(tape, **workload.sizes)
    found = {w.name: w.size for op in tape.ops for w in op.weights if w.trained}
    return sum(found.values())
