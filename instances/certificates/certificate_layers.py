"""Check a bound on graphs of repeated layers: prices of what lies between bottlenecks.

``python certificate_layers.py INSTANCE CERTIFICATE`` beside `certificate_checker.py`; nothing but
the standard library. A certificate names ops in a row, each behind the one before. From the end of
one (*fork*) to the start of the next (*join*) is a *window* of T ns, in which all ops behind the
fork and before the join run. Device or channel r is busy for load[r] <= T - head[r] - tail[r] of
it: paths tell when it can begin, and what must follow. So for any prices p >= 0, T times their sum
is at least the sum of p[r] (load[r] + head[r] + tail[r]); heads and tails longer than T is known to
be are left out, as r may be unused then. The loads cost no less than in the cheapest placement, by
a dynamic program in which an op with n readers is n copies, each for an n-th of its cost. The bound
is a shortest path over the devices of the ops in a row.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from functools import partial
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from placegap.instances.certificates.certificate_checker import Terms, check, main, need, whole
else:  # both files alone, beside each other
    from certificate_checker import Terms, check, main, need, whole

Prices = dict[int, int]  # of the devices, and of channel c as number K + c


class Window(NamedTuple):
    """The ops behind one op and before another, in topological order."""

    fork: int
    join: int
    ops: list[int]
    #: Edges into the ops and the join: consumer, producer, tensor, and how many edges of the window
    #: may be one transfer. Of those from fork to join only the tensors.
    edges: list[tuple[int, int, int, int]]
    direct: list[int]


class LayerTerms(Terms):
    """An instance under a semantics, and what prices prove of it."""

    def layers(self, proof: Any) -> Any:
        """A shortest path over the devices of ops in a row, and the windows between them."""
        prices, chosen = [*map(self._prices, proof["prices"])], proof["windows"]
        before, windows, after = self.windows([whole(i, len(self.time)) for i in proof["ops"]])
        need(len(chosen) == len(windows), f"it has {len(windows)} windows, not {len(chosen)}")
        least, known = self.ends(before)[before[-1]], dict[Any, list[list[Any]]]()
        for window, own in zip(windows, chosen, strict=True):
            key = self._key(window), *(whole(p, len(prices)) for p in own)
            if key not in known:
                known[key] = self.table(window, [prices[p] for p in own])
            least = [
                min(map(sum, zip(least, column, strict=True))) + (time or 0)
                for column, time in zip(known[key], self.time[window.join], strict=True)
            ]
        last, tail = after[-1], self.ends(after, back=True)
        return min(least[k] + tail[last][k] - self.time[last][k] for k in self.able[last])

    def _prices(self, row: Any) -> Prices:
        channels = {self.num + whole(c): whole(p) for c, p in row.get("channels", [])}
        return dict(zip(range(self.num), map(whole, row["devices"]), strict=True)) | channels

    def windows(self, ops: list[int]) -> tuple[list[int], list[Window], list[int]]:
        """What is before some ops in a row, the windows between them, and what is behind them."""
        # The first list ends with the first of the ops; the other goes backward, to the last one.
        place, last, first = {i: s for s, i in enumerate(ops)}, dict[int, int](), dict[int, int]()
        for j in self.order:  # the last of the ops with a path to j
            near = (self.edges[e][0] for e in self.into[j])
            last[j] = max((place.get(i, last[i]) for i in near), default=-1)
        for i in reversed(self.order):  # the first of them with a path from i
            near = (self.edges[e][1] for e in self.out[i])
            first[i] = min((place.get(j, first[j]) for j in near), default=len(ops))
        in_row = ops and [last[i] for i in ops] == [*range(-1, len(ops) - 1)]
        need(in_row, "its ops are not in a row, each behind the one before")
        inner: list[list[int]] = [[] for _ in range(len(ops) + 1)]
        for i in self.order:
            if first[i] == last[i] + 1:
                inner[first[i]].append(i)
        windows = [*map(self._window, ops, ops[1:], inner[1:])]
        return [*inner[0], ops[0]], windows, [*inner[-1][::-1], ops[-1]]

    def _window(self, fork: int, join: int, ops: list[int]) -> Window:
        inside, count = {fork, *ops}, Counter[int]()
        into = [self.edges[e] for j in (*ops, join) for e in self.into[j]]
        into = [edge for edge in into if edge[0] in inside]
        if self.rules["transfers"] == "per_tensor":
            count.update(u for _, _, u in into)
        edges = [(j, i, u, count[u] or 1) for i, j, u in into if (i, j) != (fork, join)]
        return Window(fork, join, ops, edges, [u for *ends, u in into if ends == [fork, join]])

    def _key(self, window: Window) -> str:
        """Equal for windows with equal tables."""
        at = {i: n for n, i in enumerate((window.fork, *window.ops, window.join))}
        ops = [(self.time[i], sorted(self.able[i])) for i in at]
        edges = [(at[j], at[i], self.moves[u], n) for j, i, u, n in window.edges]
        return str((ops, edges, [self.moves[u] for u in window.direct]))

    def table(self, window: Window, rows: list[Prices]) -> list[list[Any]]:
        """The least time of a window; rows by the device of the join, columns by the fork's."""
        fork, join, ops, *_ = window
        heads, tails, found = list[Any](), list[Any](), [[inf] * self.num for _ in range(self.num)]
        for k in range(self.num):
            alone = [0 if k == other else inf for other in range(self.num)]
            heads.append(self.ends([*ops, join], start={fork: alone}))
            tails.append(self.ends(ops[::-1], back=True, start={join: alone}))
        spans = self._spans(window, heads, tails) if rows else {}
        for a in self.able[fork]:
            costs = [self._costs(window, price, a) for price in rows]
            for b in self.able[join]:
                least = heads[a][join][b] - self.time[join][b]
                idle = self._idle(spans, a, b)
                for price, cost in zip(rows, costs, strict=True):
                    least = _raised(price, cost[b], idle, least)
                found[b][a] = least
        return found

    def _costs(self, window: Window, price: Prices, a: int) -> dict[int, int]:
        """The least cost of a window behind a fork on device a, by the device of the join."""
        every, cost = range(self.num), {window.fork: {a: 0}}
        rate = [[sum(price.get(r, 0) for r in self._used(c, d)) for d in every] for c in every]
        readers = Counter(i for _, i, _, _ in window.edges)
        cost |= {j: {d: price[d] * self.time[j][d] for d in self.able[j]} for j in window.ops}
        cost[window.join] = dict.fromkeys(self.able[window.join], 0)
        for j, i, u, n in window.edges:  # an op's own inputs come before its readers
            for d in cost[j]:
                cost[j][d] += min(
                    each // readers[i] + rate[c][d] * self.moves[u][c][d] // n
                    for c, each in cost[i].items()
                )
        return cost[window.join]

    def _used(self, c: int, d: int) -> list[int]:
        """The device of an op (c = d), or the channels of a transfer."""
        return [c] if c == d else [self.num + channel for channel in self.on(c, d)]

    def _spans(self, window: Window, heads: list[Any], tails: list[Any]) -> dict[Any, list[Any]]:
        """Least heads by the fork's device, then tails by the join's, of ops and of transfers."""
        # Those of a transfer out of the fork or into the join count where these are on its devices.
        spans = defaultdict[Any, list[Any]](lambda: [inf] * 2 * self.num)
        for i in window.ops:
            for k in self.able[i]:
                both = [end[i][k] - self.time[i][k] for end in (*heads, *tails)]
                spans[k, k, None, None] = [*map(min, spans[k, k, None, None], both)]
        for j, i, u, _ in window.edges:
            for c, d in product(self.able[i], self.able[j]):
                key = c, d, c if i == window.fork else None, d if j == window.join else None
                if self.moves[u][c][d]:
                    both = [*(head[i][c] for head in heads), *(tail[j][d] for tail in tails)]
                    spans[key] = [*map(min, spans[key], both)]
        return spans

    def _idle(self, spans: dict[Any, list[Any]], a: int, b: int) -> dict[int, Any]:
        """Head and tail of each device and channel that a window may use, together."""
        both = defaultdict[int, list[Any]](lambda: [inf, inf])
        for (c, d, start, end), least in spans.items():
            if start in (None, a) and end in (None, b):
                for r in self._used(c, d):
                    both[r] = [*map(min, both[r], (least[a], least[self.num + b]))]
        return {r: head + tail for r, (head, tail) in both.items()}


def _raised(price: Prices, cost: int, idle: dict[int, Any], least: int) -> int:
    """What prices prove of a window that lasts at least some time."""
    total = sum(price.values())
    while total:
        waits = sum(p * idle[r] for r, p in price.items() if p and idle.get(r, inf) <= least)
        proven = -(-(cost + waits) // total)
        if proven <= least:
            break
        least = proven  # the heads and tails of more devices and channels count then
    return least


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], partial(check, terms=LayerTerms)))
