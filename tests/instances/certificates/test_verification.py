"""Hand-made wrong plans and schedules: both referees reject each for the rule that it breaks."""

from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Semantics,
    Transfer,
    example,
)
from placegap.instances.certificates.verification import verify
from placegap.instances.files.plan_file import StatedPlan, load_stated_plan, save_plan
from placegap.instances.problem import Times

PORT = Makespan()
LINK = Makespan(channels="link")
FREE = Makespan(channels="free")
HALF = Makespan(channels="half_duplex")
ANY = MaxLoad(plans="any")
CONVEX = MaxLoad(plans="convex")
CHAIN = MaxLoad(plans="chain")
SHARED = MaxLoad(plans="any", replicas=True)
LEVELS = MaxLoad(plans="chain", levels=2)
CONVEX_LEVELS = MaxLoad(plans="convex", levels=2)
ONCE = LatencySubgraphs()
TWICE = LatencySubgraphs(subgraphs=2)

# FD-DPS, figure 3: op1 0-5 and op3 5-15 on gpu0, op2 6-26 on gpu1, op4 27-35 on gpu0
BEST = Plan.on([0, 1, 0, 0])
SPANS = ((0, 5), (6, 26), (5, 15), (27, 35))
MOVES = {Transfer(0, 1): (5, 6), Transfer(2, 0): (26, 27)}
Spans = tuple[tuple[int, int], ...]
Sent = tuple[Transfer, Transfer]


def make(ops: str, *edges: str, devices: int = 2, linked: bool = True, **changes: Any) -> Instance:
    """Ops of 5 ns and 2 bytes named by letters; edges "ab" of 3 ns; devices alike.

    `changes`: fields of single ops or devices, by name.
    """
    names, host = [f"d{k}" for k in range(devices)], {} if linked else {"host_time_ns": 3}
    alike = {"time_ns": {"gpu": 5}, "resident_bytes": 2}
    made = tuple(Op(**{"name": x, **alike, **changes.get(x, {})}) for x in ops)
    wires = tuple(Edge(producer=a, consumer=b, bytes=3, **host) for a, b in edges)
    cards = tuple(Device(**{"name": x, "kind": "gpu", **changes.get(x, {})}) for x in names)
    pairs = permutations(names, 2) if linked else ()
    links = tuple(Link(source=a, target=b, bandwidth_bytes_per_s=10**9) for a, b in pairs)
    graph = Graph(name="made", ops=made, edges=wires)
    cluster = Cluster(name="made", devices=cards, links=links)
    return Instance(name="made", graph=graph, cluster=cluster)


def on(*placement: int | tuple[int, ...], **fields: Any) -> Plan:
    return Plan(tuple((k,) if isinstance(k, int) else k for k in placement), **fields)


@dataclass(frozen=True)
class Wrong:
    """A plan that breaks a rule; `sane` is what it was before, and breaks none."""

    name: str
    rule: str
    instance: Instance
    semantics: Semantics
    plan: Plan
    sane: Plan
    times: Times | None = None
    sane_times: Times | None = None


def wrong_times(
    name: str,
    rule: str,
    *,
    spans: dict[int, tuple[int, int]] | None = None,
    moves: dict[Transfer, tuple[int, int] | None] | None = None,
) -> Wrong:
    """The best schedule of the diamond, a few of its times changed."""
    ops = tuple((spans or {}).get(i, span) for i, span in enumerate(SPANS))
    changed = {**MOVES, **(moves or {})}
    times = Times(ops, {move: span for move, span in changed.items() if span is not None})
    return Wrong(name, rule, example(), PORT, BEST, BEST, times, Times(SPANS, MOVES))


def wrong_span(
    name: str, instance: Instance, semantics: Semantics, plan: Plan, ops: Spans, sent: Sent
) -> Wrong:
    """Two transfers of 3 ns, the first from 5 to 8; the other after it, and 1 ns too early."""
    first, second = sent
    late, early = ({first: (5, 8), second: (start, start + 3)} for start in (8, 7))
    times = Times(ops, early), Times(ops, late)
    return Wrong(name, "channel_overlap", instance, semantics, plan, plan, *times)


