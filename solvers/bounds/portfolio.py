"""All bounds on one instance, cheapest first, and which of them is the highest."""

from __future__ import annotations

from collections.abc import Iterator

from placegap.instances.problem import Instance, Makespan, Semantics
from placegap.instances.problem.additive_memory import relax_memory
from placegap.solvers.bounds.cheap_bounds import method_bound, quick_bound
from placegap.solvers.bounds.frontier_paths import MORE_ROWS, frontier_bound
from placegap.solvers.bounds.labels.layer_chain import CHAIN, chain_bound
from placegap.solvers.bounds.labels.layers_bound import search_layers
from placegap.solvers.bounds.labels.memory_runs import memory_bound
from placegap.solvers.bounds.work_windows import WorkWindows, window_bound, work_windows
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.core.objective import strategy
from placegap.solvers.core.result import Bound, is_better
from placegap.solvers.repeated_layers.sections import bottlenecks_of

# Origins of bounds: work between heads and tails; a chain there and back, and the work beside it;
# memory along a chain of intervals, and along the order of the colocation groups.
WINDOWS, LAYERS, INTERVALS, FRONTIER = (
    "work windows",
    "nested layers",
    "memory chain",
    "memory frontier",
)

# Microseconds of windows per op and edge; as their steps and ancestors are limited, seconds at most
# (4 on eight clones of ResNet_200, with 540,893 ops and edges).
WINDOWS_US, MOST_WINDOWS_S = 40.0, 5.0
# Microseconds of layers between bottlenecks per op and edge (0.1 to 0.4 s on 5,000 to 50,000 ops
# of equal ones), most of these, and the share of the time for their prices, which are many where
# few layers are equal (500 of 20 ops: 4 s, and 20 s with prices of their own).
REPEATS_US, MOST_REPEATS, REPEATS_SHARE = 10.0, 300_000, 0.5
MOST_METHOD_S = 10.0  # for the registry's own bounds, where there is no limit


def bound(
    instance: Instance,
    semantics: Semantics,
    time_limit_s: float | None = None,
    *,
    best_ns: int | None = None,
) -> Bound:
    """The best bound that the portfolio proves within a time limit.

    Parameters
    ----------
    instance : Instance
    semantics : Semantics
    time_limit_s : float, optional
        The cheapest bound is computed in any case; without a limit, all are.
    best_ns : int, optional
        Value of a known plan: the search ends once a bound reaches it, and some bounds need fewer
        guesses.

    Returns
    -------
    Bound
        In nanoseconds, with its name and basis. It holds for every plan of the semantics, whatever
        `best_ns` is.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> found = bound(example(), Makespan())
    >>> found.value, found.origin, found.basis
    (34, 'work windows', 'proof')
    """
    best = Bound(0, "")
    for found in improving_bounds(instance, semantics, time_limit_s, best_ns=best_ns):
        best = found
    return best


def improving_bounds(
    instance: Instance,
    semantics: Semantics,
    time_limit_s: float | None = None,
    *,
    best_ns: int | None = None,
) -> Iterator[Bound]:
    """The bounds of `bound` one by one, each higher than those before it."""
    # The caller may work in between, and may stop at any time.
    task = Task(instance, semantics, Limits(time_limit_s))
    best = quick_bound(instance, semantics)
    yield best
    yield from expensive_bounds(task, best, best_ns=best_ns)


def expensive_bounds(
    task: Task, known: Bound, share: float = 1.0, *, best_ns: int | None = None
) -> Iterator[Bound]:
    """Bounds beyond a known one, each higher than those before it, cheapest first."""
    # `known` is from `quick_bound`, or better. Bounds that are likely to take longer than a `share`
    # of the task's time are left out, and those after one that reaches `best_ns`.
    clock, best = task.limits.clock().part(share), known
    for found in _all_bounds(task, known, clock):
        if is_better(best.value, found.value, task.semantics):
            best = found
            yield best
        if clock.is_over() or (best_ns is not None and best.value >= best_ns):
            return


