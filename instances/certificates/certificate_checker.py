"""Check a certificate of a lower bound, with nothing but Python's standard library.

``python certificate_checker.py INSTANCE CERTIFICATE`` derives all times from the instance, and
compares what the proof's integers prove with the claimed bound. It trusts no number: any
multipliers prove something (docs/trust.md). Ops, edges and devices count from 0, in order.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from graphlib import TopologicalSorter
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

Able = dict[int, frozenset[int]]
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
NULL = {"state_bytes", "memory_bytes", "host_time_ns", "flops", "bytes_moved"}  # null is not 0


class Rejected(Exception):
    """The certificate does not prove its bound; the message says why, in one line."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Rejected(why)


def whole(value: Any, most: float = inf, least: float = 0) -> int:
    need(type(value) is int and least <= value < most, f"{str(value)[:40]!r} is out of its range")
    return int(value)


def vector(value: Any, length: int) -> list[int]:
    need(isinstance(value, list) and len(value) == length, f"a list must have {length} numbers")
    return [whole(number) for number in value]


def digest(parts: dict[str, Any], throughputs: Any = None) -> str:
    """SHA-256 of devices, edges, links and ops as JSON, without defaults and kernels."""
    kept = {
        name: [
            {
                f: v
                for f, v in row.items()
                if v is not None
                and (f in NULL or v not in (0, [], {}))
                and (name, f, v) != ("ops", "kind", "op")
                and (name, f) != ("ops", "kernel")
            }
            for row in rows
        ]
        for name, rows in parts.items()
    }
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    if throughputs:
        text = f'{text[:-1]},"throughputs":{json.dumps(throughputs)}}}'
    return hashlib.sha256(text.encode()).hexdigest()


