"""Studies that no gap table can express: lists of tasks, one line of a log each, resumable.

``python -m placegap.experiments.research.sweeps NAME [--smoke] [--record]``, of these names:

congestion
    Plans that were made as if channels were free, under ports: what blindness to congestion costs.
    Each placer plans twice: for free channels, whose plan is then judged under ports as it is
    (placement and order of ops: the table "blind"), and for ports ("aware"). `decomposition` proves
    what it plans, so that its blind plan is the best one there is for free channels. At most eight
    minutes on two cores.
sensitivity
    Plans that were made with wrong costs, judged with the true ones. Times of ops and sizes of
    tensors are off by up to 10, 20 and 30 %, by three draws, each error a table. `promised_ns` is
    what the placer predicts for its plan. At most six minutes on two cores.
scaling
    Placers and `auto` from a thousand to a million ops: CPU seconds, peak memory, gap. The graphs
    are those of `bench.placers`: layered, width 50, on eight equal GPUs that hold them one and a
    half times. Each run is a process of its own, and its peak has the instance in it. Gaps are to
    the better of what `auto` proves and of a cheap bound (paths, work). At most eight minutes.

A task is a mapping of plain values, columns of a run (`studies.runs`) and others; what is measured
of it joins it in the log. The log is that of studies, so a sweep may be killed at any moment and
goes on where it stopped.
"""

from __future__ import annotations

import json
import random
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from placegap.experiments.research.bench.measuring import measure_apart
from placegap.experiments.research.bench.placers import DEVICES, layered
from placegap.experiments.research.record import RESULTS
from placegap.experiments.running.provenance import made_by
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.log import LOG_NAME, RunLog, run_key
from placegap.experiments.studies.runs import (
    HASH_DIGITS,
    RunRow,
    row_of,
    semantics_columns,
    write_rows,
)
from placegap.instances.problem import Edge, Instance, Makespan, Op
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import Bound, Result, run_method
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.solving.known_bounds import known_bound, proven_by

FREE, PORT = Makespan(channels="free"), Makespan(channels="port")
GRAPHS = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")
EXACT = "decomposition"

Measure = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Sweep(NamedTuple):
    """The tasks of a sweep, or with True those of its smallest form, and what is measured."""

    tasks: Callable[[bool], Iterable[Mapping[str, Any]]]
    measure: Measure


def run_sweep(
    name: str, tasks: Iterable[Mapping[str, Any]], measure: Measure, out: Path | None = None
) -> list[RunRow]:
    """Measure what the log of a sweep does not hold yet, and return the runs of all tasks."""
    # Tasks and what `measure` finds are plain values. The log is ``results/NAME/runs.jsonl``, or in
    # the folder `out`.
    listed = [dict(task) for task in tasks]
    keys = [run_key({"sweep": name, "version": version("placegap"), **task}) for task in listed]
    with RunLog((out or Path("results", name)) / LOG_NAME, row_of) as log:
        for number, (key, task) in enumerate(zip(keys, listed, strict=True), start=1):
            if key not in log.records:
                log.append({"key": key, "study": name, **task, **measure(task), **made_by()})
                warn(f"{number}/{len(listed)}: {', '.join(map(str, task.values()))}")
        return [row_of(log.records[key]) for key in keys]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a sweep, or with ``--smoke`` its smallest form; ``--record`` keeps it for the pages."""
    parser = ArgumentParser(prog="python -m placegap.experiments.research.sweeps")
    parser.add_argument("name", choices=SWEEPS)
    parser.add_argument("--smoke", action="store_true", help="its smallest form")
    parser.add_argument("--record", action="store_true", help="keep the results for the pages")
    options = parser.parse_args(arguments)
    sweep = SWEEPS[options.name]
    name = f"ours-{options.name}{'-smoke' * options.smoke}"
    try:
        rows = run_sweep(name, sweep.tasks(options.smoke), sweep.measure)
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if options.record:
        write_rows(rows, RESULTS / f"{options.name}.csv")


def about(instance: Instance, method: str, value_ns: int | None) -> dict[str, Any]:
    """Columns of a run under ports that follow from its instance, method and value."""
    return {
        "instance_hash": instance.content_hash[:HASH_DIGITS],
        "num_ops": instance.num_ops,
        "num_edges": len(instance.graph.edges),
        "num_devices": instance.num_devices,
        "ccr": communication_ratio(flow_of(instance.arrays)),
        **semantics_columns(PORT),
        "label": method,
        "status": "no_plan" if value_ns is None else "feasible",
        "value_ns": value_ns,
    }


def _bound(instance: Instance, proven: Iterable[Bound] = ()) -> dict[str, Any]:
    best, _ = known_bound(instance, PORT, proven=proven)
    return {} if best is None else {"best_bound_ns": best.value, "best_bound_by": best.origin}


BLIND_CLUSTERS = (
    "2x4-gpu-slow-link",
    "celeritas-4xV100-pcie",
    "fd-dps-8xP100",
    "moirai-inter-server",
)
BLIND_PLACERS = ("etf", "m-etf", "heft", "peft", "cpop", "m-sct", "order-place", "celeritas")
BLIND_S = 5.0


def congestion_tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each placer on each graph and cluster."""
    for graph in GRAPHS[1:2] if smoke else GRAPHS:
        for cluster in BLIND_CLUSTERS[:2] if smoke else BLIND_CLUSTERS:
            for method in (*(BLIND_PLACERS[:3] if smoke else BLIND_PLACERS), EXACT):
                for table in ("blind", "aware"):
                    yield {
                        "table": table,
                        "instance": graph,
                        "cluster": cluster,
                        "method": method,
                        "seed": 0,
                        "time_limit_s": BLIND_S,
                    }


