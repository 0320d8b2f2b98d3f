"""A plan as one HTML page that needs no network: pictures to zoom, tables, and where it comes from.

The page is `report.html` with its style and script and the plan's data in it. Names come from
users' files: in HTML they are escaped, and in the data no ``<`` stands, so that none ends a script.
The page's own policy forbids it to load anything.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from placegap.experiments.show.anatomy import Anatomy
from placegap.experiments.show.figures import format_value
from placegap.experiments.show.memory_levels import Levels
from placegap.experiments.show.timeline import (
    Block,
    Timeline,
    blocks,
    by_scope,
    label_ranks,
    labels_of,
    scopes_of,
)
from placegap.experiments.show.words import (
    CROSSING_HEAD,
    MOVE_HEAD,
    anatomy_gap,
    bound_sentence,
    claim_sentences,
    crossing_rows,
    move_rows,
    move_sentence,
)
from placegap.instances.problem import Instance
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.printable import printable

MOST_BARS = 30_000  # more bars are drawn as blocks
# Blocks are no shorter than this part of the time; and where neither layers nor scopes of names
# show where a block ends, no longer than that one.
FINEST, RUNS = 4000, 120
MOST_DOTS = 10_000  # of more ops the graph is drawn in layers, scopes or runs
MOST_LEVELS = 1500  # levels of memory of a device; more are drawn as the highest of neighbours
MOST_ROWS = 200  # rows of the timeline's table


def plan_page(found: Anatomy) -> str:
    """The page; equal plans give equal pages."""
    here = Path(__file__)
    parts = {
        **{name: _safe(text) for name, text in _texts(found).items()},
        **_lists(found),
        **_tables(found),
        "data": _json(page_data(found)),
        "css": here.with_name("report.css").read_text(encoding="utf-8"),
        "js": here.with_name("report.js").read_text(encoding="utf-8"),
    }
    frame = here.with_name("report.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], frame)


def _texts(found: Anatomy) -> dict[str, str]:
    instance, drawn = found.instance, found.drawn
    by = f", placed by {found.method}" if found.method else ""
    peaks = "; ".join(
        f"{each.name} {format_bytes(each.memory_bytes)}" for each in found.devices if each.num_ops
    )
    scheduled = f"{len(drawn.bars)} bars in {len(drawn.rows)} rows"
    return {
        "title": f"{instance.name}: {format_value(found.value, found.semantics.unit)}",
        "rules": f"{found.semantics.label}{by}",
        "meaning": f"{drawn.meaning[:1].upper()}{drawn.meaning[1:]}.{_as_blocks(found)}",
        "time_label": f"Timeline, {scheduled}, {drawn.text(drawn.end_ns)} in all. Arrow keys go"
        " from bar to bar; a table follows.",
        "memory_meaning": f"What each device holds {found.moments}: {found.held}. A red line is its"
        " limit, where it is near.",
        "memory_label": f"Memory {found.moments}. At most: {peaks}.",
        "dots": "op" if instance.num_ops <= MOST_DOTS else "layer, scope or run of ops",
        "graph_label": f"Graph of {instance.num_ops} ops and {len(instance.graph.edges)} edges,"
        f" of which {len(found.crossings)} transfers cross devices, drawn dark. A table follows.",
        "moves": move_sentence(found) + ".",
    }


def _as_blocks(found: Anatomy) -> str:
    """What a bar stands for where there are too many to be drawn one by one."""
    drawn = found.drawn
    if _num_drawn(drawn) <= MOST_BARS:
        return ""
    what = "a layer"
    if not drawn.by_layer:
        names = [op.name for op in found.instance.graph.ops]
        what = "a run of ops" if scopes_of(names) is None else "a scope of their names"
    return f" {len(drawn.bars):,} bars are drawn as blocks, each {what}."


def _num_drawn(drawn: Timeline) -> int:
    """Bars and arrows; communication is drawn as one of the two."""
    return sum(not (bar.is_move and drawn.moves) for bar in drawn.bars) + len(drawn.moves)


def _lists(found: Anatomy) -> dict[str, str]:
    uses, gap = found.verdict.uses, anatomy_gap(found)
    bound = "none"
    if found.bound is not None:
        bound = format_value(found.bound.value, found.semantics.unit)
    facts = [
        ("value", format_value(found.value, found.semantics.unit)),
        ("gap", gap.partition("; ")[2].partition(" (")[0] or gap),
        ("bound", bound),
        ("ops", f"{found.instance.num_ops:,}"),
        ("devices used", f"{len(uses) - len(found.verdict.idle_devices)} of {len(uses)}"),
    ]
    notes = [f"Bound: {bound_sentence(found)}."]
    notes += [f"Gap: {gap}."] * ("; " in gap)
    notes += [f"Claimed: {sentence}." for sentence in claim_sentences(found)]
    broken = "".join(f"<li>{_safe(str(violation))}</li>" for violation in found.verdict.violations)
    graph, cluster = found.instance.graph, found.instance.cluster
    origin = [
        ("model", graph.name),
        ("source", graph.provenance.source),
        ("licence", graph.provenance.licence),
        ("changes", "; ".join(graph.provenance.changes)),
        ("cluster", f"{cluster.name}: {_kinds(found.instance)}"),
        ("cluster's source", cluster.provenance.source),
        ("rules", found.semantics.label),
        ("method", found.method),
        ("judged by", f"the referee of placegap {version('placegap')}"),
        ("bound", bound_sentence(found)),
        ("content", found.instance.content_hash),
    ]
    return {
        "facts": "\n".join(
            f"<li><span>{name}</span><b>{_safe(text)}</b></li>" for name, text in facts
        ),
        "notes": "\n".join(f'<p class="soft">{_safe(note)}</p>' for note in notes),
        "broken": f'<p class="warn">The plan is infeasible:</p><ul class="warn plain">{broken}</ul>'
        if broken
        else "",
        "path": "\n".join(f"<li>{_safe(line)}</li>" for line in found.why),
        "provenance": "\n".join(
            f"<dt class=soft>{_safe(name)}</dt><dd>{_safe(text)}</dd>"
            for name, text in origin
            if text
        ),
    }


def _kinds(instance: Instance) -> str:
    kinds = [spec.kind for spec in instance.cluster.devices]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _tables(found: Anatomy) -> dict[str, str]:
    names = found.names
    pairs: dict[tuple[int, int], list[int]] = {}
    for each in found.crossings:
        for k in each.targets:
            pairs.setdefault((each.source, k), []).append(each.bytes)
    pair_rows = [
        (names[a], names[b], str(len(sizes)), format_bytes(sum(sizes)))
        for (a, b), sizes in sorted(pairs.items())
    ]
    return {
        "device_table": _table(found.homes.head, found.homes.rows),
        "move_table": _table(MOVE_HEAD, move_rows(found)),
        "crossing_table": _table(CROSSING_HEAD, crossing_rows(found))
        or "<p>No tensor changes devices.</p>",
        "pair_table": _table(("from", "to", "tensors", "bytes"), pair_rows)
        or "<p>No tensor changes devices.</p>",
        "block_table": _table(("row", "what", "from", "to", "takes"), _block_rows(found.drawn)),
    }


def _block_rows(drawn: Timeline) -> list[tuple[str, ...]]:
    """The timeline in few rows: coarser blocks for more devices."""
    parts = max(4, MOST_ROWS // (3 * max(1, len(drawn.rows))))
    merged = sorted(
        (block for block in blocks(drawn, drawn.end_ns // parts) if not block.is_move),
        key=lambda block: (block.row, block.start_ns),
    )
    rows: list[tuple[str, ...]] = [
        (
            drawn.rows[block.row],
            _block_name(block),
            drawn.text(block.start_ns),
            drawn.text(block.end_ns),
            drawn.text(block.end_ns - block.start_ns),
        )
        for block in merged[:MOST_ROWS]
    ]
    if len(merged) > MOST_ROWS:
        rows.append((f"and {len(merged) - MOST_ROWS} more", "", "", "", ""))
    return rows


def _block_name(block: Block) -> str:
    return (
        block.name
        if block.num_bars == 1
        else f"{block.name} ({block.num_bars}, mostly {block.label})"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; columns of figures are aligned right."""
    if not rows:
        return ""
    right = [all(row[n][:1].isdigit() or not row[n] for row in rows) for n in range(len(head))]
    marks = [' class="n"' if at else "" for at in right]
    top = "".join(
        f'<th scope="col"{mark}>{_safe(text)}</th>' for text, mark in zip(head, marks, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{mark}>{_safe(text)}</td>" for text, mark in zip(row, marks, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table>"


def page_data(found: Anatomy) -> dict[str, Any]:
    """What the script reads: flat lists of integers, and texts by number."""
    # ``bars``: 2 row + is_move, start, length, name, label, text or -1; ``fills``: the percentage
    # of each in which something runs, where bars are blocks. ``moves``: source, target, start,
    # length, name, bytes. ``path``: row, start, end. ``memory``: moment and bytes in turns.
    drawn, instance = found.drawn, found.instance
    number: dict[str, int] = {}

    def text(name: str) -> int:
        return number.setdefault(name, len(number))

    graph = _graph(found, text)
    alone = [bar for bar in drawn.bars if not (bar.is_move and drawn.moves)]
    moves = list(drawn.moves)
    shown: Sequence[Any] = alone
    fills, labelled = list[int](), drawn
    if _num_drawn(drawn) > MOST_BARS:
        labelled = by_scope(drawn, [op.name for op in instance.graph.ops])
        least_ns = drawn.end_ns // FINEST
        longest_ns = None if labelled.by_layer else max(drawn.end_ns // RUNS, least_ns)
        merged = blocks(labelled, least_ns, longest_ns)
        shown, moves, fills = merged, [], [round(100 * block.fill) for block in merged]
    labels = label_ranks(labelled, instance.arrays.index.topological_position.tolist())
    bars: list[int] = []
    for bar in shown:
        label = labels.setdefault(bar.label, len(labels)) if not bar.is_move else -1
        bars += [
            2 * bar.row + bar.is_move,
            bar.start_ns,
            bar.end_ns - bar.start_ns,
            text(bar.name),
            label,
            text(bar.text) if bar.text else -1,
        ]
    arrows: list[int] = []
    for move in moves:
        arrows += [
            move.source,
            move.target,
            move.start_ns,
            move.end_ns - move.start_ns,
            text(move.name),
            move.bytes,
        ]
    path = [
        at
        for link in found.path
        if link.target < 0
        for at in (link.device, link.start_ns, link.end_ns)
    ]
    last = drawn.end_ns if found.is_timed else 2 * instance.num_ops
    numbered = [text(label) for label in labels]
    return {
        "rows": [*map(printable, drawn.rows)],
        "owner": [k if k < len(found.devices) else -1 for k in range(len(drawn.rows))],
        "end": drawn.end_ns,
        "bound": found.bound.value if found.bound and found.semantics.unit == "ns" else None,
        "timed": found.is_timed,
        "unit": drawn.unit,
        "steps": max((levels[-1][0] for levels in found.memory), default=0) + 1,
        "labels": numbered,
        "ordered": labelled.by_layer,
        "bars": bars,
        "fills": fills,
        "moves": arrows,
        "path": path,
        "memory": [
            [at for pair in _thinned(levels, last) for at in pair] for levels in found.memory
        ],
        "limits": [share.limit_bytes for share in found.devices],
        "graph": graph,
        "texts": [*map(printable, number)],
    }


def _thinned(levels: Levels, last: int) -> Levels:
    """At most about `MOST_LEVELS` levels; neighbours are merged into the highest."""
    if len(levels) <= MOST_LEVELS:
        return levels
    width = max(1, last // MOST_LEVELS)
    found = []
    for _, near in groupby(levels, lambda level: level[0] // width):
        listed = list(near)
        found.append((listed[0][0], max(size for _, size in listed)))
    return found


def _graph(found: Anatomy, text: Callable[[str], int]) -> dict[str, Any]:
    """Dots in columns by their longest path; in a column by the mean place of what they read."""
    # A dot is an op, or in large graphs what `_dots` says; the way then follows their order alone.
    instance, device = found.instance, found.homes.of_op
    dot, names = _dots(found)
    home = [0] * len(names)
    for i, d in enumerate(dot):
        home[d] = device[i]
    index = instance.arrays.index
    ends = zip(index.producer.tolist(), index.consumer.tolist(), strict=True)
    pairs = list(dict.fromkeys((dot[a], dot[b]) for a, b in ends if dot[a] != dot[b]))
    rank = _middles(index.topological_position.tolist(), dot, len(names))
    read: list[list[int]] = [[] for _ in names]
    for x, y in pairs:
        if (rank[x], x) < (rank[y], y):
            read[y].append(x)
    column, place = [0] * len(names), [0.0] * len(names)
    members: dict[int, list[int]] = {}
    for d in sorted(range(len(names)), key=lambda d: (rank[d], d)):
        column[d] = 1 + max((column[j] for j in read[d]), default=-1)
        members.setdefault(column[d], []).append(d)
    for at in sorted(members):
        middle = {d: sum(place[j] for j in read[d]) / max(1, len(read[d])) for d in members[at]}
        ranked = sorted(members[at], key=lambda d: (middle[d], home[d], d))
        for position, d in enumerate(ranked):
            place[d] = position - (len(ranked) - 1) / 2
    return {
        "x": column,
        "y": place,
        "device": home,
        "name": [text(name) for name in names],
        "edges": [end for pair in pairs for end in pair],
        "used": sorted(set(device)),
    }


def _dots(found: Anatomy) -> tuple[list[int], list[str]]:
    """The dot of each op, and what each dot stands for."""
    # It is an op; of more than `MOST_DOTS` ops a layer, a scope of names or a run of ops on one
    # device.
    graph = found.instance.graph
    names = [op.name for op in graph.ops]
    if len(names) <= MOST_DOTS:
        return list(range(len(names))), names
    labels: Sequence[str] = labels_of(graph)
    position = graph.index.topological_position.tolist()
    if not found.drawn.by_layer and not any(layer_of(graph)):
        width = -(-len(names) // RUNS)
        labels = scopes_of(names) or [f"run {position[i] // width}" for i in range(len(names))]
    number: dict[tuple[str, int], int] = {}
    size: list[int] = []
    dot = [0] * len(names)
    for i in graph.index.topological_order.tolist():
        d = dot[i] = number.setdefault((labels[i], found.homes.of_op[i]), len(number))
        size += [0] * (d == len(size))
        size[d] += 1
    said = [f"{label} ({n} op{'s' * (n != 1)})" for (label, _), n in zip(number, size, strict=True)]
    return dot, said


def _middles(position: Sequence[int], dot: Sequence[int], count: int) -> list[float]:
    """The mean position of each dot's ops."""
    total, size = [0] * count, [0] * count
    for at, d in zip(position, dot, strict=True):
        total[d] += at
        size[d] += 1
    return [x / n for x, n in zip(total, size, strict=True)]


def _safe(text: str) -> str:
    """A text as HTML that shows it."""
    return html.escape(printable(text))


def _json(data: dict[str, Any]) -> str:
    """JSON in which no text can end the script that it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
