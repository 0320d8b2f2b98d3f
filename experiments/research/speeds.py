"""``python -m placegap.experiments.research.speeds``: predicted tokens per second beside reported.

Each row of a table names a model, how it is traced, devices, a placement, and the speed that people
measured for it. Printed beside it is what the referee says of that placement under calibrated costs
(`placegap.instances.costing.costing`), and under eager rooflines. Models are traced: it needs the
extra ``torch``.

``community`` compares with decode runs that others measured on one or two equal cards
(community.csv, half of a collection), by card and by kind of model; each pair of model and card
counts once.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from placegap.experiments.research.pages import DATA
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.options import TraceOptions

REPORTED = Path(__file__).resolve().parents[3] / "shared" / "cases" / "speeds" / "reported.csv"

COMMUNITY = REPORTED.with_name("community.csv")  # and a folder of its models beside it

OPTIONS = {
    "--weights": "weights",
    "--dtype": "dtype",
    "--decode": "decode",
    "--context": "kv_tokens",
}


def instance_of(row: Mapping[str, str], folder: Path, costs: str) -> Instance:
    """The model of a row on its devices."""
    name = row["model"]
    given: dict[str, Any] = {}
    words = iter(shlex.split(row["convert_options"]))
    for word in words:
        kind = {each.name: each.type for each in fields(TraceOptions)}[OPTIONS[word]]
        given[OPTIONS[word]] = True if kind == "bool" else next(words)
    given["kv_tokens"] = int(given.get("kv_tokens", 0))
    model = name if name.startswith("hf:") else f"hf:{folder / name}"
    devices = folder / row["devices"] if row["devices"] else None
    tracing = TraceOptions(**given)
    return load_source(Source(model, row["cluster"], tracing=tracing, devices=devices, costs=costs))


def plan_of(rule: str, instance: Instance) -> Plan:
    """The plan of ``all=DEVICE`` or ``ts=N:N@DEVICE:DEVICE[;cpu=0-3,9@HOST]``."""
    # ``ts`` gives layers to devices in order, ``cpu`` the experts of some to a host. Embeddings go
    # to the host if there is one, the head with the last layer.
    names = [device.name for device in instance.cluster.devices]
    host = next((d.name for d in instance.cluster.devices if d.is_host), None)
    if rule.startswith("all="):
        return Plan.on([names.index(rule[4:])] * instance.num_ops)
    head, *rest = rule.removeprefix("ts=").split(";")
    counts, devices = (part.split(":") for part in head.split("@"))
    row = [d for n, d in zip(counts, devices, strict=True) for _ in range(int(n))]
    experts: dict[int, str] = {}
    for part in rest:
        ranges, on = part.removeprefix("cpu=").split("@")
        for text in ranges.split(","):
            first, _, last = text.partition("-")
            experts.update(dict.fromkeys(range(int(first), int(last or first) + 1), on))
    place = []
    for op in instance.graph.ops:
        module = op.module or ""
        found = re.search(r"layers\.(\d+)", module)
        if found is None:
            chosen = (host or row[0]) if "embed" in module else row[-1]
        else:
            at = int(found.group(1))
            chosen = experts.get(at, row[at]) if ".experts" in module else row[at]
        place.append(names.index(chosen))
    return Plan.on(place)


def tokens_per_s(instance: Instance, rule: str) -> float:
    """What the referee says of a placement."""
    verdict = evaluate(instance, plan_of(rule, instance), Makespan(memory="peak"))
    return math.nan if verdict.value_ns is None else 1e9 / verdict.value_ns


def rows_of(path: Path) -> Iterator[tuple[str, float, float, float]]:
    """Situation, reported tokens per second, and those under two costs, a row each."""
    with path.open() as file:
        for row in csv.DictReader(file):
            calibrated, eager = (
                tokens_per_s(instance_of(row, path.parent, costs), row["rule"])
                for costs in ("calibrated", "roofline")
            )
            name = f"{row['situation']}: {row['rule']}"
            yield name, float(row["reported_tokens_per_s"]), calibrated, eager


class Compared(NamedTuple):
    """A measured run, and what is predicted of it."""

    model: str
    kind: str
    card: str
    measured: float
    predicted: float

    @property
    def off(self) -> float:
        """The logarithm of the factor between the two."""
        return abs(math.log(self.predicted / self.measured))


def compared_runs(path: Path) -> Iterator[Compared]:
    """Measured and predicted tokens per second, a row each."""
    # Equal cards that share the layers work in turn: they take as long as one that has room for all
    # of them, but for transfers of microseconds.
    with path.open() as file:
        for row in csv.DictReader(file):
            cache = None if row["kv"] == "f16" else row["kv"]
            tracing = TraceOptions(
                weights=row["weights"],
                dtype="float16",
                decode=True,
                kv_tokens=int(row["context"]),
                kv_dtype=cache,
            )
            model, card = f"hf:{path.with_suffix('') / row['config']}.json", row["card"]
            source = Source(model, card, tracing=tracing, costs="calibrated")
            time_ns = sum(op.time_ns.get(card, 0) for op in load_source(source).graph.ops)
            measured = float(row["measured_tok_s"])
            yield Compared(row["config"], row["kind"], card, measured, 1e9 / time_ns)


def shares(runs: Sequence[Compared]) -> tuple[str, ...]:
    """Pairs, runs, mean factor, shares within 1.25 and 1.5, worst; each pair counts once."""
    pairs = defaultdict[tuple[str, str], list[float]](list)
    for run in runs:
        pairs[run.model, run.card].append(run.off)

    def mean(values: Sequence[Sequence[float]]) -> float:
        return sum(sum(own) / len(own) for own in values) / len(values)

    within = (
        mean([[off <= math.log(limit) for off in own] for own in pairs.values()])
        for limit in (1.25, 1.5)
    )
    return (
        str(len(pairs)),
        str(len(runs)),
        f"{math.exp(mean(list(pairs.values()))):.2f}",
        *(f"{100 * share:.0f} %" for share in within),
        f"{math.exp(max(run.off for run in runs)):.2f}",
    )


def community_rows(runs: Sequence[Compared]) -> Iterator[tuple[str, ...]]:
    """The table of measured runs: all of them, by card, and by kind of model."""
    yield ("runs", "pairs", "settings", "off in the mean", "within 1.25", "within 1.5", "worst")
    yield ("all", *shares(runs))
    for names in ([run.card for run in runs], [run.kind for run in runs]):
        for name in dict.fromkeys(names):
            chosen = [run for run, own in zip(runs, names, strict=True) if own == name]
            yield (name, *shares(chosen))


def print_community(path: Path, folder: Path = DATA) -> None:
    """Print the table of measured runs, and write it to the file of which pages are made."""
    found = list(community_rows(list(compared_runs(path))))
    print("\n".join(markdown_grid(found[0], found[1:])))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(found)
    write_text(text.getvalue(), folder / "speeds.csv")


def main() -> None:
    """Print the table, and by which factor each kind of costs is off: on the mean, and at most."""
    parser = ArgumentParser(prog="python -m placegap.experiments.research.speeds")
    parser.add_argument("table", nargs="?", type=Path, default=REPORTED)
    path = parser.parse_args().table
    if str(path) == "community":
        path = COMMUNITY
    if not path.is_file():
        parser.error(f"{path}: there is no such table")
    if path.name == COMMUNITY.name:
        print_community(path)
        return
    print("reported  calibrated  roofline  situation: placement")
    rows = []
    for row in rows_of(path):
        situation, *speeds = row
        rows.append(speeds)
        print("{:8.1f}  {:10.1f}  {:8.1f}  ".format(*speeds) + situation, flush=True)
    for at, name in enumerate(("calibrated", "roofline"), start=1):
        off = [abs(math.log(speeds[at] / speeds[0])) for speeds in rows]
        mean, most = math.exp(sum(off) / len(off)), math.exp(max(off))
        print(f"{name}: off by a factor of {mean:.3f} on the mean, {most:.3f} at most")


if __name__ == "__main__":
    main()
