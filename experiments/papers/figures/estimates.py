"""How far Celeritas' lines miss a network's large batch: table 5 and figure 5, without its GPUs.

The paper's measurements are not public. Here rooflines stand for them: the network is costed at a
sixteenth, an eighth and a fourth of its batch, a line per op is drawn through these, and its value
at the whole batch is compared with what the op is costed there. So what deviates is the roofline's
bend and the rounding; `NOISE` adds what a clock would, as random factors with a fixed seed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from placegap.experiments.running.sources import Source, load_source
from placegap.instances.corpus.workloads import find_workload
from placegap.instances.io.measurements import EXACT, Deviations, deviations, fit_lines
from placegap.instances.problem.array_types import Floats

PARTS = (16, 8, 4)
"""The batch is divided by these for the measurements."""

NOISE = 0.05
"""Standard deviation of the random factors."""

WITHIN = {"exact": EXACT, "within 20 %": 0.2, "within 30 %": 0.3}
"""Shares of ops that figure 5 is read at."""


def deviation_figure(source: Source, name: str) -> float:
    """A figure of the estimates, in percent.

    Parameters
    ----------
    source : Source
        A workload with a batch, on a cluster.
    name : str
        What is estimated, ``memory``, ``time`` or ``noisy time``; behind a comma may follow a key
        of `WITHIN`. Without one the figure is the mean relative deviation.

    Examples
    --------
    >>> source = Source("celeritas:holography", "celeritas-4xV100-pcie")
    >>> deviation_figure(source, "memory, exact") > 90
    True
    """
    what, _, share = name.partition(", ")
    found = _deviations(source, what)
    figure = found.share_within(WITHIN[share]) if share else found.mean
    assert figure is not None  # there are ops
    return 100 * figure


@lru_cache(maxsize=8)
def _deviations(source: Source, what: str) -> Deviations:
    batch = find_workload(source.model).sizes["batch"]
    small = [max(1, batch // part) for part in PARTS]
    names, true = _figures(source, batch, what)
    place = {name: number for number, name in enumerate(names)}
    generator = np.random.default_rng(0)
    op, size, value = [], [], []
    for at in small:
        ops, figures = _figures(source, at, what)
        if what == "noisy time":
            figures = figures * np.exp(NOISE * generator.standard_normal(len(figures)))
        known = [number for number, name in enumerate(ops) if name in place]
        op += [place[ops[number]] for number in known]
        size += [at] * len(known)
        value += figures[known].tolist()
    have = np.unique(op)
    lines = fit_lines(np.searchsorted(have, op), np.array(size), np.array(value), len(have))
    return deviations(np.rint(lines.estimate(batch)[0]), true[have])


def _figures(source: Source, batch: int, what: str) -> tuple[list[str], Floats]:
    """Ops of the network at a batch, and their times or bytes."""
    instance = load_source(replace(source, dims=(("batch", batch),)))
    arrays = instance.arrays
    figures = arrays.resident_bytes if what == "memory" else arrays.time_ns[:, 0]
    return [op.name for op in instance.graph.ops], figures.astype(np.float64)
