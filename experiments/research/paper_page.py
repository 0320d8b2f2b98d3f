"""The page of a paper: its score, its tables beside ours, its claims, and what the regime rests on.

Every figure is taken from the kept results. A page has at most 1,500 words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from placegap.experiments.research.paper_comparison import ComparedCell, ComparedTable
from placegap.experiments.research.paper_score import (
    AGREES,
    NO_PLAN_HERE,
    REVERSED,
    TIE,
    PaperScore,
)
from placegap.experiments.research.published import NO_PLAN, UNITS_NS, Stated
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.runs import RunRow
from placegap.instances.reading.printable import printable

GB = 1e9
SMOKE = "-smoke"
COMMAND = "python -m placegap.experiments.research.papers"


def page(score: PaperScore, folder: str) -> str:
    """The page of a paper, from its folder of `experiments/papers/`."""
    lines = [
        f"# Reproduction: {score.name}",
        "",
        f"{score.scoring.reproduced} {_answer(score)}",
        "",
        f"`{COMMAND}` prints this score from `experiments/papers/{folder}/results/`. The referee"
        " simulates the plans; nothing ran on GPUs.",
        "",
        *_grid(("measure", score.name), [line for line in score.line().items() if line[1] != "-"]),
        f"A cell is ours (gap to the best bound of its row; {score.paper.published}); a star marks"
        " a stand-in, and [656] names a line of the paper's text. `pairs.csv` lists every pair.",
        "",
    ]
    for compared in score.tables:
        lines += _table(compared, score)
    lines += [*_effects(score), *_claims(score)]
    known = score.scoring
    for title, sentences in (
        ("The paper states", known.states),
        ("Its figures imply", known.implies),
        ("Assumed", known.assumes),
        ("Our algorithms deviate", known.deviates),
        ("Stand-ins", [Stated(what=f"{k}*: {v}") for k, v in score.stand_ins.items()]),
        ("Left out", known.left_out),
    ):
        lines += _listed(title, sentences)
    names = dict.fromkeys(
        study for t in score.tables for c in t.table.columns for study in t.table.place_of(c)[0]
    )
    studies = ", ".join(f"`{name}.yaml`" for name in names)
    lines += [
        "## Runs",
        "",
        f"- `placegap study experiments/papers/{folder}/STUDY` runs {studies}",
        *(f"- {maker}" for maker in _makers(score)),
    ]
    text = "\n".join(map(printable, lines)).rstrip() + "\n"
    return text.replace("*", "\\*")  # stars are marks, and never emphasis


def _answer(score: PaperScore) -> str:
    """How far it holds, in a sentence."""
    equal = [one for t in score.tables for cells in t.equal.values() for _, one in cells]
    if equal:
        return f"Of {len(equal)} values that their programs print, {sum(equal)} come out the same."
    if score.pairs:
        verdicts = Counter(pair.verdict for pair in score.pairs)
        return (
            f"Of {len(score.pairs)} pairs of methods with two published times, {verdicts[AGREES]}"
            f" have the published order here and {sum(verdicts[kind] for kind in REVERSED)} the"
            " reverse."
        )
    verdicts = Counter(claim.verdict for compared in score.tables for claim in compared.claims)
    return (
        f"The text states {sum(verdicts.values())} ratios: {verdicts['met']} are met here, and"
        f" {verdicts['same side']} more have the same direction."
    )


def _with_lines(text: str, lines: str) -> str:
    """A sentence with the lines of the paper's text that it rests on."""
    return f"{text} [{lines}]" if lines else text


def _listed(title: str, sentences: Sequence[Stated]) -> Iterator[str]:
    if sentences:
        lines = (_with_lines(said.what, said.lines) for said in sentences)
        yield from (f"## {title}", "", *(f"- {line}" for line in lines), "")


def _makers(score: PaperScore) -> list[str]:
    """What made the runs; their rows have the versions of libraries."""
    runs = [cell.run for t in score.tables for cell in t.cells if cell.run is not None]
    commits: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.versions:
            maker = f"{run.versions.partition(',')[0]} on {run.cpu}"
            commits.setdefault(maker, {})[run.commit] = None
    made = [f"{maker}; commit {', '.join(known)}" for maker, known in commits.items()]
    smoke = dict.fromkeys(run.study for run in runs if run.study.endswith(SMOKE))
    return [*made, *(f"{study}: the smallest form (`--smoke`)" for study in smoke)]


