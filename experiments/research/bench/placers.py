"""Benchmarks of placers: seconds and memory at the papers' scale, and how both grow.

Layered graphs of width 50 on eight equal GPUs that have half as much memory again as is needed,
from 1,000 ops to those of Celeritas' largest graph (83,206 ops; here 148,392 edges, there 148,548)
and, on request, to a million. Every row is a process of its own (`measuring.measure_apart`). The
growth exponent of a placer is the slope of the line through (log ops, log CPU seconds). The seconds
are those of a whole `run_method`: the referee's part is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from placegap.experiments.research.bench.measuring import Measured, measure_apart
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import (
    Cluster,
    Device,
    Graph,
    Instance,
    Makespan,
    MaxLoad,
    PipelineIteration,
    Semantics,
)
from placegap.instances.reading.errors import InputError
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.core.registry import parse_params, why_not

SIZES = (1_000, 10_000, 83_206)
LARGE = 1_000_000
DEVICES = 8
SHAPE = {"width": 50, "density": 0.0325}

TIME_LIMIT_S = 60.0  # for the methods that honour one

KILL_AFTER_S = 400.0
LONGEST_MESSAGE = 80
NEXT_SIZE_S = 20.0  # a placer that takes longer than this is not run on larger graphs

# A placer is measured under the first of these that it applies to.
RULES = (
    Makespan(channels="port"),
    MaxLoad(plans="any"),
    MaxLoad(plans="chain"),
    MaxLoad(plans="any", replicas=True),
    PipelineIteration(),
)

# Placers that are methods with other parameters.
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "dfs-topo": ("order-place", {"order": "dfs", "reach": 1}),
    "cpd-topo": ("order-place", {"order": "cpd", "reach": 1}),
}

# Placers that find nothing unless one device holds (nearly) all: measured without limits.
ROOMY = ("single-device", "pipedream", "data-parallel")

FAST = ("m-topo", "dfs-topo", "cpd-topo", "order-place", "heft", "peft", "m-etf", "celeritas")
SMALL = (("m-etf", 5_000, 4), ("heft", 1_000, 4))
# CPU seconds that a row should need at most; others at the papers' scale: a minute.
TARGETS_S: dict[tuple[str, int, int], float] = {
    **{(placer, SIZES[-1], DEVICES): 2.0 for placer in FAST},
    ("fd-dps", SIZES[-1], DEVICES): 30.0,
    SMALL[0]: 0.1,
    SMALL[1]: 0.01,
}


@dataclass(frozen=True)
class PlacerRow:
    """One placer on one graph; `found` says why there is no measurement where there is none."""

    placer: str
    num_ops: int
    num_devices: int
    found: Measured | str = ""

    @property
    def name(self) -> str:
        return f"{self.placer} {self.num_ops} ops {self.num_devices} devices"

    @property
    def remark(self) -> str:
        """Value, memory, and whether the row keeps to its target."""
        if isinstance(self.found, str):
            return self.found
        said = f"{self.found.peak_bytes / 2**30:.2f} GB, {self.found.remark}"
        usual = 60.0 if (self.num_ops, self.num_devices) == (SIZES[-1], DEVICES) else None
        target = TARGETS_S.get((self.placer, self.num_ops, self.num_devices), usual)
        if target is None:
            return said
        return f"{said}; {'within' if self.found.cpu_s <= target else 'ABOVE'} {target:g} s"


@dataclass(frozen=True)
class Growth:
    """Growth exponent of a placer's CPU time, fitted over the sizes it was measured at."""

    placer: str
    exponent: float
    sizes: tuple[int, ...]
    cpu_s: tuple[float, ...]


# They need a file of a plan, tight memory, numbered layers, or devices that are alike.
LEFT_OUT = {
    "expert",
    "memory-knapsack",
    "repeated-layers",  # the graphs of a size have no equal layers
    *("exo", "llama-cpp", "vllm-even", "sglang-even"),
    *("llama-fit", "ik-llama-fit", "halda", "parallax"),
    *("equal-split", "piper"),
    *("petals", "swarm", "flow-row", "flow-blocks", "flow-moves"),  # ranges of layers on machines
}


def placers() -> list[str]:
    """The heuristics that are measured: no MILPs, and nothing that needs more than a graph."""
    names = [
        method.name
        for method in METHODS.values()
        if method.claim == "heuristic"
        and method.formulation is None
        and method.name not in LEFT_OUT
    ]
    return [*names, *VARIANTS]


def placer_rows(*, large: bool, only: str) -> Iterator[PlacerRow]:
    """All placers on all sizes, graph by graph; `only` is a part of a row's name."""
    too_slow: set[str] = set()
    for num_ops in (*SIZES, *((LARGE,) if large else ())):
        for row in _on(num_ops, DEVICES, placers(), only, too_slow):
            yield row
            if isinstance(row.found, str) or row.found.cpu_s > NEXT_SIZE_S:
                too_slow.add(row.placer)
    for placer, num_ops, num_devices in SMALL:
        yield from _on(num_ops, num_devices, [placer], only, set())


