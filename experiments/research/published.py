"""What a paper printed: a YAML file per paper, with the tables and the place of every number.

A row names the instance of ours that it is compared with, a column the method. So a number is found
by table, row and column in the paper, and its run by instance, cluster, table and label in a study.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from placegap.experiments.studies.config import Entry
from placegap.instances.problem import Name
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.yaml_file import read_yaml

UNITS_NS = {"s": 10**9, "min": 60 * 10**9, "hrs": 3600 * 10**9, "ms": 10**6, "1": 1}
"""Units that the papers print, in nanoseconds; figures of graphs have none."""

NO_PLAN = "OOM"
"""What papers print where a method found nothing that fits."""

NUMBER = re.compile(r"[<>]?\s*(?P<figure>\d+(\.\d+)?)\s*(?P<unit>s|min|hrs|ms)?(?P<mark>\*?)")

Sentence = Annotated[str, Field(min_length=1, max_length=1000)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PublishedColumn(Entry):
    """A column: its heading in the paper, and the column of a study that it is compared with.

    `method` is a method's name, or the label of one of several columns of it; `tables` are those
    of the study that it is looked for in, or else all. `figure` is one of the graph instead
    (`graph_figures.figure_of`). Without either there is nothing of ours. With `best_effort` the
    paper ran plans that overfill devices by its own count of bytes, so that ours have times, too.
    """

    name: Name
    method: Name | None = None
    figure: Name | None = None
    tables: tuple[Name, ...] = ()
    best_effort: Annotated[bool, Field(strict=True)] = False
    note: str = ""


class PublishedRow(Entry):
    """A row: its name in the paper, ours in its place, and its cells as they are printed.

    A cell is a number, a number with a unit of its own, ``OOM``, or null where there is none.
    A star behind a number is the table's `mark`. Where only ratios are known, there are no cells.
    Where a row is one of the instance's ops, `op` names it, and the columns' figures are of it.
    `lines` are those of the paper's text, as `Paper.text` has it, where its cells stand.
    """

    name: Name
    instance: Name
    cluster: Name | None = None
    op: Name | None = None
    cells: tuple[float | str | None, ...] = ()
    lines: Annotated[str, Field(pattern=r"^(\d+(-\d+)?(, )?)*$")] = ""


class PublishedClaim(Entry):
    """A ratio that the text states: times of `slower` over times of `faster`, by rows.

    It is the largest of all rows, or their mean, as `statistic` says; `rows` are those that it is
    about, and all if empty.
    """

    name: Sentence
    source: Sentence
    slower: Name
    faster: Name
    ratio: Ratio
    statistic: Literal["max", "mean"] = "max"
    rows: tuple[Name, ...] = ()


class Reading(Entry):
    """Why columns change places, as found by hand: `why`, in a sentence.

    It is about all `faster` ones that the paper has before the `slower` one.
    """

    faster: Annotated[tuple[Name, ...], Field(min_length=1)]
    slower: Name
    rows: tuple[Name, ...] = ()
    why: Sentence


class StatedFigure(Entry):
    """A figure of a table's sentences, which is taken from its cells whenever they are printed."""

    #: over, under: Columns. The figure is what `over` has over what `under` has, row by row, the
    #: least of several columns; or what `over` has, cell by cell, where there is no `under`.
    over: Annotated[tuple[Name, ...], Field(min_length=1)]
    under: tuple[Name, ...] = ()
    #: Whose cells: "ours", the "paper"'s, or "ours over paper"'s. Or a "gap" of ours, or what our
    #: run without a plan says, in GB: what a device "holds", its "room", what all ops "needs".
    of: Literal["ours", "paper", "ours over paper", "gap", "holds", "room", "needs"] = "ours"
    #: All, if empty.
    rows: tuple[Name, ...] = ()
    #: Only rows where our first `over` splits ops, or splits none.
    splits: bool | None = None

    @field_validator("over", "under", mode="before")
    @classmethod
    def _from_name(cls, raw: Any) -> Any:
        return (raw,) if isinstance(raw, str) else raw


