"""Constraint families that the CP-SAT models share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ortools.sat.python import cp_model

from placegap.instances.model import Instance

Literal = cp_model.LiteralT
"""A Boolean variable, its negation, or a constant."""


def memory_capacity(
    cp: cp_model.CpModel, instance: Instance, x: Sequence[Mapping[int, Literal]]
) -> None:
    """Sum over i of m_i x[i, k] <= M_k, in units of the sizes' greatest common divisor."""
    arrays = instance.arrays
    size, unit = arrays.resident_bytes.tolist(), math.gcd(*arrays.resident_bytes.tolist()) or 1
    for k, limit in enumerate(arrays.memory_bytes.tolist()):
        there = [(size[i] // unit, row[k]) for i, row in enumerate(x) if k in row]
        if sum(units for units, _ in there) > limit // unit:
            cp.add(sum(units * literal for units, literal in there) <= limit // unit)
