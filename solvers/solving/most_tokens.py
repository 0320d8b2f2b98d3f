"""max_context: the most tokens for which a plan has room, by questions about loads.

Whether n tokens fit is a question of max_load: has the instance whose ops hold the caches of
n tokens a plan, and one of a load that is allowed? More tokens have fewer plans. So each answer
leaves a part of the numbers in between: a plan has room for as many tokens as the referee says, and
where no plan exists, or none below the load, there is room for none of the larger numbers.
"""

from __future__ import annotations

from itertools import count

from placegap.instances.problem import Instance, MaxContext, Plan
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import as_input_error
from placegap.solvers.bounds.cheap_bounds import ROOM
from placegap.solvers.core.clock import USUAL_S, Clock
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.objective import proofs
from placegap.solvers.core.progress import Known, report, say
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Bound, Outcome, Result, no_plan
from placegap.solvers.objectives.context import most_tokens
from placegap.solvers.solving.run_method import SolveOptions, run_method

SHARE = 0.25  # of the time left, for a question: several open ones leave time for easier ones
ANY_PLAN = 0.999  # the gap that suffices where no load is too large

TOO_LARGE = "times or bytes are too large for the methods that prove loads"


@method(
    "most-tokens", objectives=("max_context",), claim="exact", paper="placegap", packages=("numba",)
)
def run(task: Task[MaxContext], params: Params) -> Outcome:
    """Bisection of the tokens; each step is a max_load problem.

    At first whether any fit, and as many as the memory of all devices holds; then, for B numbers in
    between, at most log2 B questions.
    """
    limit_s = task.limits.time_limit_s
    clock = Clock(USUAL_S if limit_s is None else limit_s)
    instance, semantics = task.instance, task.semantics
    least_open = most_tokens(instance) + 1
    known, message = Known(rules=semantics, bound=Bound(least_open - 1, ROOM)), ""
    report(instance, semantics, ROOM, bound=known.bound)
    known.offer_plan(task, task.incumbent and Plan(task.incumbent.placement))
    for questions in count():
        fits = -1 if known.value is None else known.value
        if fits + 1 >= least_open:
            break
        if questions and clock.is_over():
            message = "stopped at the time limit"
            break
        tokens = 0 if fits < 0 else least_open - 1 if questions == 1 else (fits + least_open) // 2
        say(f"looking for a plan with room for {tokens} tokens")
        found = _plan_for(task, tokens, clock)
        if found is None:
            message = f"not known whether {tokens} tokens fit: {TOO_LARGE}"
            break
        if known.offer_plan(task, found.plan and Plan(found.plan.placement)):
            report(instance, semantics, "most-tokens", value=known.value, plan=known.plan)
        if known.value is not None and known.value >= tokens:
            continue
        if _proves_none(found, semantics):
            least_open = tokens
            bound = Bound(tokens - 1, found.bound_origin or found.method, found.rests_on)
            if tokens == 0:
                return Outcome(bound=no_plan(bound.basis), message=found.message)
            known.prove(bound)
            message = ""
            report(instance, semantics, bound.origin, bound=bound)
        else:
            least_open = tokens
            message = f"not known whether {tokens} tokens fit: {found.message or found.status}"
        if found.message == "interrupted":
            break
    return Outcome(
        plan=known.plan,
        claim=known.value,
        bound=known.bound,
        faults=tuple(known.faults),
        message=message,
        details={"questions": questions},
    )


def _plan_for(task: Task[MaxContext], tokens: int, clock: Clock) -> Result | None:
    """The result of the method that proves most loads, for ops that hold caches of `tokens`."""
    # None if there is none for numbers so large.
    loads, full = task.semantics.loads, with_tokens(task.instance, tokens)
    # column generation does not prove that there is no plan, and the IP, the last of all, does
    steps = [*proofs(Task(full, loads))]
    if not steps:
        return None
    step = steps[0 if loads.plans == "chain" else -1]
    gap = ANY_PLAN if task.semantics.at_most_ns is None else 0.0
    left_s = None if clock.left_s is None else max(0.05, SHARE * clock.left_s)
    options: SolveOptions = {"time_limit_s": left_s, "gap": gap, "seed": task.limits.seed}
    return run_method(full, loads, step.method, step.params, **options)


def with_tokens(instance: Instance, tokens: int) -> Instance:
    """The instance whose ops hold the caches of a number of tokens."""
    # An op that no limited memory holds has a byte more than the largest: its own bytes may be
    # beyond 64 bits.
    limits = [device.memory_bytes for device in instance.cluster.devices]
    beyond = min(LARGEST_SUM, 1 + max((limit for limit in limits if limit is not None), default=0))
    ops = tuple(
        op.model_copy(update={"resident_bytes": min(op.bytes_at(tokens), beyond), "caches": ()})
        if op.caches
        else op
        for op in instance.graph.ops
    )
    with as_input_error(source=instance.name):  # sums beyond 2**62
        return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def _proves_none(found: Result, semantics: MaxContext) -> bool:
    """Whether no plan with this many tokens is allowed."""
    if found.status == "infeasible":
        return True
    limit_ns = semantics.at_most_ns
    return limit_ns is not None and found.bound_value is not None and found.bound_value > limit_ns
