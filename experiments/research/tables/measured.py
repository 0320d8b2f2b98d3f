"""What rooflines cost, as docs/exports.md has it.

``python -m placegap.experiments.research.tables.measured`` prints the tables: models as rows of
layers on pairs of different cards, cut where rooflines, calibrated costs or the rules of serving
tools say, and priced by measured kernels, beside the proven optimum under measured costs. It needs
the extras ``torch`` and ``measured``; `experiments/ours/measured.yaml` lists the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from placegap.experiments.running.sources import costed_by, find_model
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.costing.costing import cost_graph
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.problem import Instance, MaxLoad, Plan
from placegap.instances.problem.modules import layer_of, numbered_layers, with_granularity
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.options import TraceOptions
from placegap.solvers import run_method

RULES = {"vllm-even": "even (vLLM)", "llama-cpp": "llama.cpp", "exo": "exo"}

PLAN = Path(__file__).resolve().parents[2] / "ours" / "measured.yaml"

CHAIN, ANY = MaxLoad(plans="chain", memory="peak"), MaxLoad(plans="any", memory="peak")

COSTS = ("roofline", "calibrated", "measured")

HEADS = (
    *("cards", "model", "phase", "measured optimum", "layers", "by rooflines", "loses"),
    *("by calibrated", "loses", *RULES.values()),
)


class Split(NamedTuple):
    """Optima by each kind of costs, what those of models lose, and gaps of placers to them."""

    # A loss or gap of 0.1 is a load that is 10 % higher; None: the plan does not fit.
    value_ns: int  # under measured costs
    layers: Mapping[str, tuple[int, ...]]  # by costs: layers on each card
    losses: Mapping[str, float | None]  # by costs of the optimum: under measured costs
    #: By placer and costs: to the optimum of these costs.
    gaps: Mapping[tuple[str, str], float | None]


class SplitRow(NamedTuple):
    cards: str
    model: str
    phase: str
    split: Split


def load_plan() -> dict[str, Any]:
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


def split(of: Mapping[str, Instance], placers: Sequence[str]) -> Split | None:
    """What is known of a model on cards by each kind of costs; None where no split fits."""
    best = {costs: run_method(each, CHAIN, "ideal-dp") for costs, each in of.items()}
    values = {costs: each.value_ns for costs, each in best.items()}
    measured_ns = values["measured"]
    if measured_ns is None:
        return None
    if any(each.status != "optimal" for each in best.values()):
        raise RuntimeError(f"{of['measured'].name}: an optimum is not proven")
    return Split(
        measured_ns,
        {costs: _layers(of[costs], each.plan) for costs, each in best.items()},
        {
            costs: _above(of["measured"], best[costs].plan, measured_ns)
            for costs in ("roofline", "calibrated")
        },
        {
            (name, costs): _above(each, run_method(each, ANY, name).plan, values[costs])
            for name in placers
            for costs, each in of.items()
        },
    )


def _above(instance: Instance, plan: Plan | None, least_ns: int | None) -> float | None:
    """How much longer a plan takes than the optimum, by the referee."""
    value_ns = None if plan is None else evaluate(instance, plan, ANY).value_ns
    return None if value_ns is None or not least_ns else value_ns / least_ns - 1


def _layers(instance: Instance, plan: Plan | None) -> tuple[int, ...]:
    """How many layers each device has."""
    assert plan is not None  # it is optimal
    layers = layer_of(instance.graph)
    numbered = {layer for own in numbered_layers(layers).values() for layer in own}
    homes = {layer: on[0] for layer, on in zip(layers, plan.placement, strict=True)}
    held = [device for layer, device in homes.items() if layer in numbered]
    return tuple(held.count(k) for k in range(instance.num_devices))


def rows(entry: Mapping[str, Any]) -> Iterator[SplitRow]:
    """A row for each model, phase and pair of cards that the model fits."""
    for name, model in entry["models"].items():
        for phase, options in entry["phases"].items():
            tracing = TraceOptions(dtype="bfloat16", **options)
            document = find_model(model["model"], None, (), tracing)
            for pair in entry["pairs"]:
                count = model["cards"]
                text = "+".join(f"1x{count}x{kind}" for kind in pair) + ", pcie5, infiniband"
                found = split(instances(document, text), entry["placers"])
                if found is not None:
                    cards = " + ".join(f"{count} {kind}" if count > 1 else kind for kind in pair)
                    yield SplitRow(cards, name, phase, found)


def summary(found: Sequence[SplitRow]) -> Iterator[tuple[str, ...]]:
    """For each model and phase, and for all: median and largest of what each split loses."""
    parts = {f"{row.model}, {row.phase}": list[Split]() for row in found}
    for row in found:
        parts[f"{row.model}, {row.phase}"].append(row.split)
    for name, splits in {**parts, "all": [row.split for row in found]}.items():
        columns = [
            *([each.losses[costs] for each in splits] for costs in ("roofline", "calibrated")),
            *([each.gaps[rule, "measured"] for each in splits] for rule in RULES),
        ]
        yield (name, str(len(splits)), *map(_middle, columns))


def _middle(losses: Sequence[float | None]) -> str:
    """Median and largest of those that fit."""
    fitting = [loss for loss in losses if loss is not None]
    return f"{_percent(median(fitting))}, {_percent(max(fitting))}" if fitting else "-"


def placer_rows(found: Sequence[SplitRow], placers: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The mean gap of each placer by costs, over the rows where it fits under all of them."""
    for name in placers:
        gaps = [[row.split.gaps[name, costs] for costs in COSTS] for row in found]
        fitting = [[at for at in each if at is not None] for each in gaps]
        whole = [each for each in fitting if len(each) == len(COSTS)]
        yield (
            name,
            str(len(whole)),
            *(_percent(mean(column)) for column in zip(*whole, strict=True)),
        )


def main() -> None:
    entry = load_plan()
    found = list(rows(entry))
    heads = ("of", "rows", "rooflines", "calibrated", *RULES.values())
    print("\n".join(markdown_grid(heads, list(summary(found)))), "\n")
    heads = ("placer", "rows", *COSTS)
    print("\n".join(markdown_grid(heads, list(placer_rows(found, entry["placers"])))), "\n")
    print("\n".join(markdown_grid(HEADS, [_texts(row) for row in found])))


def _percent(loss: float | None) -> str:
    return "does not fit" if loss is None else f"{100 * loss:.1f} %"


def _texts(row: SplitRow) -> tuple[str, ...]:
    best = row.split
    cuts = {costs: ", ".join(map(str, counts)) for costs, counts in best.layers.items()}
    return (
        *(row.cards, row.model, row.phase, f"{best.value_ns / 1e6:.3f} ms", cuts["measured"]),
        *(cuts["roofline"], _percent(best.losses["roofline"])),
        *(cuts["calibrated"], _percent(best.losses["calibrated"])),
        *(_percent(best.gaps[rule, "measured"]) for rule in RULES),
    )


if __name__ == "__main__":
    main()
