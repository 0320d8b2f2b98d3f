"""The lazy search of the section graph: only arcs on a shortest path are ever refined.

All arcs start with the bound of paths. The shortest path is a bound on the whole; to raise it, some
arc on it must rise, so jobs are given for these alone, and the path is computed anew. The rest of
the arcs, most of them, stay as they are. With slack memory a path of solved arcs is the optimum:
their plans, end to end, are a plan of the whole graph (`join`). Where memory binds, plans of a
chain must fit together (`fitting_path`), and so must the runs of it on each device (`Runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.times import ways_through
from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.integers import NO_WAY, UNSUPPORTED
from placegap.instances.problem.sections import Interval, Section, SectionMaker
from placegap.instances.referee.channels import plan_from_times
from placegap.solvers.bounds.labels.memory_runs import MemoryRuns, memory_runs
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Known, reporter
from placegap.solvers.core.result import Bound
from placegap.solvers.decomposition.arcs import (
    PROOFS,
    Arc,
    ArcTable,
    Chain,
    Lengths,
    Use,
    lower_table,
    upper_table,
)
from placegap.solvers.decomposition.section_jobs import (
    Job,
    SectionAnswer,
    SectionWorkers,
    Step,
    place,
)
from placegap.solvers.local_search.annealing import Annealing

MOST_LABELS = 32  # partial paths that are kept per cut and device
# Device, start and end of each op; transfers, by items of the section, with theirs; the length.
Timed = tuple[list[tuple[int, int, int]], list[tuple[Transfer, int, int]], int]
Steps = Callable[[Arc], Step | None]  # the next step on an arc, None if there is none
Route = Callable[[Lengths], tuple[int, list[Use]]]  # a path, by the lengths of arcs
MOST_PLACED = 300  # arcs that get plans of placers before plans are packed into memory
SMALL = 20  # sections with fewer inner ops are solved at once, not for one horizon after the other
FIRST_SLICE_S, SLICE_GROWTH = 1.0, 4.0  # seconds of CP-SAT for an arc at first, its factor later
HANDICAP = 0.05  # while an arc is worked on, others are chosen as if its bound were higher by this


@dataclass(eq=False)
class SectionSearch(Known):
    """The state of a search: the best plan, the bound, the running jobs."""

    task: Task[Makespan]
    table: ArcTable
    workers: SectionWorkers
    clock: Clock
    proof: int = 0  # what proves the bound, as a position in `decomposition.arcs.PROOFS`
    claim: int | None = None  # the incumbent's makespan by the theorem, if joined of sections
    jobs: int = 0  # jobs done
    #: infeasible, interrupted: Whether it is proven that there is no plan; whether Ctrl-C came.
    infeasible: bool = False
    interrupted: bool = False
    note: str = ""  # why the whole model did not close the gap, if no limit ended it
    running: dict[int, Arc] = field(default_factory=dict)
    #: annealing, annealed: The annealing of the whole graph, once it has begun, and its runs so
    #: far.
    annealing: Annealing | None = None
    annealed: int = 0
    intervals: list[Interval] | None = None  # intervals of the whole graph, once they are computed

    def __post_init__(self) -> None:
        task = self.task
        self.maker, self.gap = SectionMaker(task.instance), task.limits.gap
        self.on_progress = reporter(task.instance, task.semantics, "decomposition")

    # ------------------------------------------------------------------------------------ limits

    @property
    def over(self) -> bool:
        """Whether a limit is reached: the time, Ctrl-C, or the gap that suffices."""
        is_stopped = self.interrupted or self.infeasible or self.clock.left_s == 0.0
        return is_stopped or self.is_close

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Give what follows a share of the time that is left."""
        whole = self.clock
        self.clock = whole.part(share)
        try:
            yield
        finally:
            self.clock = whole

    # ------------------------------------------------------------------------- plans and bounds

    def found_plan(self, plan: Plan, claim: int | None = None) -> bool:
        """Keep a plan if the referee finds it feasible and better."""
        is_better = self.offer_plan(self.task, plan)
        if is_better:
            self.claim = claim
        return is_better

    def found_bound(self, bound_ns: int, proof: int) -> None:
        """Keep a bound on all plans better than the incumbent."""
        # bounds of jobs hold below their horizons, so for better plans only: beyond the incumbent
        # they prove just that it is optimal
        if self.value is not None:
            bound_ns = min(bound_ns, self.value)
        if bound_ns > self.bound.value:
            self.proof = proof
            self.prove(Bound(bound_ns))

    # ------------------------------------------------------------------------------------- search

    def refine(
        self,
        chain: Chain,
        step: Steps | None = None,
        make_plans: Callable[[], None] | None = None,
        *,
        guide: Lengths = lower_table,
        route: Route | None = None,
        shortest: Route | None = None,
    ) -> None:
        """Refine the arcs on shortest paths until none is left or a limit is reached."""
        # `step` is the next step on an arc, None if there is none. `make_plans` is called whenever
        # the bound is computed. `guide` has the lengths by which arcs are chosen, on the path
        # `route`; the path `shortest` proves the bound. By default both are the chain's shortest
        # path.
        # Each round: the bound of the shortest path, plans of its arcs joined, new jobs, and then
        # the next answers. It ends when no job is running: no arc of the path has a next step.
        shortest = shortest or chain.shortest
        while True:
            # no path at all means no plan; or, with an incumbent, none that is better
            length, path = shortest(lower_table)
            if length < NO_WAY or self.value is not None:
                self.found_bound(length, max((use.arc.proof for use in path), default=0))
            self.infeasible |= length >= NO_WAY and self.value is None
            if length < NO_WAY and make_plans is not None:
                make_plans()
            if self.over or length >= NO_WAY:
                return
            if step is not None:
                self._submit(chain, step, guide, route or shortest)
            if not self.running:
                return
            for ticket, answer in self.workers.answers(self.clock.left_s):
                self._learn(self.running.pop(ticket), answer)

    def dive(self, chain: Chain, make_plans: Callable[[], None], step: Steps) -> None:
        """Solve, once each, the arcs that a good plan is likely to use."""
        # These are those on short paths by `expected_table`. It proves little, but an incumbent
        # close to the optimum makes the proofs of `refine` short.

        def make_more_plans() -> None:
            self._place(chain)
            make_plans()

        self.refine(chain, _once(step), make_more_plans, guide=expected_table)

    def dive_into_memory(self, tiles: Chain, step: Steps) -> None:
        """Solve, once each, arcs on a short path whose plans fit into memory together."""

        def route(_: Lengths) -> tuple[int, list[Use]]:
            return self._fitting(tiles)

        # placers first, for the arcs that can be in a better plan with the most time to spare
        room = tiles.room(self._limit, lower_table)
        worth = [arc for arc, most in room.items() if arc.open and arc.lower_ns <= most]
        worth.sort(key=lambda arc: arc.lower_ns - room[arc])
        self._place_all(worth[:MOST_PLACED])
        self.refine(tiles, _once(step), lambda: self.pack(tiles), guide=upper_table, route=route)

    @property
    def _limit(self) -> int:
        return NO_WAY if self.value is None else self.value

    def _fitting(self, tiles: Chain) -> tuple[int, list[Use]]:
        return fitting_path(self.task.instance, tiles, self._limit)

    def pack(self, tiles: Chain) -> None:
        """Join plans of sections that fit into memory together."""
        length, path = self._fitting(tiles)
        if length < NO_WAY:
            self.found_plan(join(self.task.instance, self.task.semantics, self.maker, path))

    def _place(self, chain: Chain) -> None:
        """Have placers plan the arcs on the path that is likely the shortest, until all are."""
        while not self.over:
            _, path = chain.shortest(expected_table)
            arcs = dict.fromkeys(use.arc for use in path if use.arc.open and not use.arc.steps)
            unplanned = [arc for arc in arcs if arc.placed_ns is None]
            if not unplanned:
                return
            self._place_all(unplanned)

    def _place_all(self, arcs: Iterable[Arc]) -> None:
        for arc in arcs:
            if self.over:
                return
            if arc.placed_ns is None:
                instance = self.maker.make(arc.section, arc.entry, arc.leave)
                start = place(instance, self.task.semantics)
                arc.placed_ns = NO_WAY if start is None else start.value
                if start is not None and arc.upper_ns is None:
                    arc.plan, arc.upper_ns = start

    def _submit(self, chain: Chain, step: Steps, guide: Lengths, route: Route) -> None:
        """Submit jobs on the shortest path, or on the next ones while jobs on that are running."""
        # With several workers one path may have too few arcs. Then arcs with a job count as a
        # little longer, which leads to the path that will be the shortest once they have risen.
        # Three such tries, as each is a shortest path over the whole chain.
        targets: dict[Arc, int] | None = None
        for lengths in (guide, *(lambda uses: _handicapped(uses, guide),) * 3):
            wanted = self.workers.wanted
            if wanted <= 0:
                return
            length, path = route(lengths)
            if length >= NO_WAY:
                return
            todo: list[tuple[int, int, Arc, Step]] = []
            for arc in dict.fromkeys(use.arc for use in path):
                kind = step(arc) if arc.open and arc.ticket is None else None
                # least tried first, then in the order of the path
                if kind is not None:
                    todo.append((arc.undecided, len(todo), arc, kind))
            if todo and targets is None and self.value is not None:
                targets = self._targets(chain, self.value - 1)
            if targets is not None:  # memory may lead a path over arcs that no better plan can use
                todo = [each for each in todo if targets[each[2]] >= each[2].lower_ns]
            for _, _, arc, kind in sorted(todo)[:wanted]:
                self._start(arc, kind, None if targets is None else targets[arc])

    def _targets(self, chain: Chain, limit_ns: int) -> dict[Arc, int]:
        """Horizons for the jobs on arcs: no plan within the limit has longer section schedules."""
        # That is proven with all other arcs at their bounds. A shorter horizon, with the others at
        # their expected times, is refuted far sooner, and mostly raises the path above the limit,
        # too.
        room, likely = chain.room(limit_ns, lower_table), chain.room(limit_ns, expected_table)
        targets = {}
        for arc, most in room.items():
            # at least an eighth of the way up: an expected time at the bound would prove nothing
            # new
            least = arc.lower_ns + max(0, most - arc.lower_ns) // 8
            small = arc.section.num_inner < SMALL
            targets[arc] = most if small else min(most, max(least, likely[arc]))
        return targets

    def _start(self, arc: Arc, kind: Step, horizon_ns: int | None) -> None:
        """Submit one job."""
        # slices of 1, 4, 16 s: an arc that is hard does not keep the path's others waiting
        remaining = self.clock.left_s
        slice_s = FIRST_SLICE_S * SLICE_GROWTH**arc.undecided
        job = Job(
            instance=self.maker.make(arc.section, arc.entry, arc.leave),
            semantics=self.task.semantics,
            step=kind,
            horizon_ns=horizon_ns,
            limit_s=slice_s if remaining is None else min(slice_s, remaining),
            seed=self.task.limits.seed,
            plan=arc.plan,
        )
        arc.ticket, arc.kind = self.workers.submit(job), kind
        self.running[arc.ticket] = arc

    def _learn(self, arc: Arc, answer: SectionAnswer) -> None:
        """Record the answer of a job."""
        self.jobs += 1
        self.interrupted |= answer.interrupted
        self.faults += answer.faults
        arc.ticket = None
        arc.steps += 1
        arc.undecided += arc.kind == "cp" and not answer.decided
        if answer.upper_ns is not None and (arc.upper_ns is None or answer.upper_ns < arc.upper_ns):
            arc.upper_ns, arc.plan = answer.upper_ns, answer.plan
        if answer.lower_ns > arc.lower_ns:
            arc.lower_ns = answer.lower_ns
            arc.proof = PROOFS.index("section lp" if arc.kind == "lp" else "cp-sat")
        arc.final |= answer.final

    def promises(self, chain: Chain, step: Steps) -> bool:
        """Whether refining a chain may raise the bound, by a guess."""
        # A section that can be refined is assumed to take its ops one after the other, each where
        # it is fastest: often no more than that can be proven.
        arrays = self.task.instance.arrays
        least = np.where(arrays.time_ns == UNSUPPORTED, NO_WAY, arrays.time_ns).min(axis=1)

        def guess(uses: list[list[Use]]) -> Ints:
            lengths, section = lower_table(uses), uses[0][0].section
            serial = min(NO_WAY, int(least[list(section.ops)[section.entry is not None :]].sum()))
            for a, row in enumerate(uses):
                for b, use in enumerate(row):
                    if use.arc.open and step(use.arc) is not None:
                        lengths[a, b] = max(lengths[a, b], serial)
            return lengths

        return chain.shortest(guess)[0] > self.bound.value

    def join_plans(self, tiles: Chain, *, exact: bool) -> None:
        """Join the plans of the sections, if that is better than the incumbent."""
        length, path = tiles.shortest(upper_table)
        if length < NO_WAY and (self.value is None or length < self.value):
            plan = join(self.task.instance, self.task.semantics, self.maker, path)
            self.found_plan(plan, length if exact else None)


