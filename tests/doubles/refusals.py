"""Tables of refusals: what is done, and the one sentence that a user is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from placegap.instances import InputError
from placegap.instances.reading.errors import LONGEST_LINE, from_validation_error


class Refusals(NamedTuple):
    """Causes of one kind: each row has the arguments of the cause, and last the sentence.

    A cause gets a folder first. The line begins with `begin`, where {0} is the first argument, and
    has no name of the folder. In a sentence "…" stands for words that do not matter.
    """

    begin: str
    cause: Callable[..., object]
    rows: list[tuple[Any, ...]]
    error: type[ValueError] = InputError


def each_refusal(tables: list[Refusals]) -> list[Any]:
    """The rows of all tables, as parameters of one test."""
    return [
        pytest.param(table, given, sentence, id=sentence)
        for table in tables
        for *given, sentence in table.rows
    ]


def is_refused(table: Refusals, given: list[Any], sentence: str, folder: Path) -> None:
    """Assert that the cause is refused in one line, with the words of the sentence in order."""
    with pytest.raises(table.error) as caught:
        table.cause(folder, *given)
    error: Exception = caught.value
    if isinstance(error, ValidationError):
        error = from_validation_error(error)
    line = str(error).replace(f"{folder}/", "")
    begin = table.begin.format(*given)
    assert line.startswith(begin)
    assert "\n" not in line
    assert len(line) <= LONGEST_LINE
    at = len(begin)
    for words in sentence.split("…"):
        assert words in line[at:], line
        at = line.index(words, at) + len(words)
