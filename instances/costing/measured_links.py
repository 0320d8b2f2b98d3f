"""Links between equal cards: two numbers, fitted to what transfers of two of them took by size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.reading.input_files import data_path

# Parameter of a cluster's provenance: what its measured links are, and how far off at worst.
MEASURED_LINKS = "measured_links"


class MeasuredLink(NamedTuple):
    """The two numbers of a link, and what is to be said of them."""

    bandwidth_bytes_per_s: int
    latency_ns: int
    note: str


def fitted_line(bytes_ns: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Latency, ns per byte and largest error, as a share of the time: no line has a smaller one."""
    # By Chebyshev's theorem it is the best line for some three sizes, off by the same share above,
    # below and above, and of all threes those with the largest such share.
    size, time = np.array(list(combinations(bytes_ns, 3)), np.float64).transpose(2, 0, 1)
    sides = np.broadcast_to([1.0, -1.0, 1.0], size.shape)
    lines = np.linalg.solve(np.stack([1 / time, size / time, sides], -1), np.ones((*size.shape, 1)))
    latency, per_byte, error = max(lines[..., 0].tolist(), key=lambda line: abs(line[2]))
    return latency, per_byte, abs(error)


@cache
def measured_link(kind: str) -> MeasuredLink:
    """The link between two cards of a kind; a kind that has no table is a ValueError."""
    tables = json.loads(data_path("measured", "links.json").read_text())
    if kind not in tables:
        raise ValueError(
            f"no link of {kind!r} is measured, only links of {', '.join(sorted(tables))}"
        )
    latency, per_byte, error = fitted_line(tables[kind]["bytes_ns"])
    return MeasuredLink(
        rate := round(NS_PER_S / per_byte),
        round(latency),
        f"links of {kind} take {latency / 1000:.0f} us and {rate / 1e9:.3g} GB/s, at most"
        f" {error * 100:.0f} % off what was measured ({tables[kind]['source']})",
    )
