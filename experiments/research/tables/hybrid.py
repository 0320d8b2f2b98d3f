"""Hybrid plans beside proven optima and measured runs (docs/pipelines.md).

``python -m placegap.experiments.research.tables.hybrid published`` prints published
configurations of Megatron-LM, split evenly, beside the optimum that `hybrid-cuts` proves at
measured costs. ``measured NETWORK SHARDING FILE ...`` compares predicted iterations of even plans
with measured ones, with all layers recomputed, by both kinds of costs: the errors, and how much
longer the configuration with the least prediction took than the fastest one.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import process_time
from typing import NamedTuple, get_args

from placegap.instances.corpus.layer_chains import (
    TRAIN,
    ModelShape,
    chain_with_modes,
    layers_with_modes,
)
from placegap.instances.costing.layer_modes import ModelledOn
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Graph, HybridPipeline, Instance, Plan, Semantics, Sharding
from placegap.instances.reading.errors import InputError, look_up
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import Result, run_method

TIME_LIMIT_S = 120.0


class Degrees(NamedTuple):
    """A configuration as papers state it: devices per layer, stages, replicas."""

    tensor: int
    stages: int
    replicas: int

    def __str__(self) -> str:
        return ", ".join(map(str, self))


@dataclass(frozen=True)
class Published:
    """A published run: sequences per microbatch, microbatches per batch, seconds per batch."""

    # `chunks` are the stages of a device under the interleaved schedule.
    shape: str
    degrees: Degrees
    mode: str
    seconds: float
    microbatches: int
    batch: int = 1
    chunks: int = 1


PUBLISHED = (
    # Korthikanti et al. 2022, tables 3 and 5
    Published("megatron-22b", Degrees(8, 1, 1), "selective", 1.10, 1, batch=4),
    Published("megatron-175b", Degrees(8, 8, 1), "selective", 13.75, 64, chunks=3),
    Published("megatron-530b", Degrees(8, 35, 1), "selective", 37.83, 280, chunks=3),
    Published("megatron-1t", Degrees(8, 64, 1), "selective", 71.49, 512),
    # Narayanan et al. 2021, table 1; seconds from its TFLOP/s, microbatches of one sequence
    Published("megatron-145b", Degrees(8, 8, 24), "full", 24.8, 2304),
    Published("megatron-310b", Degrees(8, 16, 15), "full", 37.6, 2160),
    Published("megatron-530b", Degrees(8, 35, 9), "full", 54.1, 2520),
    Published("megatron-1t", Degrees(8, 64, 6), "full", 102.6, 3072),
)

PUBLISHED_HEADS = (
    *("model", "devices", "published t, p, d, mode", "s", "predicted", "full pipeline, above"),
    *("its t", "filled and drained, above", "full, above any mode", "any mode gains", "CPU s"),
)

MEMORY = "68GiB"  # what is free of cards of 80 GiB: without 12 for training (`runtime_memory`)


def _trained_on(servers: str, shape: str, batch: int) -> Instance:
    cluster = load_cluster(servers)
    on = ModelledOn.cluster(cluster, measured=True)
    graph = chain_with_modes(shape + TRAIN, on, {"batch": batch})
    return Instance(name=shape, graph=graph, cluster=cluster)


def even_plan(instance: Instance, degrees: Degrees, mode: str) -> Plan | None:
    """A chain cut evenly, its ends with the first and the last stage; None where t is too large."""
    # Where only that makes it even, the ends count as layers (as in Llama 3). A layer that has no
    # such mode keeps the one that it has.
    ops, (t, p, d) = instance.graph.ops, degrees
    inner = len(ops) - 2
    stage = [0, *(k * p // inner for k in range(inner)), p - 1]
    if inner % p and len(ops) % p == 0:
        stage = [k * p // len(ops) for k in range(len(ops))]
    modes = []
    for op in ops:
        own = [each.name for each in op.modes if each.tensor == t]
        if not own:
            return None
        modes.append(mode if mode in own else own[0])
    size = t * d
    devices = tuple(tuple(range(s * size, (s + 1) * size)) for s in range(p))
    return Plan(
        tuple(devices[s] for s in stage), stage=tuple(stage), tensor=(t,) * p, mode=tuple(modes)
    )


def published_rows(runs: Sequence[Published] = PUBLISHED) -> Iterator[tuple[str, ...]]:
    """One row per run, at measured costs: what its plan takes beside what it took, and optima."""
    # Filling and draining count in the first: p - 1 microbatches more, or a part of that with
    # chunks.
    for run in runs:
        t, p, d = run.degrees
        cluster = f"{t * p * d // 8}x8xA100-80GB:{MEMORY}, nvlink, infiniband-180g"
        instance = _trained_on(cluster, run.shape, run.batch)
        full = HybridPipeline(microbatches=run.microbatches, degrees="free")
        filled = HybridPipeline(microbatches=run.microbatches, bubble=True)
        plan, own = even_plan(instance, run.degrees, run.mode), _only(instance, run.mode)
        assert plan is not None
        value_ns, filled_ns = (_value_ns(instance, plan, rules) for rules in (full, filled))
        begin = process_time()
        same, any_mode, best = _solved(own, full), _proven(instance, full), _proven(own, filled)
        spent = process_time() - begin
        assert same.value_ns is not None
        assert same.plan is not None
        more = (p - 1) / (run.microbatches // d * run.chunks)
        yield (
            run.shape.removeprefix("megatron-").upper(),
            f"{t * p * d:,}",
            f"{run.degrees}, {run.mode}",
            f"{run.seconds:.2f}",
            _change(round(value_ns * (1 + more)), round(run.seconds * 1e9)),
            _above(value_ns, same.value_ns),
            ", ".join(map(str, sorted(set(same.plan.tensor or ())))),
            _above(filled_ns, best),
            _above(value_ns, any_mode),
            f"{100 * (1 - any_mode / same.value_ns):.1f} %",
            f"{spent:.1f}",
        )


def _value_ns(instance: Instance, plan: Plan, semantics: Semantics) -> int:
    value_ns = evaluate(instance, plan, semantics).value_ns
    assert value_ns is not None
    return value_ns


def _only(instance: Instance, name: str) -> Instance:
    """The instance with one mode for each t, where a layer has it by this name."""
    ops = []
    for op in instance.graph.ops:
        own = tuple(mode for mode in op.modes if mode.name == name)
        ops.append(op.model_copy(update={"modes": own or op.modes}))
    graph: Graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    return instance.with_graph(graph)


def _proven(instance: Instance, semantics: HybridPipeline) -> int:
    found = _solved(instance, semantics)
    if found.value_ns is None:
        raise InputError(f"no plan fits: {found.message}", instance.name)
    return found.value_ns


def _solved(instance: Instance, semantics: HybridPipeline) -> Result:
    found = run_method(instance, semantics, "hybrid-cuts", time_limit_s=TIME_LIMIT_S)
    if found.status not in ("optimal", "infeasible"):
        raise InputError(f"is not proven within {TIME_LIMIT_S:.0f} s", instance.name)
    return found


def _above(value_ns: int, best_ns: int) -> str:
    return f"{100 * (value_ns / best_ns - 1):.1f} %"


def _change(value_ns: int, best_ns: int) -> str:
    """How much more or less it is, in percent, with its sign."""
    return f"{round(100 * (value_ns / best_ns - 1), 1) + 0.0:+.1f} %"


class MeasuredRun(NamedTuple):
    """A measured iteration of Megatron-LM: a shape, a configuration, and milliseconds."""

    shape: ModelShape
    degrees: Degrees
    micro_batch: int
    global_batch: int
    milliseconds: float

    @property
    def group(self) -> str:
        """What runs must have in common for one of them to be a choice among them."""
        t, p, d = self.degrees
        shape = f"{self.shape.hidden} x {self.shape.layers}, {self.shape.heads} heads"
        return f"{shape}, {t * p * d} GPUs, batch {self.global_batch}"


def load_runs(path: str) -> list[MeasuredRun]:
    """The runs of a file of comma-separated values; those that split a layer over servers are out.

    A file without a column ``vocabulary`` has 51,200 words.
    """
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        hidden, layers, heads, tokens = (
            int(row[name]) for name in ("hidden", "layers", "heads", "sequence")
        )
        words = int(row.get("vocabulary") or 51_200)
        shape = ModelShape(layers, hidden, 4 * hidden, 2, words, tokens, heads, fused=False)
        degrees = Degrees(*(int(row[name]) for name in ("tensor", "pipeline", "data")))
        batches = int(row["micro_batch"]), int(row["global_batch"])
        if degrees.tensor <= SERVER_DEVICES:
            found.append(MeasuredRun(shape, degrees, *batches, float(row["milliseconds"])))
    return found


def predicted_ms(run: MeasuredRun, network: str, sharding: Sharding, *, measured: bool) -> float:
    """The iteration of an even plan that computes every layer again, filled and drained."""
    count = run.degrees.tensor * run.degrees.stages * run.degrees.replicas
    cluster = load_cluster(f"{count // SERVER_DEVICES}x8xA100-80GB:80GiB, nvlink, {network}")
    on = ModelledOn.cluster(cluster, measured=measured)
    on = on._replace(sequence=False, tensors=(run.degrees.tensor,))
    graph = layers_with_modes("run", run.shape, run.micro_batch, on)
    instance = Instance(name="run", graph=graph, cluster=cluster)
    plan = even_plan(instance, run.degrees, "full")
    assert plan is not None
    microbatches = run.global_batch // run.micro_batch
    rules = HybridPipeline(microbatches=microbatches, bubble=True, sharding=sharding)
    return _value_ns(instance, plan, rules) / 1e6


SERVER_DEVICES = 8

MEASURED_HEADS = (
    *("runs", "number", "mean error, by peak", "chosen above best, by peak"),
    *("mean error, measured", "chosen above best, measured"),
)


def measured_rows(given: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One row per file and one per group of it, for a network of servers, a sharding and files."""
    # What the choices of a file's groups lose is stated as their mean.
    if len(given) < 3:
        raise InputError("measured NETWORK SHARDING FILE ...: infiniband-100g none runs.csv")
    network, sharding, *files = given
    shards = look_up("sharding", sharding, {name: name for name in get_args(Sharding)})
    for path in files:
        runs = load_runs(path)
        ratios = [
            [predicted_ms(run, network, shards, measured=by) / run.milliseconds for run in runs]
            for by in (False, True)
        ]
        groups: dict[str, list[int]] = {}
        for i, run in enumerate(runs):
            groups.setdefault(run.group, []).append(i)
        lost = [{name: _lost(runs, ratio, at) for name, at in groups.items()} for ratio in ratios]
        for name, at in {Path(path).stem: list(range(len(runs))), **groups}.items():
            by_peak, measured = (
                _errors([ratio[i] for i in at], own.get(name, mean(own.values())))
                for ratio, own in zip(ratios, lost, strict=True)
            )
            yield name, str(len(at)), *by_peak, *measured


def _lost(runs: Sequence[MeasuredRun], ratio: Sequence[float], at: Sequence[int]) -> float:
    """How far the run of the least prediction is above the fastest, as a share."""
    chosen = min(at, key=lambda i: ratio[i] * runs[i].milliseconds)
    return runs[chosen].milliseconds / min(runs[i].milliseconds for i in at) - 1


def _errors(ratios: Sequence[float], lost: float) -> tuple[str, str]:
    error = mean(abs(ratio - 1) for ratio in ratios)
    return f"{100 * error:.1f} %", f"{100 * lost:.1f} %"


# Heads and rows of each table; some rows are made for files.
TABLES: Mapping[str, tuple[Sequence[str], Callable[[Sequence[str]], Iterator[tuple[str, ...]]]]] = {
    "published": (PUBLISHED_HEADS, lambda _: published_rows()),
    "measured": (MEASURED_HEADS, measured_rows),
}


def main(arguments: Sequence[str]) -> None:
    """Print the named table row by row."""
    name, *files = arguments or ["published"]
    heads, rows = look_up("table", name, TABLES)
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows(files):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
