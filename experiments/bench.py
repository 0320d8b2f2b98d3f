"""Benchmarks: seconds, and the ratio to one pass of a fixed kernel on the same machine.

``python -m placegap.experiments.bench [--out FOLDER] [--only TEXT] [--inputs FOLDER]`` prints a
table, keeps the rows as JSON and compares them with the ones kept last. Every figure is the best of
three after a warm-up call, so that compilation is left out. Machines differ and are shared: compare
ratios, never seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from placegap.experiments.bench_models import model_benches
from placegap.instances.cluster_file import load_cluster
from placegap.instances.corpus import load_corpus
from placegap.instances.document import Document, load_document, save_document
from placegap.instances.evaluate import evaluate
from placegap.instances.generate import generate
from placegap.instances.index import Ints
from placegap.instances.model import Cluster, Device, Graph, Instance
from placegap.instances.plan import Plan
from placegap.instances.reader import read_model
from placegap.instances.semantics import Semantics
from placegap.solvers import solve

Bench = tuple[str, Callable[[], object], Callable[[Any], str]]
"""A name, what is timed, and a remark read off its outcome."""

REPEATS = 3
MAKESPAN = Semantics(objective="makespan", channels="port")
CHAIN = Semantics(objective="max_load", plans="chain")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks and print their table."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument("--only", default="", help="run the rows whose name contains this")
    parser.add_argument(
        "--inputs", type=Path, default=Path("../shared/instances"),
        help="folder with published inputs (dnn-partitioning/, moirai/), if at hand",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    unit = best_of(lambda: _calibrate(np.arange(1 << 22)))
    print(f"ratio 1 = {unit * 1e3:.1f} ms here: a hash over 4 million integers\n")
    print(f"{'benchmark':48} {'seconds':>9} {'ratio':>9} {'last':>9}  remark")
    last = _last_rows(options.out)
    rows: list[dict[str, object]] = []
    for name, run, remark in benches(options.inputs):
        if options.only not in name:
            continue
        outcome = run()
        seconds = best_of(run)
        row = {"name": name, "seconds": seconds, "ratio": seconds / unit, "remark": remark(outcome)}
        rows.append(row)
        before = f"{last[name]:.2f}" if name in last else "-"
        ratio = f"{seconds / unit:.2f}"
        print(f"{name:48} {seconds:9.4f} {ratio:>9} {before:>9}  {row['remark']}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory of the whole run: {peak:.2f} GB")
    _keep(options.out, rows)
    return 0


def best_of(run: Callable[[], object]) -> float:
    """Least time of a few calls, in seconds."""
    times = []
    for _ in range(REPEATS):
        gc.collect()
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def benches(inputs: Path) -> Iterator[Bench]:
    """Everything that is measured."""
    yield from _house()
    yield from _placers()
    yield from _ideal_dp(inputs)
    yield from _models(inputs)
    yield from model_benches(inputs)


def _house() -> Iterator[Bench]:
    """The referee and the format at 100,000 ops."""
    sizes = {"ops": 100_000, "width": 50, "density": 0.04}
    graph = generate("layered", sizes, seed=1)
    instance = Instance(name="large", graph=graph, cluster=_gpus(8))
    remark = f"{len(graph.ops)} ops, {len(graph.edges)} edges"
    yield "generate layered", lambda: generate("layered", sizes, seed=1), lambda _: remark
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        save_document(Document.of(instance), path)
        yield "load", lambda: load_document(path).instance(), lambda _: remark
    spread = Plan.on(np.arange(instance.num_ops) % 8)
    slices = np.empty(instance.num_ops, np.int64)
    slices[graph.index.topological_order] = np.arange(instance.num_ops) * 8 // instance.num_ops
    for name, plan in (("round robin", spread), ("slices", Plan.on(slices))):
        for semantics in (MAKESPAN, CHAIN):
            yield (
                f"evaluate {semantics.objective} {name}",
                lambda p=plan, s=semantics: evaluate(instance, p, s),  # type: ignore[misc]
                lambda _: remark,
            )


def _placers() -> Iterator[Bench]:
    """The heuristics as graphs grow."""
    for ops in (1_000, 10_000, 100_000):
        graph = generate("layered", {"ops": ops, "width": 50, "density": 0.04}, seed=2)
        instance = Instance(name=f"layered-{ops}", graph=graph, cluster=_gpus(8))
        for method in ("m-topo", "etf", "m-etf", "heft", "peft"):
            yield (
                f"{method} {ops} ops",
                lambda m=method, i=instance: solve(i, MAKESPAN, m),  # type: ignore[misc]
                lambda result: f"value {result.value_ns} ns",
            )


def _ideal_dp(inputs: Path) -> Iterator[Bench]:
    """The exact DP on the published inputs, and as the number of ideals grows."""
    cases = [
        (path.parent.name + "/" + path.stem, read_model(path).instance())
        for path in sorted((inputs / "dnn-partitioning" / "throughput-inputs").glob("*/*.json"))
    ]
    for params in (
        {"blocks": 10, "branches": 4, "length": 5},
        {"blocks": 10, "branches": 4, "length": 9},
    ):
        graph = generate("blocks", params, seed=3)
        cases.append((graph.name + f" length {params['length']}", _with_host(graph.name, graph)))
    for name, instance in cases:
        yield (
            f"ideal-dp {name}",
            lambda i=instance: solve(i, CHAIN, "ideal-dp", time_limit_s=120),  # type: ignore[misc]
            _describe,
        )


def _models(inputs: Path) -> Iterator[Bench]:
    """The solvers on the smallest published workbook and on a corpus graph."""
    workbook = inputs / "moirai" / "example-1.xls"
    if workbook.is_file():
        instance = read_model(workbook).instance()
        for method, params in (
            ("moirai", {"form": "as_published"}),
            ("moirai", {"form": "strengthened"}),
            ("cp-sat", {}),
        ):
            yield (
                f"{method} {params.get('form', '')} example-1",
                lambda m=method, p=params: solve(instance, MAKESPAN, m, p, time_limit_s=60),  # type: ignore[misc]
                _describe,
            )
    corpus = load_corpus("squeezenet").instance(load_cluster("8xH100-nvlink"))
    yield (
        "ideal-dp squeezenet@8xH100-nvlink",
        lambda: solve(corpus, CHAIN, "ideal-dp", time_limit_s=60),
        _describe,
    )


def _describe(result: Any) -> str:
    details = ", ".join(f"{k} {v}" for k, v in result.details.items())
    return f"{result.status}, value {result.value_ns}, bound {result.bound_ns}; {details}"


def _gpus(count: int) -> Cluster:
    cluster = load_cluster("8xH100-nvlink")
    devices = tuple(Device(name=device.name, kind="gpu") for device in cluster.devices[:count])
    return Cluster(name=f"{count}-gpus", devices=devices, links=cluster.links)


def _with_host(name: str, graph: Graph) -> Instance:
    gpus = _gpus(8)
    host = Device(name="cpu", kind="cpu", is_host=True)
    links = [*gpus.links]
    for device in gpus.devices:
        link = gpus.links[0]
        links.append(link.model_copy(update={"source": "cpu", "target": device.name}))
        links.append(link.model_copy(update={"source": device.name, "target": "cpu"}))
    cluster = Cluster(name="8-gpus-1-cpu", devices=(*gpus.devices, host), links=tuple(links))
    return Instance(name=name, graph=graph, cluster=cluster)


@njit(cache=True)
def _calibrate(values: Ints) -> int:
    """A fixed amount of integer work."""
    state = np.int64(1)
    for value in values:
        state = (state ^ value) * np.int64(1099511628211)
    return int(state)


def _last_rows(folder: Path) -> dict[str, float]:
    """The ratio kept last of every benchmark."""
    rows = [
        row
        for path in sorted(folder.glob("bench-*.json"))
        for row in json.loads(path.read_text())["rows"]
    ]
    return {row["name"]: row["ratio"] for row in rows}


def _keep(folder: Path, rows: list[dict[str, object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    content = {"python": platform.python_version(), "machine": platform.machine(), "rows": rows}
    (folder / f"bench-{stamp}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
