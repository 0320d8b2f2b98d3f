"""The papers' score again, from the CSV and YAML files alone: nothing of the package counts it.

It leaves out what needs the graphs, and which reversed pairs are explained.
"""

import csv
import json
import math
import re
from collections import Counter
from fnmatch import fnmatchcase
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from placegap.experiments.research.paper_score import PaperScore, score
from placegap.experiments.research.papers import PAPERS

PAPERS_FOLDER = Path(__file__).resolve().parents[3] / "experiments" / "papers"
UNIT_NS = {"s": 1e9, "ms": 1e6, "min": 60e9, "hrs": 3600e9}
APART = ("agrees", "tie", "no plan here")
Row = dict[str, str]


def printed_ns(cell: float | str | None, unit: str) -> float | None:
    """What a paper printed, in ns: "5.4", "<60", "4.32min*", "OOM"."""
    if cell is None or cell == "OOM":
        return None if cell is None else math.inf
    found = re.fullmatch(r"[<>]?\s*([\d.]+)\s*([a-z]*)\*?", str(cell))
    assert found is not None, cell
    return float(found[1]) * UNIT_NS[found[2] or unit]


class Recount:
    """One paper's folder, read without the package."""

    def __init__(self, folder: Path) -> None:
        published = yaml.safe_load((folder / "published.yaml").read_text())
        self.tables = [
            table for table in published["tables"] if table.get("quantity", "value") != "figure"
        ]
        self.runs = {
            file.stem: list(csv.DictReader(file.open(encoding="utf-8")))
            for file in (folder / "results").glob("*.csv")
        }

    def run(self, table: dict[str, Any], row: dict[str, Any], column: dict[str, Any]) -> Row | None:
        """The run that stands in a cell."""
        studies = column.get("results") or table["results"]
        names = column.get("tables", []) or (
            [] if column.get("results") else table.get("tables", [])
        )
        found = [
            run
            for study in studies
            for run in self.runs.get(study, [])
            if run["instance"] == row["instance"]
            and str(row.get("num_ops", run["num_ops"])) == run["num_ops"]
            and row.get("cluster") in (None, run["cluster"], run["cluster"].split(", memory ")[0])
            and (not names or any(fnmatchcase(run["table"], name) for name in names))
            and column.get("method") in (run["method"], run["label"])
        ]
        assert len(found) <= 1, (row["name"], column["name"])
        return found[0] if found else None

    def value_ns(self, table: dict[str, Any], column: dict[str, Any], run: Row | None) -> Any:
        """What a cell has of ours, in ns: infinite without a plan, None without a run."""
        if run is None:
            return None
        kept = run["value_ns"] or run.get("split_value_ns")
        if not kept and column.get("best_effort"):
            kept = run.get("overfilled_ns")
        if not kept:
            return math.inf if run["status"] in ("infeasible", "no_plan") else None
        took_ns = (float(run["solve_s"] or 0) + float(run["build_s"] or 0)) * 1e9
        kind = table.get("quantity", "value")
        if kind == "time":
            return took_ns
        kept = run.get(column["clock"]) if "clock" in column else kept
        if not kept:
            return None
        return int(kept) * table.get("steps", 1) + (took_ns if kind == "measuring" else 0)

    def cells(self, table: dict[str, Any], row: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Column -> column, printed and our value, and our run."""
        printed = row.get("cells") or [None] * len(table["columns"])
        found = {}
        for column, cell in zip(table["columns"], printed, strict=True):
            run = self.run(table, row, column)
            ours = self.value_ns(table, column, run)
            found[column["name"]] = column, printed_ns(cell, table["unit"]), ours, run
        return found

    def verdicts(self) -> Counter[str]:
        """Pairs with two printed times that differ, of two runs that did not count before."""
        found: Counter[str] = Counter()
        counted = set()
        for table, row in self.ranked_rows():
            known = [c for c in self.cells(table, row).values() if None not in c[1:3]]
            timed = [c for c in known if not c[0].get("fitted") and math.isfinite(c[1])]
            for (_, a, ours_a, run_a), (_, b, ours_b, run_b) in permutations(timed, 2):
                key = (table.get("quantity"), frozenset({id(run_a), id(run_b)}))
                if b - a < 1 or key in counted:
                    continue
                counted.add(key)
                if math.inf in (ours_a, ours_b):
                    found["no plan here"] += 1
                else:
                    found["agrees" if ours_a < ours_b else "tie" if ours_a == ours_b else "-"] += 1
        return found

    def out_of_memory(self) -> tuple[int, int]:
        """Cells without a plan in both, and in either."""
        cells = [c for t, r in self.ranked_rows() for c in self.cells(t, r).values()]
        pairs = [(math.isinf(c[1]), math.isinf(c[2])) for c in cells if None not in c[1:3]]
        return sum(a and b for a, b in pairs), sum(a or b for a, b in pairs)

    def claims(self) -> Counter[str]:
        """Claims on times, by the share of time that ours and the paper's save."""
        found: Counter[str] = Counter()
        for table in self.tables:
            for claim in table.get("claims", ()):
                ratios = []
                for row in table["rows"]:
                    if row["name"] in claim.get("rows", [row["name"]]):
                        cells = self.cells(table, row)
                        over, under = (cells[claim[end]][2] for end in ("slower", "faster"))
                        if over and under and math.isfinite(over) and math.isfinite(under):
                            ratios.append(over / under)
                if not ratios:
                    found["no plan"] += 1
                    continue
                is_mean = claim.get("statistic") == "mean"
                ours = sum(ratios) / len(ratios) if is_mean else max(ratios)
                shares = [1 - 1 / r if r > 1 else r - 1 for r in (ours, claim["ratio"])]
                if shares[0] * shares[1] <= 0:
                    found["tie" if shares[0] == 0 else "reversed"] += 1
                else:
                    near = 0.75 <= shares[0] / shares[1] <= 1.25
                    found["met" if near else "same side"] += 1
        return found

    def best_gaps(self) -> list[float]:
        """(value - bound) / value of the best plan of every problem that a table of plans shows."""
        order = ("chain", "convex", "any")
        values: dict[Any, list[int]] = {}
        bounds: dict[Any, list[tuple[int, int]]] = {}
        for run in (run for runs in self.runs.values() for run in runs):
            problem, own = self.problem(run)
            if run["value_ns"]:
                values.setdefault((problem, own), []).append(int(run["value_ns"]))
            for name, of in (("bound_ns", run.get("bound_class") or own), ("best_bound_ns", own)):
                if run.get(name):
                    bounds.setdefault(problem, []).append((order.index(of), int(run[name])))
        shown = {
            self.problem(cell[3])
            for table, row in self.ranked_rows()
            for cell in self.cells(table, row).values()
            if cell[3] is not None and cell[2] is not None and math.isfinite(cell[2])
        }
        gaps = []
        for problem, own in shown:
            known = [bound for of, bound in bounds.get(problem, ()) if of >= order.index(own)]
            if known and (problem, own) in values:
                best = min(values[problem, own])
                gaps.append((best - max(known)) / best)
        return sorted(gaps)

    @staticmethod
    def problem(run: Row) -> tuple[Any, str]:
        """What a run's problem is, and the class of its plans."""
        rules = json.loads(run["rules"])
        own = rules.pop("plans", "any")
        return (run["instance_hash"], json.dumps(rules, sort_keys=True)), own

    def ranked_rows(self) -> Any:
        """The rows of tables of plans."""
        for table in self.tables:
            if table.get("quantity") != "time":
                yield from ((table, row) for row in table["rows"])


@pytest.fixture(scope="module", params=PAPERS)
def both(request: pytest.FixtureRequest) -> tuple[Recount, PaperScore]:
    folder = PAPERS_FOLDER / request.param
    return Recount(folder), score(request.param, folder)


def test_pairs_are_counted_alike(both: tuple[Recount, PaperScore]) -> None:
    again, found = both
    counts = Counter(p.verdict if p.verdict in APART else "-" for p in found.pairs)
    assert again.verdicts() == counts


def test_cells_without_a_plan_are_counted_alike(both: tuple[Recount, PaperScore]) -> None:
    again, found = both
    cells = [(paper, ours) for table in found.tables for _, paper, ours in table.published]
    assert again.out_of_memory() == (sum(a and b for a, b in cells), sum(a or b for a, b in cells))


def test_claims_on_times_are_judged_alike(both: tuple[Recount, PaperScore]) -> None:
    again, found = both
    tables = [table for table in found.tables if table.table.quantity != "figure"]
    assert again.claims() == Counter(claim.verdict for t in tables for claim in t.claims)


def test_gaps_of_the_best_plans_are_the_same(both: tuple[Recount, PaperScore]) -> None:
    again, found = both
    assert again.best_gaps() == pytest.approx(sorted(found.best_gaps))
