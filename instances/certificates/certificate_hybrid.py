"""Check that no hybrid plan takes less: a dynamic program in plain Python.

``python certificate_hybrid.py INSTANCE CERTIFICATE`` beside `certificate_checker.py`; nothing but
the standard library. With T one less than the claimed bound, the check goes from the last stage to
the first. A state is a set of layers that contains all that reads them, with the replicas and the
devices of its stages; a stage is added if some choice of modes keeps it within T and the memory. If
no row of stages has all layers and no more devices than there are, the bound holds. All is done in
integers, and nothing is taken on trust. The rules are those of docs/pipelines.md.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import gcd, inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from placegap.instances.certificates.certificate_checker import (
        MALFORMED,
        Rejected,
        digest,
        main,
    )
else:  # both files alone, beside each other
    from certificate_checker import MALFORMED, Rejected, digest, main

# The check gives up beyond: sets of layers, stages with d and t, and sums of one stage's modes.
MOST_SETS, MOST_STAGES, MOST_SUMS = 2_000, 3_000_000, 200_000

# What the rules may be; the first is the default.
RULES = {
    "degrees": ("one", "one_t", "free"),
    "recompute": ("per_layer", "per_stage", "all_or_none"),
    "sharding": ("none", "optimizer", "gradients"),
}

# A layer's mode: time, gradients, bytes held per microbatch, always, and shared by the replicas;
# its name; and what edges move more by it. Its workspace is kept apart.
Row = tuple[Any, ...]


class HybridLayers:
    """Layers, their modes and edges, as a file states them."""

    def __init__(self, parts: dict[str, Any], rules: dict[str, Any]) -> None:
        # Layers are colocation groups, and sets of them are integers with a bit for each.
        ops, devices = parts["ops"], parts["devices"]
        group = dict[Any, int]()
        self.layer = [
            group.setdefault(op.get("colocation") or i, len(group)) for i, op in enumerate(ops)
        ]
        number = {op["name"]: i for i, op in enumerate(ops)}
        self.num, self.devices, self.microbatches = len(group), len(devices), rules["microbatches"]
        alike = {(d["kind"], d.get("memory_bytes"), d.get("is_host", False)) for d in devices}
        if len(number) < len(ops) or len(alike) != 1 or any(op.get("backward") for op in ops):
            raise Rejected("two ops have one name, devices differ, or an op is backward")
        kind, room, _ = alike.pop()
        self.room = inf if room is None else room
        self.rate = min((link["bandwidth_bytes_per_s"] for link in parts["links"]), default=1)
        servers: dict[Any, int] = defaultdict(int)
        for device in devices:
            servers[device.get("server")] += 1
        whole = 0 if set(servers) == {None} else gcd(*servers.values())
        parted = RULES["sharding"].index(rules.get("sharding", "none"))
        shares = ("sharded_bytes", "gradient_bytes")[:parted]
        #: The layers that an edge joins, and its bytes.
        self.edges = list[tuple[int, int, int]]()
        more: list[dict[str, dict[str, list[int]]]] = [{"into": {}, "out": {}} for _ in ops]
        for edge in parts["edges"]:
            i, j = number[edge["producer"]], number[edge["consumer"]]
            if self.layer[i] != self.layer[j]:
                at = len(self.edges)
                self.edges.append((self.layer[i], self.layer[j], edge.get("bytes", 0)))
                more[j]["into"].setdefault(edge["producer"], []).append(at)
                more[i]["out"].setdefault(edge["consumer"], []).append(at)
        found: dict[tuple[int, int], dict[str, list[Any]]] = defaultdict(dict)
        count: dict[tuple[int, int, str], int] = defaultdict(int)
        members = [self.layer.count(layer) for layer in range(self.num)]
        for i, op in enumerate(ops):
            for mode in _ways(op):
                key = mode.get("tensor", 1), self.layer[i]
                row = found[key].setdefault(mode["name"], [0, 0, 0, 0, 0, 0, defaultdict(int)])
                count[(*key, mode["name"])] += 1
                shared = sum(mode.get(name, 0) for name in shares)
                sums = (
                    mode["time_ns"][kind],
                    mode.get("parameter_bytes", 0),
                    mode.get("held_bytes", 0),
                    mode.get("state_bytes", 0) - shared,
                    shared,
                )
                row[:5] = [a + b for a, b in zip(row, sums, strict=False)]
                row[5] = max(row[5], mode.get("workspace_bytes", 0))
                for field, ends in (("enter_bytes", "into"), ("leave_bytes", "out")):
                    for end, size in mode.get(field, {}).items():
                        for at in more[i][ends].get(end, ()):
                            row[6][at] += size
        #: Modes by tensor degree and layer, each with its workspace.
        self.rows: dict[int, list[list[tuple[Row, int]]]] = {}
        for t in sorted({t for t, _ in found}):
            if t <= self.devices and whole % t == 0:
                self.rows[t] = [
                    [
                        ((*row[:5], name, tuple(sorted(row[6].items()))), row[5])
                        for name, row in found[t, layer].items()
                        if count[t, layer, name] == members[layer]
                    ]
                    for layer in range(self.num)
                ]
        #: (int, list of int): Sets that contain all that reads their members, the largest first,
        #: and their members.
        self.sets = self._sets()

    def _sets(self) -> list[tuple[int, list[int]]]:
        """All sets of layers with all that reads them, found by adding layers."""
        after = [0] * self.num
        for a, b, _ in self.edges:
            after[a] |= 1 << b
        seen, queue = {0}, [0]
        for inside in queue:
            for layer in range(self.num):
                larger = inside | 1 << layer
                if larger not in seen and not after[layer] & ~inside & ~(1 << layer):
                    seen.add(larger)
                    queue.append(larger)
            if len(seen) > MOST_SETS:
                raise Rejected("it is too large to be checked: too many sets of layers")
        if (1 << self.num) - 1 not in seen:
            raise Rejected("it cannot be checked: layers need each other")
        return [(at, _bits(at)) for at in queue]


def _ways(op: dict[str, Any]) -> list[dict[str, Any]]:
    """The modes of an op, or the one of its own fields."""
    if op.get("modes"):
        return list(op["modes"])
    weights, state = op.get("parameter_bytes", 0), op.get("state_bytes")
    state = weights if state is None else state
    held = max(0, op.get("resident_bytes", 0) - state)
    own = {"name": "own", "parameter_bytes": weights, "state_bytes": state, "held_bytes": held}
    return [{**own, "time_ns": op["time_ns"], "workspace_bytes": op.get("workspace_bytes", 0)}]


def _bits(number: int) -> list[int]:
    return [at for at in range(number.bit_length()) if number >> at & 1]


def can_choose(items: list[list[tuple[int, int]]], budget: int, room: Any) -> bool:
    """Whether one (cost, size) of each item fits both limits; yes where there are too many sums."""
    if sum(min(c for c, _ in own) for own in items) > budget:
        return False
    if sum(min(s for _, s in own) for own in items) > room:
        return False
    if sum(min(own)[1] for own in items) <= room:  # the cheapest of all
        return True
    rest_cost, rest_size = [0], [0]
    for own in items:
        rest_cost.append(rest_cost[-1] + min(c for c, _ in own))
        rest_size.append(rest_size[-1] + min(s for _, s in own))
    sums = [(0, 0)]
    for at in range(len(items) - 1, -1, -1):
        left_cost, left_room = budget - rest_cost[at], room - rest_size[at]
        new = sorted((c + a, s + b) for c, s in sums for a, b in items[at])
        sums, least = [], inf
        for c, s in new:
            if c > left_cost:
                break
            if s < least and s <= left_room:
                sums.append((c, s))
                least = s
        if not sums:
            return False
        if len(sums) > MOST_SUMS:
            return True
    return True


class BorderedStage:
    """A stage for one tensor degree: what its border moves, and its layers' modes."""

    def __init__(self, layers: HybridLayers, members: list[int], inside: int, t: int) -> None:
        crossing, n = set[int](), layers.microbatches
        self.moved = 0
        for at, (a, b, size) in enumerate(layers.edges):
            if (inside >> a ^ inside >> b) & 1:
                crossing.add(at)
                self.moved += 2 * n * size * 10**9
        modes = []
        for layer in members:
            own = []
            for (time, weights, *sizes, name, extra), scratch in layers.rows[t][layer]:
                more = sum(size for at, size in extra if at in crossing)
                cost = n * layers.rate * time + 2 * n * more * 10**9
                own.append((cost, 2 * weights * 10**9, *sizes, scratch, name))
            modes.append(tuple(sorted(own)))
        self.modes = tuple(sorted(modes))  # layers in another order are the same


