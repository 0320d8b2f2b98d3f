"""serving-flow: prices prove a bound, blocks of machines make plans, and moves improve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from placegap.instances.kernels.array_types import Floats
from placegap.instances.objectives.flow.referee import plan_of, problem_of, ranges_of
from placegap.instances.problem import ServingFlow
from placegap.instances.problem.flow_problem import Ranges
from placegap.solvers.bounds.cheap_bounds import WORK
from placegap.solvers.bounds.flow_prices import PriceSearch
from placegap.solvers.core.clock import USUAL_S, Clock, LimitReached
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.progress import Known, report, reporter, say
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.serving_flow.blocks import MIP_S, FlowBlocks
from placegap.solvers.serving_flow.every_plan import MOST_LAYERS, best_ranges, count_plans
from placegap.solvers.serving_flow.flow import flow_of, machines_of
from placegap.solvers.serving_flow.moves import improve
from placegap.solvers.serving_flow.rules import petals_ranges, swarm_ranges
from placegap.solvers.solving.run_method import run_method

PRICES, BLOCKS, MOVES = "flow-prices", "flow-blocks", "flow-moves"
NEAR = 1e-4  # relative width of the rates between which blocks are tried
FIRST_STEP = 0.002  # of the bound
PLACINGS = 4  # ways to choose machines for the same blocks
FEW_STEPS, STEPS = 20_000, 200_000  # moves after a placing, and of one walk: 2 to 20 us each
MOST_PLANS = 2**17  # are enumerated, in half a second
FEW_MACHINES = 8  # Helix's MILP proves more of as many; of 12 it does not end
WALKS = 40  # from the best plan, with other seeds


class _Search:
    """The best plan and bound of a task."""

    def __init__(self, task: Task[ServingFlow], by: str) -> None:
        self.task, self.problem = task, problem_of(task.instance, task.semantics)
        limit_s = task.limits.time_limit_s
        self.clock = task.limits.clock() if limit_s is not None else Clock(USUAL_S)
        self.machines = machines_of(self.problem)
        self.prices = PriceSearch(self.problem, self.clock)
        self.ranges: Ranges | None = None
        self.known = Known(
            rules=task.semantics,
            gap=task.limits.gap,
            bound=Bound(self.prices.work_bound(), WORK),
            on_progress=reporter(task.instance, task.semantics, by),
        )
        self._report_bound()
        if task.incumbent is not None:
            self.offer(ranges_of(task.instance, task.incumbent))

    @property
    def value(self) -> int:
        return self.known.value or 0

    @property
    def is_over(self) -> bool:
        return self.known.is_close or self.clock.is_over()

    def _report_bound(self) -> None:
        bound = self.known.bound
        report(self.task.instance, self.task.semantics, bound.origin, bound=bound)

    def offer(self, ranges: Ranges | None) -> int:
        """Take over a plan if it is better; its flow."""
        if ranges is None:
            return 0
        value = flow_of(self.machines, ranges)
        plan = plan_of(self.task.instance, ranges) if value > self.value else None
        if plan is not None and self.known.offer_plan(self.task, plan):
            self.ranges = ranges
        return value

    def start(self) -> None:
        """Plans by rules."""
        for rule in (swarm_ranges, petals_ranges):
            self.offer(rule(self.problem))

    def prove(self) -> None:
        """Lower the bound by prices."""
        say("looking for prices of machines")
        for proof in self.prices.prove(self.value):
            if self.known.prove(Bound(proof.bound, PRICES)):
                self._report_bound()
            if self.known.is_close:
                break

    def choose_blocks(self, *, alone: bool = False) -> None:
        """Bisect the rate for which there are blocks, from the bound down."""
        say("looking for blocks of machines")
        low, high = self.value, self.known.bound.value
        rate, step = high, FIRST_STEP
        while high - low > max(1, NEAR * high) and not self.is_over:
            found = max(self._with_rate(rate, alone), default=0)
            if found >= rate:
                low, step = max(low, found), 0.0  # from here on by halves
            else:
                low, high = max(low, found), rate
            rate = (low + high) // 2
            if step and high * (1 - step) > low:  # low rates have many blocks: down in larger steps
                rate, step = int(high * (1 - step)), 2 * step

    def _with_rate(self, rate: int, alone: bool) -> Iterator[int]:
        """Flows of plans by blocks for a rate, until one passes it."""
        blocks = FlowBlocks(self.problem, rate, self._worth(), alone=alone)
        for order in blocks.orders():
            self.clock.check()
            parts = blocks.choose(order, min(MIP_S, self.clock.left_s or MIP_S))
            if parts is None:
                continue
            for seed in range(PLACINGS):
                ranges = blocks.place(parts, self.task.limits.seed + seed)
                found = self._moved(ranges, FEW_STEPS, seed, rate)
                yield found
                if found >= rate:
                    return

    def _worth(self) -> Floats:
        """Prices of the best bound, or the work of machines."""
        if self.prices.best is not None:
            return np.array(self.prices.best.prices, float)
        return np.array(self.prices.works(self.known.bound.value), float)

    def _moved(self, ranges: Ranges | None, steps: int, seed: int, enough: int) -> int:
        if ranges is None:
            return 0
        value = self.offer(ranges)
        if value >= enough:
            return value
        _, better = improve(self.machines, ranges, steps, self.task.limits.seed + seed, enough)
        return self.offer(better)

    def move(self) -> None:
        """Walks from the best plan."""
        say("moving ranges of layers")
        for seed in range(WALKS):
            if self.ranges is None or self.is_over:
                return
            self._moved(self.ranges, STEPS, seed, self.known.bound.value)

    def enumerate(self) -> None:
        """All plans, or Helix's MILP, where machines are few."""
        rules, form = self.task.semantics, {"form": "as_published"}
        if count_plans(self.problem) <= MOST_PLANS and self.problem.num_layers <= MOST_LAYERS:
            best = best_ranges(self.task.instance, rules)
            if best is not None:
                self.known.offer_plan(self.task, best[1])
                self.known.prove(Bound(best[0], "brute-force"))
        few = self.problem.num_machines <= FEW_MACHINES and not self.problem.partial
        if self.is_over or not few or not self.value:
            return
        say("solving Helix's MILP")
        incumbent, left_s = self.known.plan, self.clock.left_s
        found = run_method(
            self.task.instance, rules, "helix", form, incumbent=incumbent, time_limit_s=left_s
        )
        self.known.offer_plan(self.task, found.plan)
        if found.bound is not None:
            self.known.prove(found.bound)

    def run(self, *steps: Callable[[], object]) -> Outcome:
        """Take steps until the time is over or the gap is small enough."""
        message = ""
        try:
            for step in steps:
                if not self.is_over:
                    step()
        except LimitReached as error:
            message = str(error)
        except KeyboardInterrupt:
            message = "interrupted"
        if not message and self.clock.is_over():
            message = "stopped at the time limit"
        return Outcome(
            plan=self.known.plan,
            claim=self.known.value,
            bound=self.known.bound,
            faults=tuple(self.known.faults),
            message=message,
            details={"price_rounds": self.prices.rounds},
        )


