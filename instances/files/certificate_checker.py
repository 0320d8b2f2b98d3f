"""Check a certificate of a lower bound, with nothing but Python's standard library.

``python certificate_checker.py INSTANCE CERTIFICATE`` (.json or .json.gz) derives all times from
the instance, recomputes what the proof's integers prove, and compares that with the claimed bound.
No number of a certificate is believed: any multipliers prove something. docs/certificates.md says
why each kind of proof holds. Ops, edges and devices are counted from 0, in the instance's order.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

Able = list[frozenset[int]]
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


def digest(parts: dict[str, Any]) -> str:
    """SHA-256 of devices, edges, links and ops as JSON, without fields at their defaults."""
    kept = {name: [
        {f: v for f, v in row.items() if v is not None and (f in NULL or v not in (0, [], {}))
         and (name, f, v) != ("ops", "kind", "op")} for row in rows
    ] for name, rows in parts.items()}  # fmt: skip
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Problem:
    """Times, sizes, groups and edges of an instance under a semantics, all in integers."""

    def __init__(self, parts: dict[str, Any], rules: dict[str, Any]) -> None:
        ops, devices, self.rules, self.words = parts["ops"], parts["devices"], rules, set[str]()
        self.num, number = len(devices), {op["name"]: i for i, op in enumerate(ops)}
        need(len(number) == len(ops), "two ops of the instance have one name")
        self.host = [device.get("is_host", False) for device in devices]
        self.room = [inf if (m := d.get("memory_bytes")) is None else m for d in devices]
        self.time = [[op.get("time_ns", {}).get(d["kind"]) for d in devices] for op in ops]
        groups, sizes = defaultdict[Any, list[int]](list), list[int]()
        for i, op in enumerate(ops):
            groups[i if op.get("colocation") is None else op["colocation"]].append(i)
            state, summed = op.get("state_bytes"), op.get("resident_bytes", 0)
            state = op.get("parameter_bytes", 0) if state is None else state
            sizes.append(state if rules.get("memory") == "peak" else summed)
        self.bytes, self.groups, self.group = sizes, list(groups.values()), [0] * len(ops)
        self.able: Able = [frozenset()] * len(ops)
        for g, members in enumerate(self.groups):
            size, rows = sum(sizes[i] for i in members), [self.time[i] for i in members]
            runs = [size <= self.room[k] and all(row[k] is not None for row in rows)
                    for k in range(self.num)]  # fmt: skip
            for i in members:
                self.able[i], self.group[i] = frozenset(k for k, run in enumerate(runs) if run), g
        links, place = self._links(parts), dict[Any, int]()
        self.edges, self.moves = list[tuple[int, int, int]](), list[list[list[int]]]()
        self.out, self.into = [list[int]() for _ in ops], [list[int]() for _ in ops]
        for e, edge in enumerate(parts["edges"]):
            i, j, name = number[edge["producer"]], number[edge["consumer"]], edge.get("tensor")
            u = place.setdefault((i, e if name is None else name), len(place))
            if u == len(self.moves):
                self.moves.append(self._moves(edge, links))
            self.edges.append((i, j, u))
            self.out[i].append(e)
            self.into[j].append(e)
        waiting = [len(edges) for edges in self.into]
        self.order = [i for i, left in enumerate(waiting) if not left]
        for i in self.order:
            for e in self.out[i]:
                waiting[self.edges[e][1]] -= 1
                self.order += [] if waiting[self.edges[e][1]] else [self.edges[e][1]]
        need(len(self.order) == len(ops), "the instance's graph has a cycle")

    def _links(self, parts: Any) -> dict[tuple[int, int], tuple[int, int]]:
        """Bandwidth and latency of pairs: the link, else the widest and then shortest path."""
        at = {device["name"]: k for k, device in enumerate(parts["devices"])}
        link: dict[tuple[int, int], tuple[int, int]] = {
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

    def _moves(self, edge: Any, links: dict[tuple[int, int], tuple[int, int]]) -> list[list[int]]:
        """Time of a tensor between any two devices."""
        moves, given, host = list[int](), edge.get("transfer_ns"), edge.get("host_time_ns")
        for a, b in product(range(self.num), repeat=2):
            if a == b or given is not None or self.rules["objective"] == "latency_subgraphs":
                moves.append(given[a][b] if given is not None and a != b else 0)
            elif host is not None:
                moves.append(host * (2 - self.host[a] - self.host[b]))
            else:
                moves.append(links[a, b][1] - -edge.get("bytes", 0) * 10**9 // links[a, b][0])
        return [moves[k * self.num : (k + 1) * self.num] for k in range(self.num)]

    def ends(self, order: list[int], back: bool = False, start: Any = None) -> dict[int, list[Any]]:
        """Least end of ops on devices by what comes before; with `back`, from start to the end."""
        ends = dict[int, list[Any]](start or {})
        for j in order:
            ready = [0] * self.num
            for i, g, u in (self.edges[e] for e in (self.out[j] if back else self.into[j])):
                there, moves = ends.get(g if back else i, []), self.moves[u]
                for k in self.able[j] if there else ():
                    move = moves[k] if back else [row[k] for row in moves]
                    ready[k] = max(ready[k], min(m + e for m, e in zip(move, there, strict=True)))
            ends[j] = [
                ready[k] + self.time[j][k] if k in self.able[j] else inf for k in range(self.num)
            ]
        return ends

    def path(self, _: Any) -> float:
        """The longest path, every op on the device that is best for the path as a whole."""
        need(not self.rules["objective"].startswith("max"), "a load has no path")
        head, tail = self.ends(self.order), self.ends(self.order[::-1], back=True)
        return max(
            min(max(head[i][k] + tail[i][k] - self.time[i][k] for i in g) for k in self.able[g[0]])
            for g in (self.groups if self.rules["objective"] == "makespan" else [[i] for i in head])
        )

    def longest(self, _: Any) -> float:
        """The longest colocation group, where it is fastest."""
        need(self.rules["objective"].startswith("max"), "hosts may run several ops at once")
        need(not self.rules.get("replicas"), "devices may share an op")
        rows = [[sum(self.time[i][k] for i in g) for k in self.able[g[0]]] for g in self.groups]
        return max(min(row) for row in rows)

    def work(self, proof: Any) -> float:
        """Work of some ops by weights of the devices, after their heads and before their tails."""
        weights, idle, objective = vector(proof["weights"], self.num), 0, self.rules["objective"]
        need(objective != "latency_subgraphs", "hosts may run several ops at once")
        ops, together = proof.get("ops", self.order), defaultdict[int, list[int]](list)
        need(
            sum(weights) and ops and len(set(ops)) == len(ops), "no weights, or an op counts twice"
        )
        for i in ops:
            together[self.group[whole(i, len(self.time))]].append(i)
        total = sum(
            min(weights[k] * sum(self.time[i][k] for i in g) for k in self.able[g[0]])
            for g in together.values()
        )
        for back in (False, True) if objective == "makespan" and "ops" in proof else ():
            ends = self.ends(self.order[::-1] if back else self.order, back)
            idle += min(ends[i][k] - self.time[i][k] for i in ops for k in self.able[i])
        return idle - -total // sum(weights)

    def tree(self, proof: Any) -> float:
        """What the leaves of a tree of cases prove of the whole."""
        return Section(self, list(range(len(self.time)))).least(proof["tree"], self.able)

    def chain(self, proof: Any) -> float:
        """A shortest path over the devices of some ops; an arc is what a section takes at least."""
        ops, devices, tail = proof["ops"], range(self.num), self.ends(self.order[::-1], back=True)
        need(ops and len(proof["arcs"]) == len(ops) - 1, "a chain has one arc less than ops")
        least = self.ends(self.order)[whole(ops[0], len(self.time))]
        for arc, (first, last) in zip(proof["arcs"], pairwise(ops), strict=True):
            section = Section(self, [first, *arc["inside"], last])
            self.joined(section.ops)
            section.time[0], place = [0] * self.num, set(section.ops) - {first}
            order, table = [i for i in self.order if i in place], list[list[Any]]()
            for a in devices:
                start = [0 if k == a and k in self.able[first] else inf for k in devices]
                table.append(self.ends(order, start={first: start})[last])
            for row in arc["rows"]:
                ends = [devices if row[x] is None else [whole(row[x], self.num)]
                        for x in ("from", "to")]  # fmt: skip
                able = [section.able[0] & {*ends[0]}, *section.able[1:]]
                able[-1] &= {*ends[1]}
                bound = row["bound_ns"] if "of" in row else section.least(row["tree"], able)
                self.words |= {str(row["of"])} if "of" in row else set()
                for a, b in product(*ends):
                    table[a][b] = max(table[a][b], bound)
            least = [min(least[a] + table[a][b] for a in devices) for b in devices]
        return min(least[k] + tail[ops[-1]][k] - self.time[ops[-1]][k] for k in self.able[ops[-1]])

    def joined(self, ops: list[int]) -> None:
        """Reject ops that are not all on paths from the first to the last: the graph has no cycle."""
        members = {whole(i, len(self.time)) for i in ops}
        for edges, end, loose in ((self.into, 0, ops[0]), (self.out, 1, ops[-1])):
            for i in members - {loose}:
                tied = any(self.edges[e][end] in members for e in edges[i])
                need(tied, f"op {i} is on no path from op {ops[0]} to op {ops[-1]}")
        need(len(members) == len(ops) > 1, f"an op between {ops[0]} and {ops[-1]} counts twice")


class Section:
    """Some ops and the edges among them."""

    def __init__(self, problem: Problem, ops: list[int]) -> None:
        at = {whole(i, len(problem.time)): local for local, i in enumerate(ops)}
        found = sorted(e for i in ops for e in problem.out[i] if problem.edges[e][1] in at)
        self.edges = [(at[i], at[j], u) for i, j, u in map(problem.edges.__getitem__, found)]
        self.problem, self.ops, self.at = problem, ops, at
        self.time, self.able = [problem.time[i] for i in ops], [problem.able[i] for i in ops]

    def least(self, node: Any, able: Able) -> float:
        """The least that the leaves of a tree prove; the cases of a node must cover everything."""
        if "op" not in node:
            return self.leaf(node, able)
        i, cases = whole(node["op"], len(able)), [frozenset(case) for case in node["cases"]]
        need(able[i] <= frozenset().union(*cases), f"the cases of op {i} leave out a device")
        need(len(cases) == len(node["nodes"]), f"op {i} has {len(cases)} cases, but not leaves")
        return min(
            self.least(child, [*able[:i], able[i] & case, *able[i + 1 :]])
            for case, child in zip(cases, node["nodes"], strict=True)
        )

    def leaf(self, node: Any, able: Able) -> float:
        """What multipliers prove: a flow along edges and windows, weights, prices of placements."""
        num, n, problem, rules = self.num, len(able), self.problem, self.problem.rules
        flow, out, into, rate = [0] * len(self.edges), [0] * n, [0] * n, [[0] * num for _ in able]
        sent, cost = defaultdict[int, list[Any]](list), [[Fraction(0)] * num for _ in able]
        total, scale, price = Fraction(0), 0, defaultdict[Any, int](int)
        for e, f in node.get("flows", []):
            flow[whole(e, len(flow))] += whole(f)
            out[self.edges[e][0]] += f
            into[self.edges[e][1]] += f
        for window in node.get("windows", []):
            ops, work = window.get("ops"), vector(window["devices"], num)
            busy = {whole(c, num * (num + 2)): whole(w) for c, w in window.get("channels", [])}
            inside, inner = (
                set(ops or range(n)),
                (ops or range(n))[1 if ops else 0 : -1 if ops else n],
            )
            if ops:
                problem.joined([self.ops[whole(i, n)] for i in ops])
                out[ops[0]] += sum(work) + sum(busy.values())
                into[ops[-1]] += sum(work) + sum(busy.values())
            else:
                scale += sum(work) + sum(busy.values())
            for i in inner:
                rate[i] = [r + w for r, w in zip(rate[i], work, strict=True)]
            alike = defaultdict[Any, list[int]](list)  # a tensor goes to each device once
            for e, (i, j, u) in enumerate(self.edges):
                if {i, j} <= inside:
                    alike[u if rules["transfers"] == "per_tensor" else (e,)].append(e)
            for edges in alike.values() if busy else ():
                for e in edges:
                    sent[e].append((busy, len(edges)))
        for e, side, k, value in node.get("prices", []):
            price[whole(e, len(flow)), whole(side, 2), whole(k, num)] += whole(value, inf, -inf)
            cost[self.edges[e][side]][k] -= value
        memory = vector(node.get("memory", [0] * num), num)
        for weight, room in zip(memory, problem.room, strict=True):
            total -= weight and weight * whole(room)
        scale += sum(max(0, o - i) for o, i in zip(out, into, strict=True))
        together = defaultdict[int, list[int]](list)
        for i, op in enumerate(self.ops):
            together[problem.group[op]].append(i)
            for k in able[i]:
                cost[i][k] += self.time[i][k] * (max(out[i], into[i]) + rate[i][k])
                cost[i][k] += memory[k] * problem.bytes[op]
        for g in together.values():
            where = frozenset.intersection(*(able[i] for i in g))
            total += min((sum(cost[i][k] for i in g) for k in where), default=inf)
        for e, (i, j, u) in enumerate(self.edges):
            least = inf
            for a, b in product(able[i], able[j]):
                hold = {"port": (a, num + b), "half_duplex": (a, b), "link": (a * num + b,)}
                on = hold.get(rules["channels"], ())
                pay = sum(Fraction(sum(busy.get(c, 0) for c in on), many) for busy, many in sent[e])
                least = min(
                    least,
                    self.problem.moves[u][a][b] * (flow[e] + pay) + price[e, 0, a] + price[e, 1, b],
                )
            total += least
        if total == inf or not scale:
            return inf if total > 0 else 0
        return max(0, -(-total // scale))


def check(document: Any, certificate: Any) -> list[str]:
    """Reject a certificate that does not prove its bound, else name the solvers whose word it needs."""
    try:
        graph, cluster, proof = document["graph"], document["cluster"], certificate["proof"]
        parts = {"devices": cluster["devices"], "edges": graph.get("edges", []),
                 "links": cluster.get("links", []), "ops": graph["ops"]}  # fmt: skip
        need(certificate["format"] == "placegap-certificate", "it is no certificate of placegap")
        need(type(v := certificate["version"]) is int and v == 1, "its version is unknown")
        need(certificate["instance_hash"] == digest(parts), "it is for another instance")
        problem, claim = Problem(parts, certificate["semantics"]), whole(certificate["bound_ns"])
        loads = {"longest": problem.longest, "work": problem.work, "path": problem.path}
        kinds = loads | {"tree": problem.tree, "chain": problem.chain}
        own = problem.rules["objective"] == "makespan" or proof["kind"] in loads
        need(
            own and proof["kind"] in kinds, f"no proof of the kind {proof['kind']!r} is known here"
        )
        proven = kinds[proof["kind"]](proof) if all(problem.able) else inf
        need(claim <= proven, f"it claims {claim} ns, and proves {proven} ns")
        return sorted(problem.words)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise Rejected(f"it is malformed ({type(error).__name__}: {str(error)[:60]})") from None


def main(paths: list[str]) -> int:
    """Print the verdict, and return the exit status: 0 if the certificate holds, else 1."""
    try:
        read = [
            gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            for data in (Path(path).read_bytes() for path in paths)
        ]
        document, certificate = map(json.loads, read)
        words = check(document, certificate)
    except (Rejected, OSError, EOFError, ValueError, RecursionError) as error:
        print(f"{paths[-1]}: does not hold: {error}")
        return 1
    basis = f"on the word of {', '.join(words)}" if words else "by a proof that was checked"
    print(f"{paths[-1]}: no plan is below {certificate['bound_ns']} ns, {basis}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
