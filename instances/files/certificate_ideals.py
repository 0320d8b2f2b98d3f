"""Check that no chain of ideals has a lower max_load: a dynamic program in plain Python.

``python certificate_ideals.py INSTANCE CERTIFICATE`` beside `certificate_checker.py`; nothing but
the standard library. A chain plan gives each device the difference of two ideals, sets of blocks
that contain all that their members need. With T one less than the claimed bound, the check tries
every stage of at most T that any device can take, from every state (ideal, devices used) that it
reaches. If it never reaches the whole graph, the bound holds. There is nothing to believe.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from placegap.instances.files.certificate_checker import MALFORMED, Rejected, Terms
    from placegap.instances.files.certificate_checker import check as check_header
else:  # both files alone, beside each other
    from certificate_checker import MALFORMED, Rejected, Terms
    from certificate_checker import check as check_header

MOST_IDEALS, MOST_STAGES = 100_000, 3_000_000
"""The check gives up beyond."""


class IdealBlocks:
    """Colour classes that need each other, as bits; what they cost, and what tensors cost.

    Attributes
    ----------
    need : list of int
        IdealBlocks that must come before each block, itself included.
    time, bytes : list
        Per block; time per kind of device, infinite where it cannot run.
    source, readers : list of int
        Of each tensor: the block that writes it, and those that read it.
    border : list of list of int
        What a tensor costs at the border of each kind of device.
    count, room : list of int
        Devices of each kind, and their memory.
    """

    def __init__(self, problem: Terms, parts: dict[str, Any]) -> None:
        edges, devices = parts["edges"], parts["devices"]
        block, self.need = _components(problem, [op.get("backward", False) for op in parts["ops"]])
        num, every = len(self.need), range(problem.num)
        time: list[list[Any]] = [[0] * problem.num for _ in range(num)]
        self.bytes = [0] * num
        for i, b in enumerate(block):
            self.bytes[b] += problem.bytes[i]
            for k in every:
                time[b][k] += inf if problem.time[i][k] is None else problem.time[i][k]
        tensors = 1 + max((u for _, _, u in problem.edges), default=-1)
        self.source, self.readers, stated = [0] * tensors, [0] * tensors, [None] * tensors
        for (i, j, u), edge in zip(problem.edges, edges, strict=True):
            self.source[u] = 1 << block[i]
            self.readers[u] |= 1 << block[j]
            stated[u] = edge.get("host_time_ns")
        border = [
            [0 if devices[k].get("is_host") else _border(problem, u, k, stated[u]) for k in every]
            for u in range(tensors)
        ]
        alike: dict[Any, list[int]] = defaultdict(list)
        for k in every:
            column = [row[k] for row in time], [row[k] for row in border], problem.room[k]
            alike[str(column)].append(k)
        first = [members[0] for members in alike.values()]
        self.count, self.room = [len(m) for m in alike.values()], [problem.room[k] for k in first]
        self.time = [[row[k] for k in first] for row in time]
        self.border = [[row[k] for k in first] for row in border]
        self.tensors: list[set[int]] = [set() for _ in range(num)]
        for i, j, u in problem.edges:
            self.tensors[block[i]].add(u)
            self.tensors[block[j]].add(u)

    def pays(self, u: int, stage: int) -> bool:
        """Whether a tensor crosses the border of a stage."""
        read = self.readers[u]
        return bool(read & ~stage) if self.source[u] & stage else bool(read & stage)

    def grown(self, ideal: int) -> Iterator[int]:
        """IdealBlocks by one of which an ideal can grow."""
        for b, need in enumerate(self.need):
            if not ideal >> b & 1 and need & ~ideal == 1 << b:
                yield b

    def stages(self, ideal: int, kind: int, limit: int, overlap: bool) -> Iterator[int]:
        """Ideals that one more device of a kind reaches; -1 for each stage beyond the limit."""
        seen, stack = {ideal}, [(ideal, 0, 0, 0)]
        while stack:
            at, work, held, crossing = stack.pop()
            for b in self.grown(at):
                larger, time = at | 1 << b, work + self.time[b][kind]
                size = held + self.bytes[b]
                if larger in seen or time > limit or size > self.room[kind]:
                    continue
                seen.add(larger)
                before, after, paid = at & ~ideal, larger & ~ideal, crossing
                for u in self.tensors[b]:
                    paid += (self.pays(u, after) - self.pays(u, before)) * self.border[u][kind]
                stack.append((larger, time, size, paid))
                fits = max(time, paid) <= limit if overlap else time + paid <= limit
                yield larger if fits else -1


def _components(problem: Terms, back: list[bool]) -> tuple[list[int], list[int]]:
    """Block of each op, and what each block needs: groups that need each other are one block."""
    orphan = [all(back[i] for i in group) for group in problem.groups]
    arcs, need = set[tuple[int, int]](), [1 << g for g in range(len(problem.groups))]
    for i, j, _ in problem.edges:
        a, b = problem.group[i], problem.group[j]
        if not back[i] and not back[j]:
            arcs.add((a, b))
        elif back[i] and back[j] and (orphan[a] or orphan[b]):
            arcs.add((b, a))
    changed = True
    while changed:
        changed = False
        for a, b in sorted(arcs):
            if need[a] & ~need[b]:
                need[b], changed = need[b] | need[a], True
    masks = list(dict.fromkeys(need))
    number = {mask: at for at, mask in enumerate(masks)}
    block = [number[need[problem.group[i]]] for i in range(len(back))]
    inner = [
        sum(1 << at for at, other in enumerate(masks) if other & mask == other) for mask in masks
    ]
    return block, inner


def _border(problem: Terms, u: int, k: int, stated: int | None) -> int:
    """What a tensor costs a device: as stated, or its least time to or from any other."""
    others, moves = [j for j in range(problem.num) if j != k], problem.moves[u]
    if stated is not None:
        return stated
    return min((min(moves[k][j], moves[j][k]) for j in others), default=0)


def chain_within(
    blocks: IdealBlocks, limit: int, overlap: bool, most_stages: int = MOST_STAGES
) -> bool:
    """Whether some chain of ideals has no load above a limit."""
    full, total = (1 << len(blocks.need)) - 1, sum(blocks.count)
    least = [min(row) for row in blocks.time]
    start = (0, (0,) * len(blocks.count))
    states, stack, ideals, tried = {start}, [start], {0}, 0
    while stack:
        ideal, used = stack.pop()
        for kind in (k for k, count in enumerate(blocks.count) if used[k] < count):
            taken = (*used[:kind], used[kind] + 1, *used[kind + 1 :])
            for larger in blocks.stages(ideal, kind, limit, overlap):
                tried += 1
                if tried > most_stages or len(ideals) > MOST_IDEALS:
                    raise Rejected("it is too large to be checked: too many ideals, or stages")
                if larger == full:
                    return True
                if larger < 0 or (larger, taken) in states:
                    continue
                rest = sum(time for b, time in enumerate(least) if not larger >> b & 1)
                if rest <= limit * (total - sum(taken)):
                    states.add((larger, taken))
                    ideals.add(larger)
                    stack.append((larger, taken))
    return False


def check(document: Any, certificate: Any) -> list[str]:
    """Reject a claim below which there is a chain; no solver's word is needed."""
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
        fits = all(problem.able.values())
        if (
            fits
            and claim
            and chain_within(IdealBlocks(problem, parts), claim - 1, rules["load"] == "overlap")
        ):
            raise Rejected(f"it claims {claim} ns, and some chain takes less")
    except Rejected:
        raise
    except MALFORMED as e:
        raise Rejected(f"it is malformed: {type(e).__name__} {str(e)[:60]!r}") from None
    return []


def main(paths: list[str]) -> int:
    """Print the verdict, and return the exit status: 0 if the certificate holds, else 1."""
    try:
        document, certificate = (json.loads(Path(path).read_bytes()) for path in paths)
        check(document, certificate)
    except (Rejected, OSError, ValueError, RecursionError) as error:
        print(f"{paths[-1:]}: does not hold: {error}")
        return 1
    print(
        f"{paths[-1]}: no chain is below {certificate['bound_ns']} ns, by a proof that was checked"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
