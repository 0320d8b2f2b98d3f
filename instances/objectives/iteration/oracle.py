"""The second referee's pipeline: the longest chain of waits between numbered events.

Every event of a device has two numbers: which forward, or which backward event of the device it is.
With w the forward events that a device starts with, its k-th backward event waits for its forward
event k + w (or the last), and its forward event k + w for its backward event k - 1. Under gpipe
all backward events wait for all forward events. Under zero_bubble device q has numbered weight
events, too: the k-th waits for the backward event k + q (or the last), and what comes right after
backward event k + q for the weight event k. The updates of a device wait for all of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.memory import most_at_once, state_held, steps
from placegap.instances.oracle.rules import OrderError, judged, placed_rules
from placegap.instances.problem import Evaluation, PipelineIteration, Plan, Violation

Node = tuple[int, ...]
"""(step, microbatch), or (step, microbatch, later step): an event, or what it sends there.

The weight event of stage s of S is in step 2 S + s; the updates of device q are (3 S + q, 0).
"""


class StageChain:
    """A plan's stages, as far as the rules allow."""

    def __init__(self, facts: Facts, plan: Plan, semantics: PipelineIteration) -> None:
        self.facts, self.rules = facts, semantics
        self.ends = [ends for ends in facts.ends if not is_exchange(facts, *ends[:2])]
        self.home = [on[0] for on in plan.placement]
        self.stage = list(plan.stage) if plan.stage is not None else self._by_device()
        if plan.stage is None and semantics.schedule == "interleaved":
            raise OrderError("stages are not stated")
        numbers = sorted(set(self.stage))  # a range up to what a file states may not end
        if len(self.stage) != len(self.home) or numbers != list(range(len(numbers))):
            raise OrderError("stages are not numbered from 0 on")
        self.count = len(numbers)
        places = {(s, k) for s, k in zip(self.stage, self.home, strict=True)}
        self.device = [k for _, k in sorted(places)]
        self.p = self.count // semantics.stages_per_device
        rounds = self.device == self.device[: self.p] * semantics.stages_per_device
        if len(places) != self.count or not rounds or len(set(self.device)) != self.p:
            raise OrderError("stages are not on the devices in rounds")
        if semantics.schedule == "interleaved" and semantics.microbatches % self.p:
            raise OrderError("microbatches do not go in whole groups")
        self._check_groups()
        backward = [op.backward for op in facts.ops]
        self.trains = any(backward)
        self.splits = self.trains and semantics.schedule == "zero_bubble"
        self.step = [
            2 * self.count - 1 - s if back else s
            for s, back in zip(self.stage, backward, strict=True)
        ]
        if any(self.step[a] > self.step[b] for a, b, _ in self.ends):
            raise OrderError("a tensor goes to an earlier step")

    def _by_device(self) -> list[int]:
        """Devices one after another: always the lowest that no other one left feeds."""
        feeds = set()
        for a, b, _ in self.ends:
            back = self.facts.ops[a].backward, self.facts.ops[b].backward
            if back[0] == back[1] and self.home[a] != self.home[b]:
                ends = (self.home[a], self.home[b])
                feeds.add(ends[::-1] if back[0] else ends)
        left, order = set(self.home), list[int]()
        while left:
            free = [k for k in left if not any(b == k and a in left for a, b in feeds)]
            if not free:
                raise OrderError("devices feed each other in a cycle")
            order.append(min(free))
            left.remove(min(free))
        place = {k: at for at, k in enumerate(order)}
        return [place[k] for k in self.home]

    def _check_groups(self) -> None:
        seen: dict[tuple[str | None, int], int] = {}
        for op, k, s in zip(self.facts.ops, self.home, self.stage, strict=True):
            if op.colocation is not None and seen.setdefault((op.colocation, k), s) != s:
                raise OrderError(f"group {op.colocation!r} is in two stages")

    @property
    def steps(self) -> int:
        """Steps of a microbatch."""
        return self.count * 2 if self.trains else self.count

    def stage_of(self, step: int) -> int:
        return step if step < self.count else 2 * self.count - 1 - step

    def numbered(self, q: int, *, backward: bool) -> list[Node]:
        """The forward or the backward events of device q, by number."""
        m, v, p = self.rules.microbatches, self.rules.stages_per_device, self.p
        events: list[Node] = []
        for n in range(m * v):
            # Without chunks the n-th event is that of microbatch n; with them p microbatches go
            # through each.
            if v == 1:
                chunk, microbatch = 0, n
            else:
                chunk, microbatch = n % (p * v) // p, n // (p * v) * p + n % p
            stage = q + p * (v - 1 - chunk if backward else chunk)
            events.append((2 * self.count - 1 - stage if backward else stage, microbatch))
        return events

    def ahead(self, q: int) -> int:
        """Forward events that device q starts with."""
        m, v, p = self.rules.microbatches, self.rules.stages_per_device, self.p
        match self.rules.schedule:
            case "gpipe":
                return m
            case "1f1b" | "zero_bubble":
                return min(m, p - 1 - q)
            case _:
                return min(m * v, (v - 1) * p + 2 * (p - 1 - q))

    def device_waits(self, q: int) -> Iterator[tuple[Node, Node]]:
        """Which event of device q comes right before or some time before which other one."""
        # Waits between events of one device by number, as in the module's text, instead of a list
        # of events in order: so that an error in the referee's order is not repeated here.
        forward = self.numbered(q, backward=False)
        yield from pairwise(forward)
        if not self.trains:
            return
        backward, w = self.numbered(q, backward=True), self.ahead(q)
        yield from pairwise(backward)
        for k, event in enumerate(backward):
            yield forward[min(len(forward) - 1, k + w)], event
            if k and k + w < len(forward):
                yield backward[k - 1], forward[k + w]
        if self.splits:
            weights = self.weights(q)
            yield from pairwise(weights)
            for k, event in enumerate(weights):
                yield backward[min(k + q, len(backward) - 1)], event
                if k + q + 1 < len(backward):  # then it comes before the next of either kind
                    yield event, backward[k + q + 1]
                if k + q + 1 + w < len(forward):
                    yield event, forward[k + q + 1 + w]

    def weights(self, q: int) -> list[Node]:
        """The weight events of device q, by number."""
        return [(2 * self.count + q, j) for j in range(self.rules.microbatches)]


