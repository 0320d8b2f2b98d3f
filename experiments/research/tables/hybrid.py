"""Hybrid plans beside proven optima, as docs/hybrid.md has them.

``python -m placegap.experiments.research.tables.hybrid published`` prints published
configurations of Megatron-LM, split evenly, beside the optimum; ``trained`` current models on 8 to
16,384 H100, ``filled`` the same where filling and draining count; ``restrictions [FILE ...]`` what
one degree for all and few choices of recomputation cost, for a layer chain or inputs of Piper. All
optima are proven by `hybrid-cuts`, at measured costs but for Piper's inputs. ``measured NETWORK
SHARDING FILE ...`` holds predicted iterations of even plans against measured ones, with all layers
recomputed, by both kinds of costs: the errors, and how far the configuration of the least
prediction is above the fastest measured one.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, mean, median
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
from placegap.instances.importers.piper import load_piper
from placegap.instances.problem import (
    Cluster,
    Graph,
    HybridPipeline,
    Instance,
    Plan,
    Semantics,
    Sharding,
)
from placegap.instances.reading.errors import InputError, look_up
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.one_pipeline import one_pipeline
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
    """A published run: sequences per microbatch, microbatches per batch, seconds per batch.

    `chunks` are the stages of a device under the interleaved schedule.
    """

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
    "model",
    "devices",
    "published t, p, d, mode",
    "s",
    "predicted",
    "full pipeline, above",
    "its t",
    "filled and drained, above",
    "full, above any mode",
    "any mode gains",
    "CPU s",
)


MEMORY = "68GiB"
"""What is free of cards of 80 GiB: without the 12 that training takes (`runtime_memory`)."""


def _trained_on(servers: str, shape: str, batch: int = 1, *, measured: bool = True) -> Instance:
    cluster = load_cluster(servers)
    on = ModelledOn.cluster(cluster, measured=measured)
    graph = chain_with_modes(shape + TRAIN, on, {"batch": batch})
    return Instance(name=shape, graph=graph, cluster=cluster)


def even_plan(instance: Instance, degrees: Degrees, mode: str) -> Plan | None:
    """A chain cut evenly, its ends with the first and the last stage; None where t is too large.

    Where only that makes it even, the ends count as layers (as in Llama 3). A layer that has no
    such mode keeps the one that it has.
    """
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
    """One row per run, at measured costs: what its plan takes beside what it took, and optima.

    Filling and draining count in the first: p - 1 microbatches more, or a part of that with chunks.
    """
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
            change(round(value_ns * (1 + more)), round(run.seconds * 1e9)),
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


def change(value_ns: int, best_ns: int) -> str:
    """How much more or less it is, with its sign, and none for what rounds to 0."""
    return f"{round(100 * (value_ns / best_ns - 1), 1) + 0.0:+.1f} %"


@dataclass(frozen=True)
class Trained:
    """A model on servers of 8 H100, and the degrees that it was published with."""

    shape: str
    servers: int
    microbatches: int
    published: Degrees | None = None
    sharding: Sharding = "optimizer"


TRAINED = (
    Trained("llama-8b", 1, 128),
    Trained("llama-8b", 16, 512),
    Trained("llama-8b", 128, 2048),
    Trained("mixtral-8x7b", 1, 128),
    Trained("mixtral-8x7b", 16, 1024),
    Trained("mixtral-8x7b", 128, 2048),
    Trained("llama-70b", 4, 128),
    Trained("llama-70b", 16, 512),
    Trained("llama-70b", 256, 2048),
    # Grattafiori et al. 2024, table 4: 16 million tokens a batch
    Trained("llama-405b", 1024, 2048, Degrees(8, 16, 64), "gradients"),
    Trained("llama-405b", 2048, 2048, Degrees(8, 16, 128), "gradients"),
)

TRAINED_HEADS = (
    "model",
    "H100",
    "microbatches",
    "s a batch",
    "t, p, d",
    "modes",
    "chosen at half of the peak: above",
    "free degrees gain",
    "published t, p, d: above",
    "CPU s",
)


def trained_rows(runs: Sequence[Trained] = TRAINED) -> Iterator[tuple[str, ...]]:
    """One row per model and cluster: the optimum with one t and d, and what free ones gain.

    The published degrees are split evenly, in the least mode that fits.
    """
    for run in runs:
        instance, rules = _to_train(run)
        begin = process_time()
        best = _solved(instance, rules)
        spent = process_time() - begin
        row = (run.shape, f"{8 * run.servers:,}", str(run.microbatches))
        if best.value_ns is None or best.plan is None:
            yield (*row, "none fits, proven", "", "", "", "", "", f"{spent:.1f}")
            continue
        free = _proven(instance, rules.model_copy(update={"degrees": "free"}))
        yield (
            *row,
            f"{best.value_ns / 1e9:.2f}",
            str(_degrees_of(best.plan)),
            _modes_of(instance, best.plan),
            _at_peak(run, instance, rules, best.value_ns),
            f"{100 * (1 - free / best.value_ns):.1f} %",
            _published(instance, rules, run.published, best.value_ns),
            f"{spent:.1f}",
        )


def _to_train(run: Trained, *, measured: bool = True) -> tuple[Instance, HybridPipeline]:
    instance = _trained_on(f"{run.servers}x8xH100:{MEMORY}", run.shape, measured=measured)
    return instance, HybridPipeline(microbatches=run.microbatches, sharding=run.sharding)


def _at_peak(run: Trained, instance: Instance, rules: HybridPipeline, best_ns: int) -> str:
    """The plan that is best where products run at half of the peak, at the instance's costs."""
    plan = _solved(_to_train(run, measured=False)[0], rules).plan
    assert plan is not None
    return f"{_degrees_of(plan)}: {_above(_value_ns(instance, plan, rules), best_ns)}"


