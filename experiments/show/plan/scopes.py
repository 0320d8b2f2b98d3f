"""Scopes of ops as labels, where no op names a module: what stands before the strokes of a name."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from placegap.experiments.show.timeline import Timeline, short_label

MOST_SCOPES = 200
"""More are too many to be told apart."""


def scopes_of(names: Sequence[str]) -> tuple[str, ...] | None:
    """A scope of each op, in all no more than `MOST_SCOPES`; None without scopes.

    Frameworks write out modules in names: ``block1/unit_2/conv1/Conv2D``. The scope with the most
    ops is divided first.

    Examples
    --------
    >>> scopes_of(("input", "h/0/mul", "h/0/add", "h/1/mul"))
    ('input', 'h/0', 'h/0', 'h/1')
    >>> scopes_of(("a", "b")) is None
    True
    """
    paths = [name.split("/")[:-1] for name in names]
    if not any(paths):
        return None
    within: dict[tuple[str, ...], list[int]] = {(): [i for i, path in enumerate(paths) if path]}
    waiting: list[tuple[int, tuple[str, ...]]] = [(-len(names), ())]
    while waiting:
        scope = heapq.heappop(waiting)[1]
        parts: dict[tuple[str, ...], list[int]] = {}
        for i in within[scope]:
            parts.setdefault(tuple(paths[i][: len(scope) + 1]), []).append(i)
        if scope and len(within) - 1 + len(parts) > MOST_SCOPES:
            break
        del within[scope]
        within.update(parts)
        for part, inside in parts.items():
            if part != scope:
                heapq.heappush(waiting, (-len(inside), part))
    found = list(names)
    for scope, inside in within.items():
        for i in inside:
            found[i] = "/".join(scope)
    return tuple(found)


def by_scope(drawn: Timeline, names: Sequence[str]) -> Timeline:
    """The timeline with scopes as labels of single ops; itself where it has layers or no scopes."""
    scopes = None if drawn.by_layer else scopes_of(names)
    if scopes is None:
        return drawn
    bars = tuple(
        bar
        if bar.op < 0 or bar.is_move
        else bar._replace(label=scopes[bar.op], text=short_label(scopes[bar.op].replace("/", ".")))
        for bar in drawn.bars
    )
    return Timeline(drawn.rows, bars, drawn.moves, drawn.end_ns, drawn.meaning, by_layer=True)
