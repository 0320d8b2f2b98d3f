"""The least time of a batch over all hybrid plans: decisions in integers (`hybrid-cuts`).

placegap's own. A dynamic program over ideals (`decide`), in which the modes of a stage are a
knapsack (`modes`), decides whether some plan takes at most T ns per batch. T is approached from
both sides: a no raises the bound, and a plan has an exact value, which is the next upper end. The
proof ends with a no for that value less 1 ns. A gap is left where lists of the knapsack grow too
long, and where `problem` rounds costs (then of a ns: a plan may take more than its limit).

With `bubble` filling and draining count, and all stages have one d and one t. A batch takes
f(M, S) = M + ceil((S - M) / m) for the longest stage M, the sum S of all stages and m microbatches
of a replica; f grows with M and with S. For an interval of M, the least S with no stage above the
upper end (`least_sums`) gives a plan, and with the lower end a bound. Intervals are halved until no
bound is below the best plan.

That sum is a DP, too: least[I, p] is the least sum of p stages for the layers outside of ideal I.
The first stage takes J - I for a larger ideal J. As all stages have the same d, it has
y = min(p, m) microbatches in flight, so its time is that of its fastest modes that fit. Bisection
over the knapsacks of `decide` computes it when it is first needed, and keeps it for other limits.
Alpa also takes the least sum for each limit on the longest stage (Zheng et al., OSDI 2022), but
with the modes of a stage fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.objectives.hybrid.checks import check_hybrid
from placegap.instances.problem import HybridPipeline, Instance, Plan
from placegap.instances.problem.integers import NEVER, NO_WAY, ceil_div
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import ExactParams, Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, no_plan
from placegap.solvers.hybrid.decide import (
    PAIRS,
    Choice,
    Decider,
    Decision,
    RowStage,
    StageRows,
    best_rows,
    border,
    fill,
    fits,
    nests,
)
from placegap.solvers.hybrid.modes import NO, YES
from placegap.solvers.hybrid.problem import (
    EVERY_MODE,
    HybridProblem,
    Tables,
    build_problem,
    why_not_hybrid,
)

MOST_KEPT = 2**24  # most times of stages that are kept, 128 MB; 80 layers on 64 devices: 420,000


class Uniform(NamedTuple):
    """What all stages share: a tensor degree by number, d, names of modes to choose from."""

    # There are at most `stages` stages; `rate` is the scaled cost of a ns. A replica has `turns`
    # microbatches.
    tensor: int
    replicas: int
    names: Ints
    stages: int
    rate: int
    turns: int


class SumLimits(NamedTuple):
    """Most ns of a stage, most ns of all stages together, and bytes of a device."""

    longest: int
    total: int
    memory: int


class SumRow(NamedTuple):
    """A row of stages, the first one first, and its times in ns."""

    total: int
    longest: int
    stages: tuple[RowStage, ...]


@kernel
def least_sums(
    tables: Tables,
    uniform: Uniform,
    limits: SumLimits,
    known: Ints,
    least: Ints,
    after: Ints,
    rows: tuple[int, int],
) -> None:
    """Fill rows of the table of least sums, and the ideals after each entry's first stage."""
    # From the first row down to the second. ``known[I, J, y]`` is the time of a stage, or -2 - x
    # where it is known to be above x. Modes that cannot be decided count as fitting, so that no sum
    # is too large.
    # A stage is left out by the cheapest test that applies: sums over ideals first, then whether
    # the two ideals are nested, then times kept from earlier limits, and a knapsack last.
    n, q, d, rate = len(tables.members), uniform.tensor, uniform.replicas, uniform.rate
    stage = StageRows(
        np.zeros(tables.inside.shape[1] + 1, np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.cost), np.int64),
        np.zeros(len(tables.tail), np.bool_),
    )
    for small in range(rows[0], rows[1] - 1, -1):
        for p in range(uniform.stages + 1):
            least[small, p] = NEVER
        # Least sum of the stages before: work of ideal I without borders. They need at least before
        # / longest stages, and the stages of the rest are what is left of all.
        before = (tables.least_cost[q, small] + (d - 1) * tables.least_sync[q, small]) // rate
        most = uniform.stages - -(-before // max(1, limits.longest))
        # Large J first and a strict < below: if rows tie, the one of long first stages is kept.
        for large in range(n - 1, small, -1):
            cost = tables.least_cost[q, large] - tables.least_cost[q, small]
            cost += (d - 1) * (tables.least_sync[q, large] - tables.least_sync[q, small])
            low = -(-cost // rate)
            if low > limits.longest or tables.unable[q, large] > tables.unable[q, small]:
                continue
            if not nests(tables, small, large):
                continue
            held = tables.least_held[q, large] - tables.least_held[q, small]
            fixed = tables.least_fixed[q, large] - tables.least_fixed[q, small]
            count = base = 0
            # More microbatches in flight leave less memory for fast modes: the time of this stage
            # grows with p, so that `low` carries over, and a stage too long for p ends the loop.
            for p in range(1, most + 1):
                y = min(p, uniform.turns)
                if held * y + fixed > limits.memory:
                    break
                time = known[small, large, y]
                low = max(low, time if time >= 0 else -1 - time)
                if low > limits.longest:
                    break
                rest = least[large, p - 1]
                if rest == NEVER or rest + low + before > limits.total:
                    continue
                if time < 0:
                    if count == 0:
                        base = border(tables, stage.crosses, small, large)
                        count = fill(tables, stage, q, small, large)
                        low = max(low, -(-(cost + base) // rate))
                    # Bisection that begins at the lower bound, which is often the time itself: that
                    # of the fastest modes, or that with one microbatch less in flight.
                    high, trial = limits.longest + 1, low
                    while low < high:
                        bounds = (trial * rate - base, limits.memory)
                        if fits(tables, stage, count, uniform.names, d, y, bounds) == NO:
                            low = trial + 1
                        else:
                            high = trial
                        trial = (low + high) // 2
                    known[small, large, y] = low if low <= limits.longest else -1 - low
                    if low > limits.longest:
                        break
                if rest + low + before <= limits.total and rest + low < least[small, p]:
                    least[small, p], after[small, p] = rest + low, large


class LeastSums:
    """Least sums for one limit after another; the times of stages are kept."""

    def __init__(self, problem: HybridProblem, uniform: Uniform, clock: Clock) -> None:
        self.problem, self.uniform, self.clock = problem, uniform, clock
        n = len(problem.tables.members)
        self._known = np.full((n, n, min(uniform.stages, uniform.turns) + 1), -1)
        self._least = np.full((n, uniform.stages + 1), NEVER)
        self._after = np.zeros((n, uniform.stages + 1), np.int64)

    def within(self, longest_ns: int, total_ns: int) -> SumRow | None:
        """The row of least sum with no stage above `longest_ns`; None if it is above `total_ns`."""
        n, tables = len(self._least), self.problem.tables
        # No stage costs more than NO_WAY, and all stages together at most twice that, since each
        # edge counts in two stages. Larger limits could leave 64 bits.
        most = min(total_ns, 2 * NO_WAY)
        limits = SumLimits(min(longest_ns, NO_WAY), most, self.problem.memory)
        self._least[n - 1] = NEVER
        self._least[n - 1, 0] = 0
        step = max(1, PAIRS // (n * self.uniform.stages))
        for last in range(n - 2, -1, -step):
            self.clock.check()
            rows = last, max(0, last - step + 1)
            least_sums(tables, self.uniform, limits, self._known, self._least, self._after, rows)
        p = int(self._least[0].argmin())
        total = int(self._least[0, p])
        if total == NEVER:
            return None
        stages, longest, at = list[RowStage](), 0, 0
        for left in range(p, 0, -1):
            after = int(self._after[at, left])
            longest = max(longest, int(self._known[at, after, min(left, self.uniform.turns)]))
            stages.append(RowStage(at, after, self.uniform.tensor, self.uniform.replicas))
            at = after
        return SumRow(total, longest, tuple(stages))


CLOSE = 1e-3  # gap at which value - 1 is tried: below it the plan is often optimal already
FIRST_STEP = 16  # the first limit is 1/16 above the bound: optima are 3 to 30 % above the work

NAME = "hybrid-cuts"


class HybridCutsParams(ExactParams):
    #: With more ideals than this the instance is refused.
    max_ideals: int = Field(default=40_000, ge=2)


def applies(task: Task[HybridPipeline], params: HybridCutsParams) -> str | None:
    """Why the tensor degrees cannot be packed into servers, or None."""
    return why_not_hybrid(task.instance, task.semantics)


@method(NAME, objectives=("hybrid_pipeline",), claim="exact", applies=applies)
def run(task: Task[HybridPipeline], params: HybridCutsParams) -> Outcome:
    """DP over ideals and replicas, modes by knapsacks, for a sequence of limits."""
    instance, semantics = task.instance, task.semantics
    check_hybrid(instance, semantics)
    problem = build_problem(instance, semantics, params.max_ideals)
    if isinstance(problem, str):
        return Outcome(message=problem)
    search = (_FilledSearch if semantics.bubble else _Search)(task, problem)
    search.close()
    details: dict[str, int | float | str] = {
        "ideals": len(problem.tables.members),
        "decisions": search.decisions,
    }
    if search.plan is None:
        infeasible = search.proven_infeasible
        return Outcome(
            bound=no_plan() if infeasible else Bound(search.bound.value, NAME, ""),
            details=details,
            message="no row of stages fits the memory" if infeasible else search.why,
        )
    return Outcome(
        plan=search.plan,
        claim=search.value,
        bound=Bound(search.bound.value, NAME),
        details=details,
        message=search.why,
    )


def best_plan(task: Task[HybridPipeline], params: HybridCutsParams, names: Ints) -> Plan | str:
    """The best plan of a full pipeline with modes by a rule (`GREEDY`), or why there is none."""
    full = task.semantics.model_copy(update={"bubble": False})
    task = replace(task, semantics=full)
    problem = build_problem(task.instance, full, params.max_ideals)
    if isinstance(problem, str):
        return problem
    search = _Search(task, problem, names)
    search.close()
    return search.plan or search.why or "no row of stages fits the memory"


def choices(
    problem: HybridProblem, semantics: HybridPipeline, rule: Ints | None = None
) -> Iterator[Choice]:
    """What all stages of a plan may choose from; the plans of all choices are all plans."""
    # `degrees` and `recompute` say what stages must share: each shared value is a choice of its
    # own. A `rule` replaces the names of modes.
    tensors = np.arange(len(problem.tables.tensor))
    every = np.arange(len(problem.names))
    name_sets = {
        "per_layer": [np.array([EVERY_MODE])],
        "per_stage": [every],
        "all_or_none": [every[k : k + 1] for k in every],
    }[semantics.recompute]
    for names in name_sets if rule is None else [rule]:
        if semantics.degrees == "free":
            yield Choice(tensors, problem.degrees, names)
            continue
        for q in tensors:
            degrees = [problem.degrees]
            if semantics.degrees == "one":
                # Large d first: few stages have few borders, and where memory allows it such a plan
                # is often the best. The other choices then begin with it.
                degrees = [problem.degrees[k : k + 1] for k in range(len(problem.degrees))][::-1]
            yield from (Choice(tensors[q : q + 1], own, names) for own in degrees)


class _Search(Known):
    """Raises the bound and lowers the value, choice after choice, until they meet."""

    def __init__(
        self, task: Task[HybridPipeline], problem: HybridProblem, rule: Ints | None = None
    ) -> None:
        self.task, self.problem, self.rule = task, problem, rule
        self.clock = task.limits.clock()
        self.decider = Decider(problem, self.clock)
        plan, value_ns = task.starts[0] if task.starts else (None, None)
        least = Bound(max(task.floor_ns, problem.work_bound_ns), NAME)
        report = reporter(task.instance, task.semantics, NAME)
        super().__init__(plan=plan, value=value_ns, bound=least, on_progress=report)
        self.adopted, self.reached = False, least.value
        self.decisions, self.why, self.proven_infeasible = 0, "", False

    def close(self) -> None:
        """Bring every choice's bound up to the value, or stop at a limit."""
        # The bound on all plans is the least over the choices: what each one proved, what the
        # interrupted one had `reached`, and for those not begun what was known before.
        all_choices = choices(self.problem, self.task.semantics, self.rule)
        open_ = [(choice, self.bound.value) for choice in all_choices]
        proven = list[int]()
        undecided = False
        for at, (choice, low) in enumerate(open_):
            try:
                low, known = self._close(choice, low)
            except (LimitReached, KeyboardInterrupt) as stop:
                self.why = str(stop) or "interrupted"
                proven += [self.reached, *(rest for _, rest in open_[at + 1 :])]
                undecided = True
                break
            undecided |= not known
            proven.append(low)
        if self.value is None:
            self.proven_infeasible = not undecided
        else:
            proven = [self.value, *(proven if undecided else ())]
        self.prove(Bound(min(proven, default=0), NAME))
        if undecided and not self.why:
            self.why = self._why_undecided()

    def _why_undecided(self) -> str:
        if self.problem.rounded:
            return "costs of bytes are rounded down, so that sums fit 64 bits"
        return "the modes of some stages were too many to decide"

    def _close(self, choice: Choice, low: int) -> tuple[int, bool]:
        """A bound on the plans of this choice, and whether it is exact: all limits were decided."""
        # Limits grow from below until there is a plan, since decisions take longer at high limits;
        # then they halve what is left. If the best plan is of another choice, value - 1 is tried
        # first: one no, and this choice is done.
        largest = ceil_div(self.problem.largest, self.problem.scale)  # every plan is within it
        most = largest if self.value is None else self.value - 1
        step = max(1, low // FIRST_STEP)
        limit = most if self.adopted else min(most, low + step)
        known = True
        while low <= most:
            self.reached = low
            decision = self._decide(choice, limit)
            if decision.answer == NO:
                low = limit + 1
            else:
                value_ns = None
                if decision.answer == YES:
                    value_ns = self._adopt(choice.names, decision.stages, limit, limit)
                if value_ns is None:
                    return low, False
                # With rounded costs a plan may take more than its limit: then it is open whether
                # one within the limit exists, and lower limits are decided next.
                known = value_ns <= limit
                most, step = min(value_ns, limit) - 1, 0
            if step:
                step *= 2
                limit = min(most, low + step)
            else:
                limit = most if known and most - low <= CLOSE * most else (low + most) // 2
        return low, known

    def _decide(self, choice: Choice, limit_ns: int) -> Decision:
        self.decisions += 1
        return self.decider.decide(choice, limit_ns)

    def _adopt(
        self, names: Ints, stages: tuple[RowStage, ...], limit_ns: int, claim_ns: int
    ) -> int | None:
        """The value of the plan of a row of stages with modes of least time."""
        # None if some stage has no known modes within the limit.
        problem = self.problem
        rows, total = list[Ints](), 0
        # From the last stage to the first, as microbatches in flight follow from the replicas
        # behind.
        for found in reversed(stages):
            total += found.replicas
            budget = min(problem.largest, problem.budget(limit_ns) * found.replicas)
            turns = self.task.semantics.microbatches // found.replicas
            in_flight = min(ceil_div(total, found.replicas), turns)
            own = best_rows(problem, found, names, in_flight, budget)
            if own is None:
                return None
            rows.append(own)
        plan = as_plan(self.task.instance, problem, stages, rows[::-1])
        value_ns = feasible_value(self.task.instance, plan, self.task.semantics)
        assert value_ns is not None, plan
        assert value_ns <= claim_ns or problem.rounded, (value_ns, claim_ns)
        self.adopted |= self.improve(value_ns, plan)
        return value_ns


class _Filling(NamedTuple):
    """One d, t and set of names: a bound on a batch, and one on the sum of stages."""

    bound: int
    least: int
    uniform: Uniform


class _FilledSearch(_Search):
    """The same search where filling and draining count."""

    #: The least claim whose plan took more than that, as costs are rounded down.
    open_claim = NEVER

    @property
    def below(self) -> int:
        """Only plans below this are looked for."""
        return min(NEVER if self.value is None else self.value, self.open_claim + 1)

    def close(self) -> None:
        """Bring every choice's bound up to the value, the most promising first."""
        todo = sorted(self._fillings(), key=lambda each: each.bound)
        undecided = list[int]()
        if any(self._is_large(each) for each in todo):
            self._full_first(todo)
        for at, filling in enumerate(todo):
            if filling.bound >= self.below:
                break
            try:
                for bound in self._explore(filling):
                    undecided.append(bound)
            except (LimitReached, KeyboardInterrupt) as stop:
                self.why = str(stop) or "interrupted"
                undecided += [self.reached, *(each.bound for each in todo[at + 1 :])]
                break
        self.proven_infeasible = self.value is None and not undecided
        known = undecided if self.value is None else [self.value, *undecided]
        self.prove(Bound(min(known, default=0), NAME))
        if self.bound.value != self.value and not self.why:
            self.why = self._why_undecided()

    def _fillings(self) -> Iterator[_Filling]:
        problem, tables = self.problem, self.problem.tables
        for choice in choices(problem, self.task.semantics, self.rule):
            q, d = int(choice.tensors[0]), int(choice.degrees[0])
            groups = problem.devices // (d * int(tables.tensor[q]))
            stages = min(groups, tables.inside.shape[1])
            if stages == 0 or tables.unable[q, -1]:
                continue
            cost = int(tables.least_cost[q, -1] + (d - 1) * tables.least_sync[q, -1])
            turns = self.task.semantics.microbatches // d
            uniform = Uniform(q, d, choice.names, stages, problem.scale * d, turns)
            least = ceil_div(cost, uniform.rate)
            bound = _filled_ns(ceil_div(least, stages), least, turns)
            yield _Filling(bound, least, uniform)

    def _is_large(self, filling: _Filling) -> bool:
        ideals = len(self.problem.tables.members)
        _, _, _, stages, _, turns = filling.uniform
        return ideals**2 * (min(stages, turns) + 1) > MOST_KEPT

    def _full_first(self, todo: list[_Filling]) -> None:
        """Start from the best plan without filling and draining, where its value may be a bound."""
        # Without `bubble` more stages than microbatches are not allowed (rule 7 of
        # docs/pipelines.md), so its optimum is a bound only where no plan here has more of them.
        rules = self.task.semantics.model_copy(update={"bubble": False})
        full = _Search(replace(self.task, semantics=rules, starts=()), self.problem, self.rule)
        full.clock = self.clock
        full.close()
        self.decisions = full.decisions
        if all(each.uniform.stages <= each.uniform.turns for each in todo):
            self.prove(full.bound)
        self.offer_plan(self.task, full.plan)

    def _explore(self, filling: _Filling) -> Iterator[int]:
        """Bounds of what stays undecided; at the end all else is no better than the best plan."""
        # Each interval (low, high, total) of the longest stage M has `total` as a bound on the sum.
        # Lowest first, and growing from below as in `_close`: decisions take longer at high limits.
        _, least, uniform = filling
        turns = uniform.turns
        if self._is_large(filling):
            self.why = "there are too many stages to keep the times of all"
            yield max(self.bound.value, filling.bound)
            return
        sums = LeastSums(self.problem, uniform, self.clock)
        low, top = ceil_div(least, uniform.stages), ceil_div(self.problem.largest, uniform.rate)
        intervals, step = list[tuple[int, int, int]](), max(1, low // FIRST_STEP)
        while low <= top:
            intervals.insert(0, (low, low + step, least))
            low, step = low + step + 1, 2 * step
        while intervals:
            self.reached = min(_filled_ns(low, total, turns) for low, _, total in intervals)
            low, high, total = intervals.pop()
            # Above this M even a row of sum `total` is no better than the best plan.
            high = min(high, _most_longest(self.below - 1, total, turns))
            if low > high:
                continue
            self.decisions += 1
            # A better plan with M >= low has at most this sum: f(M, S) <= v means S <= m v - (m -
            # 1) M.
            found = sums.within(high, turns * (self.below - 1) - (turns - 1) * low)
            if found is None:
                continue
            claim = _filled_ns(found.longest, found.total, turns)
            if claim < self.below:
                value_ns = self._adopt(uniform.names, found.stages, high, claim)
                if value_ns is None:
                    yield _filled_ns(low, found.total, turns)
                    continue
                if value_ns > claim:
                    self.open_claim = claim
                    yield claim
            # All rows of this interval have this sum or more, so a better one must have a shorter
            # longest stage than the row found.
            high = min(found.longest - 1, _most_longest(self.below - 1, found.total, turns))
            if low <= high:
                middle = (low + high) // 2
                intervals.append((middle + 1, high, found.total))
                intervals.append((low, middle, found.total))


def _filled_ns(longest: int, total: int, turns: int) -> int:
    """A batch, by the longest time of its stages and the least time of all together."""
    return longest + ceil_div(max(0, total - longest), turns)


def _most_longest(value: int, total: int, turns: int) -> int:
    """The longest that a stage may be for `_filled_ns` to be at most the value; -1: none may."""
    if turns == 1:
        return value if total <= value else -1
    return min(value, (turns * value - total) // (turns - 1))


def as_plan(
    instance: Instance, problem: HybridProblem, stages: tuple[RowStage, ...], rows: list[Ints]
) -> Plan:
    """The plan of a row of stages, its devices and modes."""
    # Groups of the largest t take devices first, server by server. Each degree of the plan divides
    # the next larger one (`why_not_hybrid`) and the size of every server (`tensor_degrees`), so no
    # group lies in two servers.
    tables, group = problem.tables, instance.arrays.group
    servers = list(dict.fromkeys(device.server for device in instance.cluster.devices))
    order = sorted(
        range(instance.num_devices), key=lambda k: servers.index(instance.cluster.devices[k].server)
    )
    devices, used = dict[int, tuple[int, ...]](), 0
    for s in sorted(range(len(stages)), key=lambda s: -int(tables.tensor[stages[s].tensor])):
        count = stages[s].replicas * int(tables.tensor[stages[s].tensor])
        devices[s] = tuple(order[used : used + count])
        used += count
    stage, mode = np.zeros(len(tables.inside[0]), np.int64), dict[int, str]()
    for s, (found, own) in enumerate(zip(stages, rows, strict=True)):
        layers = np.flatnonzero(tables.inside[found.after] & ~tables.inside[found.before])
        stage[layers] = s
        for layer, row in zip(layers.tolist(), own.tolist(), strict=True):
            mode[layer] = problem.names[tables.name[row]]
    return Plan(
        tuple(devices[s] for s in stage[group].tolist()),
        stage=tuple(stage[group].tolist()),
        tensor=tuple(int(tables.tensor[found.tensor]) for found in stages),
        mode=tuple(mode[g] for g in group.tolist()),
    )
