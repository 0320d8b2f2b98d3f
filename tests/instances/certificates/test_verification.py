"""Hand-made wrong plans and schedules: both referees reject each for the rule that it breaks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    InputError,
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
ANY = MaxLoad()
CONVEX = MaxLoad(plans="convex")
CHAIN = MaxLoad(plans="chain")
SHARED = MaxLoad(replicas=True)
LEVELS = MaxLoad(plans="chain", levels=2)
CONVEX_LEVELS = MaxLoad(plans="convex", levels=2)
ONCE = LatencySubgraphs()
TWICE = LatencySubgraphs(subgraphs=2)

# FD-DPS, figure 3: op1 0-5 and op3 5-15 on gpu0, op2 6-26 on gpu1, op4 27-35 on gpu0
BEST = Plan.on([0, 1, 0, 0])
SPANS = ((0, 5), (6, 26), (5, 15), (27, 35))
MOVES = {Transfer(0, 1): (5, 6), Transfer(2, 0): (26, 27)}


def make(ops: str, *edges: str, devices: int = 2, linked: bool = True, **changes: Any) -> Instance:
    """Ops of 5 ns and 2 bytes named by letters; edges "ab" of 3 ns; devices alike.

    `changes`: fields of single ops or devices, by name.
    """
    names = [f"d{k}" for k in range(devices)]
    return Instance(
        name="made",
        graph=Graph(
            name="made",
            ops=tuple(
                Op(**{"name": x, "time_ns": {"gpu": 5}, "resident_bytes": 2, **changes.get(x, {})})
                for x in ops
            ),
            edges=tuple(
                Edge(producer=a, consumer=b, bytes=3, **({} if linked else {"host_time_ns": 3}))
                for a, b in edges
            ),
        ),
        cluster=Cluster(
            name="made",
            devices=tuple(
                Device(**{"name": name, "kind": "gpu", **changes.get(name, {})}) for name in names
            ),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a in names
                for b in names
                if a != b and linked
            ),
        ),
    )


def on(*placement: int | tuple[int, ...], **fields: Any) -> Plan:
    return Plan(tuple((k,) if isinstance(k, int) else k for k in placement), **fields)


@dataclass(frozen=True)
class Wrong:
    """A plan that breaks rules; `sane` is what it was before, and breaks none."""

    name: str
    instance: Instance
    semantics: Semantics
    plan: Plan
    rules: set[str]
    sane: Plan | None = None
    times: Times | None = None
    sane_times: Times | None = None
    value_ns: int | None = None
    sane_value_ns: int | None = None
    instance_hash: str = ""


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
    transfers = {move: span for move, span in changed.items() if span is not None}
    return Wrong(
        name, example(), PORT, BEST, {rule}, BEST, Times(ops, transfers), Times(SPANS, MOVES)
    )


def wrong_span(
    name: str,
    rule: str,
    instance: Instance,
    semantics: Semantics,
    plan: Plan,
    ops: tuple[tuple[int, int], ...],
    late: dict[Transfer, tuple[int, int]],
    early: dict[Transfer, tuple[int, int]],
) -> Wrong:
    """Transfers that were in time one after the other, one of them moved."""
    sane = Times(ops, late)
    return Wrong(name, instance, semantics, plan, {rule}, plan, Times(ops, {**late, **early}), sane)


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
    a={"colocation": "g"},
    c={"colocation": "g"},
    d0={"is_host": True},
    d1={"is_host": True},
)
CALLS = make("abcd", "ab", "bc", "cd")
ZERO = Times(((0, 5), (5, 10)), {})

WRONG = (
    wrong_times("an op starts 1 ns before its input is there", "precedence", spans={1: (5, 25)}),
    wrong_times("an op starts 1 ns before its local input", "precedence", spans={3: (26, 34)}),
    wrong_times("an op is 1 ns too short", "duration", spans={2: (5, 14)}),
    wrong_times("an op is 1 ns too long", "duration", spans={2: (5, 16)}),
    wrong_times("a transfer is missing", "transfer", moves={Transfer(0, 1): None}),
    wrong_times("a transfer is 1 ns too short", "duration", moves={Transfer(0, 1): (5, 5)}),
    wrong_times(
        "a tensor is sent 1 ns before it is done", "transfer", moves={Transfer(0, 1): (4, 5)}
    ),
    wrong_times("a transfer that nothing waits for", "transfer", moves={Transfer(1, 1): (6, 26)}),
    wrong_times("a transfer to its own device", "transfer", moves={Transfer(1, 0): (6, 6)}),
    Wrong(
        "two ops overlap by 1 ns",
        TWO,
        PORT,
        on(0, 0),
        {"device_overlap"},
        on(0, 0),
        Times(((0, 5), (4, 9)), {}),
        ZERO,
    ),
    wrong_span(
        "two transfers leave a port at once for 1 ns",
        "channel_overlap",
        FORK,
        PORT,
        on(0, 1, 1),
        ((0, 5), (8, 13), (13, 18)),
        {Transfer(0, 1): (5, 8), Transfer(1, 1): (8, 11)},
        {Transfer(1, 1): (7, 10)},
    ),
    wrong_span(
        "two transfers enter a port at once for 1 ns",
        "channel_overlap",
        MERGE,
        PORT,
        on(0, 1, 2, 2),
        ((0, 5), (0, 5), (8, 13), (13, 18)),
        {Transfer(0, 2): (5, 8), Transfer(1, 2): (8, 11)},
        {Transfer(1, 2): (7, 10)},
    ),
    wrong_span(
        "two transfers use a link at once for 1 ns",
        "channel_overlap",
        FORK,
        LINK,
        on(0, 1, 1),
        ((0, 5), (8, 13), (13, 18)),
        {Transfer(0, 1): (5, 8), Transfer(1, 1): (8, 11)},
        {Transfer(1, 1): (7, 10)},
    ),
    wrong_span(
        "a half-duplex port sends and receives at once for 1 ns",
        "channel_overlap",
        CROSS,
        HALF,
        on(0, 1, 1, 0),
        ((0, 5), (8, 13), (0, 5), (11, 16)),
        {Transfer(0, 1): (5, 8), Transfer(1, 0): (8, 11)},
        {Transfer(1, 0): (7, 10)},
    ),
    Wrong(
        "a value claimed 1 ns too low",
        example(),
        PORT,
        BEST,
        {"claim"},
        BEST,
        value_ns=34,
        sane_value_ns=35,
    ),
    Wrong(
        "a value claimed 1 ns too high",
        example(),
        PORT,
        BEST,
        {"claim"},
        BEST,
        value_ns=36,
        sane_value_ns=35,
    ),
    Wrong(
        "a plan of another content",
        example(),
        PORT,
        BEST,
        {"instance"},
        BEST,
        instance_hash="0" * 64,
    ),
    Wrong(
        "memory exceeded by one byte",
        make("ab", d0={"memory_bytes": 3}),
        ANY,
        on(0, 0),
        {"memory"},
        on(0, 1),
    ),
    Wrong(
        "a replica's memory exceeded by one byte",
        make("ab", d0={"memory_bytes": 3}, d1={"memory_bytes": 3}),
        SHARED,
        on((0, 1), (0, 1)),
        {"memory"},
        on(0, 1),
    ),
    Wrong("a group torn apart", GROUP, PORT, on(0, 0, 1), {"colocation"}, on(0, 0, 0)),
    Wrong("a group half on a host", GROUP, ONCE, on(0, 2, 2), {"colocation"}, on(0, 2, 1)),
    Wrong("an op where it cannot run", MIXED, PORT, on(2, 2), {"shape"}, on(2, 1)),
    Wrong("a device that is not there", PAIR, PORT, on(0, 2), {"shape"}, on(0, 1)),
    Wrong("a negative device", PAIR, PORT, on(0, -1), {"shape"}, on(0, 1)),
    Wrong("an op on no device", PAIR, SHARED, on(0, ()), {"shape"}, on(0, 1)),
    Wrong("an op on two devices", PAIR, ANY, on(0, (0, 1)), {"shape"}, on(0, 1)),
    Wrong("an op that is not placed", PAIR, PORT, on(0), {"shape"}, on(0, 1)),
    Wrong(
        "a stage whose devices descend",
        PAIR,
        SHARED,
        on((1, 0), (1, 0)),
        {"shape"},
        on((0, 1), (0, 1)),
    ),
    Wrong("a device that is not convex", LINE, CONVEX, on(0, 1, 0), {"convex"}, on(0, 1, 1)),
    Wrong("devices that feed each other", CROSS, CHAIN, on(0, 1, 1, 0), {"chain"}, on(0, 1, 0, 1)),
    Wrong("servers that feed each other", LINE, LEVELS, on(0, 1, 0), {"chain"}, on(0, 1, 1)),
    Wrong("a server that is not convex", LINE, CONVEX_LEVELS, on(0, 1, 0), {"convex"}, on(0, 1, 1)),
    Wrong(
        "replicas on unlike devices",
        make("ab", d1={"memory_bytes": 99}),
        SHARED,
        on((0, 1), (0, 1)),
        {"replicas"},
        on(0, 1),
    ),
    Wrong(
        "a device of two stages",
        make("ab", devices=3),
        SHARED,
        on((0, 1), (1, 2)),
        {"replicas"},
        on((0, 1), 2),
    ),
    Wrong(
        "replicas that no path joins", NO_LINKS, SHARED, on((0, 1), (0, 1)), {"replicas"}, on(0, 1)
    ),
    Wrong(
        "an order that names an op twice",
        LINE,
        PORT,
        on(0, 0, 0, device_order=((0, 1, 1), ())),
        {"order"},
        on(0, 0, 0, device_order=((0, 1, 2), ())),
    ),
    Wrong(
        "an order that leaves an op out",
        LINE,
        PORT,
        on(0, 0, 0, device_order=((0, 1), ())),
        {"order"},
        on(0, 0, 0, device_order=((0, 1, 2), ())),
    ),
    Wrong(
        "an order with another device's op",
        LINE,
        PORT,
        on(0, 1, 0, device_order=((0, 1, 2), (1,))),
        {"order"},
        on(0, 1, 0, device_order=((0, 2), (1,))),
    ),
    Wrong(
        "an order against an edge",
        LINE,
        PORT,
        on(0, 0, 0, device_order=((1, 0, 2), ())),
        {"order"},
        on(0, 0, 0, device_order=((0, 1, 2), ())),
    ),
    Wrong(
        "orders of two devices in a circle",
        CROSS,
        PORT,
        on(0, 1, 1, 0, device_order=((3, 0), (1, 2))),
        {"order"},
        on(0, 1, 1, 0, device_order=((0, 3), (2, 1))),
    ),
    Wrong(
        "orders for too few devices",
        LINE,
        PORT,
        on(0, 0, 0, device_order=((0, 1, 2),)),
        {"order"},
        on(0, 0, 0, device_order=((0, 1, 2), ())),
    ),
    Wrong(
        "a transfer order that leaves one out",
        FORK,
        LINK,
        on(0, 1, 1, channel_order={1: (Transfer(0, 1),)}),
        {"order"},
        on(0, 1, 1, channel_order={1: (Transfer(0, 1), Transfer(1, 1))}),
    ),
    Wrong(
        "a transfer order of no channel",
        FORK,
        LINK,
        on(0, 1, 1, channel_order={4: (Transfer(0, 1), Transfer(1, 1))}),
        {"order"},
        on(0, 1, 1, channel_order={1: (Transfer(0, 1), Transfer(1, 1))}),
    ),
    # the first of a line of transfers waits for the op that the last one feeds
    Wrong(
        "a transfer order in a circle",
        make("abcd", "ab", "bc", "cd"),
        LINK,
        on(0, 1, 0, 1, channel_order={1: (Transfer(2, 1), Transfer(0, 1))}),
        {"order"},
        on(0, 1, 0, 1, channel_order={1: (Transfer(0, 1), Transfer(2, 1))}),
    ),
    Wrong(
        "op orders for a load",
        LINE,
        ANY,
        on(0, 0, 0, device_order=((0, 1, 2), ())),
        {"fields"},
        on(0, 0, 0),
    ),
    Wrong(
        "transfer orders where channels are free",
        FORK,
        FREE,
        on(0, 1, 1, channel_order={1: (Transfer(0, 1),)}),
        {"fields"},
        on(0, 1, 1),
    ),
    Wrong("calls for a makespan", LINE, PORT, on(0, 0, 0, call=(0, 0, 0)), {"fields"}, on(0, 0, 0)),
    Wrong(
        "a call that there is not",
        CALLS,
        TWICE,
        on(0, 0, 0, 0, call=(0, 0, 1, 2)),
        {"order"},
        on(0, 0, 0, 0, call=(0, 0, 1, 1)),
    ),
    Wrong(
        "a negative call",
        CALLS,
        TWICE,
        on(0, 0, 0, 0, call=(0, 0, 1, -1)),
        {"order"},
        on(0, 0, 0, 0, call=(0, 0, 1, 1)),
    ),
    Wrong(
        "calls of a device that interleave",
        CALLS,
        TWICE,
        on(0, 0, 0, 0, call=(0, 1, 0, 1)),
        {"order"},
        on(0, 0, 0, 0, call=(0, 0, 1, 1)),
    ),
    Wrong(
        "calls in the wrong order",
        CALLS,
        TWICE,
        on(0, 0, 0, 0, call=(1, 1, 0, 0)),
        {"order"},
        on(0, 0, 0, 0, call=(0, 0, 1, 1)),
    ),
    Wrong("a call that is left and entered again", LINE, ONCE, on(0, 1, 0), {"order"}, on(0, 1, 1)),
    Wrong(
        "calls for too few ops",
        CALLS,
        TWICE,
        on(0, 0, 0, 0, call=(0, 0)),
        {"order"},
        on(0, 0, 0, 0, call=(0, 0, 1, 1)),
    ),
)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_plan_breaks_its_rule_for_both_referees(case: Wrong) -> None:
    stated = StatedPlan(case.plan, case.semantics, case.instance_hash, case.value_ns, case.times)
    verdict = verify(case.instance, stated)
    assert {violation.rule for violation in verdict.first.violations} == case.rules
    assert {violation.rule for violation in verdict.second.violations} == case.rules
    assert verdict.agree
    assert not verdict.holds
    assert case.sane is not None
    sane = StatedPlan(case.sane, case.semantics, "", case.sane_value_ns, case.sane_times)
    assert verify(case.instance, sane).holds


def test_there_are_more_than_30_wrong_plans_and_every_rule_is_broken() -> None:
    assert len(WRONG) > 50
    assert set().union(*(case.rules for case in WRONG)) == {
        "shape",
        "fields",
        "memory",
        "colocation",
        "replicas",
        "convex",
        "chain",
        "order",
        "precedence",
        "transfer",
        "duration",
        "device_overlap",
        "channel_overlap",
        "claim",
        "instance",
    }


def test_another_content_is_let_pass_on_request() -> None:
    stated = StatedPlan(BEST, PORT, "0" * 64)
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


def written(tmp_path: Path, **changes: Any) -> Path:
    """The best plan of the diamond as a file with its times, and parts of it changed."""
    path = tmp_path / "plan.json"
    save_plan(example(), BEST, PORT, path, value_ns=35, times=Times(SPANS, MOVES))
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))
    return path


def test_a_plan_file_keeps_its_claims(tmp_path: Path) -> None:
    stated = load_stated_plan(example(), written(tmp_path))
    assert stated == StatedPlan(BEST, PORT, example().content_hash, 35, Times(SPANS, MOVES))
    assert verify(example(), stated).holds
    assert not verify(example(), replace(stated, value_ns=34)).holds


ONE = {"producer": "op1", "consumer": "op2", "to": "gpu1", "start_ns": 5, "end_ns": 6}
OPS = {f"op{i + 1}": {"start_ns": a, "end_ns": b} for i, (a, b) in enumerate(SPANS)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 1}, "speed: unknown field"),
        ({"placement": {"op1": "gpu0"}}, "op 'op2' is not placed"),
        ({"placement": {"op5": "gpu0"}}, "there is no op 'op5'"),
        ({"placement": dict.fromkeys(OPS, "gpu7")}, "there is no device 'gpu7'"),
        ({"device_order": {"gpu0": ["op9"]}}, "there is no op 'op9'"),
        ({"channel_order": {"out of gpu9": []}}, "there is no channel 'out of gpu9'"),
        ({"value_ns": 34.5}, "value_ns"),
        ({"value_ns": -1}, "value_ns"),
        ({"times": {"ops": {**OPS, "op1": {"start_ns": -1, "end_ns": 4}}}}, "start_ns"),
        ({"times": {"ops": {"op1": OPS["op1"]}}}, "op 'op2' has none"),
        ({"times": {"ops": OPS, "transfers": [ONE, ONE]}}, "comes twice"),
        ({"times": {"ops": OPS, "transfers": [{**ONE, "to": "gpu3"}]}}, "no device 'gpu3'"),
        ({"times": {"ops": OPS, "transfers": [{**ONE, "consumer": "op4"}]}}, "no transfer"),
        ({"semantics": {"objective": "makespan", "plans": "chain"}}, "does not apply"),
        ({"semantics": {"objective": "max_load"}}, "times: not defined"),
        ({"call": {"op1": 0}}, "op 'op2' has none"),
    ],
)
def test_a_plan_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=r"plan\.json") as error:
        load_stated_plan(example(), written(tmp_path, **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