PAIR = make("ab", "ab")
TWO = make("ab")
# a on d0 feeds b and c on d1, one transfer of 3 ns after the other
FORK = make("abc", "ab", "ac")
# a on d0 and b on d1 feed c and d on d2
MERGE = make("abcd", "ac", "bd", devices=3)
# a on d0 feeds b on d1; c on d1 feeds d on d0
CROSS = make("abcd", "ab", "cd")
LINE = make("abc", "ab", "bc", d0={"server": "s"}, d1={"server": "t"})
NO_LINKS = make("ab", "ab", linked=False, a={"parameter_bytes": 1})
MIXED = make("ab", "ab", devices=3, d2={"kind": "cpu"}, a={"time_ns": {"gpu": 5, "cpu": 5}})
GROUP = make(
    "abc",
    "ab",
    "bc",
    devices=3,
    **{x: {"colocation": "g"} for x in "ac"},
    **{x: {"is_host": True} for x in ("d0", "d1")},
)
CALLS = make("abcd", "ab", "bc", "cd")
SMALL = make("ab", d0={"memory_bytes": 3})
SMALLER = make("ab", d0={"memory_bytes": 3}, d1={"memory_bytes": 3})
UNLIKE = make("ab", d1={"memory_bytes": 99})
THREE = make("ab", devices=3)
ZERO, EARLY = Times(((0, 5), (5, 10)), {}), Times(((0, 5), (4, 9)), {})
# the ops of FORK, MERGE and CROSS with transfers from 5 to 8 and from 8 to 11
AFTER = (0, 5), (8, 13), (13, 18)
JOINED = (0, 5), (0, 5), (8, 13), (13, 18)
CROSSED = (0, 5), (8, 13), (0, 5), (11, 16)
SENT, NEXT, BACK = Transfer(0, 1), Transfer(1, 1), Transfer(2, 1)
INTO = Transfer(0, 2), Transfer(1, 2)
ORDERED = on(0, 0, 0, device_order=((0, 1, 2), ()))
ROUTED = on(0, 1, 1, channel_order={1: (SENT,)})
CALLED = on(0, 0, 0, call=(0, 0, 0))


def wrong_order(
    name: str, instance: Instance, home: tuple[int, ...], order: Any, sane: Any
) -> Wrong:
    """Orders of the ops of devices."""
    plans = (on(*home, device_order=each) for each in (order, sane))
    return Wrong(f"orders: {name}", "order", instance, PORT, *plans)


def wrong_channel(
    name: str, instance: Instance, home: tuple[int, ...], order: Any, sane: Any
) -> Wrong:
    """Orders of the transfers of links."""
    plans = (on(*home, channel_order=each) for each in (order, sane))
    return Wrong(f"transfer orders: {name}", "order", instance, LINK, *plans)


def wrong_call(name: str, call: tuple[int, ...]) -> Wrong:
    """Four ops of a row in two calls of one device."""
    return Wrong(
        name, "order", CALLS, TWICE, *(on(0, 0, 0, 0, call=x) for x in (call, (0, 0, 1, 1)))
    )


