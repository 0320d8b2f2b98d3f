"""Tables in Markdown with rows per named model, printed as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from placegap.instances.reading.errors import InputError, instead_of


def print_named_rows(
    heads: Sequence[str],
    known: Mapping[str, object],
    names: Sequence[str],
    rows: Callable[[list[str]], Iterable[Sequence[str]]],
) -> None:
    """Print the rows of the named models, or of all that are known."""
    for name in names:
        if name not in known:
            raise InputError(f"there is no model {name!r}{instead_of(name, known)}")
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows(list(names) or list(known)):
        print(f"| {' | '.join(row)} |", flush=True)