FILLED = (
    Trained("llama-8b", 1, 32),
    Trained("llama-8b", 16, 128),
    Trained("mixtral-8x7b", 16, 256),
    Trained("llama-70b", 4, 32),
    Trained("llama-70b", 4, 128),
    Trained("llama-70b", 16, 128),
    Trained("llama-70b", 16, 512),
    Trained("llama-70b", 256, 2048),
    *TRAINED[-2:],
)

FILLED_HEADS = (
    "model",
    "H100",
    "microbatches",
    "s a batch, filled and drained",
    "t, p, d",
    "modes",
    "to fill and drain",
    "best full pipeline: t, p, d",
    "chosen at half of the peak: above",
    "1F1B simulated",
    "published t, p, d: above",
    "CPU s",
)


def pipeline_plan(plan: Plan) -> Plan:
    """A hybrid plan as one of one of its pipelines."""
    assert plan.stage is not None
    stage = tuple(s for own in plan.stage for s in (own, own))
    return Plan(tuple((s,) for s in stage), stage=stage)


def filled_rows(runs: Sequence[Trained] = FILLED) -> Iterator[tuple[str, ...]]:
    """One row per model and cluster: the optimum with filling and draining, one t and d.

    Beside it how far the optimum of a full pipeline is above, filled and drained; and what 1F1B
    takes less, simulated event by event.
    """
    for run in runs:
        instance, full = _to_train(run)
        rules = full.model_copy(update={"bubble": True})
        begin = process_time()
        best = _solved(instance, rules)
        spent = process_time() - begin
        steady = _solved(instance, full)
        assert best.plan is not None
        assert best.value_ns is not None
        assert steady.plan is not None
        assert best.evaluation is not None
        other = _value_ns(instance, steady.plan, rules)
        least_ns = max(use.load_ns for use in best.evaluation.uses)
        t, _, d = _degrees_of(best.plan)
        folded, schedule = one_pipeline(instance, full, (d, t), best.plan)
        simulated = _value_ns(folded, pipeline_plan(best.plan), schedule)
        yield (
            run.shape,
            f"{8 * run.servers:,}",
            str(run.microbatches),
            f"{best.value_ns / 1e9:.2f}",
            f"{_degrees_of(best.plan)}",
            _modes_of(instance, best.plan),
            f"{100 * (1 - least_ns / best.value_ns):.1f} %",
            f"{_degrees_of(steady.plan)}: {_above(other, best.value_ns)}",
            _at_peak(run, instance, rules, best.value_ns),
            change(simulated, best.value_ns),
            _published(instance, rules, run.published, best.value_ns),
            f"{spent:.1f}",
        )


def _degrees_of(plan: Plan) -> Degrees:
    assert plan.tensor is not None
    return Degrees(plan.tensor[0], len(plan.tensor), len(plan.placement[0]) // plan.tensor[0])


def _modes_of(instance: Instance, plan: Plan) -> str:
    """How many layers run in each mode, of those that have a choice."""
    assert plan.mode is not None
    names = [
        name for op, name in zip(instance.graph.ops, plan.mode, strict=True) if op.kind == "Layer"
    ]
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))


