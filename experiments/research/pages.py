"""``python -m placegap.experiments.research.pages``: pages, tables and four pictures, into docs/.

docs/ours-results.md has the tables of studies of our own, docs/found.md what they say in figures,
each read from committed results. Other pages have tables between two comments; the first of them
says what is shown: ``<!-- data: NAME -->``, a file of experiments/research/data, or what
`data_table` makes of a study.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from placegap.experiments.research.measures import (
    blind_rows,
    bounds_by_size,
    by_share,
    gaps_of,
    losses_by_error,
    orders_by_error,
    orders_under_ports,
    share_within,
    with_looser_bounds,
)
from placegap.experiments.research.page_plots import plot_ccr, plot_memory, plot_profile, plot_time
from placegap.experiments.research.record import HERE, load_results
from placegap.experiments.show.figures import format_gap, format_ns, format_s
from placegap.experiments.studies.log import Record
from placegap.experiments.studies.report import markdown_grid
from placegap.instances.files.output_files import write_bytes, write_text

FORMS = {"published": "moirai form=as_published", "strengthened": "moirai form=strengthened"}
PLACER_HEAD = (
    "placer",
    "plans",
    "optimal",
    "within 1 %",
    "within 10 %",
    "mean gap",
    "median gap",
    "median time",
)
STUDIES = ("corpus", "moirai-forms", "congestion", "scaling", "sensitivity", "memory")


def percent(share: float) -> str:
    """A share in percent."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # no -0.0


def tables() -> dict[str, str]:
    """Every table by its name in the template, and what made the results."""
    read = {name: load_results(name) for name in STUDIES}
    rows = {name: content for name, (_, content) in read.items()}
    made = (
        f"- {name}{', in its smallest form' * head['smoke']}: {maker}."
        for name, (head, _) in read.items()
        for maker in head["made_by"]
    )
    found = {
        "corpus": corpus(rows["corpus"]),
        "moirai-forms": forms(rows["moirai-forms"]),
        "congestion": congestion(rows["congestion"]),
        "scaling": scaling(rows["scaling"]),
        "sensitivity": sensitivity(rows["sensitivity"]),
        "rankings": rankings(rows["sensitivity"]),
        "memory": memory(rows["memory"]),
        "made_by": made,
    }
    return {name: "\n".join(lines) for name, lines in found.items()}


def corpus(rows: Sequence[Record]) -> Iterator[str]:
    """A line per placer, the best first, in a table per table of the study."""
    for table in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == table]
        gaps = gaps_of(mine)
        yield from () if table == rows[0]["table"] else ("",)
        yield from (f"**{table}**", "")
        yield from markdown_grid(
            PLACER_HEAD, [_placer(label, gaps[label], mine) for label in by_share(gaps)]
        )


def _placer(label: str, gaps: Sequence[float | None], rows: Sequence[Record]) -> tuple[str, ...]:
    known = [gap for gap in gaps if gap is not None]
    runs = [row["runs"].get(label, {}) for row in rows]
    times = [run["time_s"] for run in runs if "time_s" in run]
    return (
        label,
        f"{len(known)} of {len(gaps)}",
        *(percent(share_within(gaps, most)) for most in (0.0, 0.01, 0.1)),
        format_gap(statistics.fmean(known)) if known else "-",
        format_gap(statistics.median(known)) if known else "-",
        format_s(statistics.median(times)) if times else "-",
    )


def own_bound_ns(run: Record) -> int | None:
    """What the model alone proved; `run_method` reports a cheap bound instead if that is better."""
    found: int | None = run.get("own_bound_ns", run.get("bound_ns"))
    return found


def forms(rows: Sequence[Record]) -> Iterator[str]:
    """Rows, columns, time, nodes and own bound of both forms of Moirai's MILP."""
    parts = ("rows x columns", "time", "nodes", "own bound")
    heads = [f"{form}: {what}" for form in FORMS for what in parts]
    lines = []
    for row in rows:
        cells = []
        for label in FORMS.values():
            run = row["runs"].get(label, {})
            bound_ns, best_ns = own_bound_ns(run), row["bound_ns"]
            cells += [
                f"{run.get('rows', '-')} x {run.get('columns', '-')}",
                format_s(run["time_s"]) if "time_s" in run else "-",
                str(run.get("nodes", "-")),
                percent(bound_ns / best_ns) if bound_ns is not None and best_ns else "-",
            ]
        lines.append((row["instance"], str(row["num_ops"]), *cells))
    yield from markdown_grid(("instance", "ops", *heads), lines)


