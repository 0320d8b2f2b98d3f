"""``python -m placegap.experiments.research.cases [tensor-splits]``: what tools lose, by case.

The situations are in cases.yaml. Models are traced: it needs the extra ``torch``, and minutes.
``tensor-splits``: what six machines gain whose cards share each layer.
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from placegap.experiments.research.pages import DATA
from placegap.experiments.running.exporting import line_class
from placegap.experiments.running.rules import Rules
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.modules import is_expert, with_granularity
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.torch_models.options import TraceOptions
from placegap.solvers import run_method
from placegap.solvers.chains.best_line import best_line
from placegap.solvers.core.result import relative_gap
from placegap.solvers.solving.tensor_split import best_tensor_plan

# Methods that restate what tools do by themselves.
RULES = {
    "llama-fit": "llama.cpp's fit",
    "ik-llama-fit": "ik_llama.cpp's fit",
    "halda": "Halda of prima.cpp",
    "vllm-even": "vLLM's even split",
}


@cache
def cases() -> tuple[Mapping[str, Any], ...]:
    """The entries of cases.yaml, in order."""
    return tuple(read_yaml(Path(__file__).resolve().with_name("cases.yaml")))


class CaseRow(NamedTuple):
    """Values of a case, in ns: the best plan with its gap, the best line, and what rules take."""

    # Plans keep layers whole, but for their experts; None: a rule has no room for the layers.
    best_ns: int
    gap: float | None
    line_ns: int | None
    by_rule: Mapping[str, int | None]

    def loss(self, value_ns: int | None) -> str:
        """What a value is above the best plan's."""
        if value_ns is None:
            return "does not fit"
        return f"{100 * (value_ns / self.best_ns - 1):+.1f} %"


def case_row(case: Mapping[str, Any], limit_s: float = 30.0) -> CaseRow:
    """Place the model of a case, and let the rules of tools place it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as kinds:
        yaml.safe_dump(case.get("devices", {}), kinds)
        kinds.flush()
        source = Source(
            case["model"],
            case["cluster"],
            tracing=TraceOptions(**case["trace"]) if "trace" in case else None,
            devices=Path(kinds.name) if "devices" in case else None,
        )
        fine = load_source(source)
    semantics = Rules(objective=case.get("objective", "makespan")).override(fine.semantics)
    instance = with_granularity(fine, "experts" if any(map(is_expert, fine.graph.ops)) else "layer")
    judged = semantics.with_plans("any")  # no chain is promised
    of = line_class(case["tool"], semantics)
    line = None if of is None else best_line(fine, semantics, of)
    start = None if line is None else line.plan
    best = run_method(instance, semantics, "auto", incumbent=start, time_limit_s=limit_s)
    assert best.value_ns is not None
    return CaseRow(
        best.value_ns,
        relative_gap(best.value_ns, best.bound_ns),
        None if line is None else line.value_ns,
        {rule: run_method(instance, judged, rule).value_ns for rule in case.get("rules", RULES)},
    )


def case_rows() -> Iterator[Sequence[str]]:
    """The head of the table, and a row for each case."""
    yield "case", "model, devices", "best", "gap", "best line of its tool", *RULES.values()
    for case in cases():
        found = case_row(case)
        ours = {"": found.line_ns, **found.by_rule}
        losses = ["-" if rule not in ours else found.loss(ours[rule]) for rule in ("", *RULES)]
        yield (
            case["title"],
            f"{case['model'].removeprefix('hf:')}, {case['cluster']}",
            format_ns(found.best_ns),
            "-" if found.gap is None else format_gap(found.gap),
            f"{case['tool']}: {losses[0]}",
            *losses[1:],
        )


# Two to four cards, equal and different, with and without a host, of a 70B model in 4.9 bits.
MACHINES = (
    "2xRTX3090, pcie4",
    "RTX5090+RTX4090, pcie4",
    "2xRTX3090+2xRTX3060, pcie4",
    "4xRTX4060Ti-16GB, pcie4x8",
    "RTX3090+2xRTX3060+host:64GB, pcie4",
    "RTX4090+RTX3060+host:64GB, pcie4",
)


def shares_row(machine: str, instance: Instance) -> Sequence[str]:
    """Whole layers, shares, what is gained, the shares, and what all-reduces take of it."""
    whole = run_method(with_granularity(instance, "layer"), Makespan(), "auto", time_limit_s=30.0)
    found = best_tensor_plan(instance, Makespan(), "layer", 40.0)
    assert found is not None
    assert whole.value_ns is not None
    heads = ["+".join(map(str, group.shares)) for group in found.groups]
    return (
        machine,
        format_ns(whole.value_ns),
        format_ns(found.value_ns),
        f"{whole.value_ns / found.value_ns:.2f}",
        "; ".join(heads),
        format_gap(found.reduced_ns / found.value_ns),
    )


def shares_rows() -> Iterator[Sequence[str]]:
    """The head of the table, and a row for each machine."""
    yield "devices", "whole layers", "shares", "gain", "heads of each card", "all-reduces"
    options = TraceOptions(weights="q4_k_m", dtype="float16", decode=True, kv_tokens=8192)
    for machine in MACHINES:
        yield shares_row(machine, load_source(Source("hf:llama-70b", machine, tracing=options)))


def main(words: Sequence[str], folder: Path = DATA) -> None:
    """Print a table, and write it to the file of which pages are made."""
    name, found = words[0] if words else "cases", list[Sequence[str]]()
    for row in shares_rows() if name == "tensor-splits" else case_rows():
        found.append(row)
        print(*row, sep=" | ", file=sys.stderr, flush=True)
    print("\n".join(markdown_grid(found[0], found[1:])))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(found)
    write_text(text.getvalue(), folder / f"{name}.csv")


if __name__ == "__main__":
    main(sys.argv[1:])