class Terms:
    """Times, sizes, groups and edges of an instance under a semantics, all in integers."""

    def __init__(self, parts: dict[str, Any], rules: dict[str, Any]) -> None:
        ops, devices, self.rules = parts["ops"], parts["devices"], rules
        self.num, number = len(devices), {op["name"]: i for i, op in enumerate(ops)}
        need(len(number) == len(ops), "two ops of the instance have one name")
        self.room = [inf if (m := d.get("memory_bytes")) is None else m for d in devices]
        self.time = [[op.get("time_ns", {}).get(d["kind"]) for d in devices] for op in ops]
        groups, self.bytes, self.able = defaultdict[Any, list[int]](list), list[int](), Able()
        for i, op in enumerate(ops):
            groups[op.get("colocation") or i].append(i)  # 0 is none, as in the digest
            state, peak = op.get("state_bytes"), rules.get("memory") == "peak"
            held = op.get("parameter_bytes", 0) if state is None else state  # alone is certain then
            self.bytes.append(held if peak else op.get("resident_bytes", 0))
        self.groups, self.group = list(groups.values()), dict[int, int]()
        for g, members in enumerate(self.groups):
            size, rows = sum(self.bytes[i] for i in members), [self.time[i] for i in members]
            runs = [
                size <= self.room[k] and all(row[k] is not None for row in rows)
                for k in range(self.num)
            ]
            for i in members:
                self.able[i], self.group[i] = frozenset(k for k, run in enumerate(runs) if run), g
        links, place = self._links(parts), dict[Any, int]()
        host = [device.get("is_host", False) for device in devices]
        self.edges, self.moves = list[tuple[int, int, int]](), list[list[list[int]]]()
        self.out, self.into = [list[int]() for _ in ops], [list[int]() for _ in ops]
        for e, edge in enumerate(parts["edges"]):
            i, j = number[edge["producer"]], number[edge["consumer"]]
            u = place.setdefault((i, edge.get("tensor") or e), len(place))
            given, hop = edge.get("transfer_ns"), edge.get("host_time_ns")
            if u == len(self.moves):
                self.moves.append(
                    [
                        [
                            0
                            if a == b
                            else given[a][b]
                            if given is not None
                            else hop * (2 - host[a] - host[b])
                            if hop is not None
                            else links[a, b][1] - -edge.get("bytes", 0) * 10**9 // links[a, b][0]
                            for b in range(self.num)
                        ]
                        for a in range(self.num)
                    ]
                )
            self.edges.append((i, j, u))
            self.out[i].append(e)
            self.into[j].append(e)
        before = {i: [self.edges[e][0] for e in into] for i, into in enumerate(self.into)}
        self.order = [*TopologicalSorter(before).static_order()]  # a circle is an error
        self.place = {i: at for at, i in enumerate(self.order)}

    def _links(self, parts: Any) -> dict[tuple[int, int], tuple[int, int]]:
        """Bandwidth and latency of pairs: the link, else the widest and then shortest path."""
        at = {device["name"]: k for k, device in enumerate(parts["devices"])}
        link = {
            (at[x["source"]], at[x["target"]]): (x["bandwidth_bytes_per_s"], x.get("latency_ns", 0))
            for x in parts["links"]
        }
        found, complete = dict(link), len(link) == self.num * (self.num - 1)
        for wide in [] if complete else sorted({w for w, _ in link.values()}, reverse=True):
            least = {pair: latency for pair, (w, latency) in link.items() if w >= wide}
            for m, a, b in product(range(self.num), repeat=3):
                if (a, m) in least and (m, b) in least:
                    through = least[a, m] + least[m, b]
                    least[a, b] = min(least.get((a, b), through), through)
            found = {pair: (wide, latency) for pair, latency in least.items()} | found
        return found

    def on(self, a: int, b: int) -> tuple[int, ...]:
        """The channels that a transfer between two devices holds."""
        num = self.num
        on = {"port": (a, num + b), "half_duplex": (a, b), "link": (a * num + b,), "free": ()}
        return on[self.rules["channels"]]

    def ends(self, order: Any, back: bool = False, start: Any = None) -> dict[int, list[Any]]:
        """Least end of ops on devices by what comes before; with `back`, from start to the end."""
        ends = dict[int, list[Any]](start or {})
        for j in order:
            ready = [0 if k in self.able[j] else inf for k in range(self.num)]
            for i, g, u in (self.edges[e] for e in (self.out[j] if back else self.into[j])):
                there, moves = ends.get(g if back else i, []), self.moves[u]
                for k in self.able[j] if there else ():
                    move = moves[k] if back else [row[k] for row in moves]
                    ready[k] = max(ready[k], min(m + e for m, e in zip(move, there, strict=True)))
            ends[j] = [r + (t or 0) for r, t in zip(ready, self.time[j], strict=True)]
        return ends

    def path(self, _: Any) -> Any:
        """The longest path, every op on the device that is best for the path as a whole."""
        head, tail = self.ends(self.order), self.ends(self.order[::-1], back=True)
        return max(
            min(max(head[i][k] + tail[i][k] - self.time[i][k] for i in g) for k in self.able[g[0]])
            for g in self.groups
        )

    def longest(self, _: Any) -> Any:
        """The longest colocation group, where it is fastest."""
        need(not self.rules.get("replicas"), "devices may share an op")
        rows = [[sum(self.time[i][k] for i in g) for k in self.able[g[0]]] for g in self.groups]
        return max(min(row) for row in rows)

    def work(self, proof: Any) -> Any:
        """Work of some ops by weights of the devices, after their heads and before their tails."""
        weights, ops, idle = vector(proof["weights"], self.num), proof.get("ops", self.order), 0
        need(sum(weights) and len(set(ops)) == len(ops) > 0, "no weights, or an op counts twice")
        together = defaultdict[int, list[int]](list)
        for i in ops:
            together[self.group[whole(i, len(self.time))]].append(i)
        total = sum(
            min(weights[k] * sum(self.time[i][k] for i in g) for k in self.able[g[0]])
            for g in together.values()
        )
        for back in (
            (False, True) if "ops" in proof and self.rules["objective"] == "makespan" else ()
        ):
            ends = self.ends(self.order[::-1] if back else self.order, back)
            idle += min(ends[i][k] - self.time[i][k] for i in ops for k in self.able[i])
        return idle - -total // sum(weights)

    def chain(self, proof: Any) -> Any:
        """A shortest path over the devices of some ops; an arc is what a section takes at least."""
        ops, devices, tail = proof["ops"], range(self.num), self.ends(self.order[::-1], back=True)
        need(ops and len(proof["arcs"]) == len(ops) - 1, "a chain has one arc less than ops")
        least = self.ends(self.order)[whole(ops[0], len(self.time))]
        for arc, (first, last) in zip(proof["arcs"], pairwise(ops), strict=True):
            able = self.between([first, *arc.get("inside", []), last])
            table = self.paths(able, first, last)
            for row in arc.get("rows", []):
                given = [row.get("start"), row.get("end")]
                ends = [devices if k is None else [whole(k, self.num)] for k in given]
                pins = {first: able[first] & {*ends[0]}, last: able[last] & {*ends[1]}}
                bound = self.tree(row, able | pins, first)
                for a, b in product(*ends):
                    table[a][b] = max(table[a][b], bound)
            least = [min(least[a] + table[a][b] for a in devices) for b in devices]
        return min(least[k] + tail[ops[-1]][k] - self.time[ops[-1]][k] for k in self.able[ops[-1]])

    def between(self, ops: list[int]) -> Able:
        """The devices of ops, which must lie on paths from the first to the last of them."""
        able = {whole(i, len(self.time)): self.able[i] for i in ops}
        for edges, end, loose in ((self.into, 0, ops[0]), (self.out, 1, ops[-1])):
            for i in able.keys() - {loose}:
                tied = any(self.edges[e][end] in able for e in edges[i])
                need(tied, f"op {i} is on no path from op {ops[0]} to op {ops[-1]}")
        need(len(able) == len(ops) > 1, f"an op between {ops[0]} and {ops[-1]} counts twice")
        return able

    def paths(self, able: Able, first: int, last: int) -> list[list[Any]]:
        """Longest paths from the end of an op to that of another, by their devices."""
        order, found = sorted(able.keys() - {first}, key=self.place.__getitem__), list[list[Any]]()
        for a in range(self.num):
            start = [0 if k == a and k in able[first] else inf for k in range(self.num)]
            found.append(self.ends(order, start={first: start})[last])
        return found

    def tree(self, proof: Any, able: Able | None = None, first: int = -1) -> Any:
        """The least that the leaves of a tree of cases prove; the cases must cover everything."""
        able, node = self.able if able is None else able, proof["tree"]
        if "op" not in node:
            return self.leaf(node, able, first)
        i, cases = node["op"], [frozenset(case) for case in node["cases"]]
        need(able[i] <= frozenset().union(*cases), f"the cases of op {i} leave out a device")
        need(len(cases) == len(node["nodes"]), f"op {i} has {len(cases)} cases, but not leaves")
        return min(
            self.tree({"tree": child}, able | {i: able[i] & case}, first)
            for case, child in zip(cases, node["nodes"], strict=True)
        )

    def leaf(self, node: Any, able: Able, first: int) -> Any:
        """What multipliers prove: a flow along edges and windows, weights, prices of placements."""
        num, scale, flow = self.num, 0, dict(node.get("flows", []))
        rate, cost = {i: [0] * num for i in able}, {i: [0] * num for i in able}
        sent, price = defaultdict[int, list[Any]](list), defaultdict[Any, int](int)
        edges = {e: self.edges[e] for i in able for e in self.out[i] if self.edges[e][1] in able}
        through = {i: [0, 0] for i in able}  # flow into and out of the op; the rest comes and goes
        for e, f in flow.items():
            through[edges[e][0]][1] += whole(f)
            through[edges[e][1]][0] += f
        for i, f in node.get("alone", []):
            rate[i] = [r + f for r in rate[i]]
            scale += whole(f)
        for window in node.get("windows", []):
            work, ops = vector(window["devices"], num), window.get("ops", [])
            busy = {whole(c): whole(w) for c, w in window.get("channels", [])}
            weight, inside = sum(work) + sum(busy.values()), self.between(ops) if ops else able
            scale += 0 if ops else weight
            for end, i in enumerate(reversed([*ops[:1], *ops[-1:]])):
                through[i][end] += weight
            for i in inside.keys() - {*ops[:1], *ops[-1:]}:
                rate[i] = [r + w for r, w in zip(rate[i], work, strict=True)]
            alike = defaultdict[Any, list[int]](list)  # a tensor goes to each device once
            for e in (e for i in inside for e in self.out[i]) if busy else ():
                if (j := self.edges[e][1]) in inside and e in edges:
                    u = self.edges[e][2]
                    alike[u if self.rules["transfers"] == "per_tensor" else (e,)].append(e)
            for e, n in ((e, len(same)) for same in alike.values() for e in same):
                sent[e].append((busy, n))
        for e, side, k, value in node.get("prices", []):
            price[e, side, whole(k, num)] += whole(value, inf, -inf)
            cost[edges[e][whole(side, 2)]][k] -= value
        memory, together = vector(node.get("memory", [0] * num), num), defaultdict[int, Any](list)
        total: Any = -sum(w * whole(room) for w, room in zip(memory, self.room, strict=True) if w)
        for i, (into, out) in through.items():
            together[self.group[i]].append(i)
            scale += max(0, out - into)
            for k in able[i]:
                time = 0 if i == first else self.time[i][k]
                cost[i][k] += time * (max(out, into) + rate[i][k]) + memory[k] * self.bytes[i]
        for g in together.values():
            where = frozenset.intersection(*(able[i] for i in g))
            total += min((sum(cost[i][k] for i in g) for k in where), default=inf)
        for e in {**flow, **sent, **dict.fromkeys(e for e, _, _ in price)}:
            (i, j, u), rows = edges[e], list[Any]()
            for a, b in product(able[i], able[j]):
                held = [Fraction(busy.get(c, 0), n) for busy, n in sent[e] for c in self.on(a, b)]
                paid = (flow.get(e, 0) + sum(held)) * self.moves[u][a][b]
                rows.append(paid + price[e, 0, a] + price[e, 1, b])
            total += min(rows, default=inf)
        return max(0, -(-total // scale)) if scale and total < inf else inf if total > 0 else 0


def check(document: Any, certificate: Any, terms: type[Terms] = Terms) -> None:
    """Reject what does not prove its bound."""
    try:
        graph, cluster, proof = document["graph"], document["cluster"], certificate["proof"]
        parts = {
            "devices": cluster["devices"],
            "edges": graph.get("edges", []),
            "links": cluster.get("links", []),
            "ops": graph["ops"],
        }
        need(certificate["format"] == "placegap-certificate", "it is not a certificate of placegap")
        need(whole(certificate["version"]) == 1, "its version is unknown")
        need(certificate["instance_hash"] == digest(parts), "it is for another instance")
        problem, claim = terms(parts, certificate["semantics"]), whole(certificate["bound_ns"])
        loads = dict.fromkeys(("max_load", "max_load_fwd_bwd"), ("work", "longest"))
        kinds = {"makespan": ("path", "work", "tree", "chain", "layers"), **loads}
        fits = proof["kind"] in kinds.get(problem.rules["objective"], ())
        known = fits and hasattr(problem, proof["kind"])  # layers have a checker of their own
        need(known, f"{proof['kind']!r} proves nothing about this objective")
        proven = getattr(problem, proof["kind"])(proof) if all(problem.able.values()) else inf
        need(claim <= proven, f"it claims {claim} ns, and proves {proven} ns")
    except Rejected:
        raise
    except MALFORMED as e:
        raise Rejected(f"it is malformed: {type(e).__name__} {str(e)[:60]!r}") from None


def main(
    paths: list[str],
    judge: Callable[[Any, Any], None] = check,
    plans: str = "plan is below",
    unit: str = "ns",
) -> int:
    """Print the verdict, and return the exit status: 0 if the certificate holds, else 1."""
    try:
        document, certificate = (json.loads(Path(path).read_bytes()) for path in paths)
        judge(document, certificate)
    except (Rejected, OSError, ValueError, RecursionError) as error:
        print(f"{paths[-1:]}: does not hold: {error}")
        return 1
    bound = certificate["bound_ns"]
    print(f"{paths[-1]}: no {plans} {bound} {unit}, by a proof that was checked")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