def blind_or_aware(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Value under ports of a plan that was made for free channels, or for ports, and a bound."""
    instance = load_source(Source(task["instance"], task["cluster"]))
    rules = FREE if task["table"] == "blind" else PORT
    result = run_method(instance, rules, task["method"], time_limit_s=task["time_limit_s"])
    if rules == PORT:
        found = about(instance, task["method"], result.value_ns)
        return found | _bound(instance, proven_by(result))
    found = about(instance, task["method"], _worth(instance, result))
    return found | _bound(instance) | {"promised_ns": result.value_ns}


def _worth(instance: Instance, result: Result) -> int | None:
    """Value under ports of a plan that was made otherwise."""
    judged = None if result.plan is None else evaluate(instance, result.plan, PORT)
    return judged.value_ns if judged is not None and judged.feasible else None


WRONG_CLUSTERS = ("celeritas-4xV100-pcie", "moirai-inter-server")
WRONG_PLACERS = ("single-device", "m-topo", "metis", *BLIND_PLACERS)
OFF = (0.0, 0.1, 0.2, 0.3)
SEEDS = (1, 2, 3)
WRONG_S = 1.0


def sensitivity_tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each placer on each graph and cluster, with true costs, and with those of every draw."""
    for graph in GRAPHS[1:2] if smoke else GRAPHS:
        for cluster in WRONG_CLUSTERS[:1] if smoke else WRONG_CLUSTERS:
            for off in OFF:
                for seed in SEEDS[:1] if smoke or off == 0 else SEEDS:
                    for method in (*(WRONG_PLACERS[:6] if smoke else WRONG_PLACERS), EXACT):
                        yield {
                            "table": f"off by {100 * off:.0f} %",
                            "instance": graph,
                            "cluster": cluster,
                            "off": off,
                            "seed": seed,
                            "method": method,
                            "time_limit_s": WRONG_S,
                        }


@lru_cache(maxsize=2)
def _wrong(graph: str, cluster: str, off: float, seed: int) -> Instance:
    """The tasks of one draw follow one another."""
    return with_wrong_costs(load_source(Source(graph, cluster)), off, seed)


def believed_and_true(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the placer's plan is worth with wrong costs, and with true ones."""
    instance = load_source(Source(task["instance"], task["cluster"]))
    wrong = _wrong(task["instance"], task["cluster"], task["off"], task["seed"])
    result = run_method(wrong, PORT, task["method"], time_limit_s=task["time_limit_s"])
    found = about(instance, task["method"], _worth(instance, result))
    return found | _bound(instance) | {"promised_ns": result.value_ns}


def with_wrong_costs(instance: Instance, off: float, seed: int) -> Instance:
    """The instance with each op's times and each tensor's size off by a factor of its own."""
    # Factors are uniform in [1 - off, 1 + off], the same draws for the same seed. The kinds of
    # devices of an op share its factor, and so do the edges of a tensor; what is 0 stays 0.
    draw = random.Random(seed)

    def factor() -> float:
        return 1 + off * draw.uniform(-1, 1)

    ops = tuple(_wrong_op(op, factor()) for op in instance.graph.ops)
    of_tensor: dict[tuple[str, str], float] = {}
    edges = []
    for number, edge in enumerate(instance.graph.edges):
        tensor = (edge.producer, str(number) if edge.tensor is None else f"named {edge.tensor}")
        edges.append(_wrong_edge(edge, of_tensor.setdefault(tensor, factor())))
    graph = instance.graph.model_copy(update={"ops": ops, "edges": tuple(edges)})
    return instance.model_copy(update={"graph": graph, "best_known": ()})


def _wrong_op(op: Op, factor: float) -> Op:
    times = {kind: round(factor * time_ns) for kind, time_ns in op.time_ns.items()}
    return op.model_copy(update={"time_ns": times})


def _wrong_edge(edge: Edge, factor: float) -> Edge:
    update: dict[str, object] = {"bytes": round(factor * edge.bytes)}
    if edge.host_time_ns is not None:
        update["host_time_ns"] = round(factor * edge.host_time_ns)
    if edge.transfer_ns is not None:
        update["transfer_ns"] = tuple(
            tuple(round(factor * time_ns) for time_ns in row) for row in edge.transfer_ns
        )
    return edge.model_copy(update=update)


SIZES = (1_000, 10_000, 100_000, 1_000_000)
SCALED = ("m-topo", "m-etf", "heft", "order-place", "celeritas", "metis", "auto")
SCALING_S = 20.0
KILL_AFTER_S = 120.0


def scaling_tasks(smoke: bool) -> Iterator[Mapping[str, Any]]:
    """Each method on each size."""
    for num_ops in SIZES[:2] if smoke else SIZES:
        for method in SCALED[:3] if smoke else SCALED:
            yield {
                "table": "scaling",
                "instance": "layered",
                "cluster": "8-gpus",
                "num_ops": num_ops,
                "method": method,
                "seed": 0,
                "time_limit_s": SCALING_S,
            }


@lru_cache(maxsize=1)
def _instance(num_ops: int) -> tuple[Instance, int]:
    """Instance and cheap bound in ns; the tasks of one size follow one another."""
    instance = layered(num_ops, DEVICES)
    _ = instance.content_hash  # part of every result, and computed once
    return instance, quick_bound(instance, PORT).value


def cost_of_size(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Value, bound, CPU seconds and peak memory of one method on one size."""
    (instance, cheap_ns), small = _instance(task["num_ops"]), layered(200, DEVICES)

    def run(on: Instance = instance, limit_s: float = task["time_limit_s"]) -> str:
        result = run_method(on, PORT, task["method"], time_limit_s=limit_s)
        return json.dumps({"value_ns": result.value_ns, "bound_ns": result.bound_ns})

    found = measure_apart(run, lambda: run(small, 1.0), KILL_AFTER_S)
    cheap = {"best_bound_ns": cheap_ns, "best_bound_by": "cheap bound"}
    if isinstance(found, str):
        return {**about(instance, task["method"], None), **cheap, "message": found}
    measured = json.loads(found.remark)
    return {
        **about(instance, task["method"], measured["value_ns"]),
        **cheap,
        "bound_ns": measured["bound_ns"],
        "cpu_s": round(found.cpu_s, 4),
        "peak_bytes": found.peak_bytes,
    }


SWEEPS = {
    "congestion": Sweep(congestion_tasks, blind_or_aware),
    "sensitivity": Sweep(sensitivity_tasks, believed_and_true),
    "scaling": Sweep(scaling_tasks, cost_of_size),
}

if __name__ == "__main__":
    main()
