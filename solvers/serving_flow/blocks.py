"""Plans of blocks one behind another, which a small MIP chooses for one rate after another.

A block is a number of layers that all tokens pass: by one machine, or by lanes side by side, each
a row of a few machines that all pass the lane's rate. Machines of one kind and group are counted
by the MIP, and lanes that waste too much by the prices of a bound are left out, so it has some
hundred columns and takes milliseconds. Links of the rate join machines to groups (`flow_prices`).
Groups follow each other in some order; between two there is a block of lanes which each cross over
one link that passes the lane's rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations_with_replacement, pairwise, permutations
from math import comb
from typing import NamedTuple

import highspy
import numpy as np
from scipy.sparse import csr_array

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem.flow_problem import SOURCE, FlowProblem, Range, Ranges
from placegap.solvers.bounds.flow_prices import terms_of
from placegap.solvers.core.back_ends.outcome import THREADS
from placegap.solvers.core.back_ends.silent_highs import silent_highs

MOST_ROWS = 400  # rows of machines for a lane: of four machines if there are seven kinds
LONGEST_ROW = 4
# What a block may waste, in layers at the mean price: inside a group, and between two.
WASTE, BORDER_WASTE = 0.5, 3.0
MOST_BLOCKS = 500  # columns of a MIP
MOST_GROUPS = 4  # all orders of as many groups are tried; of more, the largest ones
MIP_S = 2.0  # a MIP that takes longer is given up; most take 0.05 s


Uses = tuple[tuple[int, int], ...]  # classes, and how many machines of each


class Lane(NamedTuple):
    """Classes of machines in a row, and what each of them passes."""

    classes: tuple[int, ...]
    rate: int


class FlowBlock(NamedTuple):
    """Lanes that hold the same layers."""

    layers: int
    lanes: tuple[Lane, ...]
    uses: Uses


class FlowBlocks:
    """The blocks for one rate."""

    def __init__(
        self, problem: FlowProblem, rate: int, prices: Floats, *, alone: bool = False
    ) -> None:
        # with `alone`, no lanes are side by side
        self.problem, self.rate, self.alone = problem, rate, alone
        group, _ = terms_of(problem).groups(rate)
        kinds = [machine.kind for machine in problem.machines]
        #: The machines of each class, and its group.
        self.members: dict[tuple[str, int], list[int]] = {}
        for i, key in enumerate(zip(kinds, group, strict=True)):
            self.members.setdefault(key, []).append(i)
        self.of_class = [*self.members.values()]
        self.group = [one for _, one in self.members]
        self.tables = [
            np.array(problem.tables[kind][: problem.num_layers]) for kind, _ in self.members
        ]
        worth = prices / prices.sum() * problem.num_layers
        self.price = np.array([worth[own].mean() for own in self.of_class])
        works = [
            len(own) * (table * np.arange(1, len(table) + 1)).max()
            for own, table in zip(self.of_class, self.tables, strict=True)
        ]
        size = Counter[int]()
        for one, work in zip(self.group, works, strict=True):
            size[one] += int(work)
        self._found = dict[tuple[int, ...], list[FlowBlock]]()
        self.groups = [one for one, _ in size.most_common(MOST_GROUPS)]

    def deepest(self, rate: int) -> Ints:
        """The most layers with which each class passes a rate."""
        able = [np.flatnonzero(table >= rate) for table in self.tables]
        return np.array([hs[-1] + 1 if len(hs) else 0 for hs in able])

    def inside(self, group: int) -> list[FlowBlock]:
        """The blocks of one group's machines."""
        own = [k for k, one in enumerate(self.group) if one == group]
        deep = self.deepest(self.rate)
        single = [
            FlowBlock(int(deep[k]), (Lane((k,), self.rate),), ((k, 1),)) for k in own if deep[k]
        ]
        return single if self.alone else single + self._lanes(own, self.rate, WASTE)

    def between(self, first: int, second: int) -> list[FlowBlock]:
        """Blocks whose lanes each cross from a group to another one."""
        rates = self.problem.rates
        own = [[k for k, one in enumerate(self.group) if one == g] for g in (first, second)]
        ends = [[i for k in classes for i in self.of_class[k]] for classes in own]
        across = rates[np.ix_(*ends)]
        limit = int(across.max(initial=0))
        if self.alone or limit == 0:
            return []

        def able(lane: Lane) -> Flags:
            """Links that a lane may cross by."""
            at = sum(self.group[k] == first for k in lane.classes)
            a = self.of_class[lane.classes[at - 1]] if at else ends[0]
            b = self.of_class[lane.classes[at]] if at < len(lane.classes) else ends[1]
            return np.asarray(rates[np.ix_(a, b)] >= lane.rate)

        def crosses(one: Lane, two: Lane) -> bool:
            """Whether there are links for two lanes, if need be from one machine, or to one."""
            links = able(one), able(two)
            for axis, end, group in ((1, 0, second), (0, -1, first)):
                k, other = one.classes[end], two.classes[end]
                if self.group[k] == self.group[other] == group:
                    # that of the lower rate has links wherever the other one does
                    few, many = (each.sum(axis=axis) for each in reversed(links))
                    return bool(((few > 0) & (many > (k == other))).any())
            return all(each.any() for each in links)

        # classes of the first group come first in a lane
        splits = np.unique(across[across > 0])
        return self._lanes([*own[0], *own[1]], limit, BORDER_WASTE, splits, crosses)

    def _lanes(
        self,
        own: list[int],
        limit: int,
        waste: float,
        splits: Ints | None = None,
        able: Callable[[Lane, Lane], bool] = lambda one, two: True,
    ) -> list[FlowBlock]:
        """Blocks of two lanes within a rate, or of as many equal ones as are needed."""
        long = next(r for r in range(LONGEST_ROW, 0, -1) if _num_rows(len(own), r) < MOST_ROWS)
        rows = [row for r in range(1, long + 1) for row in combinations_with_replacement(own, r)]
        table = np.array([(*row, *[-1] * (long - len(row))) for row in rows])  # -1: no machine
        price = np.append(self.price, 0.0)[table].sum(axis=1)
        count = max(2, -(-self.rate // limit))
        pairs = [np.zeros((0, 6))]
        for rate in self._splits(limit, splits) if count == 2 else [-(-self.rate // count)]:
            other = max(self.rate - rate, 0) if count == 2 else rate
            one, two = (self._depth(table, each) for each in (rate, other))
            both = np.minimum(one[:, None], two[None, :])
            lost = price[:, None] + (count - 1) * price[None, :] - both
            a, b = np.nonzero((both > 0) & (lost <= waste))
            rates = np.full((len(a), 2), (-rate, other))
            pairs.append(np.column_stack([lost[a, b], rates, both[a, b], a, b]))
        # of blocks that use the same machines, one of most layers comes first, and of even rates
        ordered = np.concatenate(pairs)
        ordered = ordered[np.lexsort((ordered[:, 1], ordered[:, 0].round(9)))]
        found = dict[Uses, FlowBlock]()
        for _, rate, other, both, a, b in ordered.tolist():
            last = Lane(rows[int(b)], int(other))
            lanes = (Lane(rows[int(a)], -int(rate)), *[last] * (count - 1))
            numbers = Counter(chain.from_iterable(lane.classes for lane in lanes))
            uses = tuple(sorted(numbers.items()))
            fits = all(number <= len(self.of_class[k]) for k, number in uses)
            if uses not in found and fits and able(*lanes[:2]):
                found[uses] = FlowBlock(int(both), lanes, uses)
                if len(found) == MOST_BLOCKS:
                    break
        return [*found.values()]

    def _splits(self, limit: int, more: Ints | None) -> list[int]:
        """Smaller rates of two lanes at which one of them can hold more layers, or has a link."""
        rates = np.concatenate([*self.tables, [self.rate // 2], [] if more is None else more])
        rates = np.unique(np.minimum(rates, self.rate - rates))
        return [int(rate) for rate in rates if rate > 0 and self.rate - rate <= limit]

    def _depth(self, rows: Ints, rate: int) -> Ints:
        """How many layers each row can hold at a rate; 0 where one of its machines cannot."""
        deep = self.deepest(rate)
        held: Ints = np.append(deep, 0)[rows].sum(axis=1)
        return np.where(np.append(deep > 0, True)[rows].all(axis=1), held, 0)

    def orders(self) -> Iterator[tuple[int, ...]]:
        """Groups in a row, the longest rows first."""
        for length in range(len(self.groups), 0, -1):
            yield from permutations(self.groups, length)

    def choose(self, order: Sequence[int], limit_s: float) -> list[list[FlowBlock]] | None:
        """Blocks for groups in an order, with those between them, that hold all layers."""
        parts = [self._known(order[0])]
        for pair in pairwise(order):
            parts += [self._known(*pair), self._known(pair[1])]
        blocks = [*chain.from_iterable(parts)]
        if sum(map(bool, parts[1::2])) < len(order) - 1 or not blocks:
            return None
        part = np.repeat(np.arange(len(parts)), [*map(len, parts)])
        num, rows = len(self.of_class), len(self.of_class) + len(parts) // 2
        matrix = np.zeros((rows + 1, len(blocks)))
        for j, block in enumerate(blocks):
            for k, number in block.uses:
                matrix[k, j] = number
            if part[j] % 2:
                matrix[num + part[j] // 2, j] = 1
            matrix[rows, j] = block.layers
        count = [float(len(own)) for own in self.of_class]
        ones = [1.0] * (rows - num)
        layers = float(self.problem.num_layers)
        low = [*[0.0] * num, *ones, layers]
        found = _solve(matrix, low, [*count, *ones, highspy.kHighsInf], limit_s)
        if found is None:
            return None
        return [
            [block for j, block in enumerate(blocks) for _ in range(found[j]) if part[j] == at]
            for at in range(len(parts))
        ]

    def _known(self, *groups: int) -> list[FlowBlock]:
        if groups not in self._found:
            find = self.inside if len(groups) == 1 else self.between
            self._found[groups] = find(*groups)
        return self._found[groups]

    def held(self, lane: Lane, layers: int) -> list[int] | None:
        """How many layers each machine of a lane holds; None where they cannot hold as many."""
        able = [np.flatnonzero(self.tables[k] >= lane.rate) + 1 for k in lane.classes]
        ways: dict[int, list[int]] = {0: []}
        for hs in able:
            ways = {total + h: [*own, h] for total, own in ways.items() for h in hs.tolist()}
        return ways.get(layers)

    def place(self, parts: list[list[FlowBlock]], seed: int) -> Ranges | None:
        """Ranges of machines for blocks: of each class, those with the best links from the last."""
        rng, rates = np.random.default_rng(seed), self.problem.rates
        blocks = [part[at] for part in parts for at in rng.permutation(len(part))]
        sizes = self._trimmed(blocks, rng)
        if sizes is None:
            return None
        left = [[own[at] for at in rng.permutation(len(own))] for own in self.of_class]
        ranges: list[Range | None] = [None] * self.problem.num_machines
        last, start = [SOURCE], 0
        for block, layers in zip(blocks, sizes, strict=True):
            ends = list[int]()
            for lane in block.lanes:
                before, at = last, start
                for k, h in zip(lane.classes, self.held(lane, layers) or [], strict=True):
                    reach = np.minimum(rates[np.ix_(before, left[k])], lane.rate).sum(axis=0)
                    i = left[k].pop(int(reach.argmax()))
                    ranges[i], at, before = Range(at, h), at + h, [i]
                ends += before
            last, start = ends, start + layers
        return tuple(ranges)

    def _trimmed(self, blocks: list[FlowBlock], rng: np.random.Generator) -> list[int] | None:
        """How many layers each block holds, where they hold more than all together."""
        sizes = [block.layers for block in blocks]
        over = sum(sizes) - self.problem.num_layers
        for at in rng.permutation(len(blocks)).tolist():
            while over > 0 and self._fits(blocks[at], sizes[at] - 1):
                sizes[at], over = sizes[at] - 1, over - 1
        fits = all(map(self._fits, blocks, sizes))
        return sizes if over == 0 and fits else None

    def _fits(self, block: FlowBlock, layers: int) -> bool:
        return all(self.held(lane, layers) is not None for lane in block.lanes)


def _num_rows(classes: int, most: int) -> int:
    """How many rows of several and up to `most` machines there are."""
    return sum(comb(classes + r - 1, r) for r in range(2, most + 1))


def _solve(
    matrix: Floats, low: Sequence[float], high: Sequence[float], limit_s: float
) -> list[int] | None:
    """Numbers of blocks that keep all rows; the last one, of layers, is made as large as can be."""
    rows = csr_array(matrix)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = -matrix[-1]
    lp.col_lower_, lp.col_upper_ = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], 1e3)
    lp.row_lower_, lp.row_upper_ = np.array(low), np.array(high)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = rows.indptr, rows.indices
    lp.a_matrix_.value_ = rows.data
    lp.integrality_ = [highspy.HighsVarType.kInteger] * matrix.shape[1]
    highs = silent_highs(threads=THREADS, time_limit=limit_s, objective_target=0.5 - low[-1])
    highs.passModel(lp)
    highs.run()
    if highs.getInfo().primal_solution_status != highspy.kSolutionStatusFeasible:
        return None
    return [round(x) for x in highs.getSolution().col_value]