BOTH = (0, 1), (0, 1)
WRONG = (
    wrong_times("an op starts 1 ns before its input is there", "precedence", spans={1: (5, 25)}),
    wrong_times("an op starts 1 ns before its local input", "precedence", spans={3: (26, 34)}),
    wrong_times("an op is 1 ns too short", "duration", spans={2: (5, 14)}),
    wrong_times("an op is 1 ns too long", "duration", spans={2: (5, 16)}),
    wrong_times("a transfer is missing", "transfer", moves={Transfer(0, 1): None}),
    wrong_times("a transfer is 1 ns too short", "duration", moves={Transfer(0, 1): (5, 5)}),
    wrong_times("a tensor is sent before it is done", "transfer", moves={Transfer(0, 1): (4, 5)}),
    wrong_times("a transfer that nothing waits for", "transfer", moves={Transfer(1, 1): (6, 26)}),
    wrong_times("a transfer to its own device", "transfer", moves={Transfer(1, 0): (6, 6)}),
    Wrong("two ops overlap by 1 ns", "device_overlap", TWO, PORT, on(0, 0), on(0, 0), EARLY, ZERO),
    wrong_span("two leave a port at once", FORK, PORT, on(0, 1, 1), AFTER, (SENT, NEXT)),
    wrong_span("two enter a port at once", MERGE, PORT, on(0, 1, 2, 2), JOINED, INTO),
    wrong_span("two use a link at once", FORK, LINK, on(0, 1, 1), AFTER, (SENT, NEXT)),
    wrong_span("a half-duplex port", CROSS, HALF, on(0, 1, 1, 0), CROSSED, (SENT, Transfer(1, 0))),
    Wrong("memory exceeded by one byte", "memory", SMALL, ANY, on(0, 0), on(0, 1)),
    Wrong("a replica's memory exceeded", "memory", SMALLER, SHARED, on(*BOTH), on(0, 1)),
    Wrong("a group torn apart", "colocation", GROUP, PORT, on(0, 0, 1), on(0, 0, 0)),
    Wrong("a group half on a host", "colocation", GROUP, ONCE, on(0, 2, 2), on(0, 2, 1)),
    Wrong("an op where it cannot run", "shape", MIXED, PORT, on(2, 2), on(2, 1)),
    Wrong("a device that is not there", "shape", PAIR, PORT, on(0, 2), on(0, 1)),
    Wrong("a negative device", "shape", PAIR, PORT, on(0, -1), on(0, 1)),
    Wrong("an op on no device", "shape", PAIR, SHARED, on(0, ()), on(0, 1)),
    Wrong("an op on two devices", "shape", PAIR, ANY, on(0, (0, 1)), on(0, 1)),
    Wrong("an op that is not placed", "shape", PAIR, PORT, on(0), on(0, 1)),
    Wrong("a device twice", "shape", PAIR, SHARED, on((0, 0), (0, 0)), on(*BOTH)),
    Wrong("devices descend", "shape", PAIR, SHARED, on((1, 0), (1, 0)), on(*BOTH)),
    Wrong("a device that is not convex", "convex", LINE, CONVEX, on(0, 1, 0), on(0, 1, 1)),
    Wrong("devices feed each other", "chain", CROSS, CHAIN, on(0, 1, 1, 0), on(0, 1, 0, 1)),
    Wrong("servers feed each other", "chain", LINE, LEVELS, on(0, 1, 0), on(0, 1, 1)),
    Wrong("a server is not convex", "convex", LINE, CONVEX_LEVELS, on(0, 1, 0), on(0, 1, 1)),
    Wrong("replicas on unlike devices", "replicas", UNLIKE, SHARED, on(*BOTH), on(0, 1)),
    Wrong("a device of two stages", "replicas", THREE, SHARED, on((0, 1), (1, 2)), on((0, 1), 2)),
    Wrong("replicas that no path joins", "replicas", NO_LINKS, SHARED, on(*BOTH), on(0, 1)),
    wrong_order("an op twice", LINE, (0, 0, 0), ((0, 1, 1), ()), ((0, 1, 2), ())),
    wrong_order("an op is left out", LINE, (0, 0, 0), ((0, 1), ()), ((0, 1, 2), ())),
    wrong_order("another device's op", LINE, (0, 1, 0), ((0, 1, 2), (1,)), ((0, 2), (1,))),
    wrong_order("against an edge", LINE, (0, 0, 0), ((1, 0, 2), ()), ((0, 1, 2), ())),
    wrong_order("a circle", CROSS, (0, 1, 1, 0), ((3, 0), (1, 2)), ((0, 3), (2, 1))),
    wrong_order("too few devices", LINE, (0, 0, 0), ((0, 1, 2),), ((0, 1, 2), ())),
    wrong_channel("a transfer is left out", FORK, (0, 1, 1), {1: (SENT,)}, {1: (SENT, NEXT)}),
    wrong_channel("no such channel", FORK, (0, 1, 1), {4: (SENT, NEXT)}, {1: (SENT, NEXT)}),
    wrong_channel("no channel below 0", FORK, (0, 1, 1), {-1: ()}, {1: (SENT, NEXT)}),
    # the first of a line of transfers waits for the op that the last one feeds
    wrong_channel("a circle", CALLS, (0, 1, 0, 1), {1: (BACK, SENT)}, {1: (SENT, BACK)}),
    Wrong("op orders for a load", "fields", LINE, ANY, ORDERED, on(0, 0, 0)),
    Wrong("transfer orders, free channels", "fields", FORK, FREE, ROUTED, on(0, 1, 1)),
    Wrong("calls for a makespan", "fields", LINE, PORT, CALLED, on(0, 0, 0)),
    wrong_call("a call that there is not", (0, 0, 1, 2)),
    wrong_call("a negative call", (0, 0, 1, -1)),
    wrong_call("calls of a device that interleave", (0, 1, 0, 1)),
    wrong_call("calls in the wrong order", (1, 1, 0, 0)),
    Wrong("a call that is entered again", "order", LINE, ONCE, on(0, 1, 0), on(0, 1, 1)),
    wrong_call("calls for too few ops", (0, 0)),
)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_plan_breaks_its_rule_for_both_referees(case: Wrong) -> None:
    verdict = verify(case.instance, StatedPlan(case.plan, case.semantics, times=case.times))
    assert {violation.rule for violation in verdict.first.violations} == {case.rule}
    assert {violation.rule for violation in verdict.second.violations} == {case.rule}
    assert verdict.agree
    assert not verdict.holds
    sane = StatedPlan(case.sane, case.semantics, times=case.sane_times)
    assert verify(case.instance, sane).holds