class StagesWithin:
    """Which stages are within a limit, for what they may choose from."""

    def __init__(
        self, layers: HybridLayers, limit: int, names: list[str] | None, tick: Callable[[], None]
    ) -> None:
        self.layers, self.limit, self.names, self.tick = layers, limit, names, tick
        self.made, self.number = dict[Any, tuple[BorderedStage, int]](), dict[Any, int]()
        self.known = dict[Any, bool]()
        self.tried = 0
        self.sums = {t: self._sums(layers.rows[t]) for t in layers.rows}

    def _sums(self, rows: list[list[tuple[Row, int]]]) -> list[list[Any]]:
        """Of each set, its layers without a mode, and the sums of the least that others have."""
        least, named = [], self.names is not None and len(self.names) == 1
        for own in rows:
            able = [row for row, _ in own if not named or len(own) == 1 or [row[5]] == self.names]
            least.append([not able, *(min((row[f] for row in able), default=0) for f in range(5))])
        return [
            [sum(least[layer][f] for layer in members) for f in range(6)]
            for _, members in self.layers.sets
        ]

    def fits(self, small: int, large: int, d: int, t: int, flight: int) -> bool:
        """Whether a stage of d replicas between two sets is within the limit and the memory."""
        self.tried += 1
        if self.tried > MOST_STAGES:
            raise Rejected("it is too large to be checked: too many stages")
        if self.tried % 64 == 0:
            self.tick()
        both = zip(self.sums[t][small], self.sums[t][large], strict=True)
        unable, time, weights, held, fixed, shared = (b - a for a, b in both)
        cost = self.layers.microbatches * self.layers.rate * time + 2 * (d - 1) * weights * 10**9
        budget, room = self.limit * self.layers.rate * d, d * self.layers.room
        if unable or cost > budget or d * (held * flight + fixed) + shared > room:
            return False
        inside = self.layers.sets[large][0] & ~self.layers.sets[small][0]
        if (inside, t) not in self.made:
            stage = BorderedStage(self.layers, _bits(inside), inside, t)
            key = stage.modes, stage.moved
            self.made[inside, t] = stage, self.number.setdefault(key, len(self.number))
        stage, number = self.made[inside, t]
        if (number, d, flight) not in self.known:
            answer = self._some_modes(stage, d, flight, budget - stage.moved)
            self.known[number, d, flight] = answer
        return self.known[number, d, flight]

    def _some_modes(self, stage: BorderedStage, d: int, flight: int, budget: int) -> bool:
        for most in sorted({row[5] for own in stage.modes for row in own}):
            for name in [None] if self.names is None else self.names:
                chosen = [
                    [
                        (cost + (d - 1) * weights, d * (held * flight + fixed) + shared)
                        for cost, weights, held, fixed, shared, scratch, own_name in own
                        if scratch <= most and (name in (None, own_name) or len(own) == 1)
                    ]
                    for own in stage.modes
                ]
                if all(chosen) and can_choose(chosen, budget, d * (self.layers.room - most)):
                    return True
        return False


