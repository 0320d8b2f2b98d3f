"""Benchmarks: CPU seconds, and the ratio to one pass of a fixed kernel on the same machine.

``python -m placegap.experiments.research.bench`` (``--help`` has the options) prints a table, keeps
the rows as JSON and compares them with the ones kept last. Every figure is the least of up to three
calls, of all threads together, after a warm-up call, so that compilation is left out. Machines
differ and are shared: compare ratios, never seconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from placegap.experiments.research.bench.default import print_rows
from placegap.experiments.research.bench.exact import BEHIND, RECORD_ANEW, exact_rows
from placegap.experiments.research.bench.in_process import (
    model_benches,
    start_benches,
    traced_benches,
)
from placegap.experiments.research.bench.kernel_tables import print_held_out
from placegap.experiments.research.bench.measuring import (
    HEADER,
    Measured,
    least_cpu_s,
    peak_bytes,
    workbooks,
)
from placegap.experiments.research.bench.offload import print_offload
from placegap.experiments.research.bench.placers import (
    Growth,
    building_benches,
    growth,
    on_gpus,
    placer_rows,
)
from placegap.experiments.running.pool import handled, held, is_stopped, stop_status
from placegap.experiments.running.provenance import cpu_s
from placegap.instances.corpus.corpus import load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.files.document import Document, load_document, save_document
from placegap.instances.importers.reader import load_model
from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan, MaxLoad, Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import run_method
from placegap.solvers.local_search.disjunctive_search import Search
from placegap.solvers.local_search.list_schedules import contended_lists

# A name, what is timed, and a remark read off its outcome.
Bench = tuple[str, Callable[[], object], Callable[[Any], str]]
Row = dict[str, object]  # name, seconds, ratio, remark; of placers also their process' peak memory

MAKESPAN = Makespan(channels="port")
CHAIN = MaxLoad(plans="chain")

WALK_MOVES = 20_000  # moves of a walk that is measured
LONG_S = 30.0  # a call that takes longer than this is measured once


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks and print their tables."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument("--only", default="", help="run the rows whose name contains this")
    parser.add_argument(
        "--inputs",
        type=Path,
        default=Path("../shared/instances"),
        help="folder with published inputs (dnn-partitioning/, moirai/), if at hand",
    )
    parser.add_argument(
        "--large", action="store_true", help="placers on a million ops, ten million ideals as well"
    )
    options = parser.parse_args(arguments)
    unit_s = least_cpu_s(lambda: _calibrate(np.arange(1 << 22)))
    print(f"ratio 1 = {unit_s * 1e3:.1f} ms here: a hash over 4 million integers\n")
    print(f"{'benchmark':48} {'seconds':>9} {'ratio':>9} {'last':>9}  remark")
    last, rows, grown = _last_rows(options.out), list[Row](), list[Growth]()
    with handled():
        try:
            # first the placers: their processes are forks, and want a small one to fork from
            grown = _placers(unit_s, last, rows, options)
            for bench in benches(options.inputs, large=options.large):
                if options.only in bench[0]:
                    rows.append(_run(bench, unit_s, last))
            rows += _exact(unit_s, options)
            print_rows(options.only)
            print_offload(options.only)
            print_held_out(options.only)
        except KeyboardInterrupt:
            print("\nstopped: the rows so far are kept")
        with held():
            print(f"\npeak memory of this process: {peak_bytes() / 2**30:.2f} GB")
            _keep(options.out, rows, grown)
        return stop_status() if is_stopped() else 0


def benches(inputs: Path, *, large: bool = False) -> Iterator[Bench]:
    """Everything that is measured in this process."""
    for name, start in start_benches():
        yield name, start, lambda _: "in a process of its own"
    yield from _house()
    yield from _walks()
    for name, run, remark in building_benches(large=large):
        yield name, run, lambda _, r=remark: r  # type: ignore[misc]
    yield from _models(inputs)
    yield from model_benches(inputs)
    for name, trace in traced_benches():
        yield name, trace, str


def _placers(
    unit_s: float, last: dict[str, float], rows: list[Row], options: argparse.Namespace
) -> list[Growth]:
    """Measure the placers, add their rows, and print how their CPU time grows."""
    found = []
    for row in placer_rows(large=options.large, only=options.only):
        found.append(row)
        if isinstance(row.found, Measured):
            shown = _row(row.name, row.found.cpu_s, row.remark, unit_s, last)
            rows.append({**shown, "peak_bytes": row.found.peak_bytes})
        else:
            print(f"{row.name:48} {'-':>9} {'-':>9} {'-':>9}  {row.remark}", flush=True)
    grown = growth(found)
    if grown:
        print(f"\n{'CPU seconds = c ops ^ exponent':32} {'exponent':>8} seconds at N ops")
    for line in grown:
        at = ", ".join(f"{s:.4g} at {n}" for n, s in zip(line.sizes, line.cpu_s, strict=True))
        print(f"{line.placer:32} {line.exponent:8.2f}  {at}")
    if grown:
        print(flush=True)
    return grown


def _exact(unit_s: float, options: argparse.Namespace) -> Iterator[Row]:
    """Measure the exact methods: what they prove, in what time and memory."""
    behind = 0
    rows = exact_rows(options.inputs, large=options.large, only=options.only)
    for number, row in enumerate(rows):
        if number == 0:
            print(f"\n{HEADER}")
        print(row, flush=True)
        behind += row.status == BEHIND
        yield {**asdict(row), "seconds": row.cpu_s, "ratio": row.cpu_s / unit_s}
    if behind:
        print(f"\n{behind} recorded bounds are behind: {RECORD_ANEW}", flush=True)


def _run(bench: Bench, unit_s: float, last: dict[str, float]) -> Row:
    name, run, remark = bench
    began = cpu_s()
    outcome = run()
    first_s = cpu_s() - began
    # what takes long is not compilation: once is enough
    seconds = first_s if first_s > LONG_S else least_cpu_s(run)
    return _row(name, seconds, remark(outcome), unit_s, last)


def _row(name: str, seconds: float, remark: str, unit_s: float, last: dict[str, float]) -> Row:
    """Print a row and return it."""
    before = f"{last[name]:.2f}" if name in last else "-"
    print(f"{name:48} {seconds:9.4f} {seconds / unit_s:9.2f} {before:>9}  {remark}", flush=True)
    return {"name": name, "seconds": seconds, "ratio": seconds / unit_s, "remark": remark}


def _house() -> Iterator[Bench]:
    """The referee and the format at 100,000 ops."""
    sizes = {"ops": 100_000, "width": 50, "density": 0.04}

    @cache
    def instance() -> Instance:
        return on_gpus(generate("layered", sizes, seed=1), 8)

    def remark(_: object) -> str:
        return f"{instance().num_ops} ops, {len(instance().graph.edges)} edges"

    yield "generate layered", lambda: generate("layered", sizes, seed=1), remark
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"

        def load() -> Instance:
            if not path.exists():
                save_document(Document.of(instance()), path)
            return load_document(path).instance()

        yield "load", load, remark

    @cache
    def plan(name: str) -> Plan:
        n = instance().num_ops
        if name == "round robin":
            return Plan.on(np.arange(n) % 8)
        return Plan.on(instance().graph.index.topological_position * 8 // n)

    for name in ("round robin", "slices"):
        for semantics in (MAKESPAN, CHAIN):
            yield (
                f"evaluate {semantics.objective} {name}",
                lambda p=name, s=semantics: evaluate(instance(), plan(p), s),  # type: ignore[misc]
                remark,
            )


def _walks() -> Iterator[Bench]:
    """Moves of the disjunctive search at 5,000 ops and on a training step, ports busy."""
    sizes = {"ops": 5_000, "width": 50, "density": 0.04}

    def walk(instance: Callable[[], Instance]) -> float:
        plan = next(contended_lists(instance(), MAKESPAN))
        search = Search(instance(), MAKESPAN, [0])
        hot_ns = search.load(plan) / instance().num_ops
        began = cpu_s()
        search.walk(search.whole(), 0, WALK_MOVES, WALK_MOVES, hot_ns)
        return WALK_MOVES / (cpu_s() - began)

    for name, instance in (
        ("layered, 5,000 ops", cache(lambda: on_gpus(generate("layered", sizes, seed=1), 8))),
        ("gpt2-train", cache(lambda: load_corpus("gpt2-train").instance())),
    ):
        yield (
            f"disjunctive search {name}",
            partial(walk, instance),
            lambda rate: f"{rate:.0f} moves per CPU second",
        )


def _models(inputs: Path) -> Iterator[Bench]:
    """The solvers on the smallest published workbook and on a corpus graph."""
    for workbook in workbooks(inputs, "example-1.xls"):
        instance = load_model(workbook).instance()
        for method, params in (
            ("moirai", {"form": "as_published"}),
            ("moirai", {"form": "strengthened"}),
            ("cp-sat", {}),
        ):
            yield (
                f"{method} {params.get('form', '')} example-1",
                partial(run_method, instance, MAKESPAN, method, params, time_limit_s=60),
                _describe,
            )


def _describe(result: Any) -> str:
    details = ", ".join(f"{k} {v}" for k, v in result.details.items())
    return f"{result.status}, value {result.value_ns}, bound {result.bound_ns}; {details}"


@kernel
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


def _keep(folder: Path, rows: list[Row], grown: list[Growth]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    content = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rows": rows,
        "growth": [asdict(line) for line in grown],
    }
    (folder / f"bench-{stamp}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
