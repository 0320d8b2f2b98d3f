"""One part of `auto` in a process of its own: it runs steps, and tells what they find.

What the parent sends is an order, or None to end. What it hears is ``ready`` with the seconds spent
on compiling, then `News` or a `Bound` while a step runs, then a `Result`, a text that says why
there is none, or a `Contradiction`. Before it is ready it may say that it compiles.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

from placegap.instances.problem.example import example, tight_example
from placegap.instances.problem.instance import Instance
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.plan import Plan
from placegap.instances.structure.bottlenecks import memory_is_slack
from placegap.solvers.bounds.cheap_bounds import Bound
from placegap.solvers.bounds.portfolio import improving_bounds
from placegap.solvers.core.clock import compiled_s, while_compiling
from placegap.solvers.core.interrupts import STOP, end_orderly, interruptible, stop_asked
from placegap.solvers.core.progress import Listener, each_plan_once
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import SolverDisagreement
from placegap.solvers.core.worker_process import WorkerProcess, silence
from placegap.solvers.solving.auto.board import Answer, Contradiction
from placegap.solvers.solving.auto.rules import BOUNDS, AutoStep
from placegap.solvers.solving.solve import solve

NICE = 5
"""The search for plans gives way to the proof where there are fewer cores than threads."""

DIES_FIRST = "500"
"""Where memory runs out, Linux ends a part before the process that holds the best plan."""


COMPILING = "compiling"
"""Said before ``ready`` by a part that has kernels to compile."""


class Order(NamedTuple):
    """A step, with what the other parts know by now."""

    step: AutoStep
    limit_s: float
    gap: float
    incumbent: Plan | None
    value_ns: int | None


def run_step(
    instance: Instance,
    order: Order,
    listener: Listener | None,
    take_bound: Callable[[Bound], None],
) -> Answer:
    """The result of a step, judged; a sentence where it failed, none after bounds alone."""
    step = order.step
    try:
        if step.method == BOUNDS:
            for bound in improving_bounds(
                instance, step.semantics, order.limit_s, best_ns=order.value_ns
            ):
                take_bound(bound)
            return ""
        return solve(
            instance,
            step.semantics,
            step.method,
            step.params,
            time_limit_s=order.limit_s,
            gap=order.gap,
            seed=step.seed,
            incumbent=order.incumbent,
            progress=listener,
        )
    except KeyboardInterrupt:
        return "interrupted"
    except InputError as error:
        return str(error)
    except MemoryError:
        return "out of memory"
    except SolverDisagreement as error:
        return Contradiction(" ".join(str(error).split()))
    except Exception as error:  # the other parts go on
        if stop_asked():  # a compiler that is interrupted fails with an error of its own
            return "interrupted"
        return " ".join(f"{type(error).__name__}: {error}".split())


def serve(pipe: Connection, packed: bytes, is_nice: bool) -> None:
    """Life of a part: one step after another, until None comes or the parent is gone."""
    instance: Instance = pickle.loads(packed)
    silence()
    _be_modest(is_nice)
    signal.signal(STOP, end_orderly)
    lock, is_tight = threading.Lock(), not memory_is_slack(instance)

    def send(message: object) -> None:
        with lock:  # solvers tell of news from threads of their own
            pipe.send(message)

    warm: set[str] = set()
    while (order := pipe.recv()) is not None:
        if order.step.method not in warm:
            warm.add(order.step.method)
            with while_compiling(lambda: send(COMPILING)):
                warm_up(order.step, is_tight=is_tight)
        send(("ready", compiled_s()))
        if (limit_s := pipe.recv()) is None:
            return
        with interruptible():
            timed = order._replace(limit_s=limit_s)
            answer = run_step(instance, timed, each_plan_once(send), send)
        send(answer)


def _be_modest(is_nice: bool) -> None:
    if is_nice:
        with contextlib.suppress(OSError):
            os.nice(NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(DIES_FIRST)


def warm_up(step: AutoStep, *, is_tight: bool) -> None:
    """Load the method, and compile its kernels, before its clock begins.

    Where memory `is_tight`, those too that only such instances need.
    """
    few = {} if step.method == BOUNDS else METHODS[step.method].params.little_effort()
    for small in (example(), tight_example()) if is_tight else (example(),):
        with contextlib.suppress(Exception):  # what fails here fails in the run itself
            if step.method == BOUNDS:
                for _ in improving_bounds(small, step.semantics, 2.0):
                    pass
            else:
                solve(small, step.semantics, step.method, {**step.params, **few}, time_limit_s=2.0)


def start_part(packed: bytes, *, is_nice: bool) -> WorkerProcess:
    """A process that serves steps of an instance, which is pickled once for all of them.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    return WorkerProcess(serve, (packed, is_nice), alone=not is_nice)