def is_exchange(facts: Facts, a: int, b: int) -> bool:
    """Whether an edge leads gradients of weights to another layer or to a copy's update."""
    # What it leads to in another layer waits like them; a copy gets the sum of a shared weight's
    # gradients.
    ops = facts.ops
    alone = ops[a].colocation is None
    if not ops[a].backward or (ops[a].colocation == ops[b].colocation and not alone):
        return False
    if ops[a].weight_gradient and ops[b].weight_gradient:
        return True
    if alone:
        return False
    readers = [i for i, _ in facts.succ[a]]
    home = [i for i in readers if ops[i].colocation == ops[a].colocation]
    return bool(home) and all(ops[i].backward and not facts.succ[i] for i in readers)


def iteration_ns(facts: Facts, plan: Plan, semantics: PipelineIteration) -> int:
    """End of the last event."""
    pipe = StageChain(facts, plan, semantics)
    length, sends = _lengths(pipe)
    duration: dict[Node, int] = {}
    waits: list[tuple[Node, Node]] = []
    for j in range(semantics.microbatches):
        for e in range(pipe.steps):
            duration[e, j] = length[e]
            if e:
                waits.append(((e - 1, j), (e, j)))
        for s in range(pipe.count if pipe.splits else 0):
            duration[2 * pipe.count + s, j] = length[2 * pipe.count + s]
        for (e, later), time in sends.items():
            duration[e, j, later] = time
            waits += [((e, j), (e, j, later)), ((e, j, later), (later, j))]
    # Messages of one pair of devices go in the order in which their sender's events run: the n-th
    # backward event runs after forward event n + w, so forward events are shifted by w.
    rank: dict[Node, tuple[int, int]] = {}  # place of each event in its device's order
    for q in range(pipe.p):
        waits += pipe.device_waits(q)
        update = 3 * pipe.count + q, 0
        duration[update] = sum(length[3 * pipe.count + q :: pipe.p])
        for run in (pipe.numbered(q, backward=False), pipe.numbered(q, backward=True)):
            waits += [(run[-1], update)] * (run[-1] in duration)
        waits += [(pipe.weights(q)[-1], update)] * pipe.splits
        w = pipe.ahead(q)
        for n, event in enumerate(pipe.numbered(q, backward=False)):
            rank[event] = (n - w, 0)
        for n, event in enumerate(pipe.numbered(q, backward=True) if pipe.trains else []):
            rank[event] = (n, 1)
    lines: dict[Node, list[Node]] = {}
    for node in duration:
        if len(node) == 3:
            ends = (pipe.stage_of(node[0]) % pipe.p, pipe.stage_of(node[2]) % pipe.p)
            lines.setdefault(ends, []).append(node)
    for line in lines.values():
        waits += pairwise(sorted(line, key=lambda node: (rank[node[:2]], node[2])))
    return _longest(duration, waits)


