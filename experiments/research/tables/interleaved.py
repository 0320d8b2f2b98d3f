"""Interleaved schedules, as docs/pipeline-iteration.md has them.

``python -m placegap.experiments.research.tables.interleaved [MODEL ...]`` prints one table:
language models of `instances.corpus.layer_chains` on p devices with v stages each and m
microbatches; an even split, and the best plan of stage-cuts with its proof.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from placegap.experiments.research.tables.named_rows import print_named_rows
from placegap.experiments.research.tables.pipelines import pipeline_of
from placegap.instances.corpus.layer_chains import layer_chain
from placegap.instances.problem import PipelineIteration
from placegap.solvers import run_method

CASES = {
    "llama-7b": ((4, 2, 16), (4, 4, 16), (8, 4, 32)),
    "gpt-3-13b": ((4, 2, 8), (8, 2, 16), (8, 4, 32)),
    "llama-70b": ((8, 5, 32),),
}
"""Devices, stages of each, and microbatches of each model."""

WITHOUT_LIMIT = ("llama-70b",)
"""Models that do not fit their devices, whose memory has no limit here."""

HEADS = ("model", "p", "v", "m", "even split", "stage-cuts", "gap", "s")
TIME_LIMIT_S = 60.0


def rows(
    names: Sequence[str], cases: Mapping[str, Sequence[tuple[int, int, int]]] = CASES
) -> Iterator[tuple[str, ...]]:
    """One row per model and case; an even split by how far it is above the best plan, in ms."""
    for name in names:
        graph = layer_chain(name)
        for p, v, m in cases[name]:
            instance = pipeline_of(graph, p)
            if name in WITHOUT_LIMIT:
                devices = tuple(
                    device.model_copy(update={"memory_bytes": None})
                    for device in instance.cluster.devices
                )
                cluster = instance.cluster.model_copy(update={"devices": devices})
                instance = instance.model_copy(update={"cluster": cluster})
            rules = PipelineIteration(schedule="interleaved", stages_per_device=v, microbatches=m)
            best = run_method(instance, rules, "stage-cuts", time_limit_s=TIME_LIMIT_S)
            even = run_method(instance, rules, "even-split")
            above = "does not fit"
            if even.value_ns is not None and best.value_ns is not None:
                above = f"+{100 * (even.value_ns / best.value_ns - 1):.1f} %"
            value = "none" if best.value_ns is None else f"{best.value_ns / 1e6:.1f}"
            gap = f"{100 * best.gap:.2f} %" if best.gap else "0" if best.gap == 0 else "open"
            yield name, str(p), str(v), str(m), above, value, gap, f"{best.solve_s:.1f}"


def main(names: Sequence[str]) -> None:
    """Print the table of the named models, or of all, row by row."""
    print_named_rows(HEADS, CASES, names, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