@method("serving-flow", objectives=("serving_flow",), claim="exact", packages=("numba", "highspy"))
def run(task: Task[ServingFlow], params: Params) -> Outcome:
    """Prices prove a bound, blocks of machines make plans, and moves of ranges improve them.

    Helix's MILP closes the gap on a few machines.
    """
    search = _Search(task, "serving-flow")
    problem = search.problem
    held = sum(map(problem.most_layers, range(problem.num_machines)))
    if held < problem.num_layers:
        said = f"all machines together hold at most {held} of {problem.num_layers} layers"
        return Outcome(bound=no_plan(), message=said)
    rows, blocks = partial(search.choose_blocks, alone=True), search.choose_blocks
    return search.run(search.start, rows, search.prove, blocks, search.enumerate, search.move)


@method(PRICES, objectives=("serving_flow",), claim="bound", packages=("numba", "highspy"))
def flow_prices(task: Task[ServingFlow], params: Params) -> Outcome:
    """All layers cost more than all machines are worth, by prices of column generation.

    What covers a layer is a knapsack, and layers between groups of machines are covered by
    several (`solvers/bounds/flow_prices.py`).
    """
    search = _Search(replace(task, incumbent=None), PRICES)
    return search.run(search.prove)


@method("flow-row", objectives=("serving_flow",), packages=("numba", "highspy"))
def flow_row(task: Task[ServingFlow], params: Params) -> Outcome:
    """One row of machines, for the largest rate that a MIP of numbers of machines finds."""
    return _only_plan(_Search(task, "flow-row"), alone=True)


@method(BLOCKS, objectives=("serving_flow",), packages=("numba", "highspy"))
def flow_blocks(task: Task[ServingFlow], params: Params) -> Outcome:
    """FlowBlocks in a row, each of one machine or of lanes side by side, chosen by a MIP.

    Groups of machines that large links join follow each other, with lanes across between them.
    """
    return _only_plan(_Search(task, BLOCKS))


def _only_plan(search: _Search, *, alone: bool = False) -> Outcome:
    found = search.run(partial(search.choose_blocks, alone=alone))
    return replace(found, bound=None)


@method(MOVES, objectives=("serving_flow",), packages=("numba",))
def flow_moves(task: Task[ServingFlow], params: Params) -> Outcome:
    """Simulated annealing of ranges, from the plans of Petals' and Swarm's rules.

    Machines exchange ranges, a border between machines moves by a layer, or a machine begins or
    ends where another one does; the value is the flow.
    """
    search = _Search(task, MOVES)
    return replace(search.run(search.start, search.move), bound=None)