def _table(compared: ComparedTable, score: PaperScore) -> Iterator[str]:
    table = compared.table
    unit = "" if table.unit == "1" else f", in {table.unit}"
    # Rows and columns without any value of ours are left out.
    kept = [row for row in compared.rows if any(cell.ours_ns is not None for cell in row)]
    columns = [
        c for c in range(len(table.columns)) if any(row[c].ours_ns is not None for row in kept)
    ]
    rows = [(row[0].row.name, *(_cell(compared, row[c]) for c in columns)) for row in kept]
    yield from (f"## {table.title}", "")
    if rows:
        yield from _grid((f"row{unit}", *(table.columns[c].heading for c in columns)), rows)
    yield from (f"- {note}" for note in _notes(compared, score))
    yield ""


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table without spaces between its cells, so that tools count words and not bars."""
    yield from (line.replace("| ", "|").replace(" |", "|") for line in markdown_grid(head, rows))
    yield ""


def _cell(compared: ComparedTable, cell: ComparedCell) -> str:
    inside = [] if cell.gap is None else [_percent(cell.gap)]
    inside += [cell.printed] if cell.printed else []
    ours = "-" if cell.ours_ns is None else _shown(compared, cell.ours_ns)
    if cell.among is not None:
        inside.append("-".join(_shown(compared, value) for value in cell.among))
    run = cell.run
    beyond = None if run is None or run.split_value_ns is not None else run.overfills_bytes
    if beyond is not None and cell.ours_ns is not None and math.isfinite(cell.ours_ns):
        ours += f" +{beyond / GB:.2g}GB"
    return f"{ours} ({'; '.join(inside)})" if inside else ours


def _shown(compared: ComparedTable, time_ns: float) -> str:
    figure = time_ns / UNITS_NS[compared.table.unit]
    return NO_PLAN if math.isinf(time_ns) else f"{figure:.{4 if figure < 1000 else 6}g}"


def _percent(gap: float) -> str:
    percent = 100 * gap
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if 0 < abs(percent) < 9.95 else f"{percent:.0f}%"


def _notes(compared: ComparedTable, score: PaperScore) -> Iterator[str]:
    table = compared.table
    yield f"source: {table.source}"
    if table.note:
        yield table.note
    if table.mark:
        yield f"number with a star: {table.mark}"
    yield from _pairs(compared, score)
    yield from _misfits(compared)
    if compared.equal:
        yield f"equal cells: {'; '.join(_equal(compared))}"
    for column, (among, count) in compared.seeded.items():
        yield (
            f"{column} last has its range with other numbers of vertices; the program's value is in"
            f" it on {among} of {count} rows"
        )
    if table.ahead is not None:
        first, rows = compared.ahead
        others = f" of {', '.join(table.ahead_of)}" * bool(table.ahead_of)
        text = _with_lines(f"the text has {table.ahead} ahead{others}", table.ahead_lines)
        yield f"{text}; here on {first} of {rows} rows"
    ended = Counter(
        cell.column.heading
        for cell in compared.cells
        if cell.run is not None and _took_all(cell.run)
    )
    if ended:
        yield f"ended by their time limit: {_counted(ended)}"


def _took_all(run: RunRow) -> bool:
    return run.time_limit_s is not None and (run.time_s or 0.0) >= run.time_limit_s


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _pairs(compared: ComparedTable, score: PaperScore) -> Iterator[str]:
    """How the pairs of a table agree, and what turns those that are reversed."""
    pairs = [pair for pair in score.pairs if pair.table == compared.table.name]
    if not pairs:
        return
    verdicts = Counter(pair.verdict for pair in pairs)
    reversed_ = [pair for pair in pairs if pair.verdict in REVERSED]
    apart = verdicts[NO_PLAN_HERE]
    yield (
        f"timed pairs: {verdicts[AGREES]} agree, {verdicts[TIE]} tie, {len(reversed_)} reversed"
        f"{f', {apart} without a plan here' if apart else ''}"
    )
    explained = REVERSED[0]
    groups: dict[str, Counter[str]] = {}
    for pair in reversed_:
        if pair.verdict == explained:
            groups.setdefault(pair.why, Counter())[pair.row] += 1
    for why, rows in groups.items():
        yield f"{explained}: {why}: {_counted(rows)}"


def _equal(compared: ComparedTable) -> Iterator[str]:
    """How many cells of each column are the program's, and which few are not."""
    for column, cells in compared.equal.items():
        others = [row for row, is_equal in cells if not is_equal]
        named = f" (not {', '.join(others)})" if 0 < len(others) <= len(cells) / 2 else ""
        yield f"{column} {len(cells) - len(others)} of {len(cells)}{named}"


def _misfits(compared: ComparedTable) -> Iterator[str]:
    """Cells that have a plan only here, or only in the paper."""
    for where, here in (("here", True), ("in the paper", False)):
        found: dict[str, list[str]] = {}
        for cell, paper, ours in compared.published:
            if paper != ours and ours == here:
                found.setdefault(cell.column.heading, []).append(cell.row.name)
        if found:
            names = "; ".join(f"{name} ({', '.join(rows)})" for name, rows in found.items())
            yield f"{NO_PLAN} only {where}: {names}"


def _effects(score: PaperScore) -> Iterator[str]:
    rows = [
        (each.changes, str(each.tried), str(each.right), str(each.wrong))
        for each in score.effects
        if each.tried
    ]
    if rows:
        yield from ("## What one change does to all pairs", "")
        yield from _grid(("change", "pairs tried", "turned right", "turned wrong"), rows)


def _claims(score: PaperScore) -> Iterator[str]:
    beside = {
        heading: [found for compared in tables for found in compared.claims]
        for heading, tables in score.beside.items()
    }
    rows = [
        (
            _with_lines(found.claim.name, found.claim.lines),
            f"{found.claim.ratio:g}",
            *(_ratio(one) for one in (found.ours, *(of[i].ours for of in beside.values()))),
            *(_ratio(one) for one in (found.median, found.at_most)),
            found.verdict,
        )
        for i, found in enumerate(c for compared in score.tables for c in compared.claims)
    ]
    if rows:
        said = "Ratios; the median where ours is the largest; no plan exceeds the bound."
        yield from ("## Claims of the text", "", said, "")
        head = ("claim", "paper", "ours", *beside, "median", "bound", "verdict")
        yield from _grid(head, rows)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g}"