def expected_table(uses: list[list[Use]]) -> Ints:
    """The times that the arcs of a section are likely to take, at least their bounds."""
    # A placer's plan is assumed to be longer than the optimum by as much as on the section's arcs
    # that are solved.
    # Bounds alone would lead the dive over arcs without jobs, whose bounds are low; here
    # arcs without a plan count at their bound, are planned by placers, and then count fairly.
    arcs = [use.arc for row in uses for use in row]
    proven = [arc for arc in arcs if arc.placed_ns and arc.lower_ns == arc.upper_ns]
    optimal, placed = sum(arc.lower_ns for arc in proven), sum(arc.placed_ns or 0 for arc in proven)
    lengths = lower_table(uses)
    for a, row in enumerate(uses):
        for b, use in enumerate(row):
            arc = use.arc
            if arc.placed_ns is not None and arc.upper_ns is not None:
                guess = arc.placed_ns * optimal // placed if placed else arc.upper_ns
                lengths[a, b] = max(arc.lower_ns, min(arc.upper_ns, guess))
    return lengths


class Runs(NamedTuple):
    """A chain, and its runs under memory."""

    chain: Chain
    runs: MemoryRuns

    def shortest(self, lengths: Lengths) -> tuple[int, list[Use]]:
        """Least cost of runs that fit, and the arcs that it is made of; `NEVER` if none fit."""
        uses = self.chain.uses
        least, ends, _ = self.runs.cheapest([lengths(each) for each in uses])
        return least, [each[a][b] for each, (a, b) in zip(uses, ends, strict=False)]

    def priced(
        self, lengths: Lengths, value_ns: int, stop: Callable[[], bool] = lambda: False
    ) -> Runs:
        """The same runs with the prices of bytes that prove most."""
        tables = [lengths(each) for each in self.chain.uses]
        return self._replace(runs=self.runs.priced(tables, value_ns, stop))


