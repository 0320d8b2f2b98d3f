"""repeated-layers: one layer of each kind is searched and repeated; a bound beside the plan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Makespan, Plan
from placegap.instances.problem.integers import NEVER
from placegap.instances.referee.evaluate import evaluate, feasible_value
from placegap.solvers.core.clock import Clock, now_s
from placegap.solvers.core.method import EFFORT, Params, Task
from placegap.solvers.core.progress import Known, report, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import PROOF, Bound, Outcome
from placegap.solvers.local_search.quick_schedule import inserted
from placegap.solvers.repeated_layers.layer_bound import ORIGIN, LayerProof, ns_on, prove_layers
from placegap.solvers.repeated_layers.layer_plans import (
    LayerClass,
    LayerEffort,
    LayerPlanner,
    Layout,
    layouts,
    room_bytes,
    state_bytes,
)
from placegap.solvers.repeated_layers.sections import Bottlenecks, bottlenecks_of, has_repeats

NAME = "repeated-layers"

USUAL_MOVES = 20_000  # if there is neither a time limit nor a number of moves
# Share of the effort for a first run of each layout, which also shows how much room tensors need;
# most of these runs for each layout; most of the effort for all layouts.
PRE_RUN, MOST_PRE_RUNS, PRE_RUNS = 0.06, 4, 0.4
LATER_RUN = 0.6  # share of a first run that the next one of the same layout has
LONG_RUNS = (0.85, 0.1, 0.05)  # of the rest of the effort, while plans do not fit at the peak
# The long run gains 1 to 3 %: none begins where the first ones are so much above the incumbent, or
# find nothing better than one device, as on training steps, whose gradients of weights are pinned.
HOPELESS = 1.05
INTERRUPTED = "interrupted"
JUDGINGS = 4  # plans that are judged at the end, with what it takes to make them


class RepeatedLayersParams(Params):
    #: About how many moves. By default they last for the whole time limit; without one there are
    #: 20,000.
    moves: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)


def why_not_layers(task: Task[Makespan], params: RepeatedLayersParams) -> str | None:
    """Why the sections of a graph are not solved once for all equal ones."""
    bottlenecks = bottlenecks_of(task.instance)
    if not has_repeats(task.instance, bottlenecks):
        return "no two sections between bottlenecks are equal and have parallel ops"
    return None


@method(
    NAME,
    objectives=("makespan",),
    paper="placegap",
    packages=("highspy", "numba"),
    memory_rules=("sum", "peak"),
    applies=why_not_layers,
)
def repeated_layers(task: Task[Makespan], params: RepeatedLayersParams) -> Outcome:
    """Searches one layer of each kind and repeats it, with a bound beside its plan.

    A bottleneck is an op that all paths pass, apart from side inputs and ops with much slack. All
    of them run on one device; where memory forces more, each device has a part of the row, cut
    where a change costs least by the bound; parts that cannot win are not searched. When one
    ends, all may be idle, so the section up to the next one is a problem of its own, given where
    the tensors of earlier ops are. Equal sections are one class. Each class is searched by
    simulated annealing, with time in proportion to its number and serial time: a move sends one op
    (often to where a neighbour is), a run within a branch, or a branch's ops of one device to
    another device; copies or exchanges the devices of an equal branch; or changes urgencies. A
    schedule is that of `run-moves`. Loads have a price beside the makespan: that of the bound, or
    equal ones. The orders of all sections, one after the other, are the plan; the referee evaluates
    it, and two others with the same devices.

    The bound: the times of bottlenecks add up, and so do those of the windows between them. In a
    window of T ns each device and channel is busy for T less its head and tail at most. Prices of
    them, from a linear program over the cheapest ways to place one branch, prove T in integers. The
    bound holds for every plan: it is least over the devices of all bottlenecks, and leaves out
    memory and colocation. A heuristic, deterministic for a seed without a time limit. A move costs
    a schedule of one section.
    """
    clock = task.limits.clock()
    instance, semantics = task.instance, task.semantics
    known = Known(on_progress=reporter(instance, semantics, NAME))
    known.offer_plan(task, task.incumbent)
    bottlenecks = bottlenecks_of(instance)
    proof = prove_layers(instance, semantics, bottlenecks, clock.part(PRE_RUNS).is_over)
    if proof is None:
        return Outcome(known.plan, message="its times or its tables are too large")
    bound = Bound(proof.ns, ORIGIN, PROOF)
    report(instance, semantics, NAME, bound=bound)
    if not instance.arrays.able[bottlenecks.ops].all(axis=0).any():
        return Outcome(known.plan, bound=bound, message="no device runs all bottlenecks")
    search = _LayerSearch(task, bottlenecks, proof, known)
    try:
        message = search.run(clock, params.moves)
    except KeyboardInterrupt:
        message = INTERRUPTED
    return Outcome(known.plan, bound=bound, message=message, details={"moves": search.moves})


class _Tried(NamedTuple):
    """A layout, its plan and value, the room that tensors need, and the classes."""

    value_ns: int  # `NEVER` of a plan that does not fit
    plan: Plan
    key: tuple[int, int]
    reserve: Ints
    classes: Mapping[Hashable, LayerClass]


class _LayerSearch:
    """The search over layouts: a short run for each, and a long one for the best."""

    def __init__(
        self, task: Task[Makespan], bottlenecks: Bottlenecks, proof: LayerProof, known: Known
    ) -> None:
        self.instance, self.semantics, self.seed = task.instance, task.semantics, task.limits.seed
        self.bottlenecks, self.proof, self.known = bottlenecks, proof, known
        self.held = state_bytes(task.instance, task.semantics)
        self.moves, self.judging_s, self.is_stopped = 0, 0.0, False

    def run(self, clock: Clock, moves: int | None) -> str:
        """Search for a number of moves, or for the time that is left; returns a message."""
        if moves is None and clock.limit_s is None:
            moves = USUAL_MOVES
        nothing = np.zeros(self.instance.num_devices, np.int64)
        found, ops, start_ns = self._layouts(nothing), self.bottlenecks.ops, self.known.value
        least_ns = {key: ns_on(self.proof, one.device[ops]) for key, one in found.items()}
        effort = LayerEffort(clock.left_s, moves)
        part = effort.part(min(PRE_RUN, PRE_RUNS / len(found)))
        first, tried = clock.part(PRE_RUNS), list[_Tried]()
        # By the rule `sum` tensors need no room: another run would have the same plan.
        most = 1 if self.semantics.memory_rule == "sum" else MOST_PRE_RUNS
        parts = [part.part(LATER_RUN**number) for number in range(most)]
        for key in sorted(found, key=lambda key: (key[1], least_ns[key])):  # most room first
            value_ns = self.known.value
            hopeless = first.is_over() or (value_ns is not None and least_ns[key] >= value_ns)
            if not tried or not hopeless:
                tried.append(self._runs(key, nothing, {}, parts, clock))
        if self.is_stopped:
            return INTERRUPTED
        best = min(tried, key=lambda one: one.value_ns)
        is_serial = len(np.unique(best.plan.devices)) == 1
        if start_ns is not None and best.value_ns >= start_ns * (1.0 if is_serial else HOPELESS):
            return "its first plans are no better than the one that it was given"
        left_s = clock.left_s
        if left_s is not None:
            left_s = max(0.0, left_s - JUDGINGS * self.judging_s)
        if moves is not None:
            moves = max(1, moves - self.moves)
        # where tensors need room, they may need more of it elsewhere
        shares = LONG_RUNS if most > 1 and best.reserve.any() else (1.0,)
        parts = [LayerEffort(left_s, moves).part(share) for share in shares]
        self.seed += 1
        plan = self._runs(best.key, best.reserve, best.classes, parts, clock).plan
        if self.is_stopped:
            return INTERRUPTED
        # Sections do not overlap in their own orders. Where ops have slack, others may be better.
        self._judge(inserted(self.instance, self.semantics, plan))
        self._judge(Plan.on(plan.devices.tolist()))
        return "" if self.known.plan is not None else "no plan that it tried fits into memory"

    def _judge(self, plan: Plan) -> None:
        self.known.improve(feasible_value(self.instance, plan, self.semantics), plan)

    def _layouts(self, reserve: Ints) -> dict[tuple[int, int], Layout]:
        """Layouts by first device and rank; without room, as if there were."""
        room = room_bytes(self.instance, self.semantics, reserve)
        given = self.instance, self.bottlenecks, self.proof, self.held
        return layouts(*given, room) or layouts(*given, np.full(len(room), NEVER))

    def _planner(self, key: tuple[int, int], reserve: Ints) -> LayerPlanner:
        """A planner for a layout, or what is like it: a reserve may call for more devices."""
        found = self._layouts(reserve)
        like = min(found, key=lambda other: (other[0] != key[0], abs(other[1] - key[1])))
        room = room_bytes(self.instance, self.semantics, reserve)
        given = self.instance, self.semantics, self.bottlenecks, self.proof
        return LayerPlanner(*given, found[like], room)

    def _runs(
        self,
        key: tuple[int, int],
        reserve: Ints,
        earlier: Mapping[Hashable, LayerClass],
        parts: Sequence[LayerEffort],
        clock: Clock,
    ) -> _Tried:
        """Runs of a layout until a plan fits, each with the room that tensors needed before."""
        for effort in parts:
            planner = self._planner(key, reserve)
            planner.earlier = earlier
            plan = planner.run(effort, self.seed)
            self.moves += planner.moves
            self.is_stopped |= planner.is_stopped
            began_s = now_s()
            verdict = evaluate(self.instance, plan, self.semantics)
            self.judging_s = max(self.judging_s, now_s() - began_s)
            if verdict.feasible and verdict.value is not None:
                self.known.improve(verdict.value, plan)
                return _Tried(verdict.value, plan, key, reserve, planner.classes)
            used = np.array([use.memory_bytes for use in verdict.uses])
            over = np.maximum(used - self.instance.arrays.memory_bytes, 0)
            reserve, earlier = reserve + over + over // 8, planner.classes
            if self.is_stopped or clock.is_over():
                break
        return _Tried(NEVER, plan, key, reserve, planner.classes)