def congestion(records: Sequence[Record]) -> Iterator[str]:
    """A line per method: its blind plans under ports; then what becomes of the ranking."""
    yield from markdown_grid(
        (
            "method",
            "plans",
            "above its promise: mean",
            "worst",
            "mean gap",
            "plans for ports alike",
            "above its plan for ports: mean",
            "worst",
        ),
        [
            (
                row.method,
                str(row.promised.num_pairs),
                percent(row.promised.mean),
                percent(row.promised.worst),
                percent(row.gap),
                str(row.num_alike),
                percent(row.aware.mean),
                percent(row.aware.worst),
            )
            for row in blind_rows(records)
        ],
    )
    order = orders_under_ports(records)
    same, ties, turned = (percent(count / max(1, order.num_pairs)) for count in order)
    yield ""
    yield (
        f"Of {order.num_pairs} pairs of methods that free channels rank on one instance, {same}"
        f" keep their order under ports, {ties} tie, and {turned} are turned round."
    )


def scaling(records: Sequence[Record]) -> Iterator[str]:
    """A line per method, a column per size: CPU seconds, peak memory, gap."""
    sizes = sorted({record["num_ops"] for record in records})
    found = {(record["method"], record["num_ops"]): record for record in records}
    best = bounds_by_size(records)
    lines = []
    for method in dict.fromkeys(record["method"] for record in records):
        cells = []
        for size in sizes:
            record = found.get((method, size), {})
            bound_ns = best.get(size)
            if record.get("value_ns") is None:
                cells.append(record.get("message") or "no plan")
                continue
            gap = "" if bound_ns is None else f", {percent(1 - bound_ns / record['value_ns'])}"
            held = f"{record['peak_bytes'] / 1e9:.2f} GB"
            cells.append(f"{format_s(record['cpu_s'])}, {held}{gap}")
        lines.append((method, *cells))
    yield from markdown_grid(("method", *(f"{size:,} ops" for size in sizes)), lines)


def sensitivity(records: Sequence[Record]) -> Iterator[str]:
    """A line per placer, a column per error: mean and worst loss."""
    losses = losses_by_error(records)
    errors = sorted({off for _, off in losses})
    lines = []
    for method in dict.fromkeys(method for method, _ in losses):
        found = [losses[method, off] for off in errors if (method, off) in losses]
        lines.append((method, *(f"{percent(loss.mean)}, {percent(loss.worst)}" for loss in found)))
    yield from markdown_grid(("placer", *(f"off by {100 * off:.0f} %" for off in errors)), lines)


def rankings(records: Sequence[Record]) -> Iterator[str]:
    """How many pairs keep their order: of all, and of those that are well apart."""
    lines = [
        (
            f"more than {100 * least:.0f} % apart" if least else "all",
            f"{100 * off:.0f} %",
            str(order.num_pairs),
            *(percent(count / max(1, order.num_pairs)) for count in order),
        )
        for least in (0.0, 0.05)
        for off, order in orders_by_error(records, least).items()
    ]
    yield from markdown_grid(("pairs", "off by", "number", "same order", "ties", "turned"), lines)


def memory(rows: Sequence[Record]) -> Iterator[str]:
    """A line per method, a column per share of memory: plans and their mean gap."""
    rows = with_looser_bounds(rows)
    shares = sorted({row["memory_share"] for row in rows}, reverse=True)
    lines = []
    for label in dict.fromkeys(label for row in rows for label in row["runs"]):
        cells = []
        for share in shares:
            mine = [row for row in rows if row["memory_share"] == share]
            gaps = gaps_of(mine).get(label, [])
            known = [gap for gap in gaps if gap is not None]
            mean = f", {format_gap(statistics.fmean(known))}" if known else ""
            cells.append(f"{len(known)} of {len(gaps)}{mean}")
        lines.append((label, *cells))
    yield from markdown_grid(("method", *(f"{100 * share:g} %" for share in shares)), lines)


