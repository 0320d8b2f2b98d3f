"""What a paper printed, and what it is compared with: two YAML files per paper.

``published.yaml`` has the paper's tables with the lines of every number. A row names our instance,
a column our method, and a table the study whose tables its cells come from. ``scoring.yaml`` says
what the study assumes, and which one change each of its derived tables tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from placegap.experiments.studies.config import Entry
from placegap.instances.problem import Name
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.instances.reading.yaml_file import read_yaml

# Units that the papers print, in nanoseconds; figures of graphs have none.
UNITS_NS = {"s": 10**9, "min": 60 * 10**9, "hrs": 3600 * 10**9, "ms": 10**6, "1": 1}
NO_PLAN = "OOM"  # what papers print where a method found nothing that fits

NUMBER = re.compile(r"[<>]?\s*(?P<figure>\d+(\.\d+)?)\s*(?P<unit>s|min|hrs|ms)?(?P<mark>\*?)")

Sentence = Annotated[str, Field(min_length=1, max_length=1000)]
Lines = Annotated[str, Field(pattern=r"^(\d+(-\d+)?(, )?)*$")]
Names = tuple[Name, ...]
Clock = Literal["free_channels_ns", "no_transfers_ns", "fused_ns"]  # columns of the runs
Kind = TypeVar("Kind", bound=Entry)


class Stated(Entry):
    """A sentence, and the lines of the paper's text that it rests on."""

    what: Sentence
    lines: Lines = ""


class PublishedColumn(Entry):
    """A column of the paper, and the method or the figure of graphs that stands in its cells.

    `method` is a name, or the label of one of several columns of that method. Without `method` and
    `figure` there is nothing of ours. A `stand_in` says what ours is instead of the paper's method;
    its heading has a star. With `best_effort` the paper ran plans that overfill devices by its own
    count of bytes, so ours have times, too.
    """

    name: Name
    method: Name | None = None
    figure: Name | None = None
    #: results, tables: The studies and their tables, where they are not those of the whole table.
    results: Names = ()
    tables: Names = ()
    stand_in: str = ""
    best_effort: Annotated[bool, Field(strict=True)] = False
    #: What times its plans instead; their gaps are those of the problem that was solved.
    clock: Clock | None = None
    #: Studies that run the method with other seeds, for how far its cells depend on one.
    seeds_in: Names = ()
    #: Whether op times were fitted to it: its cells say nothing, and its pairs do not count.
    fitted: Annotated[bool, Field(strict=True)] = False
    #: Whether it is the method that the paper proposes.
    own: Annotated[bool, Field(strict=True)] = False

    @property
    def heading(self) -> str:
        """Its name, with a star where ours is a stand-in, and whether it was fitted."""
        return f"{self.name}{'*' * bool(self.stand_in)}{' (fitted)' * self.fitted}"


class PublishedRow(Entry):
    """A row: our instance, perhaps on one cluster or about one op, and the printed cells.

    A cell is a number, a number with a unit of its own, ``OOM``, or null. A star behind a number is
    the table's `mark`. A row without `cells` has no published number. `lines` are those of the
    paper's plain text.
    """

    name: Name
    instance: Name
    cluster: Name | None = None
    op: Name | None = None
    #: Of the instance, where another one has its name.
    num_ops: int | None = None
    cells: tuple[float | str | None, ...] = ()
    lines: Lines = ""


class PublishedClaim(Entry):
    """A ratio that the text states: times of `slower` over times of `faster`, over `rows` (all).

    It is the largest of all rows, or their mean, as `statistic` says.
    """

    name: Sentence
    lines: Lines = ""
    slower: Name
    faster: Name
    ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    statistic: Literal["max", "mean"] = "max"
    rows: Names = ()


