"""The best chain where idle blocks hold bytes: solved without their bytes first, then with them.

Idle blocks that join a neighbour leave few ideals (`instances.structure.idle_blocks`). Where that
is exact one run is enough. Where their bytes may matter, in this order, until value and bound meet:

1. The bytes *move* along: slices alone give a plan. Up to its load many a device's memory cannot
   end (`memory.idle_memory`), and if that goes for all of them, joining is exact after all.
2. The bytes are *dropped*: a relaxation. Mostly it proves that nothing is better than the plan,
   or its own plan turns out to fit.
3. The bytes move along, searched to the end: a restriction, and so a better plan perhaps.
4. The relaxation's best plan overfills some devices. The largest of the blocks that do it stay
   alone from now on, and the last two steps are done again: more ideals, but between a bound and a
   value that are close by now. In the end all such blocks are alone, and that is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from placegap.instances.problem.array_types import Flags
from placegap.instances.problem.blocks import Blocks, IdleRule
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.chains.bracket import Bracket
from placegap.solvers.chains.idle_steps import roomy_within
from placegap.solvers.core.clock import LimitReached, now_s
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import teller
from placegap.solvers.core.result import relative_gap

B = TypeVar("B", bound=Bracket)


class Misfit(Exception):
    """Some block fits no device at all."""

    def __init__(self, blocks: Blocks, block: int) -> None:
        super().__init__()
        self.blocks, self.block = blocks, block


@dataclass
class Steps(Generic[B]):
    """The steps, and what is known after each: also where a limit ends one.

    Attributes
    ----------
    task : Task[MaxLoad]
    start : callable (IdleRule, bracket or None) -> bracket
        Under a rule; from a bracket whose blocks stay as they are if those were exact.
    max_ideals : int
    value, plan, lower, origin
        As of brackets.
    last : bracket or None
        The one whose ideals were looked at last.
    impossible : bool
        No chain of ideals fits.
    build_s : float
    """

    task: Task[MaxLoad]
    start: Callable[[IdleRule, B | None], B]
    max_ideals: int
    value: int | None = None
    plan: Plan | None = None
    lower: int = 0
    origin: str = "combinatorial"
    last: B | None = None
    impossible: bool = False
    build_s: float = 0.0
    _reached: LimitReached | None = None

    def run(self) -> None:
        """All steps.

        Raises
        ------
        Misfit
            If a block fits no device.
        LimitReached
            If a limit is hit.
        """
        replicated = self.task.semantics.replicas
        rule = IdleRule("move", parameters=replicated)
        self._offer(self.task.incumbent)
        moved = self._start(rule)
        exact = moved.problem.blocks.exact
        strict = moved if exact else self._start(replace(rule, bytes="count"))
        self._check(strict)
        self.last = strict
        moved.lower = strict.lower  # the one of `moved` is no bound where bytes moved
        self._proven(strict)
        self._work(moved, moved.cut, proves=exact)
        if not exact:
            self._known(strict)
            self._work(strict, strict.cut)
        if self._done:
            return
        roomy = self._roomy(moved)
        if roomy is not None:
            rule = replace(rule, roomy=roomy)
            moved = self._start(rule, moved)
            exact = moved.problem.blocks.exact
        while not exact:
            overfull = self._without_bytes(rule)
            if self._done:
                return
            self._known(moved)
            self._work(moved, partial(moved.close_in_time, self.max_ideals), proves=False)
            if self._done:
                return
            if self._reached is not None:
                raise self._reached
            rule = replace(rule, alone=overfull)
            moved = self._start(rule)
            exact = moved.problem.blocks.exact
            self._work(moved, moved.cut, proves=exact)
        self._work(moved, partial(moved.close_in_time, self.max_ideals))
        self.impossible = self.value is None

    @property
    def _done(self) -> bool:
        gap = relative_gap(self.value, self.lower)
        return self.impossible or (gap is not None and gap <= self.task.limits.gap)

    def _start(self, rule: IdleRule, known: B | None = None) -> B:
        began = now_s()
        bracket = self.start(rule, known)
        self.build_s += now_s() - began
        self._known(bracket)
        return bracket

    def _offer(self, plan: Plan | None) -> None:
        """Take over a plan if it is feasible and better."""
        if plan is None:
            return
        verdict = evaluate(self.task.instance, plan, self.task.semantics)
        value = verdict.value_ns
        if verdict.feasible and value is not None and (self.value is None or value < self.value):
            self.value, self.plan = value, plan

    def _known(self, bracket: B) -> None:
        """Tell a bracket what is known."""
        if self.value is not None and (bracket.value is None or self.value < bracket.value):
            bracket.adopt(self.value, self.plan)
        if self.lower > bracket.lower:
            bracket.lower, bracket.origin = self.lower, self.origin

    def _proven(self, bracket: B) -> None:
        if bracket.lower > self.lower:
            self.lower, self.origin = bracket.lower, bracket.origin

    def _work(self, bracket: B, work: Callable[[], None], *, proves: bool = True) -> None:
        """Work on a bracket of real plans, and take over what it learns."""
        if bracket.problem.fits.any(axis=0).all():
            self.last = bracket
            told = teller(self.task.instance, self.task.semantics, "ideal-dp")
            bracket.on_news = told if proves else lambda value_ns, _: told(value_ns, None)
            bracket.proves = proves
            try:
                work()
            finally:
                if bracket.value is not None and (self.value is None or bracket.value < self.value):
                    self.value, self.plan = bracket.value, bracket.plan
                if proves:
                    self._proven(bracket)

    def _check(self, bracket: B) -> None:
        fits = bracket.problem.fits.any(axis=0)
        if not fits.all():
            raise Misfit(bracket.problem.blocks, int(np.argmin(fits)))

    def _roomy(self, bracket: B) -> Flags | None:
        """Devices whose memory cannot end in better plans, if there are any that are not roomy."""
        if self.value is None:
            return None
        semantics = self.task.semantics
        known = bracket.problem.blocks.roomy
        replicas = self.task.instance.num_devices if semantics.replicas else 1
        roomy = roomy_within(self.task.instance, self.value - 1, replicas)
        return None if (known | ~roomy).all() else roomy

    def _without_bytes(self, rule: IdleRule) -> Flags:
        """A bound, and the optimum if the best plan without the bytes fits with them.

        Which ops must stay alone, in addition to those that do, if it does not fit.
        """
        dropped = self._start(replace(rule, bytes="drop"))
        self.last, value = dropped, dropped.value
        none = np.zeros(self.task.instance.num_ops, np.bool_)
        before = none if rule.alone is None else rule.alone
        more = none
        try:
            if value is None:
                dropped.cut()
            dropped.close_in_time(self.max_ideals)
            self.impossible = dropped.value is None
        except LimitReached as limit:
            self._reached = limit  # after the next step, which may find a better plan
        finally:
            self._proven(dropped)
        if dropped.value != value and dropped.plan is not None:
            self._offer(dropped.plan)
            more = overfilling(self.task.instance, dropped.plan, dropped.problem.blocks.held)
        return before | more if (more & ~before).any() else ~none


def overfilling(instance: Instance, plan: Plan, held: Flags) -> Flags:
    """The largest ops, of those not `held`, without which all others fit their devices; (n,).

    Examples
    --------
    Ops of 5 and 3 bytes, of which neither is held, on a device of 4 bytes:

    >>> from placegap.instances import Cluster, Device, Graph, Op
    >>> ops = tuple(Op(name=f"{size}", time_ns={"gpu": 0}, resident_bytes=size) for size in (3, 5))
    >>> gpu = Device(name="gpu", kind="gpu", memory_bytes=4)
    >>> instance = Instance(name="i", graph=Graph(name="g", ops=ops, edges=()),
    ...                     cluster=Cluster(name="c", devices=(gpu,), links=()))
    >>> overfilling(instance, Plan.on([0, 0]), np.array([False, False])).tolist()
    [False, True]
    """
    size, found = instance.arrays.resident_bytes, np.zeros(len(held), np.bool_)
    for k in range(instance.num_devices):
        here = np.array([k in devices for devices in plan.placement])
        left = int(size[here].sum()) - int(instance.arrays.memory_bytes[k])
        loose = np.flatnonzero(here & ~held)
        for i in loose[np.argsort(-size[loose], kind="stable")].tolist():
            if left <= 0:
                break
            found[i] = True
            left -= int(size[i])
    return found
