"""Ideals as one kind of device sees them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.solvers.chains.ideals import Ideals
from placegap.solvers.chains.problem import ChainProblem


class View(NamedTuple):
    """Sums and potentials of N ideals, and the nets; the kernels' form.

    Attributes
    ----------
    work, need, cut : (N,) int64
        Time and need of each ideal on this kind, and what its cut costs.
    parameters : (N,) int64
        Parameter bytes of each ideal.
    potential : (N, p) int64
        Functions q with base(I - J) >= q(I) - q(J), for the load of one device: as cuts are
        subadditive and symmetric, work and cut of I - J are at least the differences.
    members, cut_nets : (N, words) int64
    weight, net_ptr, pin
        Of the nets.
    room : int
    pays, overlap : bool
        Whether any net costs something, and how communication counts.
    """

    work: Ints
    need: Ints
    cut: Ints
    parameters: Ints
    potential: Ints
    members: Ints
    cut_nets: Ints
    weight: Ints
    net_ptr: Ints
    pin: Ints
    room: int
    pays: bool
    overlap: bool


def build_view(
    problem: ChainProblem,
    ideals: Ideals,
    sums: tuple[Ints, Ints, Ints, Ints],
    weight: Ints,
    room: int,
) -> View:
    """The view of a kind, of which `sums` are work, need, cut and parameters of each ideal."""
    work, need, cut, parameters = sums
    pays = bool(weight.any())
    if not pays:
        columns = [work]
    elif problem.overlap:
        columns = [work, cut, -cut]
    else:
        columns = [work + cut, work - cut]
    return View(
        work,
        need,
        cut,
        parameters,
        np.stack(columns, axis=1),
        ideals.members,
        ideals.cut_nets,
        weight,
        problem.net_ptr,
        problem.pin,
        room,
        pays,
        problem.overlap,
    )