def test_every_rule_of_plans_is_broken() -> None:
    rules = (
        "shape fields memory colocation replicas convex chain order precedence transfer duration"
    )
    assert {case.rule for case in WRONG} == {*rules.split(), "device_overlap", "channel_overlap"}


@pytest.mark.parametrize("value_ns", [34, 36])
def test_a_value_that_is_1_ns_off_is_refused_by_both_referees(value_ns: int) -> None:
    verdict = verify(example(), StatedPlan(BEST, PORT, value=value_ns))
    for each in (verdict.first, verdict.second):
        assert [violation.rule for violation in each.violations] == ["claim"]
    assert not verdict.holds


def test_a_plan_of_another_content_is_refused_but_on_request() -> None:
    stated = StatedPlan(BEST, PORT, "0" * 64)
    verdict = verify(example(), stated)
    for each in (verdict.first, verdict.second):
        assert [violation.rule for violation in each.violations] == ["instance"]
    assert verify(example(), stated, any_content=True).holds


def test_valid_times_are_the_orders_of_a_plan_without() -> None:
    # left to itself the clock sends b its tensor first, and b runs before c
    moves = {Transfer(0, 1): (8, 11), Transfer(1, 1): (5, 8)}
    times = Times(((0, 5), (13, 18), (8, 13)), moves)
    verdict = verify(FORK, StatedPlan(on(0, 1, 1), LINK, times=times))
    assert verdict.holds
    assert verdict.plan.device_order == ((0,), (2, 1))
    assert verdict.first.schedule is not None
    assert verdict.first.schedule.start_ns.tolist() == [0, 13, 8]


def test_a_plan_file_keeps_its_claims(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(example(), BEST, PORT, path, value=35, times=Times(SPANS, MOVES))
    stated = load_stated_plan(example(), path)
    assert stated == StatedPlan(BEST, PORT, example().content_hash, 35, Times(SPANS, MOVES))
    assert verify(example(), stated).holds
    assert not verify(example(), replace(stated, value=34)).holds
