"""Methods that hang, crash and fail, for the tests of the pool; importing this registers them."""

import math
import os
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from placegap.instances.problem import Makespan, Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import METHODS, Method, Outcome, Task
from placegap.solvers.core.method import Params
from placegap.solvers.core.progress import report
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Bound, no_plan


class Fake(Params):
    device: int = 0
    seconds: float = Field(default=0.0, ge=0)
    bound: int | None = None
    kind: str = "plan"
    fault: str = ""
    tells: bool = False  # of its plan, before it sleeps; there is a file "now" then
    dies: bool = False  # after that


def run(task: Task, params: Params) -> Outcome:
    """Everything on one device; the kind says what goes wrong, never in the warm-up."""
    assert isinstance(params, Fake)
    is_warm_up = task.instance.graph.name in ("diamond", "layered-2")
    kind = "plan" if is_warm_up else params.kind
    if kind == "crash":
        os.kill(os.getpid(), 9)
    if kind == "error":
        raise RuntimeError("two\nlines")
    if kind == "none":
        return Outcome(message="found nothing")
    if kind == "infeasible":
        return Outcome(bound=no_plan(), message="proved it")
    details: dict[str, Any] = {"text": {"nodes": "many"}, "nan": {"x": math.nan}}.get(kind, {})
    if kind != "plan" and not details:
        raise AssertionError(kind)
    bound = None if is_warm_up or params.bound is None else Bound(params.bound, "fake")
    plan = Plan.on([params.device] * task.instance.num_ops)
    if not is_warm_up:
        if params.tells:
            value_ns = evaluate(task.instance, plan, task.semantics).value_ns
            report(task.instance, task.semantics, NAME, value=value_ns, bound=bound, plan=plan)
            Path("now").touch()
        if params.dies:
            os.kill(os.getpid(), 9)
        time.sleep(params.seconds)
        if "PLACEGAP_TEST_ENDED" in os.environ:
            Path(os.environ["PLACEGAP_TEST_ENDED"], f"ended-{task.limits.seed}").touch()
    return Outcome(
        plan=plan,
        bound=bound,
        faults=(params.fault,) if params.fault else (),
        details={"tries": 1, **details},
    )


def applies(task: Task, params: Params) -> str | None:
    if isinstance(task.semantics, Makespan) and task.semantics.channels == "free":
        return "the fake does not do free"
    return None


NAME = "fake"
if NAME not in METHODS:
    register(
        Method(
            name=NAME,
            claim="heuristic",
            objectives=("makespan", "max_load"),
            paper="none",
            summary="a fake",
            run=run,
            params=Fake,
            applies=applies,
        )
    )
