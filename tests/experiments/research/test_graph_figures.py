"""Estimates of a large batch by lines through small ones, for Celeritas' table 5 and figure 5."""

from __future__ import annotations

import pytest

from placegap.experiments.research.graph_figures import deviation_figure, figure_of
from placegap.experiments.running.sources import Source, load_source

NET = Source("celeritas:holography", "celeritas-4xV100-pcie")


def test_bytes_grow_by_a_line_and_rooflines_nearly_so() -> None:
    # every tensor has a factor of the batch, or none; rounding up costs a ns per op at most
    assert deviation_figure(NET, "memory") == 0
    assert deviation_figure(NET, "time") < 0.1
    assert deviation_figure(NET, "time, exact") > 99


def test_two_clones_take_at_least_half_of_all_their_work_on_two_gpus() -> None:
    clones = Source("fd-dps:vgg-16", "2xP100-pcie", clones=2)
    work_s = int(load_source(clones).arrays.time_ns[:, 0].sum()) / 1e9
    assert figure_of(clones, "least s") == pytest.approx(work_s / 2)
