"""The bars of a timeline as few blocks, so that thousands of ops can be read."""

from __future__ import annotations

from typing import NamedTuple

from placegap.experiments.show.timeline import Timeline


class Block(NamedTuple):
    """Bars of one row that are drawn as one; other fields are `Bar`'s.

    `num_bars` says how many they are, and `filled_ns` how long they last in sum.
    """

    row: int
    is_move: bool
    start_ns: int
    end_ns: int
    name: str
    label: str
    text: str
    num_bars: int
    filled_ns: int

    @property
    def fill(self) -> float:
        """The share of the block in which something runs."""
        return min(1.0, self.filled_ns / max(1, self.end_ns - self.start_ns))


def blocks(drawn: Timeline, least_ns: int, longest_ns: int | None = None) -> list[Block]:
    """Bars as blocks: neighbours of one label and text, and what is shorter than `least_ns`.

    A gap that is longer than `least_ns` ends a block, and so do other bars in a row once they are
    longer than a quarter of it. A block is called after its longest bar's label. So no row has more
    than about five blocks for each `least_ns`, beside long bars. With `longest_ns` no block of
    several bars is longer than that.

    Examples
    --------
    >>> from placegap.experiments.show.timeline import Bar
    >>> bars = (Bar(0, False, 0, 4, "a", "h.0"), Bar(0, False, 4, 5, "b", "h.0"),
    ...         Bar(0, False, 5, 9, "c", "h.1"))
    >>> [(b.name, b.start_ns, b.end_ns) for b in blocks(Timeline(("g",), bars, (), 9, ""), 0)]
    [('a to b', 0, 5), ('c', 5, 9)]
    """
    found: list[Block] = []
    longest: list[int] = []
    others: list[int] = []  # how long bars of another label have lasted since one of the block's
    ends: list[tuple[str, str]] = []
    last: dict[tuple[int, bool], int] = {}
    for bar in sorted(drawn.bars, key=lambda bar: (bar.start_ns, bar.end_ns, bar.row, bar.name)):
        at = last.get((bar.row, bar.is_move))
        block = None if at is None else found[at]
        same = block is not None and (block.label, block.text) == (bar.label, bar.text)
        if (
            block is not None
            and at is not None
            and bar.start_ns - block.end_ns <= least_ns
            and (longest_ns is None or bar.end_ns - block.start_ns <= longest_ns)
            and (
                same
                or max(bar.end_ns, block.end_ns) - block.start_ns <= least_ns
                or others[at] + bar.time_ns <= least_ns // 4
            )
        ):
            others[at] = 0 if same else others[at] + bar.time_ns
            ends[at] = ends[at][0], bar.name
            longer = bar.time_ns > longest[at]
            longest[at] = max(longest[at], bar.time_ns)
            found[at] = block._replace(
                end_ns=max(block.end_ns, bar.end_ns),
                num_bars=block.num_bars + 1,
                filled_ns=block.filled_ns + bar.time_ns,
                name=f"{ends[at][0]} to {bar.name}",
                label=bar.label if longer else block.label,
                text=bar.text if longer else block.text,
            )
            continue
        last[bar.row, bar.is_move] = len(found)
        longest.append(bar.time_ns)
        others.append(0)
        ends.append((bar.name, bar.name))
        found.append(
            Block(
                bar.row,
                bar.is_move,
                bar.start_ns,
                bar.end_ns,
                bar.name,
                bar.label,
                bar.text,
                1,
                bar.time_ns,
            )
        )
    return found
