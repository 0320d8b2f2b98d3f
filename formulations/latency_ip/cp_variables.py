"""What the CP-SAT model of latency_subgraphs is made of: its variables and its unit of time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from placegap.formulations.latency_ip.rows import CallSets, index_sets
from placegap.formulations.makespan_cp import Literal
from placegap.formulations.shared.cp_families import LARGEST_TIME, Derived, largest_spread
from placegap.formulations.shared.times import granularity_ns
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.semantics import LatencySubgraphs

Member = tuple[int, int, int]


@dataclass(frozen=True)
class LatencyModel:
    """The constraint program of an instance with n ops and K devices.

    Attributes
    ----------
    cp : CpModel
    sets : CallSets
        Index sets; times and windows in ns.
    horizon_ns : int
        Plans of a longer latency are excluded.
    unit_ns : int
        All times of the model are in this unit.
    exact : bool
        Whether every time is a multiple of the unit; otherwise times are rounded down.
    x : n mappings device -> literal
    member, enters, leaves : mappings (i or u, k, c) -> literal
    start, finish, rank_call, used : mappings (k, c) -> variable
    end, done : n variables
    rank : mapping op -> variable
    latency : variable
    derived : list of Derived
        Variables that follow from the others.
    """

    cp: cp_model.CpModel
    sets: CallSets
    horizon_ns: int
    unit_ns: int
    exact: bool
    x: list[dict[int, Literal]]
    member: dict[Member, Literal]
    enters: dict[Member, Literal]
    leaves: dict[Member, Literal]
    start: dict[tuple[int, int], cp_model.IntVar]
    finish: dict[tuple[int, int], cp_model.IntVar]
    end: list[cp_model.IntVar]
    done: list[cp_model.IntVar]
    latency: cp_model.IntVar
    rank: dict[int, cp_model.IntVar] = field(default_factory=dict)
    rank_call: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    used: dict[tuple[int, int], Literal] = field(default_factory=dict)
    derived: list[Derived] = field(default_factory=list)

    @property
    def objective(self) -> cp_model.IntVar:
        """What is minimized."""
        return self.latency

    @property
    def instance(self) -> Instance:
        """Whose model it is."""
        return self.sets.instance

    @property
    def edges(self) -> list[tuple[int, int, int]]:
        """Producer, consumer and tensor of every edge."""
        index = self.instance.arrays.index
        return list(
            zip(
                index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True
            )
        )

    def time(self, i: int, k: int) -> int:
        """Units of op i on device k, rounded down."""
        return int(self.instance.arrays.time_ns[i, k]) // self.unit_ns

    def host(self, u: int, k: int) -> int:
        """Units of tensor u into or out of device k, rounded down; beyond the horizon is never."""
        never = self.horizon_ns // self.unit_ns + 1
        return min(int(self.instance.arrays.host_ns[u, k]) // self.unit_ns, never)


def new_model(instance: Instance, semantics: LatencySubgraphs, horizon_ns: int) -> LatencyModel:
    """Variables. The unit keeps all rows that the horizon allows within `LARGEST_ACTIVITY`."""
    sets = index_sets(instance, semantics, horizon_ns)
    granularity = granularity_ns(instance, transfers=False)
    unit = max(granularity, ceil_div(_longest_row_ns(sets, horizon_ns), LARGEST_TIME))
    cp, horizon, n = cp_model.CpModel(), horizon_ns // unit, instance.num_ops
    possible, is_host = sets.window.possible, instance.arrays.is_host
    of_group: dict[tuple[int, int], Literal] = {}
    x: list[dict[int, Literal]] = []
    for i, g in enumerate(instance.arrays.group.tolist()):
        x.append({})
        for k in np.flatnonzero(possible[i]).tolist():
            key = (g, k) if not is_host[k] else (-1 - i, k)
            if key not in of_group:
                of_group[key] = cp.new_bool_var(f"x{i},{k}")
            x[i][k] = of_group[key]
    once, calls = sets.num_calls == 1, range(sets.num_calls)

    def literals(name: str, pairs: list[tuple[int, int]]) -> dict[Member, Literal]:
        return {(u, k, c): cp.new_bool_var(f"{name}{u},{k},{c}") for u, k in pairs for c in calls}

    members = [(i, k) for k, c in sets.calls if c == 0 for i in sets.on(k)]
    leaving = [(u, k) for u, k in sets.leaving if instance.arrays.host_ns[u, k] >= unit]
    clock = {at: cp.new_int_var(0, horizon, f"start{at}") for at in sets.calls}
    return LatencyModel(
        cp,
        sets,
        horizon_ns,
        unit,
        unit == granularity,
        x,
        member={(i, k, 0): x[i][k] for i, k in members} if once else literals("m", members),
        enters=literals("enters", sets.entering),
        leaves=literals("leaves", leaving),
        start=clock,
        finish={at: cp.new_int_var(0, horizon, f"finish{at}") for at in sets.calls},
        end=[cp.new_int_var(0, horizon, f"end{i}") for i in range(n)],
        done=[cp.new_int_var(0, horizon, f"done{i}") for i in range(n)],
        latency=cp.new_int_var(0, horizon, "latency"),
    )


def _longest_row_ns(sets: CallSets, horizon_ns: int) -> int:
    """What a row can sum up to: the horizon, and beside it a call, or an op and its tensor."""
    arrays, window = sets.instance.arrays, sets.window
    on_hosts = np.where(window.possible & arrays.is_host, arrays.time_ns, 0).astype(object)
    spread = max(
        largest_spread(table, window.possible)
        for table in (arrays.time_ns, window.head_ns + arrays.time_ns, window.tail_ns)
    )
    moves, call = [0] * len(sets.producer), [0] * sets.instance.num_devices
    for u, k in (*sets.entering, *sets.leaving):
        move = min(int(arrays.host_ns[u, k]), horizon_ns + 1)
        moves[u] += move * sets.num_calls
        call[k] += move
    for k, _ in sets.calls:
        call[k] += sum(arrays.time_ns[sets.on(k), k].tolist())
    # the time of a call is a variable of its own where it may take longer than the horizon
    longest_call = min(max(call), horizon_ns)
    of_op = max(int(on_hosts.sum(axis=1).max()), spread + max(moves, default=0))
    return horizon_ns + max(longest_call, of_op)
