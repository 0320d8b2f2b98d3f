"""``python -m placegap.experiments.research.pages``: docs/results.md, tables and two pictures.

All is read from committed results. Other pages have tables between two comments; the first of them
says what is shown: ``<!-- data: NAME -->``, a file of experiments/research/data, the best known
values (``optima``), what the columns of a run mean (``columns``), README's (``quickstart``).
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.cli.publish import repository
from placegap.experiments.research.measures import (
    blind_rows,
    losses_by_error,
    orders_by_error,
    orders_under_ports,
    ranked,
    with_looser_bounds,
)
from placegap.experiments.research.page_plots import plot_memory, plot_schedules, profile_png
from placegap.experiments.research.record import HERE, RESULTS
from placegap.experiments.research.tables import benchmark, optima
from placegap.experiments.show.figures import format_gap, format_s
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.analysis import load_runs, summary
from placegap.experiments.studies.report import SUMMARY_HEAD, common_rows, made_by, summary_rows
from placegap.experiments.studies.runs import COLUMNS, RunRow, rows_of
from placegap.instances.corpus.corpus import load_best_known
from placegap.instances.files.output_files import write_bytes, write_text

if TYPE_CHECKING:
    import pandas as pd

FORMS = {"published": "moirai form=as_published", "strengthened": "moirai form=strengthened"}
BRIEF = ("method", "plans", "mean", "worst", "optimal", "time")  # of tables with few rows
STUDIES = (
    "corpus",
    "formulations",
    "moirai-forms",
    "congestion",
    "scaling",
    "sensitivity",
    "memory",
)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # no -0.0


def tables() -> dict[str, str]:
    """Every table by its name in the template, and what made the results."""
    runs = {name: load_results(name) for name in STUDIES}
    made = dict[str, list[str]]()  # what made results -> the studies that it made
    for found_runs in runs.values():
        for one in made_by(rows_of(found_runs)):
            made.setdefault(one, []).append(str(found_runs["study"].iloc[0]))
    found = {
        "corpus": summaries(runs["corpus"]),
        "formulations": one_summary(runs["formulations"]),
        "congestion": congestion(runs["congestion"]),
        "scaling": scaling(runs["scaling"]),
        "sensitivity": sensitivity(runs["sensitivity"]),
        "memory": memory(runs["memory"]),
        "made_by": (f"- {', '.join(studies)}: {one}." for one, studies in made.items()),
    }
    return {name: "\n".join(lines) for name, lines in found.items()}


def load_results(name: str) -> pd.DataFrame:
    """The committed results of a study of our own."""
    return load_runs(RESULTS / f"{name}.csv")


def summaries(runs: pd.DataFrame) -> Iterator[str]:
    """A line per method, the best first, in a table per table of the study."""
    for name, mine in runs.groupby("table", sort=False):
        yield from ("",) if name != runs["table"].iloc[0] else ()
        yield from (f"**{name}**, {common_rows(mine)}", "")
        yield from markdown_grid(SUMMARY_HEAD, best_first(mine))


def one_summary(runs: pd.DataFrame) -> Iterator[str]:
    """The same in one table, for a study of many small tables whose means are over all rows."""
    at, rows = [SUMMARY_HEAD.index(head) for head in BRIEF], list[tuple[str, ...]]()
    for name, mine in runs.groupby("table", sort=False):
        lines = best_first(mine)
        names = (str(name), *[""] * (len(lines) - 1))
        rows += [(own, *(line[k] for k in at)) for own, line in zip(names, lines, strict=True)]
    yield from markdown_grid(("problem", *BRIEF), rows)


def best_first(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """The lines of a summary, in the order of `ranked`."""
    lines = {line[0]: line for line in summary_rows(runs)}
    return [lines[str(label)] for label in ranked(runs).index]


def own_bound_ns(row: RunRow) -> int | None:
    """What the model alone proved; `run_method` reports a cheap bound instead if that is better."""
    return row.bound_ns if row.own_bound_ns is None else row.own_bound_ns


def congestion(runs: pd.DataFrame) -> Iterator[str]:
    """A line per method: its blind plans under ports; then what becomes of the ranking."""
    yield from markdown_grid(
        (
            *("method", "plans", "above its promise: mean", "worst", "mean gap"),
            *("plans for ports alike", "above its plan for ports: mean", "worst"),
        ),
        [
            tuple(str(x) if isinstance(x, str | int) else percent(x) for x in line)
            for line in blind_rows(runs).astype(object).itertuples(name=None)
        ],
    )
    order = orders_under_ports(runs)
    same, ties, turned = (percent(count / max(1, order.num_pairs)) for count in order)
    yield ""
    yield (
        f"Of {order.num_pairs} pairs of methods that free channels rank on one instance, {same}"
        f" keep their order under ports, {ties} tie, and {turned} are reversed."
    )


def scaling(runs: pd.DataFrame) -> Iterator[str]:
    """A line per method, a column per size: CPU seconds, peak memory, gap."""
    cells: dict[str, list[str]] = {}
    for row in rows_of(runs.sort_values("num_ops", kind="stable")):
        gap = "" if row.gap is None else f", {percent(row.gap)}"
        cells.setdefault(row.method, []).append(
            f"{format_s(row.cpu_s or 0)}, {(row.peak_bytes or 0) / 1e9:.2f} GB{gap}"
            if row.value_ns is not None
            else row.message or "no plan"
        )
    sizes = (f"{size:,} ops" for size in sorted(runs["num_ops"].unique()))
    yield from markdown_grid(("method", *sizes), [(name, *line) for name, line in cells.items()])


def sensitivity(runs: pd.DataFrame) -> Iterator[str]:
    """A line per placer, a column per error: mean and worst loss."""
    losses = losses_by_error(runs)
    texts = losses["mean"].map(percent) + ", " + losses["max"].map(percent)
    wide = texts.unstack("table").reindex(losses.index.unique("method"))
    lines = [tuple(map(str, line)) for line in wide.itertuples(name=None)]
    yield from markdown_grid(("placer", *wide), lines)


def memory(runs: pd.DataFrame) -> Iterator[str]:
    """A line per method, a column per share of memory: plans and their mean gap."""
    groups = with_looser_bounds(runs).groupby(["label", "memory_share"], sort=False)
    found = groups["gap"].agg(["count", "size", "mean"])
    texts = found["count"].astype(str) + " of " + found["size"].astype(str)
    texts += [f", {format_gap(gap)}" if gap >= 0 else "" for gap in found["mean"]]
    wide = texts.unstack("memory_share").reindex(runs["label"].unique())
    shares = sorted(runs["memory_share"].unique(), reverse=True)
    lines = [tuple(map(str, line)) for line in wide[shares].itertuples(name=None)]
    yield from markdown_grid(("method", *(f"{100 * share:g} %" for share in shares)), lines)


ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
RESULTS_PAGE = DOCS / "results.md"
DATA = Path(__file__).resolve().parent / "data"
ROW = re.compile(r"^\| .*\|$", re.MULTILINE)
TABLE = re.compile(r"(<!-- data: ([a-z -]+) -->\n).*?(<!-- end of data -->)", re.DOTALL)
MARGIN = 2e-6  # MIPs keep half of it in their bounds: a gap that is smaller is a closed model

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
        _pipelines,
        _hybrid,
    ):
        found |= part()
    return found


def data_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of experiments/research/data."""
    with (DATA / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _certificates() -> dict[str, str]:
    gap = {row["table"]: row["mean gap"] for row in data_rows("certificates")}
    return {
        "port_gap": gap["generated, ports, 83,206 ops"],
        "free_gap": gap["generated, free channels, 83,206 ops"],
        "small_port_gap": gap["generated, ports, 1,000 ops"],
        "small_free_gap": gap["generated, free channels, 1,000 ops"],
    }


def _corpus() -> dict[str, str]:
    runs = load_results("corpus")
    alone: Any = summary(runs[runs["table"] == "graphs"], "label").loc[ALONE]
    found = ranked(runs)
    first: Any
    first, second = (found.loc[label] for label in found.index.drop(DEFAULT)[:2])
    shares = found[["optimal", "within_10"]].div(found["rows"], axis="index")
    ties = first["within_10"] == second["within_10"]
    return {
        "graph_rows": str(int(alone["rows"])),
        "alone_optimal": str(int(alone["optimal"])),
        "alone_near": str(int(alone["within_1"])),
        "corpus_rows": str(int(first["rows"])),
        "first": str(first.name),
        "second": str(second.name),
        "first_share": percent(shares["within_10"][first.name]),
        "second_share": "as many" if ties else percent(shares["within_10"][second.name]),
        "auto_share": percent(shares["within_10"][DEFAULT]),
        "auto_optimal": percent(shares["optimal"][DEFAULT]),
        "first_optimal": percent(shares["optimal"][first.name]),
        "first_worst": percent(runs[runs["label"] == first.name]["gap"].max()),
        "first_plans": str(int(first["plans"])),
    }


def _congestion() -> dict[str, str]:
    runs = load_results("congestion")
    rows = blind_rows(runs)
    placers = rows.drop(index=EXACT)
    best: Any = rows.loc[EXACT]
    worst: Any = placers.sort_values("promised").iloc[-1]
    order = orders_under_ports(runs)
    return {
        "blind_promised": percent(best["promised"]),
        "blind_promised_worst": percent(best["promised_worst"]),
        "blind_aware": percent(best["aware"]),
        "blind_aware_worst": percent(best["aware_worst"]),
        "blind_placers": str(len(placers)),
        "blind_alike": str(placers["alike"].sum()),
        "blind_plans": str(placers["plans"].sum()),
        "blind_placer": str(worst.name),
        "blind_placer_promised": percent(worst["promised"]),
        "blind_turned": percent(order.turned / order.num_pairs),
    }


def _costs() -> dict[str, str]:
    runs = load_results("sensitivity")
    losses = losses_by_error(runs).drop(index=[ALONE, EXACT], level="method")
    mean = losses["mean"].groupby("table", sort=False).mean()
    most = str(mean.index[-1])
    said = [f"{percent(mean[table])} where costs are {table}" for table in mean.index]
    every, apart = (orders_by_error(runs, least)[most] for least in (0.0, 0.05))
    return {
        "cost_placers": str(losses.index.get_level_values("method").nunique()),
        "cost_means": ", ".join(said),
        "cost_mean": percent(mean[most]),
        "cost_most": most.removeprefix("off by "),
        "cost_worst": percent(losses["max"].xs(most, level="table").max()),
        "rank_same": percent(every.same / every.num_pairs),
        "rank_turned": percent(every.turned / every.num_pairs),
        "rank_apart_same": percent(apart.same / apart.num_pairs),
    }


def _scaling() -> dict[str, str]:
    runs = load_results("scaling").dropna(subset="value_ns").set_index(["method", "num_ops"])
    heft, topo = (runs.loc[name].sort_index() for name in ("heft", "m-topo"))
    both = heft.index.intersection(topo.index)
    most, proven = both.max(), heft.loc[both, "gap"].dropna().index.max()
    return {
        "scale_ops": f"{most:,}",
        "scale_heft_s": format_s(heft["cpu_s"][most]),
        "scale_heft_memory": f"{heft['peak_bytes'][most] / 1e9:.1f} GB",
        "scale_topo_s": format_s(topo["cpu_s"][most]),
        "scale_bound_ops": f"{proven:,}",
        "scale_heft_gap": percent(heft["gap"][proven]),
        "scale_topo_gap": percent(topo["gap"][proven]),
    }


def _memory() -> dict[str, str]:
    groups = with_looser_bounds(load_results("memory")).groupby(
        ["memory_share", "label"], sort=False
    )
    found = groups["gap"].agg(["count", "size", "mean"])
    tightest, before, *_, loosest = sorted(found.index.unique("memory_share"))
    lacks = found["count"] < found["size"]
    missing = list(lacks[tightest][lacks[tightest]].index)
    return {
        "memory_tight": f"{100 * tightest:g} %",
        "memory_next": f"{100 * before:g} %",
        "memory_loose": f"{100 * loosest:g} %",
        "memory_tight_gap": percent(found["mean"][tightest, DEFAULT]),
        "memory_loose_gap": percent(found["mean"][loosest, DEFAULT]),
        "memory_missing": str(len(missing)),
        "memory_before": str(lacks[before].sum()),
        "memory_methods": str(len(lacks[tightest])),
        "memory_rows": str(found["size"][tightest, DEFAULT]),
        "memory_names": ", ".join(f"`{label}`" for label in missing),
    }


def _forms() -> dict[str, str]:
    of: dict[str, dict[str, RunRow]] = {}
    for row in rows_of(load_results("moirai-forms")):
        if row.rows is not None:
            of.setdefault(row.instance_hash, {})[row.label] = row
    both = [[rows[form] for form in FORMS.values()] for rows in of.values() if len(rows) == 2]
    closed = [
        (one.time_s or 0, two.time_s or 0) for one, two in both if _closed(one) and _closed(two)
    ]
    factors = [(one.rows or 0) / (two.rows or 1) for one, two in both]
    return {
        "form_rows": str(len(both)),
        "form_factor": f"{statistics.median(factors):.1f}",
        "form_published": str(sum(_closed(one) for one, _ in both)),
        "form_strengthened": str(sum(_closed(two) for _, two in both)),
        "form_both": str(len(closed)),
        "form_time": f"{statistics.median(one / two for one, two in closed):.1f}",
    }


def _closed(row: RunRow) -> bool:
    """Whether the model's own bound meets its value, but for the margin."""
    bound_ns = own_bound_ns(row)
    return None not in (row.value_ns, bound_ns) and (bound_ns or 0) >= (row.value_ns or 0) * (
        1 - MARGIN
    )


def _number(cell: str) -> float:
    """The number of a cell such as "+7.1 %"."""
    return float(cell.removesuffix("%"))


def _pipelines() -> dict[str, str]:
    rows = data_rows("pipelines")
    even = [row["even split"] for row in rows if row["even split"].startswith("+")]
    load = [row["max_load"] for row in rows if row["max_load"].startswith("+")]
    return {
        "pipe_rows": str(len(rows)),
        "pipe_even": max(even, key=_number).removeprefix("+"),
        "pipe_load": max(load, key=_number).removeprefix("+"),
        "pipe_unfit": str(len(rows) - len(load)),
    }


def _hybrid() -> dict[str, str]:
    rows = data_rows("hybrid-published")
    filled, full = "filled and drained, above", "full pipeline, above"
    return {
        "hybrid_rows": str(len(rows)),
        "hybrid_filled": max((row[filled] for row in rows), key=_number),
        "hybrid_full": max((row[full] for row in rows), key=_number),
        "hybrid_gain": max((row["any mode gains"] for row in rows), key=_number),
    }


def pages() -> Iterator[tuple[Path, str]]:
    """File and text of each page."""
    template = Path(__file__).resolve().parent / "results.template.md"
    text = template.read_text().format_map(tables() | figures())
    yield RESULTS_PAGE, ROW.sub(_compact, TABLE.sub(_filled, text))
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = path.read_text()
        if path != RESULTS_PAGE and TABLE.search(text):
            made = TABLE.sub(_filled, text)
            yield path, ROW.sub(_compact, made) if path.parent == DOCS else made


def _compact(found: re.Match[str]) -> str:
    """A row without spaces beside its bars, which tools would count as words."""
    return found[0].replace(" | ", "|").replace("| ", "|").replace(" |", "|")


def _filled(found: re.Match[str]) -> str:
    return found[1] + "\n".join(data_table(found[2])) + "\n" + found[3]


def data_table(name: str) -> Iterator[str]:
    """The lines of a table between two comments."""
    if name == "columns":
        yield from markdown_grid(("column", "meaning"), list(COLUMNS.items()))
    elif name == "badges":
        yield from badges(repository())
    elif name == "benchmark sets":
        yield from benchmark.sets()
    elif name == "open instances":
        yield from benchmark.open_instances()
    elif name == "optima":
        yield from optima.table(load_best_known())
    elif name == "quickstart":
        runs = load_runs(ROOT / "experiments" / "notebooks" / "quickstart.csv")
        networks = runs[runs["table"] == "networks, makespan"]
        yield from markdown_grid(SUMMARY_HEAD, summary_rows(networks))
    else:
        with (DATA / f"{name}.csv").open() as file:
            head, *table = csv.reader(file)
        made = {row[-1] for row in table} if head[-1] == "commit" else set()
        is_one = len(made) == 1  # said once, below
        yield from markdown_grid(
            head[: len(head) - is_one], [row[: len(row) - is_one] for row in table]
        )
        yield from ("", f"Commit {made.pop()}.") if is_one else ()


def pictures() -> Iterator[tuple[str, bytes]]:
    """Name and content of each picture."""
    yield "placers-profile.png", profile_png(load_results("corpus"))
    yield "placers-memory.png", plot_memory(load_results("memory"))
    yield "schedules.png", plot_schedules()


def badges(url: str) -> Iterator[str]:
    """The README's badges; none before the project has an address."""
    if url:
        runs, index = f"{url}/actions/workflows/ci.yml", "https://pypi.org/project/placegap"
        yield f"[![tests]({runs}/badge.svg)]({runs})"
        yield f"[![PyPI](https://img.shields.io/pypi/v/placegap)]({index})"


def main() -> None:
    for path, text in pages():
        write_text(text, path)
    for name, picture in pictures():
        write_bytes(picture, DOCS / name)


if __name__ == "__main__":
    main()
