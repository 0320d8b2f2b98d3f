"""Check that no chain of ideals has a lower max_load: a dynamic program in plain Python.

``python certificate_ideals.py INSTANCE CERTIFICATE`` beside `certificate_checker.py`; nothing but
the standard library. A chain plan gives each device the difference of two ideals, sets of blocks
that contain all that their members need. With T one less than the claimed bound, the check tries
every stage of at most T that any device can take, from every state (ideal, devices used) that it
reaches. If it never reaches the whole graph, the bound holds. Nothing is taken on trust.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import inf
from operator import le
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from placegap.instances.certificates.certificate_checker import MALFORMED, Rejected, Terms, main
    from placegap.instances.certificates.certificate_checker import check as check_header
else:  # both files alone, beside each other
    from certificate_checker import MALFORMED, Rejected, Terms, main
    from certificate_checker import check as check_header

# The check gives up beyond. Sets of blocks are bits of integers: n blocks take n * n / 8 bytes.
MOST_BLOCKS, MOST_IDEALS, MOST_STAGES = 20_000, 100_000, 3_000_000
# An ideal, the least time of what is not in it, and the blocks by which it can grow.
State = tuple[int, Any, tuple[int, ...]]


class IdealBlocks:
    """Groups that need each other are one block; what blocks cost, and what tensors cost."""

    def __init__(self, problem: Terms, parts: dict[str, Any], tick: Callable[[], None]) -> None:
        # Ideals are integers with a bit for each group. `tick` is called again and again, and
        # raises when the time is over.
        edges, devices = parts["edges"], parts["devices"]
        self._blocks(problem, [op.get("backward", False) for op in parts["ops"]], tick)
        block, num, every = self.block, len(self.need), range(problem.num)
        time: list[list[Any]] = [[0] * problem.num for _ in range(num)]
        #: time, least, bytes: Per block; time per kind of device, infinite where it cannot run, and
        #: the least of them.
        self.bytes = [0] * num
        for i, b in enumerate(block):
            self.bytes[b] += problem.bytes[i]
            for k in every:
                time[b][k] += inf if problem.time[i][k] is None else problem.time[i][k]
        tensors = 1 + max((u for _, _, u in problem.edges), default=-1)
        #: source, readers: Of each tensor: the block that writes it, and those that read it.
        self.source, self.readers, stated = [0] * tensors, [0] * tensors, [None] * tensors
        for (i, j, u), edge in zip(problem.edges, edges, strict=True):
            self.source[u] = self.own[block[i]]
            self.readers[u] |= self.own[block[j]]
            stated[u] = edge.get("host_time_ns")
        border = list[list[int]]()
        for u in range(tensors):
            tick()
            costs = _borders(problem, u, stated[u])
            border.append([0 if devices[k].get("is_host") else costs[k] for k in every])
        alike: dict[Any, list[int]] = defaultdict(list)
        for k in every:
            column = [row[k] for row in time], [row[k] for row in border], problem.room[k]
            alike[str(column)].append(k)
        first = [members[0] for members in alike.values()]
        #: count, room: Devices of each kind, and their memory.
        self.count, self.room = [len(m) for m in alike.values()], [problem.room[k] for k in first]
        self.time = [[row[k] for k in first] for row in time]
        self.least = [min(row) for row in self.time]
        #: What a tensor costs at the border of each kind of device.
        self.border = [[row[k] for k in first] for row in border]
        self.tensors: list[set[int]] = [set() for _ in range(num)]
        for i, j, u in problem.edges:
            self.tensors[block[i]].add(u)
            self.tensors[block[j]].add(u)

    def _blocks(self, problem: Terms, back: list[bool], tick: Callable[[], None]) -> None:
        """Find which groups need each other, what each block needs, and what follows it."""
        if len(problem.groups) > MOST_BLOCKS:
            raise Rejected("it is too large to be checked: too many blocks")
        orphan = [all(back[i] for i in group) for group in problem.groups]
        arcs, need = set[tuple[int, int]](), [1 << g for g in range(len(problem.groups))]
        for i, j, _ in problem.edges:
            a, b = problem.group[i], problem.group[j]
            if not back[i] and not back[j]:
                arcs.add((a, b))
            elif back[i] and back[j] and (orphan[a] or orphan[b]):
                arcs.add((b, a))
        place = {problem.group[i]: at for at, i in enumerate(problem.order)}
        onward = sorted(arcs, key=lambda arc: (place[arc[0]], place[arc[1]]))
        changed = True
        while changed:
            changed = False
            for a, b in [*onward, *onward[::-1]]:  # there and back: few rounds are needed
                if need[a] & ~need[b]:
                    need[b], changed = need[b] | need[a], True
            tick()
        self.need = list(dict.fromkeys(need))
        number = {mask: at for at, mask in enumerate(self.need)}
        of_group = [number[mask] for mask in need]
        self.block = [of_group[problem.group[i]] for i in range(len(back))]
        self.own = [0] * len(self.need)
        for g, b in enumerate(of_group):
            self.own[b] |= 1 << g
        links = {(of_group[a], of_group[b]) for a, b in arcs}
        self.after: list[list[int]] = [[] for _ in self.need]
        for v, w in sorted(links):
            if v != w:
                self.after[v].append(w)

    def start(self) -> State:
        """The empty ideal."""
        ready = (b for b, need in enumerate(self.need) if need == self.own[b])
        return 0, sum(self.least), tuple(ready)

    def pays(self, u: int, stage: int) -> bool:
        """Whether a tensor crosses the border of a stage."""
        read = self.readers[u]
        return bool(read & ~stage) if self.source[u] & stage else bool(read & stage)

    def stages(self, state: State, kind: int, limit: int, overlap: bool) -> Iterator[State | None]:
        """States that one more device of a kind reaches; None for each stage beyond the limit."""
        ideal, rest, ready = state
        seen, stack = {ideal}, [(ideal, 0, 0, 0, rest, ready)]
        while stack:
            at, work, held, crossing, left, ready = stack.pop()
            for b in ready:
                larger, time = at | self.own[b], work + self.time[b][kind]
                size = held + self.bytes[b]
                if larger in seen or time > limit or size > self.room[kind]:
                    continue
                seen.add(larger)
                before, after, paid = at & ~ideal, larger & ~ideal, crossing
                for u in self.tensors[b]:
                    paid += (self.pays(u, after) - self.pays(u, before)) * self.border[u][kind]
                grown = [c for c in ready if c != b]
                grown += [c for c in self.after[b] if self.need[c] & ~larger == self.own[c]]
                found = larger, left - self.least[b], tuple(grown)
                stack.append((larger, time, size, paid, *found[1:]))
                fits = max(time, paid) <= limit if overlap else time + paid <= limit
                yield found if fits else None


def _borders(problem: Terms, u: int, stated: int | None) -> list[int]:
    """What a tensor costs each device: as stated, or its least time to or from any other."""
    if stated is not None:
        return [stated] * problem.num
    moves, every = problem.moves[u], range(problem.num)
    both = [[*moves[k][:k], *moves[k][k + 1 :]] for k in every]
    for k in every:
        both[k] += [moves[j][k] for j in every if j != k]
    return [min(row, default=0) for row in both]


def chain_within(blocks: IdealBlocks, limit: int, overlap: bool, tick: Callable[[], None]) -> bool:
    """Whether some chain of ideals has no load above a limit."""
    # States are worked through by how many devices they have used. One that has reached the same
    # ideal with no more devices of any kind can do all that another can.
    if inf in blocks.least:
        return False
    full, total, tried = sum(blocks.own), sum(blocks.count), 0
    layer = {((0,) * len(blocks.count), 0): blocks.start()}
    known = defaultdict[int, list[tuple[int, ...]]](list)
    for devices in range(total):
        reached = dict[tuple[tuple[int, ...], int], State]()
        for (used, _), state in layer.items():
            for kind in (k for k, count in enumerate(blocks.count) if used[k] < count):
                taken = (*used[:kind], used[kind] + 1, *used[kind + 1 :])
                for found in blocks.stages(state, kind, limit, overlap):
                    tried += 1
                    if tried > MOST_STAGES or len(known) > MOST_IDEALS:
                        raise Rejected("it is too large to be checked: too many ideals, or stages")
                    if tried % 64 == 0:
                        tick()
                    if found is None:
                        continue
                    larger, rest, _ = found
                    if larger == full:
                        return True
                    if rest > limit * (total - devices - 1):
                        continue
                    if any(all(map(le, other, taken)) for other in known[larger]):
                        continue
                    known[larger].append(taken)
                    reached[taken, larger] = found
        layer = reached
    return False


def check(document: Any, certificate: Any, tick: Callable[[], None] = lambda: None) -> None:
    """Reject a claim below which there is a chain."""
    try:
        graph, cluster = document["graph"], document["cluster"]
        parts = {
            "devices": cluster["devices"],
            "edges": graph.get("edges", []),
            "ops": graph["ops"],
            "links": cluster.get("links", []),
        }
        header = {"kind": "work", "weights": [1] * len(parts["devices"])}
        check_header(document, {**certificate, "bound_ns": 0, "proof": header})
        rules, claim = certificate["semantics"], certificate["bound_ns"]
        plain = (rules["objective"], rules["plans"], rules["replicas"], rules["levels"])
        if plain != ("max_load", "chain", False, 1) or certificate["proof"]["kind"] != "ideals":
            raise Rejected("ideals prove only the max_load of chains on one level")
        if type(claim) is not int or claim < 0:
            raise Rejected(f"{str(claim)[:40]!r} is out of its range")
        problem = Terms(parts, rules)
        if claim and all(problem.able.values()):
            blocks = IdealBlocks(problem, parts, tick)
            if chain_within(blocks, claim - 1, rules["load"] == "overlap", tick):
                raise Rejected(f"it claims {claim} ns, and some chain takes less")
    except Rejected:
        raise
    except MALFORMED as e:
        raise Rejected(f"it is malformed: {type(e).__name__} {str(e)[:60]!r}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], check, "chain is below"))
