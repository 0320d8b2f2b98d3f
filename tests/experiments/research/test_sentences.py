"""The figures of sentences: taken from cells, and no sentence has one of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doubles.gap_runs import CHAIN, cells_of, plan
from pydantic import ValidationError

from placegap.experiments.research.paper_comparison import WORDS, ComparedTable, compare
from placegap.experiments.research.paper_table import notes
from placegap.experiments.research.published import PublishedTable, load_paper

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "experiments" / "papers").glob("*/published.yaml"))
TABLES = [
    pytest.param(table, id=f"{file.parent.name}-{table.name}")
    for file in FILES
    for table in load_paper(file).tables
]
S = 10**9

NAMED = re.compile(
    r"\b(tables?|figures?|sections?) [\dIV.]+(\([a-d]\))?|\(\d\)"
    r"|\b[A-Za-z]+[-_]?[vV]?\d[\w.]*(-\w+)?|TensorFlow 1|PCIe 3\.0|Algorithm \d|within\s+\d+ %"
)
"""Digits that are no figures: tables, equations, names of networks, versions, columns."""

COUNTED = re.compile(rf"\b({'|'.join(WORDS[2:])}|half)\b (of|rows|networks|graphs|times|GPUs)\b")


def of_two_rows(**changed: object) -> ComparedTable:
    """A, B and C take 2, 4 and 3 s on Net; on Other A takes 5 s, splits ops, and B has no plan.

    The paper has 1, 4 and nothing on Net, and 2.5, 2 and nothing on Other.
    """
    content: dict[str, object] = {
        "name": "one",
        "title": "One",
        "source": "table 1",
        "unit": "s",
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [
            {"name": "Net", "instance": "net", "cells": [1, 4, None]},
            {"name": "Other", "instance": "other", "cells": [2.5, 2, None]},
        ],
        **changed,
    }
    split = {"status": "split", "message": "", "details": {"split_value_ns": 5 * S}}
    held = "(memory: device 'gpu0' holds 46000000000 bytes at its peak, 14000000000 more than its"
    results = {
        ("t", "net", "a"): plan(2 * S),
        ("t", "net", "b"): plan(4 * S, bound=1 * S),
        ("t", "net", "c"): plan(3 * S),
        ("t", "other", "a"): split,
        ("t", "other", "b"): {"status": "no_plan", "message": f"{held} 32000000000"},
    }
    return compare(PublishedTable.model_validate(content), cells_of(results, {"t": CHAIN}))


@pytest.mark.parametrize(
    ("figure", "sentence", "told"),
    [
        # Net: 4 / 2; Other: no plan over 5 s, which counts and is not shown
        ({"over": "B", "under": "A"}, "{x.most:.1f} {x.above} {x.all.word} {x.fit}", "2.0 2 two 1"),
        # the better of B and C is C with 3 s: 3 / 2, which is 50 % more, or a third less
        (
            {"over": ["B", "C"], "under": "A", "rows": ["Net"]},
            "{x.least:.2f} {x.most.more:.0f} {x.most.less:.1f}",
            "1.50 50 33.3",
        ),
        ({"over": "B", "under": "A", "of": "paper"}, "{x.least} {x.mean} {x.below}", "0.8 2.4 1"),
        ({"over": "A", "splits": True}, "{x.most:.3f} {x.all}", "5.000 1"),
        ({"over": "A", "under": "B", "splits": False}, "{x.most} {x.not_below}", "0.5 0"),
        # the bound of Net is 1 s: (4 - 1) / 4
        ({"over": "B", "of": "gap"}, "{x.most.percent:.0f} {x.some} {x.none}", "75 1 0"),
        ({"over": "B", "of": "holds"}, "{x.most:.0f} of {y.most:.0f}", "46 of 32"),
        # nothing was published
        ({"over": "C", "of": "paper"}, "{x.most:.1f} {x.mean:.1f} {x.all.word}", "- - none"),
    ],
)
def test_a_figure_is_taken_from_the_cells(
    figure: dict[str, object], sentence: str, told: str
) -> None:
    figures = {"x": figure, "y": {"over": "B", "of": "room"}}
    found = notes(of_two_rows(figures=figures, agrees=sentence))
    assert next(note for note in found if note.startswith("agrees")) == f"agrees: {told}"


def test_a_sentence_that_names_no_figure_is_refused_when_the_file_is_read() -> None:
    with pytest.raises(ValidationError, match=r"there is no figure for \{lost\.most\}"):
        of_two_rows(differs="by {lost.most}")
    with pytest.raises(ValidationError, match="there is no column 'D'"):
        of_two_rows(figures={"x": {"over": "D"}})


@pytest.mark.parametrize("table", TABLES)
def test_no_sentence_of_a_paper_has_a_figure_of_its_own(table: PublishedTable) -> None:
    for sentence in table.sentences:
        left = re.sub(r"\{[^}]*\}", "", sentence)
        for name in sorted((row.name for row in table.rows), key=len, reverse=True):
            left = left.replace(name, "")
        assert re.findall(r"\S*\d\S*", NAMED.sub("", left)) == []
        assert COUNTED.findall(left) == []