def runs_of(instance: Instance, chain: Chain) -> Runs | None:
    """The runs of a chain under memory; None if memory is slack, or if the chain is too long."""
    known: dict[int, tuple[Ints, Ints]] = {}

    def through(s: int) -> tuple[Ints, Ints]:
        alike = chain.uses[s][0][0].arc.section  # equal sections share it
        if id(alike) not in known:
            known[id(alike)] = ways_through(instance, alike)
        return known[id(alike)]

    runs = memory_runs(instance, chain.sections, chain.before_ns, chain.after_ns, through)
    return None if runs is None else Runs(chain, runs)


class Label(NamedTuple):
    """A path up to a cut: length, bytes needed per device, last arc, and the label before."""

    length_ns: int
    need: tuple[int, ...]
    use: Use | None
    before: Label | None


def fitting_path(instance: Instance, tiles: Chain, limit_ns: int) -> tuple[int, list[Use]]:
    """A short path of arcs with plans that fit into memory together; `NO_WAY` if none is found."""
    # Labels are extended section by section. A label is dropped if another one at its cut and
    # device is no longer and needs no more anywhere, if it cannot end within the limit, or beyond
    # the shortest `MOST_LABELS`: so this is a heuristic.
    # The plan of each arc is its fastest one, and its bytes stay: under the rule `sum` a device
    # holds the bytes of all its ops at once.
    capacity = instance.arrays.memory_bytes.tolist()
    _, back = tiles.distances(lower_table)
    none = tuple(0 for _ in capacity)
    labels = [[Label(int(length), none, None, None)] for length in tiles.before_ns]
    for uses, rest in zip(tiles.uses, back[1:], strict=True):
        found: list[list[Label]] = [[] for _ in rest]
        for here, row in zip(labels, uses, strict=True):
            for b, use in enumerate(row):
                upper, most = use.arc.upper_ns, limit_ns - int(rest[b])
                if upper is None or not here or here[0].length_ns + upper > most:
                    continue
                need = _need(instance, use)
                for label in here:
                    total = tuple(x + y for x, y in zip(label.need, need, strict=True))
                    length = label.length_ns + upper
                    if length <= most and all(x <= y for x, y in zip(total, capacity, strict=True)):
                        found[b].append(Label(length, total, use, label))
        labels = [_undominated(here) for here in found]
    ends = [label for here in labels for label in here[:1]]
    if not ends:
        return NO_WAY, []
    at: Label | None = min(ends, key=lambda label: label.length_ns)
    assert at is not None
    length, path = at.length_ns, []
    while at is not None and at.use is not None:
        path.append(at.use)
        at = at.before
    return length, path[::-1]