class PublishedTable(Entry):
    """A table of a paper.

    `quantity` says what the cells are: plans' times ("value"), the methods' ("time"), the time of
    `steps` passes along a plan after the method has made it ("measuring"), or figures of graphs.
    """

    name: Name
    title: Sentence
    source: Sentence
    unit: Literal["s", "ms", "1"]
    quantity: Literal["value", "time", "figure", "measuring"] = "value"
    steps: Annotated[int, Field(ge=1)] = 1
    #: results, tables: The studies that the cells come from, by their files without the ending,
    #: and which of their tables, by names or patterns like ``calibrated*``; all, if empty.
    results: Annotated[Names, Field(min_length=1)]
    tables: Names = ()
    #: Tables of these studies whose bounds hold for plans that overfill devices, too.
    relaxed: Names = ()
    mark: str = ""
    note: str = ""
    columns: Annotated[tuple[PublishedColumn, ...], Field(min_length=1)]
    rows: Annotated[tuple[PublishedRow, ...], Field(min_length=1)]
    claims: tuple[PublishedClaim, ...] = ()
    #: ahead, ahead_of, ahead_lines: The column that the text calls the fastest on every row, of
    #: which other columns (all that are not the paper's own), and where.
    ahead: Name | None = None
    ahead_of: Names = ()
    ahead_lines: Lines = ""
    #: Whether its cells are printed by programs run again: ours are to be equal, not only in order.
    rerun: Annotated[bool, Field(strict=True)] = False

    def place_of(self, column: PublishedColumn) -> tuple[Names, Names]:
        """The studies that a column's runs are in, and the tables there."""
        if column.results:
            return column.results, column.tables
        return self.results, column.tables or self.tables

    @property
    def is_ranked(self) -> bool:
        """Whether its cells are times of plans, so that its pairs count."""
        return self.quantity in ("value", "measuring")

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
        ahead = () if self.ahead is None else (self.ahead,)
        for name in (
            *ahead,
            *self.ahead_of,
            *(n for claim in self.claims for n in (claim.slower, claim.faster)),
        ):
            if name not in columns:
                raise ValueError(f"there is no column {name!r}")
        for name in (n for claim in self.claims for n in claim.rows):
            if name not in rows:
                raise ValueError(f"there is no row {name!r}")
        return self


class Paper(Entry):
    """The tables of a paper, and which text they were read from."""

    paper: Annotated[str, Field(pattern=r"^[a-z]+\d{4}$")]
    text: Sentence
    #: What the published columns are called beside ours.
    published: Name = "paper"
    tables: Annotated[tuple[PublishedTable, ...], Field(min_length=1)]


class Cause(Entry):
    """One change, for all methods of a row alike, and where it was tested.

    `tables` of the studies `results` are the regime's but for the change; a star in their names
    stands for the tables of each column. Or a `clock` times the same plans otherwise. It is about
    the published tables `of` and their `rows`; all, if empty; not about the columns `apart_from`.
    Where it `alters` only some methods, the others keep their runs.
    """

    changes: Sentence
    results: Names = ()
    tables: Names = ()
    clock: Clock | None = None
    of: Names = ()
    rows: Names = ()
    apart_from: Names = ()
    alters: Names = ()
    #: Heads a second column of our ratios, those of its tables, beside the claims.
    beside: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.clock is None) != bool(self.results) or bool(self.results) != bool(self.tables):
            raise ValueError("give a clock, or results and tables")
        return self


class Scoring(Entry):
    """What was reproduced, what the regime rests on, and the changes that were tested."""

    reproduced: Sentence
    states: tuple[Stated, ...] = ()
    implies: tuple[Stated, ...] = ()
    assumes: tuple[Stated, ...] = ()
    #: What our algorithms do otherwise than the paper's.
    deviates: tuple[Stated, ...] = ()
    left_out: tuple[Stated, ...] = ()
    causes: tuple[Cause, ...] = ()


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


@cache
def load_paper(folder: Path) -> tuple[Paper, Scoring]:
    """Both files of a paper's folder."""
    return _load(folder / "published.yaml", Paper), _load(folder / "scoring.yaml", Scoring)


def _load(path: Path, kind: type[Kind]) -> Kind:
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError(f"expected the keys {', '.join(kind.model_fields)}", path)
    with as_input_error(raw, path):
        return kind.model_validate(raw)
