"""1f1b beside zero_bubble, as docs/pipeline-iteration.md has them.

``python -m placegap.experiments.research.tables.zero_bubble [MODEL ...]`` prints one table: the
language models of `instances.corpus.layer_chains` with gradients of weights apart, in p stages with
m microbatches; the least iteration times of both schedules, proven by stage-cuts, and what
zero_bubble takes on the chain that is best for 1f1b.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from placegap.experiments.research.tables.named_rows import print_named_rows
from placegap.experiments.research.tables.pipelines import pipeline_of
from placegap.instances.corpus.layer_chains import MODELS, SHAPES, layer_chain
from placegap.instances.problem import PipelineIteration
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import Result, run_method

STAGES, ROUNDS = (2, 4, 8), (1, 4)
HEADS = ("model", "p", "m", "1f1b", "gap", "its chain", "zero_bubble", "gap", "gain")
TIME_LIMIT_S = 60.0


def rows(
    names: Sequence[str], stages: Sequence[int] = STAGES, rounds: Sequence[int] = ROUNDS
) -> Iterator[tuple[str, ...]]:
    """One row per model, number of devices and number of microbatches; times in ms.

    "its chain" is 1f1b's best chain, run under zero_bubble.
    """
    for name in names:
        graph = layer_chain(name, split=True)
        for count in stages:
            instance = pipeline_of(graph, count)
            for factor in rounds:
                plain = PipelineIteration(microbatches=factor * count)
                apart = plain.model_copy(update={"schedule": "zero_bubble"})
                one, other = (
                    run_method(instance, semantics, "stage-cuts", time_limit_s=TIME_LIMIT_S)
                    for semantics in (plain, apart)
                )
                verdict = None if one.plan is None else evaluate(instance, one.plan, apart)
                moved = verdict.value_ns if verdict is not None and verdict.feasible else None
                yield (
                    name,
                    str(count),
                    str(factor * count),
                    *_proof(one),
                    _ms(moved),
                    *_proof(other),
                    _gain(one, other),
                )


def _ms(value_ns: int | None) -> str:
    return "does not fit" if value_ns is None else f"{value_ns / 1e6:.1f}"


def _proof(result: Result) -> tuple[str, str]:
    gap = "open" if result.gap is None else f"{100 * result.gap:.2f} %" if result.gap else "0"
    return _ms(result.value_ns), gap


def _gain(one: Result, other: Result) -> str:
    """How much shorter the iteration is."""
    if not one.value_ns or other.value_ns is None:
        return "-"
    return f"{100 * (1 - other.value_ns / one.value_ns):.1f} %"


def main(names: Sequence[str]) -> None:
    """Print the table of the named models, or of all, row by row."""
    print_named_rows(HEADS, SHAPES, list(names) or MODELS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