def _need(instance: Instance, use: Use) -> tuple[int, ...]:
    """Bytes per device of a section's ops, its entry aside: that belongs to the section before."""
    section, plan = use.section, use.arc.plan
    need = np.zeros(instance.num_devices, np.int64)
    first = section.entry is not None
    if plan is not None:
        device = np.argsort(use.names)[plan.devices]
        np.add.at(need, device[first:], instance.arrays.resident_bytes[list(section.ops[first:])])
    elif use.leave is not None:
        need[use.leave] = instance.arrays.resident_bytes[section.ops[-1]]
    return tuple(need.tolist())


def _undominated(labels: list[Label]) -> list[Label]:
    kept: list[Label] = []
    for label in sorted(labels, key=lambda label: (label.length_ns, label.need)):
        if len(kept) == MOST_LABELS:
            break
        if not any(
            all(x <= y for x, y in zip(other.need, label.need, strict=True)) for other in kept
        ):
            kept.append(label)
    return kept


def join(instance: Instance, semantics: Makespan, maker: SectionMaker, path: Sequence[Use]) -> Plan:
    """The plan that runs the plans of the sections one after the other."""
    # The path has arcs with plans, or of sections without inner ops, that make up the graph.
    # An arc's plan is in the names of the devices for which it was solved: `original` is the
    # inverse of the swap. Times are shifted to the end of the section before; the referee then
    # takes the order of ops and transfers from them.
    device = [0] * instance.num_ops
    op_times = [(0, 0)] * instance.num_ops
    moves: list[tuple[Transfer, int, int]] = []
    now = 0
    for use in path:
        arc, section = use.arc, use.section
        original = [use.names.index(k) for k in range(instance.num_devices)]
        if arc.plan is None:
            ops, transfers, length = _bare(instance, semantics, use)
        else:
            ops, transfers, length = _planned(semantics, maker, use)
            ops = [(original[k], start, end) for k, start, end in ops]
            transfers = [
                (Transfer(move.item, original[move.destination]), start, end)
                for move, start, end in transfers
            ]
        for i, (k, start, end) in zip(section.ops, ops, strict=True):
            if i != section.entry:  # it ended the section before
                device[i], op_times[i] = k, (now + start, now + end)
        items = _items(instance, semantics, section)
        moves += [
            (Transfer(items[move.item], move.destination), now + start, now + end)
            for move, start, end in transfers
        ]
        now += length
    return plan_from_times(instance, semantics, device, op_times, moves)


