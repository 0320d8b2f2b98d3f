"""What rooflines cost, as docs/measured.md has it.

``python -m placegap.experiments.research.tables.measured`` prints the tables: models as rows of
layers on pairs of unlike cards, cut where rooflines, calibrated costs or the rules of serving tools
say, and priced by measured kernels, beside the proven optimum under measured costs. It needs the
extras ``torch`` and ``measured``; `experiments/ours/measured.yaml` says what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from placegap.experiments.running.sources import costed_by, find_model
from placegap.experiments.studies.report import markdown_grid
from placegap.instances.costing.costing import cost_graph
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.problem import Instance, MaxLoad, Plan
from placegap.instances.problem.modules import with_granularity
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.options import TraceOptions
from placegap.solvers import Result, run_method

RULES = {"vllm-even": "even (vLLM)", "llama-cpp": "llama.cpp", "exo": "exo"}

PLAN = Path(__file__).resolve().parents[2] / "ours" / "measured.yaml"

CHAIN, ANY = MaxLoad(plans="chain"), MaxLoad(plans="any")

HEADS = (
    *("cards", "model", "phase", "measured optimum", "layers", "by rooflines", "loses"),
    *("by calibrated", "loses", *RULES.values()),
)


class Split(NamedTuple):
    """The optimum under measured costs, and by how much other splits are above it."""

    best: Result
    #: Layers on each card: of the measured, the roofline's and the calibrated optimum.
    layers: tuple[tuple[int, ...], ...]
    #: By costs or rule: by which factor its split takes longer, less 1; None where it does not fit.
    losses: Mapping[str, float | None]


class Row(NamedTuple):
    """A split, and of what it is."""

    cards: str
    model: str
    phase: str
    split: Split


def asked() -> dict[str, Any]:
    """What experiments/ours/measured.yaml says."""
    found: dict[str, Any] = read_yaml(PLAN)
    return found


def instances(document: Document, text: str) -> dict[str, Instance]:
    """A model on cards by each kind of costs; the cards leave the same memory free."""
    found = costed_by(document, "measured").instance(load_cluster(text))
    graphs = {
        "measured": found.graph,
        **{
            costs: cost_graph(document.graph, found.cluster, costs=costs)
            for costs in ("roofline", "calibrated")
        },
    }
    return {
        costs: with_granularity(
            Instance(name=found.name, graph=graph, cluster=found.cluster), "layer"
        )
        for costs, graph in graphs.items()
    }


def split(of: Mapping[str, Instance]) -> Split | None:
    """The optimum under measured costs, and what others lose; None where no split fits."""
    measured = of["measured"]
    best = {costs: run_method(each, CHAIN, "ideal-dp") for costs, each in of.items()}
    if best["measured"].value_ns is None:
        return None
    if any(each.status != "optimal" for each in best.values()):
        raise RuntimeError(f"{measured.name}: a split is not proven")
    plans = {costs: each.plan for costs, each in best.items() if costs != "measured"}
    plans |= {rule: run_method(measured, ANY, rule).plan for rule in RULES}
    return Split(
        best["measured"],
        tuple(_counts(measured, each.plan) for each in best.values()),
        {name: _loss(measured, plan, best["measured"]) for name, plan in plans.items()},
    )


def _loss(instance: Instance, plan: Plan | None, best: Result) -> float | None:
    """How much longer a plan takes than the best one, by the referee."""
    value_ns = None if plan is None else evaluate(instance, plan, ANY).value_ns
    return None if value_ns is None or not best.value_ns else value_ns / best.value_ns - 1


def _counts(instance: Instance, plan: Plan | None) -> tuple[int, ...]:
    """How many layers each device has."""
    homes = [] if plan is None else [on[0] for on in plan.placement]
    return tuple(homes.count(k) for k in range(instance.num_devices))


def rows(entry: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each model, phase and pair of cards that the model fits."""
    for name, model in entry["models"].items():
        for phase, options in entry["phases"].items():
            tracing = TraceOptions(dtype="bfloat16", **options)
            document = find_model(model["model"], None, (), tracing)
            for pair in entry["pairs"]:
                count = model["cards"]
                text = "+".join(f"1x{count}x{kind}" for kind in pair) + ", pcie5, infiniband"
                found = split(instances(document, text))
                if found is not None:
                    cards = " + ".join(f"{count} {kind}" if count > 1 else kind for kind in pair)
                    yield Row(cards, name, phase, found)


def main() -> None:
    entry = asked()
    found = list(rows(entry))
    print("\n".join(markdown_grid(HEADS, [_texts(row) for row in found])))


def _texts(row: Row) -> tuple[str, ...]:
    best, layers, losses = row.split
    cuts = [", ".join(map(str, counts)) for counts in layers]
    loss = {name: "does not fit" if at is None else f"{at:.1%}" for name, at in losses.items()}
    return (
        *(row.cards, row.model, row.phase, f"{(best.value_ns or 0) / 1e6:.3f} ms", cuts[0]),
        *(cuts[1], loss["roofline"], cuts[2], loss["calibrated"], *(loss[rule] for rule in RULES)),
    )


if __name__ == "__main__":
    main()