def _lengths(pipe: StageChain) -> tuple[list[int], dict[tuple[int, int], int]]:
    """Time of each step, and of what each step sends to a later one."""
    facts, length, sends = pipe.facts, [0] * 4 * pipe.count, dict[tuple[int, int], int]()
    for op, e, s, k in zip(facts.ops, pipe.step, pipe.stage, pipe.home, strict=True):
        at = 2 * pipe.count + s if pipe.splits and op.weight_gradient else e
        at = 3 * pipe.count + s if op.update else at
        length[at] += op.time_ns[facts.devices[k].kind]
    for u, (a, _) in enumerate(facts.tensors):
        # A tensor goes once to each other device that reads it, for the first step that does.
        readers = [b for _, b, of in pipe.ends if of == u and pipe.home[b] != pipe.home[a]]
        for k in sorted({pipe.home[b] for b in readers}):
            first = min(pipe.step[b] for b in readers if pipe.home[b] == k)
            if pipe.rules.sending == "overlap":
                key = (pipe.step[a], first)
                sends[key] = sends.get(key, 0) + facts.transfer_time(u, pipe.home[a], k)
            elif not facts.devices[k].is_host:
                length[first] += facts.host_time(u, k)
        if readers and pipe.rules.sending == "blocking" and not facts.devices[pipe.home[a]].is_host:
            length[pipe.step[a]] += facts.host_time(u, pipe.home[a])
    return length, {key: time for key, time in sends.items() if time}


def _longest(duration: dict[Node, int], waits: list[tuple[Node, Node]]) -> int:
    """The longest chain of waits; what waits is looked at once all before it has been."""
    after: dict[Node, list[Node]] = {node: [] for node in duration}
    missing, begin = dict.fromkeys(duration, 0), dict.fromkeys(duration, 0)
    for one, other in waits:
        after[one].append(other)
        missing[other] += 1
    ready, ends = [node for node, number in missing.items() if not number], list[int]()
    while ready:
        node = ready.pop()
        ends.append(begin[node] + duration[node])
        for other in after[node]:
            begin[other] = max(begin[other], ends[-1])
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(ends) < len(duration):
        raise OrderError("events wait for each other")
    return max(ends)


def recheck(facts: Facts, plan: Plan, rules: PipelineIteration) -> Evaluation:
    """The end of an iteration, and every rule that the plan breaks."""
    found = placed_rules(facts, plan, rules)

    def value() -> int:
        end_ns = iteration_ns(facts, plan, rules)
        found.extend(in_flight_rule(facts, plan, rules))
        return end_ns

    return judged(found, value)


def in_flight_rule(facts: Facts, plan: Plan, semantics: PipelineIteration) -> Iterator[Violation]:
    """Devices that hold more than they can."""
    # They hold resident bytes, and the stash of microbatches beyond the first that are in flight;
    # at the peak, state and what one passage needs for the former.
    pipe = StageChain(facts, plan, semantics)
    held = [0] * len(facts.devices)
    if semantics.memory == "peak":
        for k in set(pipe.home):
            held[k] = _one_passage(pipe, k)
    else:
        for op, k in zip(facts.ops, pipe.home, strict=True):
            held[k] += op.resident_bytes
    if pipe.trains:
        flying = _in_flight(pipe)
        for s in range(pipe.count):
            if pipe.splits:
                held[pipe.device[s]] += _most_of_two(pipe, s)
            else:
                held[pipe.device[s]] += (flying[s] - 1) * _stash(pipe, s)
    for device, most in zip(facts.devices, held, strict=True):
        if device.memory_bytes is not None and most > device.memory_bytes:
            yield Violation(
                "memory",
                f"{device.name!r} holds {most} bytes of {device.memory_bytes}",
                device=device.name,
            )