class PublishedTable(Entry):
    """A table of a paper."""

    name: Name
    title: Sentence
    source: Sentence
    unit: Literal["s", "ms", "1"]
    #: Whether the cells are the plans' times ("value"), those of the methods ("time"), figures of
    #: the graphs ("figure"), or the time of `steps` passes along the plan after the method has made
    #: it ("measuring").
    quantity: Literal["value", "time", "figure", "measuring"] = "value"
    steps: Annotated[int, Field(ge=1)] = 1
    #: Whether our instances are the paper's; then its numbers have gaps to our bounds, too.
    same_inputs: bool = False
    #: What our instances are, where they are not the paper's.
    stands_for: str = ""
    mark: str = ""
    columns: Annotated[tuple[PublishedColumn, ...], Field(min_length=1)]
    rows: Annotated[tuple[PublishedRow, ...], Field(min_length=1)]
    claims: tuple[PublishedClaim, ...] = ()
    readings: tuple[Reading, ...] = ()
    #: Why memory counts by the rule that our runs have.
    memory: str = ""
    #: What sentences name in braces, as in ``{ahead.least:.2f}`` (`paper_comparison.Spread`).
    figures: dict[Name, StatedFigure] = Field(default_factory=dict)
    #: agrees, differs: What agrees and what does not, and why.
    agrees: str = ""
    differs: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that may name figures."""
        readings = (reading.why for reading in self.readings)
        return (self.memory, self.agrees, self.differs, *readings)

    @model_validator(mode="after")
    def _check(self) -> Self:
        columns, rows = [c.name for c in self.columns], [r.name for r in self.rows]
        for row in self.rows:
            if len(row.cells) not in (0, len(columns)):
                raise ValueError(
                    f"row {row.name!r}: {len(row.cells)} cells, {len(columns)} columns"
                )
            for cell in row.cells:
                parse_cell(cell, self.unit)
        for asked_columns, asked_rows in self._named():
            for name in asked_columns:
                if name not in columns:
                    raise ValueError(f"there is no column {name!r}")
            for name in asked_rows:
                if name not in rows:
                    raise ValueError(f"there is no row {name!r}")
        for sentence in self.sentences:
            for _, place, _, _ in Formatter().parse(sentence):
                if place is not None and place.split(".")[0] not in self.figures:
                    raise ValueError(f"there is no figure for {{{place}}}")
        return self

    def _named(self) -> Iterator[tuple[tuple[Name, ...], tuple[Name, ...]]]:
        """Columns and rows that claims, readings and figures name."""
        for claim in self.claims:
            yield (claim.slower, claim.faster), claim.rows
        for reading in self.readings:
            yield (reading.slower, *reading.faster), reading.rows
        for figure in self.figures.values():
            yield (*figure.over, *figure.under), figure.rows


class Paper(Entry):
    """The tables of a paper, and which text they were read from."""

    paper: Annotated[str, Field(pattern=r"^[a-z]+\d{4}$")]
    text: Sentence
    tables: Annotated[tuple[PublishedTable, ...], Field(min_length=1)]


def parse_cell(cell: float | str | None, unit: str) -> float | None:
    """A cell in nanoseconds: None where nothing is printed, infinity where nothing fitted."""
    if cell is None:
        return None
    if cell == NO_PLAN:
        return float("inf")
    found = NUMBER.fullmatch(str(cell))
    if found is None:
        raise ValueError(f"{cell!r} is neither a number nor {NO_PLAN}")
    return float(found["figure"]) * UNITS_NS[found["unit"] or unit]


def load_published(path: str | Path, names: Sequence[str]) -> list[PublishedTable]:
    """The named tables of a paper's file, in that order."""
    paper = load_paper(path)
    tables = {table.name: table for table in paper.tables}
    for name in names:
        if name not in tables:
            raise InputError(f"has no table {name!r}; it has {', '.join(tables)}", path)
    return [tables[name] for name in names]


@cache
def load_paper(path: str | Path) -> Paper:
    """All that a paper's file states; a page asks up to 16 times, and reading takes 0.05 s."""
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError("is not a paper's file: expected the keys paper, text and tables", path)
    try:
        return Paper.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