DOCS = HERE.parents[1] / "docs"
DATA = Path(__file__).resolve().parent / "data"
QUICKSTART = HERE.parent / "notebooks" / "quickstart.csv"
TABLE = re.compile(r"(<!-- data: ([a-z -]+) -->\n).*?(<!-- end of data -->)", re.DOTALL)
MARGIN = 2e-6
"""MIPs keep half of it in their bounds: a gap that is smaller is a closed model."""

ALONE, EXACT, DEFAULT = "single-device", "decomposition", "auto"


def figures() -> dict[str, str]:
    """Every figure of the page, by its name in the template."""
    found: dict[str, str] = {}
    for part in (
        _certificates,
        _corpus,
        _congestion,
        _costs,
        _scaling,
        _memory,
        _forms,
        _maps,
        _pipelines,
        _hybrid,
    ):
        found |= part()
    return found


def doc_rows(page: str, first: str, folder: Path = DOCS) -> list[dict[str, str]]:
    """The rows of a page's tables whose first column has this head."""
    return list(_rows((folder / page).read_text().splitlines(), first))


def _rows(lines: list[str], first: str) -> Iterator[dict[str, str]]:
    heads: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads and cells[0] == first:
            heads = cells
        elif heads and not set(line) <= set("|- :"):
            yield dict(zip(heads, cells, strict=True))


def _certificates() -> dict[str, str]:
    with (DATA / "certificates.csv").open() as file:
        gap = {row["table"]: row["mean gap"] for row in csv.DictReader(file)}
    return {
        "port_gap": gap["generated, ports, 83,206 ops"],
        "free_gap": gap["generated, free channels, 83,206 ops"],
        "small_port_gap": gap["generated, ports, 1,000 ops"],
        "small_free_gap": gap["generated, free channels, 1,000 ops"],
    }


def _corpus() -> dict[str, str]:
    rows = load_results("corpus")[1]
    alone = gaps_of([row for row in rows if row["table"] == "graphs"])[ALONE]
    gaps = gaps_of(rows)
    first, second = [label for label in by_share(gaps) if label != DEFAULT][:2]
    known = [gap for gap in gaps[first] if gap is not None]
    return {
        "graph_rows": str(len(alone)),
        "alone_optimal": str(sum(gap == 0 for gap in alone)),
        "alone_near": str(sum(gap is not None and gap <= 0.01 for gap in alone)),
        "corpus_rows": str(len(gaps[first])),
        "first": first,
        "second": second,
        "first_share": percent(share_within(gaps[first], 0.1)),
        "second_share": percent(share_within(gaps[second], 0.1)),
        "auto_share": percent(share_within(gaps[DEFAULT], 0.1)) if DEFAULT in gaps else "-",
        "auto_optimal": percent(share_within(gaps[DEFAULT], 0.0)) if DEFAULT in gaps else "-",
        "first_optimal": percent(share_within(gaps[first], 0.0)),
        "first_worst": percent(max(known)),
        "first_plans": str(len(known)),
    }


def _congestion() -> dict[str, str]:
    records = load_results("congestion")[1]
    rows = blind_rows(records)
    best = next(row for row in rows if row.method == EXACT)
    placers = [row for row in rows if row.method != EXACT]
    worst = max(placers, key=lambda row: row.promised.mean)
    order = orders_under_ports(records)
    return {
        "blind_promised": percent(best.promised.mean),
        "blind_promised_worst": percent(best.promised.worst),
        "blind_aware": percent(best.aware.mean),
        "blind_aware_worst": percent(best.aware.worst),
        "blind_placers": str(len(placers)),
        "blind_alike": str(sum(row.num_alike for row in placers)),
        "blind_plans": str(sum(row.promised.num_pairs for row in placers)),
        "blind_placer": worst.method,
        "blind_placer_promised": percent(worst.promised.mean),
        "blind_turned": percent(order.turned / order.num_pairs),
    }


