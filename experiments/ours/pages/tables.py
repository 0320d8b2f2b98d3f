"""The tables of docs/ours-results.md, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

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
from placegap.experiments.research.record import read_results
from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.studies.log import Record
from placegap.experiments.studies.report import markdown_grid

FORMS = {"published": "moirai form=as_published", "strengthened": "moirai form=strengthened"}
STUDIES = ("corpus", "moirai-forms", "congestion", "scaling", "sensitivity", "memory")


def percent(share: float) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.1234), percent(-0.0001)
    ('12.3 %', '0.0 %')
    """
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # no -0.0


def tables() -> dict[str, str]:
    """Every table by its name in the template, and what made the results."""
    read = {name: read_results(name) for name in STUDIES}
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
            (
                "placer",
                "plans",
                "optimal",
                "within 1 %",
                "within 10 %",
                "mean gap",
                "median gap",
                "median time",
            ),
            [_placer(label, gaps[label], mine) for label in by_share(gaps)],
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
    """What the model proved by itself: `solve` puts a cheap bound in its place if that is better.

    Examples
    --------
    >>> own_bound_ns({"bound_ns": 9, "own_bound_ns": 7}), own_bound_ns({"bound_ns": 9})
    (7, 9)
    """
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
