"""Idle gaps as search trees against a plain list of gaps."""

from __future__ import annotations

import random

import pytest

from placegap.solvers.placers.insertion import (
    FOREVER,
    NONE,
    Gaps,
    first_fit,
    idle_devices,
    occupy,
)


def walk(gaps: Gaps, node: int) -> list[int]:
    """Nodes of a subtree in order; checks the stored maxima on the way."""
    if node == NONE:
        return []
    nodes = [*walk(gaps, gaps.left[node]), node, *walk(gaps, gaps.right[node])]
    assert gaps.longest_ns[node] == max(gaps.end_ns[i] - gaps.begin_ns[i] for i in nodes)
    return nodes


@pytest.mark.parametrize("longest_op", [4, 40])
def test_the_first_fitting_gap_is_found_and_split(longest_op: int) -> None:
    rng = random.Random(longest_op)
    gaps = idle_devices(1, 300)
    plain = [(0, FOREVER)]
    for op in range(300):
        ready, duration = rng.randrange(2500), rng.randrange(longest_op)
        at = next(i for i, (a, b) in enumerate(plain) if max(a, ready) + duration <= b)
        begin, end = plain[at]
        start = max(begin, ready)
        node = first_fit(gaps, 0, ready, duration)
        assert (gaps.begin_ns[node], gaps.end_ns[node]) == (begin, end)
        occupy(gaps, 0, node, op, start, duration)
        plain[at : at + 1] = [(begin, start), (start + duration, end)]
    in_order = walk(gaps, int(gaps.root[0]))
    assert [(int(gaps.begin_ns[i]), int(gaps.end_ns[i])) for i in in_order] == plain
    assert len({i for i, (a, b) in enumerate(plain) if a < b}) > 20  # gaps were left to search
