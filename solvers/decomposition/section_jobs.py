"""Jobs: one step on an arc of the section graph, by the section LP or CP-SAT; and their processes.

A job is self-contained and can be pickled: worker processes run it as well as the process itself.
Workers are new processes (`worker_process`), and start only after a while, so that small problems
never wait for one. A process that is itself one of many workers starts none and runs all jobs
itself.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Literal

from placegap.formulations.shared.times import granularity_ns
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.reading.errors import paused_collector
from placegap.solvers.core.back_ends.outcome import bound_ns
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Limits, Start, Task
from placegap.solvers.core.result import Bound, no_plan, refutation, solver_and_version
from placegap.solvers.core.starts import best_start
from placegap.solvers.core.worker_process import WorkerProcess, may_start_processes, silence

Step = Literal["lp", "cp"]

# Placers whose plans of the section, ends pinned, CP-SAT starts from.
PLACERS = ("heft", "peft", "etf", "single-device")
SPAWN_AFTER_S = 1.0  # processes start only after this time, as to start them takes about as long


@dataclass(frozen=True)
class Job:
    """A step on a section whose ends are pinned."""

    instance: Instance  # the section (`sections.SectionMaker`)
    semantics: Makespan
    step: Step
    horizon_ns: int | None  # only schedules of at most this length matter
    limit_s: float
    seed: int
    plan: Plan | None  # the best plan known for the section


@dataclass(frozen=True)
class SectionAnswer:
    """The result of a job."""

    #: The section takes no less; `NO_WAY` if it has no schedule, one more than the horizon if it
    #: has none of interest.
    lower_ns: int
    upper_ns: int | None = None  # time of `plan`
    plan: Plan | None = None
    final: bool = False  # whether another step would be useless
    decided: bool = False  # whether it proved the least time, or that none is within the horizon
    interrupted: bool = False  # whether Ctrl-C ended it
    #: A solver's claim that contradicts a known plan; nothing else here comes from that solve.
    faults: tuple[str, ...] = ()


def work(job: Job) -> SectionAnswer:
    """Do a job."""
    plan, upper = job.plan, None
    if plan is not None:
        upper = simulate(job.instance, plan, job.semantics).makespan_ns
    else:
        start = place(job.instance, job.semantics)
        if start is not None:
            plan, upper = start
    # No schedule within a given horizon: the section takes more than that. No schedule within the
    # time of all ops and transfers in a row: there is none at all.
    horizon = job.instance.arrays.serial_horizon_ns if job.horizon_ns is None else job.horizon_ns
    beyond = NO_WAY if job.horizon_ns is None else job.horizon_ns + 1
    if upper is not None and upper <= horizon:
        horizon = upper
    known = SectionAnswer(0, upper, plan)
    step = _lp if job.step == "lp" else _cp
    return step(job, known, horizon, beyond)


def place(instance: Instance, semantics: Makespan) -> Start | None:
    """The best plan of some placers for a section, or None."""
    return best_start(Task(instance, semantics), PLACERS)


def _lp(job: Job, known: SectionAnswer, horizon: int, beyond: int) -> SectionAnswer:
    # Pyomo takes a second to load, and small graphs need no LP
    import pyomo.environ as pyo

    from placegap.formulations import sections
    from placegap.solvers.core.back_ends.highs import solve_model
    from placegap.solvers.models.lp_bounds import LONGEST

    with paused_collector():
        model = sections.build(job.instance, job.semantics, horizon_ns=horizon)
    found = solve_model(model, Limits(job.limit_s), relax=True, most=LONGEST)
    where = f"{solver_and_version('highspy')} on {job.instance.name}"
    within = known.upper_ns is not None and known.upper_ns <= horizon
    # a solver that contradicts a known plan is wrong somewhere: nothing of this solve counts
    if found.ending == "infeasible" and within:
        wrong = refutation(no_plan(), known.upper_ns, job.semantics)
        return replace(known, faults=(f"{where}: {wrong}",))
    if found.ending == "infeasible":
        return replace(known, lower_ns=beyond, decided=True)
    # values are multiples of the granularity, to which the bound is rounded up; and the LP knows
    # nothing of schedules beyond its horizon, which take at least one more
    unit = pyo.value(model.unit_ns)
    bound = bound_ns(found.dual_bound, unit, granularity_ns(job.instance, transfers=True)) or 0
    wrong = refutation(Bound(bound), known.upper_ns, job.semantics) if within else ""
    if wrong:
        return replace(known, faults=(f"{where}: {wrong}",))
    return replace(
        known, lower_ns=min(bound, horizon + 1), interrupted=found.ending == "interrupted"
    )


def _cp(job: Job, known: SectionAnswer, horizon: int, beyond: int) -> SectionAnswer:
    from placegap.formulations.makespan_cp import build, extract, warm_start
    from placegap.solvers.core.back_ends.cp_sat import Settings, run_cp_sat

    # the horizon is the plan's own time if that is less: CP-SAT is to find that plan, or a better
    # one
    model = build(job.instance, job.semantics, horizon_ns=horizon, symmetry=True)
    if known.plan is not None and known.upper_ns is not None and known.upper_ns <= horizon:
        warm_start(model, job.instance, known.plan)
    settings = Settings(limit_s=job.limit_s, seed=job.seed)
    found = run_cp_sat(model, extract, settings, known.upper_ns)
    known = replace(known, interrupted=found.interrupted, faults=found.faults)
    if found.infeasible:
        return replace(known, lower_ns=beyond, decided=True)
    upper, plan = known.upper_ns, known.plan
    if found.value_ns is not None and (upper is None or found.value_ns < upper):
        upper, plan = found.value_ns, found.plan
    decided = found.ending in ("optimal", "refused", "fault")
    # a far better plan gives the next step a finer unit
    final = decided and (model.exact or upper is None or upper > horizon // 2)
    lower = found.bound_ns or 0
    return replace(known, lower_ns=lower, upper_ns=upper, plan=plan, final=final, decided=decided)


class SectionWorkers:
    """Runs jobs in at most `number` processes at a time; 1: this process alone."""

    def __init__(self, number: int) -> None:
        self.number = number if may_start_processes() else 1
        self._began = now_s()
        self._queue: deque[tuple[int, Job]] = deque()
        self._workers: list[_Worker] = []
        self._failed = False
        self._count = 0

    def __enter__(self) -> SectionWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def wanted(self) -> int:
        """How many more jobs would find a worker."""
        # until the first process is ready, this one does a job at a time
        self._start_processes()
        ready = [worker for worker in self._workers if worker.ready]
        idle = sum(worker.ticket is None for worker in ready)
        return (idle if ready else 1) - len(self._queue)

    def submit(self, job: Job) -> int:
        """Queue a job; its ticket comes back with the answer."""
        self._count += 1
        self._queue.append((self._count, job))
        return self._count

    def answers(self, patience_s: float | None) -> list[tuple[int, SectionAnswer]]:
        """The answers of some jobs, as soon as there are any; none if patience ends."""
        self._feed()
        # without a worker at a job, this process runs the next one, which blocks for its time limit
        busy = [worker for worker in self._workers if worker.ticket is not None]
        if not busy:
            ticket, job = self._queue.popleft()
            return [(ticket, work(job))]
        found: list[tuple[int, SectionAnswer]] = []
        readable = wait([worker.pipe for worker in busy], timeout=patience_s)
        for worker in busy:
            if worker.pipe in readable:
                ticket, answer = worker.receive()
                if answer is None:  # it died: run its job here
                    self._failed = True
                    self._workers.remove(worker)
                    worker.kill()
                    self._queue.appendleft((ticket, worker.job))
                else:
                    found.append((ticket, answer))
        return found

    def close(self) -> None:
        """End all processes now."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def _feed(self) -> None:
        for worker in self._workers:
            if self._queue and worker.ready and worker.ticket is None:
                worker.send(*self._queue.popleft())

    def _start_processes(self) -> None:
        waited = now_s() - self._began
        if self.number == 1 or self._failed or self._workers or waited < SPAWN_AFTER_S:
            return
        try:
            for _ in range(self.number):
                self._workers.append(_Worker())
        except OSError:  # no more processes: those that there are must do
            self._failed = not self._workers


class _Worker:
    """One process, the parent's end of its pipe, and its job."""

    def __init__(self) -> None:
        self.process = WorkerProcess(_serve)
        self.pipe = self.process.pipe
        self.ticket: int | None = None
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has started and takes jobs."""
        if not self._ready and self.pipe.poll():
            with contextlib.suppress(EOFError, OSError):
                self._ready = self.pipe.recv() == "ready"
        return self._ready

    def send(self, ticket: int, job: Job) -> None:
        self.ticket, self.job = ticket, job
        with contextlib.suppress(BrokenPipeError):  # reading from the pipe shows that it died
            self.pipe.send(job)

    def receive(self) -> tuple[int, SectionAnswer | None]:
        assert self.ticket is not None
        ticket, self.ticket = self.ticket, None
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return ticket, None
        if isinstance(answer, BaseException):
            raise answer
        return ticket, answer

    def kill(self) -> None:
        """End the process now."""
        self.process.kill()


def _serve(pipe: Connection) -> None:
    """The loop of a worker process."""
    silence()
    pipe.send("ready")
    while True:
        job = pipe.recv()
        try:
            answer: SectionAnswer | BaseException = work(job)
        except Exception as error:  # raised again by the parent
            answer = error
        pipe.send(answer)
