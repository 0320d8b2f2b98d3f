"""The bound of repeated layers where memory binds: prices of bytes beside those of time.

A plan that fits pays for no more bytes than there is room. So for any prices of bytes, the least
sum over bottlenecks and windows of their times and their bytes' prices, less the price of all room,
is a bound: layers beyond the room of fast devices count as on slower ones, or behind slow links.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import highspy
import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem.integers import NO_LIMIT
from placegap.solvers.core.back_ends.silent_highs import silent_highs
from placegap.solvers.core.clock import never
from placegap.solvers.core.room_prices import MOST_BITS, RoomPrices, whole_prices
from placegap.solvers.repeated_layers.layer_bound import (
    BIG,
    LayerProof,
    LayerWindow,
    cutting_planes,
    held_bound,
    idle_ns,
    shortest,
    window_bound,
)

ORIGIN = "repeated layers in their room"

MOST_HOLD = 2**40  # ns: most that prices of all bytes may come to, so that sums fit into 64 bits
# Highest price of a byte, as what all bytes come to in parts of the bound without memory; steps;
# and the share by which the program's promise may be above the bound when they end.
DEAREST, MOST_STEPS, GOOD = 4.0, 40, 1e-4


def prove_room(proof: LayerProof, room_bytes: Ints, is_over: Callable[[], bool] = never) -> int:
    """The bound with the best prices of bytes, by cutting planes (Kelley 1960)."""
    # The bound is concave in the prices, and bytes above the room are its slope. The next prices
    # are halfway between the best ones and those of the linear program, which jump at first.
    priced, k = _PricedLayers(proof, room_bytes, is_over), len(room_bytes)
    finite, unit = room_bytes < NO_LIMIT, float(max(1, proof.ns))
    if priced.all_bytes == 0:
        return proof.ns
    solver = silent_highs(threads=1, random_seed=0)
    for d in range(k):
        solver.addVar(0.0, DEAREST if finite[d] else 0.0)
    solver.addVar(0.0, DEAREST + 1.0)
    solver.changeColCost(k, -1.0)
    best, best_ns, now = np.zeros(k), 0, np.zeros(k)
    for _ in range(MOST_STEPS):
        value_ns, used = priced.trial(
            whole_prices(now * unit / priced.all_bytes, priced.all_bytes, MOST_BITS)
        )
        if value_ns > best_ns:
            best, best_ns = now, value_ns
        slope = np.where(finite, used - np.where(finite, room_bytes, 0), 0.0) / priced.all_bytes
        above = value_ns / unit - float(slope @ now)
        columns = np.arange(k + 1, dtype=np.int32)
        solver.addRow(-highspy.kHighsInf, above, k + 1, columns, np.append(-slope, 1.0))
        solver.run()
        found = np.array(solver.getSolution().col_value)
        if found[k] * unit - best_ns <= GOOD * best_ns or is_over():
            break
        now = (found[:k] + best) / 2
    return max(proof.ns, best_ns)


class _PricedLayers:
    """The windows of a proof, and what they take at least without prices of bytes."""

    def __init__(self, proof: LayerProof, room_bytes: Ints, is_over: Callable[[], bool]) -> None:
        self.windows, self.room, self.is_over = proof.windows, room_bytes, is_over
        pairs = [*product(range(len(room_bytes)), repeat=2)]
        self.floor = [window.longest.copy() for window in self.windows.kinds]
        for (w, _, _), prices in proof.prices.items():
            for a, b in pairs:
                proven = window_bound(self.windows.kinds[w], self.windows.channel, prices, a, b)
                self.floor[w][a, b] = max(self.floor[w][a, b], proven)
        numbers = np.bincount(self.windows.which, minlength=len(self.floor)).tolist()
        in_windows = sum(
            n * _bytes_of(window) for n, window in zip(numbers, self.windows.kinds, strict=True)
        )
        self.all_bytes = in_windows + int(self.windows.held.sum()) + self.windows.beside

    def trial(self, room: RoomPrices) -> tuple[int, Floats]:
        """The bound at some prices, and the bytes on each device where it is reached."""
        k, windows = len(self.room), self.windows
        each = np.array(room.each or [0] * k, np.int64)
        prices = RoomPrices(tuple(each.tolist()), room.shift)
        if int(each.max()) * self.all_bytes >> room.shift > MOST_HOLD:
            return 0, np.zeros(k)
        own = windows.time_ns + ((windows.held[:, None] * each) >> room.shift)
        alone = np.append(np.zeros(windows.num_machines, np.int64), 1)
        least = [floor.copy() for floor in self.floor]
        for w, a, b in product(range(len(least)), range(k), range(k)):
            least[w][a, b] = self._held_ns(alone, prices, w, a, b)
        mixtures = dict[tuple[int, int, int], Floats]()
        while True:
            value, path = shortest(windows, least, own)
            on_path = [(windows.which[s], a, b) for s, (a, b) in enumerate(path)]
            new = {key for key in on_path if windows.kinds[key[0]].trees} - mixtures.keys()
            if not new or self.is_over():
                break
            for w, a, b in sorted(new):
                window, floor = windows.kinds[w], int(self.floor[w][a, b])
                idle = idle_ns(window, windows.channel, windows.num_machines, a, b)
                known, hold = np.where(idle <= floor, idle, 0), each / 2.0**room.shift
                found, mixtures[w, a, b] = cutting_planes(
                    window, windows.channel, known, hold, a, b, floor
                )
                # prices of one pair are good for others
                for c, d in product(range(k), range(k)):
                    if (w, c, d) == (w, a, b) or (w, c, d) not in mixtures:
                        proven = self._held_ns(found, prices, w, c, d)
                        least[w][c, d] = max(least[w][c, d], proven)
        cheapest = int(each.argmin())
        used = np.zeros(k)
        np.add.at(used, [path[0][0], *(b for _, b in path)], windows.held)
        for key in on_path:
            used += mixtures.get(key, 0.0)
        used[cheapest] += windows.beside
        value += (windows.beside * int(each[cheapest])) >> room.shift
        value -= prices.worth_ns(self.room)
        return value, used

    def _held_ns(self, found: Ints, prices: RoomPrices, w: int, a: int, b: int) -> int:
        """What prices prove of a window and its bytes, up to `BIG`."""
        floor = int(self.floor[w][a, b])
        given = self.windows.kinds[w], self.windows.channel, found, prices, a, b, floor
        return min(BIG, held_bound(*given))


def _bytes_of(window: LayerWindow) -> int:
    """Bytes of a window's branches."""
    trees = zip(window.trees, window.counts, strict=True)
    return sum(int(tree.held.sum()) * count for tree, count in trees)