def _all_bounds(task: Task, known: Bound, clock: Clock) -> Iterator[Bound]:
    bounds = strategy(task).bounds
    if bounds is not None:
        yield from bounds(task, known, clock)
    left_s = clock.left_s
    if left_s is None or left_s > 0:
        nothing = known if task.semantics.is_maximized else Bound(0, "")
        yield method_bound(task, nothing, MOST_METHOD_S if left_s is None else left_s)


def makespan_bounds(task: Task[Makespan], known: Bound, clock: Clock) -> Iterator[Bound]:
    """Work between heads and tails, layers between bottlenecks, chains in memory, nested layers."""
    relaxed, _ = relax_memory(task.instance, task.semantics)
    somewhere = relaxed.arrays.possible.any(axis=1).all()
    likely_s = min(1e-6 * WINDOWS_US * task.instance.num_parts, MOST_WINDOWS_S)
    if not somewhere:
        return
    fits = clock.left_s is None or likely_s <= clock.left_s
    windows, least = work_windows(relaxed, task.semantics) if fits else None, known.value
    if windows is not None:
        by_work = Bound(window_bound(windows), WINDOWS)
        yield by_work
        least = max(least, by_work.value)
    for found in _between_bottlenecks(relaxed, task.semantics, clock):
        yield found
        least = max(least, found.value)
    if windows is None:
        return
    if not relaxed.arrays.memory_is_slack:
        at_peak = None if relaxed is task.instance else task.instance
        in_layers = chain_bound(relaxed, at_peak, clock.part(0.5).is_over)
        yield Bound(in_layers, CHAIN)
        least = max(least, in_layers)
        for found in _in_memory(relaxed, task.semantics, windows, least, clock):
            yield found
            least = max(least, found.value)
    layers = search_layers(relaxed, task.semantics, windows, least, clock.is_over)
    yield Bound(least if layers is None else layers.ns, LAYERS)


def _between_bottlenecks(relaxed: Instance, semantics: Makespan, clock: Clock) -> Iterator[Bound]:
    """Prices of what lies between bottlenecks, of equal sections once."""
    likely_s = 1e-6 * REPEATS_US * relaxed.num_parts
    if relaxed.num_parts > MOST_REPEATS or (clock.left_s is not None and likely_s > clock.left_s):
        return
    bottlenecks = bottlenecks_of(relaxed)
    if len(bottlenecks.ops) < 2:
        return
    # brings HiGHS and numba
    from placegap.solvers.repeated_layers import room_bound
    from placegap.solvers.repeated_layers.layer_bound import ORIGIN, prove_layers

    arrays, part = relaxed.arrays, clock.part(REPEATS_SHARE)
    held = None if arrays.memory_is_slack else arrays.resident_bytes
    proof = prove_layers(relaxed, semantics, bottlenecks, part.is_over, held)
    if proof is None:
        return
    yield Bound(proof.ns, ORIGIN)
    if held is not None:
        in_room = room_bound.prove_room(proof, arrays.memory_bytes, part.is_over)
        yield Bound(in_room, room_bound.ORIGIN)


def _in_memory(
    relaxed: Instance, semantics: Makespan, windows: WorkWindows, least_ns: int, clock: Clock
) -> Iterator[Bound]:
    """Bounds of memory that binds: runs of a chain, then frontiers from there."""
    in_runs = memory_bound(relaxed, windows)
    yield Bound(in_runs, INTERVALS)
    least_ns = max(least_ns, in_runs)
    first = frontier_bound(relaxed, semantics, least_ns, clock.is_over)
    yield Bound(first, FRONTIER)
    if first > least_ns:  # where the frontier proves something, more labels may prove more
        more = frontier_bound(relaxed, semantics, first, clock.part(0.5).is_over, MORE_ROWS)
        yield Bound(more, FRONTIER)