def _costs() -> dict[str, str]:
    records = load_results("sensitivity")[1]
    losses = losses_by_error(records)
    errors = sorted({off for _, off in losses})
    placers = [m for m in dict.fromkeys(m for m, _ in losses) if m not in (ALONE, EXACT)]
    mean = {off: statistics.fmean(losses[method, off].mean for method in placers) for off in errors}
    said = [f"{percent(mean[off])} where costs are off by {100 * off:.0f} %" for off in errors]
    every, apart = (orders_by_error(records, least)[errors[-1]] for least in (0.0, 0.05))
    return {
        "cost_placers": str(len(placers)),
        "cost_means": ", ".join(said),
        "cost_mean": percent(mean[errors[-1]]),
        "cost_most": f"{100 * errors[-1]:.0f} %",
        "cost_worst": percent(max(losses[method, errors[-1]].worst for method in placers)),
        "rank_same": percent(every.same / every.num_pairs),
        "rank_turned": percent(every.turned / every.num_pairs),
        "rank_apart_same": percent(apart.same / apart.num_pairs),
    }


def _scaling() -> dict[str, str]:
    records = load_results("scaling")[1]
    heft, topo = (
        {r["num_ops"]: r for r in records if r["method"] == name and r.get("value_ns")}
        for name in ("heft", "m-topo")
    )
    bounds = bounds_by_size(records)
    most = max(set(heft) & set(topo))
    proven = max(set(heft) & set(topo) & set(bounds))
    return {
        "scale_ops": f"{most:,}",
        "scale_heft_s": format_s(heft[most]["cpu_s"]),
        "scale_heft_memory": f"{heft[most]['peak_bytes'] / 1e9:.1f} GB",
        "scale_topo_s": format_s(topo[most]["cpu_s"]),
        "scale_bound_ops": f"{proven:,}",
        "scale_heft_gap": percent(1 - bounds[proven] / heft[proven]["value_ns"]),
        "scale_topo_gap": percent(1 - bounds[proven] / topo[proven]["value_ns"]),
    }


def _memory() -> dict[str, str]:
    rows = with_looser_bounds(load_results("memory")[1])
    shares = sorted({row["memory_share"] for row in rows})
    at = {s: gaps_of([row for row in rows if row["memory_share"] == s]) for s in shares}
    tightest, loosest = at[shares[0]], at[shares[-1]]
    missing = [label for label, gaps in tightest.items() if None in gaps]
    before = [label for label, gaps in at[shares[1]].items() if None in gaps]
    return {
        "memory_tight": f"{100 * shares[0]:g} %",
        "memory_next": f"{100 * shares[1]:g} %",
        "memory_loose": f"{100 * shares[-1]:g} %",
        "memory_tight_gap": percent(_mean(tightest[DEFAULT])),
        "memory_loose_gap": percent(_mean(loosest[DEFAULT])),
        "memory_missing": str(len(missing)),
        "memory_before": str(len(before)),
        "memory_methods": str(len(tightest)),
        "memory_rows": str(len(tightest[DEFAULT])),
        "memory_names": ", ".join(f"`{label}`" for label in missing),
    }


def _mean(gaps: Sequence[float | None]) -> float:
    """Of those that are known."""
    return statistics.fmean(gap for gap in gaps if gap is not None)


def _forms() -> dict[str, str]:
    rows = [row["runs"] for row in load_results("moirai-forms")[1]]
    pairs = [[runs.get(form, {}) for form in FORMS.values()] for runs in rows]
    both = [pair for pair in pairs if all("rows" in run for run in pair)]
    closed = [pair for pair in both if all(map(_closed, pair))]
    return {
        "form_rows": str(len(both)),
        "form_factor": f"{statistics.median(one['rows'] / two['rows'] for one, two in both):.1f}",
        "form_published": str(sum(_closed(one) for one, _ in both)),
        "form_strengthened": str(sum(_closed(two) for _, two in both)),
        "form_both": str(len(closed)),
        "form_time": f"{statistics.median(o['time_s'] / t['time_s'] for o, t in closed):.1f}",
    }


def _closed(run: Record) -> bool:
    """Whether the model's own bound meets its value, but for the margin."""
    value_ns, bound_ns = run.get("value_ns"), own_bound_ns(run)
    return value_ns is not None and bound_ns is not None and bound_ns >= value_ns * (1 - MARGIN)


def _maps() -> dict[str, str]:
    rows = doc_rows("exports.md", "model")
    above = {f"{row['model']} on {row['cluster']}": row["accelerate is above"] for row in rows}
    least, most = min(above, key=lambda at: _number(above[at])), _most(above)
    return {
        "map_rows": str(len(above)),
        "map_least": above[least],
        "map_least_of": least,
        "map_most": above[most],
        "map_most_of": most,
    }