def _choices(layers: HybridLayers, rules: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Tensor degrees, replicas and names of modes from which all stages of a plan may choose."""
    most = min(layers.microbatches, layers.devices)
    degrees = [d for d in range(1, most + 1) if layers.microbatches % d == 0]
    names = sorted({row[0][5] for rows in layers.rows.values() for own in rows for row in own})
    per: dict[str, list[list[str] | None]] = {
        "per_layer": [None],
        "per_stage": [names],
        "all_or_none": [[name] for name in names],
    }
    for own in per[rules.get("recompute", "per_layer")]:
        for ts in (
            [[*layers.rows]] if rules.get("degrees") == "free" else [[t] for t in layers.rows]
        ):
            one = rules.get("degrees", "one") == "one"
            for ds in [[d] for d in degrees] if one else [degrees]:
                yield ts, ds, own


def plan_within(
    layers: HybridLayers, rules: dict[str, Any], limit: int, tick: Callable[[], None] = lambda: None
) -> bool:
    """Whether some hybrid plan may take no longer than a limit, ns per batch."""
    stages: dict[Any, StagesWithin] = {}
    for ts, ds, names in _choices(layers, rules):
        key = None if names is None else tuple(names)
        own = stages.setdefault(key, StagesWithin(layers, limit, names, tick))
        if _row_within(own, ts, ds):
            return True
    return False


def _row_within(stages: StagesWithin, ts: list[int], ds: list[int]) -> bool:
    """Whether a row of stages of these degrees has all layers."""
    layers, limit = stages.layers, stages.limit
    n, k, rate = layers.microbatches, layers.devices, layers.rate
    least = [
        min((t * n * rate * row[0][0] for t in ts for row in layers.rows[t][layer]), default=inf)
        for layer in range(layers.num)
    ]
    work = [sum(least[layer] for layer in members) for _, members in layers.sets]
    if not layers.sets or work[-1] == inf:
        return False
    total, width = work[-1], max(1, limit * rate)
    states: list[list[tuple[int, int]]] = [[] for _ in layers.sets]  # (replicas, devices)
    states[0] = [(0, 0)]
    for large in range(1, len(layers.sets)):
        whole, _ = layers.sets[large]
        missing = -(-(total - work[large]) // width)
        found = list[tuple[int, int]]()
        for small in range(large):
            inner = layers.sets[small][0]
            if not states[small] or inner & ~whole:
                continue
            own = work[large] - work[small]
            for t in ts:
                for d in ds:
                    if d * t + missing > k or (own > 0 and own > d * t * width):
                        continue
                    for replicas, used in states[small]:
                        s, taken = replicas + d, used + d * t
                        if s > n or taken + missing > k:
                            continue
                        if any(a <= s and b <= taken for a, b in found):
                            continue
                        if stages.fits(small, large, d, t, -(-s // d)):
                            found = [x for x in found if not (s <= x[0] and taken <= x[1])]
                            found.append((s, taken))
        states[large] = sorted(found)
    return bool(states[-1])


def check(document: Any, certificate: Any, tick: Callable[[], None] = lambda: None) -> None:
    """Reject a claim below which there may be a plan."""
    try:
        graph, cluster = document["graph"], document["cluster"]
        parts = {
            "devices": cluster["devices"],
            "edges": graph.get("edges", []),
            "links": cluster.get("links", []),
            "ops": graph["ops"],
        }
        head = certificate["format"], certificate["version"], certificate["proof"]["kind"]
        if head != ("placegap-certificate", 1, "stages"):
            raise Rejected("it is not a certificate of placegap by stages")
        if certificate["instance_hash"] != digest(parts):
            raise Rejected("it is for another instance")
        rules, claim = certificate["semantics"], certificate["bound_ns"]
        if rules["objective"] != "hybrid_pipeline":
            raise Rejected("stages prove nothing about this objective")
        if rules.get("bubble"):  # then a pipeline may have more stages than microbatches
            raise Rejected("stages prove nothing where filling and draining count")
        for value, least in ((claim, 0), (rules["microbatches"], 1)):
            if type(value) is not int or value < least:
                raise Rejected(f"{str(value)[:40]!r} is out of its range")
        for rule, values in RULES.items():
            if rules.get(rule, values[0]) not in values:
                raise Rejected(f"{rule} {str(rules[rule])[:40]!r} is unknown")
        if claim and plan_within(HybridLayers(parts, rules), rules, claim - 1, tick):
            raise Rejected(f"it claims {claim} ns, and some plan takes less")
    except Rejected:
        raise
    except MALFORMED as e:
        raise Rejected(f"it is malformed: {type(e).__name__} {str(e)[:60]!r}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], check, "hybrid plan is below"))
