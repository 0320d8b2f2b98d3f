"""Hybrid plans with filling and draining, as docs/pipeline-iteration.md has them.

``python -m placegap.experiments.research.tables.bubble FOLDER`` reads bert32a100.json of Piper's
inputs in a folder. For some devices and microbatches N, hybrid-cuts proves the least batch with
one d and t and a mode for each layer. The row has how much more one mode for all layers takes, what
a full pipeline would take, what the plan takes under 1f1b, simulated event by event
(`instances.transforms.one_pipeline`), and the best that Alpa's stages and even splits reach over
all d, t and modes, one for all layers, where they fit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from placegap.experiments.research.tables.hybrid import change, equal_devices, pipeline_plan
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import HybridPipeline, Instance, PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.solvers import run_method

HEADS = (
    "devices",
    "N",
    "GB",
    "d x t",
    "stages",
    "layers that recompute",
    "ms",
    "gap",
    "one mode",
    "full",
    "1f1b",
    "alpa",
    "even split",
)
SETTINGS = ((8, 32, 16), (8, 128, 16), (8, 512, 16), (8, 128, 80), (16, 128, 16), (16, 512, 80))
"""Devices, microbatches, GB."""

TIME_LIMIT_S = 20.0


def row(folder: Path, count: int, microbatches: int, memory_gb: int) -> tuple[str, ...]:
    """The row of one setting."""
    document = load_model(folder / "bert32a100.json")
    instance = document.instance(equal_devices(count, memory_gb))
    rules = HybridPipeline(microbatches=microbatches, bubble=True)
    best, one, full = (
        run_method(
            instance, rules.model_copy(update=update), "hybrid-cuts", time_limit_s=TIME_LIMIT_S
        )
        for update in ({}, {"recompute": "all_or_none"}, {"bubble": False})
    )
    assert best.value_ns is not None
    assert best.plan is not None
    assert best.plan.tensor is not None
    t = best.plan.tensor[0]
    d = len(best.plan.placement[0]) // t
    folded, schedule = one_pipeline(instance, rules, (d, t), best.plan)
    simulated = evaluate(folded, pipeline_plan(best.plan), schedule).value_ns

    def above(value: int | None) -> str:
        return "does not fit" if value is None else change(value, best_ns)

    best_ns, gap = best.value_ns, best.gap or 0.0
    return (
        *(str(count), str(microbatches), str(memory_gb), f"{d} x {t}", str(len(best.plan.tensor))),
        str(sum(mode != "vanilla" for mode in best.plan.mode or ())),
        *(f"{best_ns / 1e6:.1f}", f"{100 * gap:.2f} %" if gap else "0", above(one.value_ns)),
        *(above(full.value_ns), above(simulated)),
        *(above(_least(instance, rules, method)) for method in ("alpa", "even-split")),
    )


def _least(instance: Instance, rules: HybridPipeline, method: str) -> int | None:
    """The best that a method of pipeline_iteration reaches over all d, t and modes."""
    found = list[int]()
    for folded, schedule in pipelines(instance, rules):
        result = run_method(folded, schedule, method, time_limit_s=TIME_LIMIT_S)
        fits = result.evaluation is not None and result.evaluation.feasible
        if fits and result.value_ns is not None:
            found.append(result.value_ns)
    return min(found, default=None)


def pipelines(
    instance: Instance, rules: HybridPipeline
) -> Iterator[tuple[Instance, PipelineIteration]]:
    """One pipeline for each d, t and mode."""
    ways = [mode for op in instance.graph.ops for mode in op.ways]
    for d in range(1, instance.num_devices + 1):
        if rules.microbatches % d:
            continue
        for t in sorted({mode.tensor for mode in ways}):
            for name in sorted({mode.name for mode in ways}):
                if d * t <= instance.num_devices:
                    yield one_pipeline(instance, rules, (d, t), name)


def main(arguments: Sequence[str]) -> None:
    """Print the table as it is in the page."""
    print(f"| {' | '.join(HEADS)} |")
    print("|" + "---|" * len(HEADS))
    for setting in SETTINGS:
        print(f"| {' | '.join(row(Path(arguments[0]), *setting))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
