"""The table of docs/transforms.md."""

from __future__ import annotations

from placegap.experiments.research.tables.transforms import SEMANTICS, markdown_table
from placegap.instances import example


def test_the_markdown_table_marks_what_is_exact() -> None:
    head, rule, row = markdown_table([example()], SEMANTICS[0])
    assert head.startswith("| graph | as it is | moirai-fusion |")
    assert rule.count("---") == head.count("|") - 1
    # nothing to fuse by rules, all four as one segment
    assert row.startswith("| diamond | 4 / 0.744 | 4 / 0.744* | 1 / 0 |")