def _planned(semantics: Makespan, maker: SectionMaker, use: Use) -> Timed:
    """The times of an arc's plan, as the referee simulates its section."""
    arc = use.arc
    assert arc.plan is not None
    schedule = simulate(maker.make(arc.section, arc.entry, arc.leave), arc.plan, semantics)
    ops = list(
        zip(
            schedule.device.tolist(),
            schedule.start_ns.tolist(),
            schedule.end_ns.tolist(),
            strict=True,
        )
    )
    table = schedule.transfers
    columns = (table.item, table.destination, table.start_ns, table.end_ns)
    transfers = [
        (Transfer(item, to), start, end)
        for item, to, start, end in zip(*(c.tolist() for c in columns), strict=True)
    ]
    return ops, transfers, schedule.makespan_ns


def _bare(instance: Instance, semantics: Makespan, use: Use) -> Timed:
    """A section without inner ops: its transfers in turn, or at once if channels are free."""
    arrays, transfers, now = instance.arrays, list[tuple[Transfer, int, int]](), 0
    section, entry, leave = use.section, use.entry, use.leave
    free = semantics.channels == "free"
    if entry is not None and leave is not None and entry != leave:
        items = _items(instance, semantics, section)
        for local, item in enumerate(items):
            tensor = item if semantics.transfers == "per_tensor" else int(arrays.index.tensor[item])
            time = int(arrays.transfer_ns[tensor, arrays.link_class[entry, leave]])
            start = 0 if free else now
            transfers.append((Transfer(local, leave), start, start + time))
            now = max(now, start + time)
    ops = [] if entry is None else [(entry, 0, 0)]
    if leave is not None:
        assert section.exit is not None
        end = now + int(arrays.time_ns[section.exit, leave])
        ops.append((leave, now, end))
        now = end
    return ops, transfers, now


def _items(instance: Instance, semantics: Makespan, section: Section) -> list[int]:
    """The transfers of a section's instance as edges, or tensors, of the whole."""
    if semantics.transfers == "per_edge":
        return list(section.edges)
    return list(dict.fromkeys(instance.arrays.index.tensor[list(section.edges)].tolist()))


def _once(step: Steps) -> Steps:
    return lambda arc: None if arc.steps > 0 else step(arc)


def _handicapped(uses: list[list[Use]], guide: Lengths) -> Ints:
    lengths = guide(uses)
    for a, row in enumerate(uses):
        for b, use in enumerate(row):
            if use.arc.ticket is not None:
                lengths[a, b] = min(NO_WAY, int(lengths[a, b] * (1 + HANDICAP)) + 1)
    return lengths