def _one_passage(pipe: StageChain, k: int) -> int:
    """State of a device, and the most that one microbatch needs there."""
    # One of its stages is at the fullest step of its ops, pass by pass, and each other one keeps a
    # stash.
    facts, ops = pipe.facts, pipe.facts.ops
    # Places of ops in a passage: forward before backward before weight gradients, else by their
    # steps.
    begin = {i: span[0] for i, span in enumerate(steps(facts))}
    late = len(ops) * 2 if pipe.splits else 0

    def moment(i: int) -> int:
        return begin[i] + ops[i].backward * len(ops) + ops[i].weight_gradient * late

    most = 0
    stages = [s for s, home in enumerate(pipe.device) if home == k]
    for s in stages:
        here = [i for i, at in enumerate(pipe.stage) if at == s]
        rows = [(moment(i), moment(i) + 1, ops[i].workspace_bytes) for i in here]
        for u, (a, edge) in enumerate(facts.tensors):
            uses = [moment(b) for _, b, of in facts.ends if of == u and pipe.stage[b] == s]
            uses += [moment(a)] * (pipe.stage[a] == s)
            if uses:
                rows.append((min(uses), max(uses) + 1, edge.bytes))
        # While one stage of a device is at work, its other stages keep a stash of the microbatch.
        others = sum(_stash(pipe, other) for other in stages if other != s)
        most = max(most, most_at_once(rows) + others)
    return state_held(facts, [i for i, on in enumerate(pipe.home) if on == k]) + most


def _in_flight(pipe: StageChain) -> list[int]:
    """Most microbatches of each stage that are begun and not ended."""
    # Counted before each backward event: then as many forward events have run as it waits for.
    most = [1] * pipe.count
    for q in range(pipe.p):
        forward, w = pipe.numbered(q, backward=False), pipe.ahead(q)
        flying, ran = [0] * pipe.count, 0
        for k, (step, _) in enumerate(pipe.numbered(q, backward=True)):
            for s, _ in forward[ran : k + w + 1]:
                flying[s] += 1
                most[s] = max(most[s], flying[s])
            ran = max(ran, k + w + 1)
            flying[pipe.stage_of(step)] -= 1
    return most


def _most_of_two(pipe: StageChain, s: int) -> int:
    """Most bytes that a stage of zero_bubble holds of microbatches that it is not at work on."""
    # The stash of those that it has begun, and what weight events read of those that it has ended
    # backward; counted by the numbers of its events, one kind of event after another.
    m, w, open_and_waiting = pipe.rules.microbatches, pipe.ahead(s), list[tuple[int, int]]()
    for n in range(m):
        ended = max(0, n - w)  # backward events before forward event n
        open_and_waiting.append((n - ended, min(ended, s)))
        open_and_waiting.append((min(m, n + w + 1) - n - 1, min(n, s)))  # at backward event n
        ended = min(n + s, m - 1) + 1  # backward events before weight event n
        open_and_waiting.append((min(m, ended + w) - ended, ended - n - 1))
    stash, kept = _stash(pipe, s), _kept(pipe, s)
    return max(x * stash + y * kept for x, y in open_and_waiting)


def _kept(pipe: StageChain, s: int) -> int:
    """Bytes of the tensors that weight gradients of a stage read, and that none of them makes."""
    total, ops = 0, pipe.facts.ops
    for u, (a, edge) in enumerate(pipe.facts.tensors):
        readers = [b for _, b, of in pipe.ends if of == u and pipe.stage[b] == s]
        if not ops[a].weight_gradient and any(ops[b].weight_gradient for b in readers):
            total += edge.bytes
    return total


def _stash(pipe: StageChain, s: int) -> int:
    """Bytes of the tensors that forward ops of a stage touch and backward ops of it read."""
    total, ops = 0, pipe.facts.ops
    for u, (a, edge) in enumerate(pipe.facts.tensors):
        readers = [b for _, b, of in pipe.ends if of == u and pipe.stage[b] == s]
        mine = readers + [a] * (pipe.stage[a] == s)
        if any(not ops[i].backward for i in mine) and any(ops[i].backward for i in readers):
            total += edge.bytes
    return total
