"""Lower bounds on max_load from compute alone: what accelerators and hosts can do in a time.

In time T, k accelerators do at most k T of accelerator work. Hosts relieve them: of all blocks that
both kinds run, c hosts take in at most the fractional knapsack's optimum for capacity c T, where a
block's value is its time on an accelerator and its size its time on a host.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem


class Relief:
    """The fractional knapsack of a problem, in exact integers.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> Relief(build_problem(example())).absorbed(10**9)  # there is no host
    0
    """

    def __init__(self, problem: ChainProblem) -> None:
        value: list[int] = problem.time[ACCELERATOR].tolist()
        size: list[int] = problem.time[HOST].tolist()
        accelerators, hosts = problem.counts
        fits = problem.need <= problem.room[:, None]
        both = (fits[ACCELERATOR] & fits[HOST]).tolist()
        items = [v for v in range(len(value)) if both[v] and value[v] and accelerators and hosts]
        self.free = sum(value[v] for v in items if size[v] == 0)
        items = [v for v in items if size[v]]
        # 128 fractional bits separate any two different ratios of numbers below 2^62
        items.sort(key=lambda v: -((value[v] << 128) // size[v]))
        self.values = [0, *accumulate(value[v] for v in items)]
        self.sizes = [0, *accumulate(size[v] for v in items)]

    def absorbed(self, capacity: int) -> int:
        """Most accelerator work that hosts can take in with so much host time, rounded down.

        Rounding down is safe: what a plan puts on hosts is an integer.
        """
        at = bisect_right(self.sizes, capacity) - 1
        whole = self.free + self.values[at]
        if at == len(self.sizes) - 1:
            return whole
        value = self.values[at + 1] - self.values[at]
        size = self.sizes[at + 1] - self.sizes[at]
        return whole + value * (capacity - self.sizes[at]) // size


def work_bound(problem: ChainProblem, relief: Relief) -> int:
    """Least T in which all compute can be done; a lower bound on every plan's max_load.

    The heaviest block on its better device, and the total: blocks that only one kind can run stay
    there, the rest is split at will.

    Examples
    --------
    43 ns of work on two devices:

    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> problem = build_problem(example())
    >>> work_bound(problem, Relief(problem))
    22
    """
    time, fits = problem.time.tolist(), (problem.need <= problem.room[:, None]).tolist()
    accelerators, hosts = problem.counts
    on_accelerators = on_hosts = low = 0
    for v in range(problem.num_blocks):
        choices = [time[kind][v] for kind in (ACCELERATOR, HOST) if fits[kind][v]]
        low = max(low, min(choices))
        if fits[ACCELERATOR][v]:
            on_accelerators += time[ACCELERATOR][v]
        else:
            on_hosts += time[HOST][v]

    def possible(limit: int) -> bool:
        spare = hosts * limit - on_hosts
        return spare >= 0 and on_accelerators - relief.absorbed(spare) <= accelerators * limit

    high = max(low, on_accelerators + on_hosts)
    while low < high:
        middle = (low + high) // 2
        if possible(middle):
            high = middle
        else:
            low = middle + 1
    return low