def _most(cells: Mapping[str, str]) -> str:
    return max(cells, key=lambda at: _number(cells[at]))


def _number(cell: str) -> float:
    """The number of a cell such as "+7.1 %"."""
    return float(cell.removesuffix("%"))


def _pipelines() -> dict[str, str]:
    rows = [row for row in doc_rows("pipeline-iteration.md", "model") if "proposal" in row]
    even = [row["even split"] for row in rows if row["even split"].startswith("+")]
    load = [row["max_load"] for row in rows if row["max_load"].startswith("+")]
    return {
        "pipe_rows": str(len(rows)),
        "pipe_even": max(even, key=_number).removeprefix("+"),
        "pipe_load": max(load, key=_number).removeprefix("+"),
        "pipe_unfit": str(len(rows) - len(load)),
    }


def _hybrid() -> dict[str, str]:
    rows = [row for row in doc_rows("hybrid.md", "model") if "any mode gains" in row]
    filled, full = "filled and drained, above", "full pipeline, above"
    return {
        "hybrid_rows": str(len(rows)),
        "hybrid_filled": max((row[filled] for row in rows), key=_number),
        "hybrid_full": max((row[full] for row in rows), key=_number),
        "hybrid_gain": max((row["any mode gains"] for row in rows), key=_number),
    }


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page."""
    templates = Path(__file__).resolve().parent
    yield "ours-results.md", (templates / "results.template.md").read_text().format_map(tables())
    yield "found.md", (templates / "found.template.md").read_text().format_map(figures())
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text()
        if TABLE.search(text):
            yield path.name, TABLE.sub(_filled, text)


def _filled(found: re.Match[str]) -> str:
    return found[1] + "\n".join(data_table(found[2], found.string)) + "\n" + found[3]


def data_table(name: str, page: str) -> Iterator[str]:
    """The lines of a table: a file of experiments/research/data, or runs of methods.

    ``auto`` and ``placers`` are tables of the corpus, and ``quickstart METHOD`` has runs there.
    """
    kind, _, method = name.partition(" ")
    if kind == "quickstart":
        yield from _quickstart(method)
    elif kind in ("auto", "placers"):
        rows = load_results("corpus")[1]
        gaps = gaps_of(rows)
        best = [label for label in by_share(gaps) if label != DEFAULT]
        described = set(re.findall(r"^## (.*)$|`([a-z-]+)`", page, re.MULTILINE))
        named = {one for pair in described for heads in pair for one in heads.split(", ")}
        shown = best if kind == "placers" else [DEFAULT, *best[:2]]
        yield from markdown_grid(
            PLACER_HEAD,
            [_placer(one, gaps[one], rows) for one in shown if kind == "auto" or one in named],
        )
    else:
        with (DATA / f"{name}.csv").open() as file:
            head, *lines = csv.reader(file)
        yield from markdown_grid(head, lines)


def _quickstart(method: str) -> Iterator[str]:
    """Each run of a method in the quickstart study."""
    with QUICKSTART.open() as file:
        runs = [row for row in csv.DictReader(file) if row["method"] == method]
    lines = [
        (
            row["instance"],
            row["cluster"],
            row["num_ops"],
            row["objective"],
            format_ns(int(row["value_ns"])),
            format_gap(float(row["gap"])),
            format_s(float(row["solve_s"])),
            row["made_by"].partition(";")[0].partition(" at ")[2],
        )
        for row in runs
        if row["table"].startswith("networks")
    ]
    head = ("graph", "cluster", "ops", "objective", "value", "gap", "time", "commit")
    yield from markdown_grid(head, lines)


def pictures() -> Iterator[tuple[str, bytes]]:
    """Name and content of each picture."""
    corpus, memory = (load_results(name)[1] for name in ("corpus", "memory"))
    yield "placers-profile.png", plot_profile(corpus)
    yield "placers-time.png", plot_time(corpus)
    yield "placers-ccr.png", plot_ccr(corpus)
    yield "placers-memory.png", plot_memory(memory)


def main(folder: Path = DOCS) -> None:
    """Write them all."""
    for name, text in pages():
        write_text(text, folder / name)
    for name, picture in pictures():
        write_bytes(picture, folder / name)


if __name__ == "__main__":
    main()
