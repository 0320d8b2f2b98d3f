"""What the CP-SAT makespan model is made of: times in units, variables of ops and transfers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from placegap.formulations.shared.cp_families import LARGEST_TIME, Derived, largest_spread
from placegap.formulations.shared.times import Windows, granularity_ns, moves_in_time, windows
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.semantics import Makespan

LARGEST_HORIZON_NS = 2**59
"""Longer horizons are refused: the windows could not tell them from never."""

Literal = cp_model.IntVar
Expression = cp_model.LinearExpr | cp_model.IntVar


@dataclass(frozen=True)
class TransferVars:
    """A transfer that the plan may need.

    Attributes
    ----------
    item : int
        The edge (per_edge) or tensor (per_tensor).
    producer : int
    consumers : tuple of int
    destination : int or None
        The receiving device; None: that of the consumers, which share one.
    remote : literal
        Whether the transfer is made.
    start : variable
    length : variable, or int
        An integer if it takes the same time wherever it is made.
    end : variable or expression
        Its arrival; where it is not made, as early as its start.
    holds : mapping (source or None, destination or None) -> literal
        Whether it is made from that device, or to that device, or between the two.
    """

    item: int
    producer: int
    consumers: tuple[int, ...]
    destination: int | None
    remote: Literal
    start: cp_model.IntVar
    length: cp_model.IntVar | int
    end: Expression
    holds: dict[tuple[int | None, int | None], Literal] = field(default_factory=dict)


@dataclass(frozen=True)
class MakespanModel:
    """The constraint program of an instance with n ops and K devices.

    Attributes
    ----------
    cp : CpModel
    instance, semantics
    horizon_ns : int
        Plans of a longer makespan are excluded.
    unit_ns : int
        All times of the model are in this unit.
    exact : bool
        Whether every time is a multiple of the unit; otherwise times are rounded down.
    window : Windows
        Where ops can be, and when, in ns.
    time : (n, K) int64
        Times of ops in units.
    x : n mappings device -> literal
        Of the devices where the op can be. Ops of a colocation group share their literals.
    start : n variables
    end : n expressions
    end_variable : mapping op -> variable
        Ends of the ops whose time depends on the device.
    makespan : variable
    moves_in_time : m tables (K, K)
        Which pairs of devices an edge may join (`windows.moves_in_time`).
    transfers : list of TransferVars
    on_channel : mapping channel -> list of (interval, least length, literal)
    derived : list of Derived
        Variables that follow from the others.
    """

    cp: cp_model.CpModel
    instance: Instance
    semantics: Makespan
    horizon_ns: int
    unit_ns: int
    exact: bool
    window: Windows
    time: Ints
    x: list[dict[int, Literal]]
    start: list[cp_model.IntVar]
    end: list[Expression]
    end_variable: dict[int, cp_model.IntVar]
    makespan: cp_model.IntVar
    moves_in_time: list[Flags]
    transfers: list[TransferVars] = field(default_factory=list)
    on_channel: dict[int, list[tuple[cp_model.IntervalVar, int, Literal]]] = field(
        default_factory=dict
    )
    derived: list[Derived] = field(default_factory=list)

    @property
    def objective(self) -> cp_model.IntVar:
        """What is minimized."""
        return self.makespan

    @property
    def horizon(self) -> int:
        """The horizon in units."""
        return self.horizon_ns // self.unit_ns

    def moves(self, tensor: int) -> list[list[int]]:
        """Time of a tensor from device to device, (K, K), in units."""
        arrays = self.instance.arrays
        table: list[list[int]] = (
            arrays.transfer_ns[tensor][arrays.link_class] // self.unit_ns
        ).tolist()
        return table


def new_model(instance: Instance, semantics: Makespan, horizon_ns: int) -> MakespanModel:
    """The variables of ops and the makespan, without constraints.

    Rounding down keeps every bound valid: floor(time / unit) of a feasible schedule satisfies each
    precedence, each no-overlap and each window of the rounded model. The unit keeps every row that
    the horizon allows within `shared.cp_families.LARGEST_ACTIVITY`.
    """
    if horizon_ns > LARGEST_HORIZON_NS:
        raise ValueError(f"a horizon of {horizon_ns} ns is above 2**59")
    granularity = granularity_ns(instance, transfers=True)
    window = windows(instance, horizon_ns)
    in_time = moves_in_time(instance, window, horizon_ns)
    longest = _longest_row_ns(instance, window, in_time, horizon_ns)
    unit = max(granularity, ceil_div(longest, LARGEST_TIME))
    cp, horizon = cp_model.CpModel(), horizon_ns // unit
    time = instance.arrays.time_ns // unit
    x = _placement_literals(cp, instance, window.possible)
    start: list[cp_model.IntVar] = []
    end: list[Expression] = []
    end_variable: dict[int, cp_model.IntVar] = {}
    for i in range(instance.num_ops):
        on = np.flatnonzero(window.possible[i])
        durations = time[i, on]
        latest = horizon - durations - window.tail_ns[i, on] // unit
        low, high = (window.head_ns[i, on] // unit).min(initial=horizon), latest.max(initial=0)
        # without any device there is no plan, as `assign_once` will say
        start.append(cp.new_int_var(int(min(low, high)), int(high), f"s{i}"))
        if len(set(durations.tolist())) == 1:
            end.append(start[i] + int(durations[0]))
        else:
            end_variable[i] = cp.new_int_var(0, horizon, f"e{i}")
            end.append(end_variable[i])
    makespan = cp.new_int_var(0, horizon, "makespan")
    return MakespanModel(
        cp,
        instance,
        semantics,
        horizon_ns,
        unit,
        unit == granularity,
        window,
        time,
        x,
        start,
        end,
        end_variable,
        makespan,
        in_time,
    )


def _longest_row_ns(
    instance: Instance, window: Windows, in_time: list[Flags], horizon_ns: int
) -> int:
    """What a row of times can sum up to: the horizon, and what depends on devices beside it."""
    arrays, index = instance.arrays, instance.arrays.index
    beside = [largest_spread(table, window.possible) for table in (arrays.time_ns, window.tail_ns)]
    of_tensor: dict[int, Flags] = {}
    for u, may in zip(index.tensor.tolist(), in_time, strict=True):
        of_tensor[u] = of_tensor[u] | may if u in of_tensor else may
    for u, may in of_tensor.items():
        # to device b: the times from all devices are terms of one row
        move = np.where(may, arrays.transfer_ns[u][arrays.link_class], 0)
        beside.append(max(map(sum, zip(*move.tolist(), strict=True))))
    return horizon_ns + max(beside)


def _placement_literals(
    cp: cp_model.CpModel, instance: Instance, possible: Flags
) -> list[dict[int, Literal]]:
    of_group: dict[int, dict[int, Literal]] = {}
    for i, g in enumerate(instance.arrays.group.tolist()):
        if g not in of_group:
            on = np.flatnonzero(possible[i]).tolist()
            of_group[g] = {k: cp.new_bool_var(f"x{i},{k}") for k in on}
    return [of_group[g] for g in instance.arrays.group.tolist()]