def _published(
    instance: Instance, rules: HybridPipeline, degrees: Degrees | None, best_ns: int
) -> str:
    if degrees is None:
        return ""
    for mode in ("keep", "selective", "full"):
        plan = even_plan(instance, degrees, mode)
        verdict = None if plan is None else evaluate(instance, plan, rules)
        if verdict is not None and verdict.feasible and verdict.value_ns is not None:
            return f"{degrees}, {mode}: {_above(verdict.value_ns, best_ns)}"
    return f"{degrees}: fits in no mode"


RESTRICTIONS: Sequence[dict[str, str]] = (
    {"degrees": "one_t"},
    {"degrees": "one"},
    {"degrees": "one", "recompute": "per_stage"},
    {"degrees": "one", "recompute": "all_or_none"},
)

RESTRICTION_HEADS = (
    "input",
    "devices",
    "GB",
    "ms a microbatch",
    "one t",
    "one t and d",
    "and one mode a stage",
    "and one mode for all",
)

SETTINGS = ((64, 80), (1024, 80), (64, 16), (256, 16), (64, 8), (256, 8), (64, 4), (256, 4))
"""Devices, and GB of each, that inputs of Piper are placed on."""

CHAINS = (("llama-70b", 4, 128), ("llama-70b", 16, 512), ("llama-405b", 64, 512))
"""Shape, servers of 8 H100, microbatches."""


def restriction_rows(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What is lost against free degrees and a mode for each layer, in % of the free optimum."""
    for path in files:
        document = load_piper(path)
        assert document.semantics is not None
        assert isinstance(document.semantics, HybridPipeline)
        for count, memory in SETTINGS:
            cluster = equal_devices(count, memory)
            instance = document.instance(cluster)
            yield _restricted(document.name, instance, memory, document.semantics)
    for shape, servers, microbatches in CHAINS if not files else ():
        instance = _trained_on(f"{servers}x8xH100:{MEMORY}", shape)
        rules = HybridPipeline(microbatches=microbatches, degrees="free", sharding="optimizer")
        yield _restricted(shape, instance, 73, rules)


def equal_devices(count: int, memory_gb: int) -> Cluster:
    """Accelerators at the 25 GB/s of Piper's authors."""
    from placegap.instances.problem import Device
    from placegap.instances.problem.links import Group, Links

    names = tuple(f"accelerator{k}" for k in range(count))
    return Cluster(
        name=f"{count}-accelerators",
        devices=tuple(
            Device(name=name, kind="accelerator", memory_bytes=memory_gb * 10**9) for name in names
        ),
        links=Links((Group(names, 25_000_000_000),)),
    )


def _restricted(
    name: str, instance: Instance, memory_gb: int, free: HybridPipeline
) -> tuple[str, ...]:
    values = [
        _solved(instance, free.model_copy(update=update)).value_ns for update in ({}, *RESTRICTIONS)
    ]
    best = values[0]
    head = (name, str(instance.num_devices), str(memory_gb))
    if best is None:
        return (*head, "none fits, proven", *("" for _ in RESTRICTIONS))
    assert all(b is None or a is None or a <= b for a, b in pairwise(values))
    shown = ("none fits" if each is None else _above(each, best) for each in values[1:])
    return (*head, f"{best / free.microbatches / 1e6:.3f}", *shown)


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
    "runs of",
    "runs",
    *(
        f"{what}, {costs}"
        for costs in ("by peak", "measured")
        for what in ("mean error", "median", "bias", "chosen above best")
    ),
)


def measured_rows(given: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One row per file and one per group of it, for a network of servers, a sharding and files.

    What the choices of a file's groups lose is stated as their mean.
    """
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


def _errors(ratios: Sequence[float], lost: float) -> tuple[str, ...]:
    errors = [abs(ratio - 1) for ratio in ratios]
    bias = geometric_mean(ratios) - 1
    return (
        *(f"{100 * value:.1f} %" for value in (mean(errors), median(errors))),
        f"{100 * bias:+.1f} %",
        f"{100 * lost:.1f} %",
    )


TABLES: Mapping[str, tuple[Sequence[str], Callable[[Sequence[str]], Iterator[tuple[str, ...]]]]] = {
    "published": (PUBLISHED_HEADS, lambda _: published_rows()),
    "trained": (TRAINED_HEADS, lambda _: trained_rows()),
    "filled": (FILLED_HEADS, lambda _: filled_rows()),
    "restrictions": (RESTRICTION_HEADS, restriction_rows),
    "measured": (MEASURED_HEADS, measured_rows),
}
"""Heads and rows of each table; some rows are made for files."""


def main(arguments: Sequence[str]) -> None:
    """Print the named table row by row."""
    name, *files = arguments or ["published"]
    heads, rows = look_up("table", name, TABLES)
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows(files):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