def _on(
    num_ops: int, num_devices: int, chosen: Iterable[str], only: str, too_slow: set[str]
) -> Iterator[PlacerRow]:
    rows = [PlacerRow(placer, num_ops, num_devices) for placer in chosen]
    rows = [row for row in rows if only in row.name]
    if not rows:
        return
    instance = layered(num_ops, num_devices)
    _ = instance.content_hash
    for row in rows:
        slow = row.placer in too_slow
        found = "left out: slow on a smaller graph" if slow else measure(instance, row.placer)
        yield PlacerRow(row.placer, num_ops, num_devices, found)


def layered(num_ops: int, num_devices: int) -> Instance:
    """A layered graph on equal GPUs that hold it one and a half times."""
    graph = generate("layered", {"ops": num_ops, **SHAPE}, seed=2)
    return on_gpus(graph, num_devices)


def on_gpus(graph: Graph, count: int) -> Instance:
    """A graph on equal GPUs with NVLink, which hold it one and a half times."""
    share = 3 * sum(op.resident_bytes for op in graph.ops) // (2 * count)
    cluster = load_cluster("8xH100-nvlink")
    devices = tuple(
        Device(name=device.name, kind="gpu", memory_bytes=share)
        for device in cluster.devices[:count]
    )
    names = {device.name for device in devices}
    links = tuple(at for at in cluster.links if at.source in names and at.target in names)
    gpus = Cluster(name=f"{count}-gpus", devices=devices, links=links)
    return Instance(name=f"{len(graph.ops)}-ops", graph=graph, cluster=gpus)


def without_limits(instance: Instance) -> Instance:
    """The instance on devices of unlimited memory."""
    cluster = instance.cluster
    devices = tuple(at.model_copy(update={"memory_bytes": None}) for at in cluster.devices)
    roomy = cluster.model_copy(update={"devices": devices})
    changed = instance.model_copy(update={"cluster": roomy})
    _ = changed.content_hash  # part of every result, and computed once
    return changed


def measure(instance: Instance, placer: str) -> Measured | str:
    """Measure a placer on an instance, under the first of `RULES` that it applies to."""
    name, params = VARIANTS.get(placer, (placer, {}))
    missing = METHODS[name].missing()
    if missing is not None:
        return missing
    semantics = rules_for(instance, name, params)
    if semantics is None:
        return "does not apply"
    small = layered(200, instance.num_devices)
    if placer in ROOMY:
        instance, small = without_limits(instance), without_limits(small)

    def run(on: Instance = instance) -> str:
        result = run_method(on, semantics, name, params, time_limit_s=TIME_LIMIT_S)
        said = f"{semantics.objective} {result.value_ns}"
        return f"{said}; {result.message[:LONGEST_MESSAGE]}" if result.message else said

    def warm_up() -> None:
        try:
            run(small)
        except InputError:  # it is too small for the method
            return

    return measure_apart(run, warm_up, KILL_AFTER_S)


def rules_for(instance: Instance, name: str, params: Mapping[str, object]) -> Semantics | None:
    """The first of `RULES` that a method applies to, or None."""
    method = METHODS[name]
    parsed = parse_params(method, params)
    return next((r for r in RULES if why_not(method, Task(instance, r), parsed) is None), None)


def building_benches(*, large: bool) -> Iterator[tuple[str, Callable[[], object], str]]:
    """Making the graphs, apart from placing: generation, and the instance with its arrays."""
    for num_ops in (SIZES[-1], *((LARGE,) if large else ())):
        made: list[Graph] = []

        def make(size: int = num_ops, into: list[Graph] = made) -> None:
            into[:] = [generate("layered", {"ops": size, **SHAPE}, seed=2)]

        def derive(size: int = num_ops, own: list[Graph] = made) -> None:
            if not own:
                make(size, own)
            on_gpus(own[0], DEVICES)

        yield f"generate {num_ops} ops", make, "operations and edges, checked"
        yield f"instance {num_ops} ops", derive, "with its arrays"


def growth(rows: Iterable[PlacerRow]) -> list[Growth]:
    """The exponent of each placer that was measured at two sizes or more, in the rows' order."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.num_devices == DEVICES and isinstance(row.found, Measured):
            found.setdefault(row.placer, []).append((row.num_ops, row.found.cpu_s))
    fitted = []
    for placer, points in found.items():
        if len(points) > 1:
            sizes, seconds = zip(*points, strict=True)
            slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
            fitted.append(Growth(placer, round(slope, 2), sizes, seconds))
    return fitted
