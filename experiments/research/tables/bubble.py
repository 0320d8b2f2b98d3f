"""Hybrid plans with filling and draining, as docs/pipeline-iteration.md has them.

``python -m placegap.experiments.research.tables.bubble FOLDER`` reads bert32a100.json of Piper's
inputs in a folder. For some devices and microbatches N it goes through all numbers of replicas d
that divide N, tensor degrees t and modes, one for all layers; makes one of the d pipelines
(`instances.transforms.one_pipeline`); and lets stage-cuts prove its least iteration under 1f1b. A
choice whose work alone takes as long as the best one so far is left out. The row has the best
choice, what all stages full would take at least (hybrid-cuts, one d, t and mode), and the best of
Alpa's stages and of even splits over the same choices, where they fit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from placegap.instances.io.reader import read_model
from placegap.instances.problem.instance import Cluster, Device, Instance
from placegap.instances.problem.links import Group, Links
from placegap.instances.problem.semantics import HybridPipeline, PipelineIteration
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.solvers import solve

HEADS = ("devices", "N", "GB", "d x t", "mode", "stages", "ms", "gap", "full", "alpa", "even split")
SETTINGS = ((8, 32, 16), (8, 128, 16), (8, 512, 16), (8, 128, 80), (16, 128, 16), (16, 512, 80))
"""Devices, microbatches, GB."""

BANDWIDTH_BYTES_PER_S = 25 * 10**9
TIME_LIMIT_S = 20.0


def row(folder: Path, count: int, microbatches: int, memory_gb: int) -> tuple[str, ...]:
    """The row of one setting."""
    names = tuple(f"gpu{k}" for k in range(count))
    devices = tuple(
        Device(name=gpu, kind="accelerator", memory_bytes=memory_gb * 10**9) for gpu in names
    )
    links = Links((Group(names, BANDWIDTH_BYTES_PER_S),))
    cluster = Cluster(name=f"{count}", devices=devices, links=links)
    instance = read_model(folder / "bert32a100.json").instance(cluster)
    rules = HybridPipeline(microbatches=microbatches, recompute="all_or_none")
    best: dict[str, tuple[int, tuple[str, ...]]] = {}
    bound = []
    for degrees, mode, folded, semantics in pipelines(instance, rules):
        work_ns = sum(min(op.time_ns.values()) for op in folded.graph.ops)
        least_ns = work_ns * semantics.microbatches // folded.num_devices
        for method in ("stage-cuts", "alpa", "even-split"):
            if method in best and least_ns >= best[method][0]:
                continue
            result = solve(folded, semantics, method, time_limit_s=TIME_LIMIT_S)
            if method == "stage-cuts" and result.bound_ns is not None:
                bound.append(result.bound_ns)
            if result.value_ns is None or result.plan is None:
                continue
            if result.evaluation is not None and not result.evaluation.feasible:
                continue
            stages = len(set(result.plan.stage or ()))
            words = f"{degrees[0]} x {degrees[1]}", mode, str(stages)
            if method not in best or result.value_ns < best[method][0]:
                best[method] = result.value_ns, words
    value, chosen = best["stage-cuts"]
    gap = max(0.0, 1 - min(bound) / value)
    full = solve(instance, rules, "hybrid-cuts", time_limit_s=TIME_LIMIT_S).value_ns or 0
    above = [
        f"+{100 * (best[method][0] / value - 1):.1f} %" if method in best else "does not fit"
        for method in ("alpa", "even-split")
    ]
    shown = f"{value / 1e6:.1f}", f"{100 * gap:.2f} %" if gap else "0", f"{full / 1e6:.1f}"
    return (str(count), str(microbatches), str(memory_gb), *chosen, *shown, *above)


def pipelines(
    instance: Instance, rules: HybridPipeline
) -> Iterator[tuple[tuple[int, int], str, Instance, PipelineIteration]]:
    """One pipeline for each d, t and mode."""
    ways = [mode for op in instance.graph.ops for mode in op.ways]
    for d in range(1, instance.num_devices + 1):
        if rules.microbatches % d:
            continue
        for t in sorted({mode.tensor for mode in ways}):
            for name in sorted({mode.name for mode in ways}):
                if d * t <= instance.num_devices:
                    yield (d, t), name, *one_pipeline(instance, rules, (d, t), name)


def main(arguments: Sequence[str]) -> None:
    """Print the table as it is in the page."""
    print(f"| {' | '.join(HEADS)} |")
    print("|" + "---|" * len(HEADS))
    for setting in SETTINGS:
        print(f"| {' | '.join(row(Path(arguments[0]), *setting))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
