"""Two levels: devices pay within their server, servers pay for what goes between them."""

from __future__ import annotations

from draws import draw

from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Plan, evaluate
from placegap.instances.referee.loads import border_costs, server_costs

LEVELS = MaxLoad(plans="any", levels=2)


def instance(servers: str, *edges: Edge, hosts: str = "") -> Instance:
    """Ops of 1, 2, 3 ns; device k in server servers[k]; 1 byte/ns within, half of it between."""
    return draw.instance_of(
        "servers",
        (Op(name=name, time_ns={"x": time}) for name, time in zip("abc", (1, 2, 3), strict=True)),
        edges,
        (
            Device(name=f"d{k}", kind="x", server=server, is_host=str(k) in hosts)
            for k, server in enumerate(servers)
        ),
        draw.links(
            len(servers), lambda a, b: (10**9 if servers[a] == servers[b] else 10**9 // 2, 0)
        ),
    )


FAN_OUT = (
    Edge(producer="a", consumer="b", bytes=4, tensor="t"),
    Edge(producer="a", consumer="c", bytes=4, tensor="t"),
)


def judge(on: Instance, placement: list[int]) -> tuple[list[int], list[object], int | None]:
    """Loads of devices and of servers, and the value."""
    verdict = evaluate(on, Plan.on(placement), LEVELS)
    assert verdict.feasible, verdict.violations
    loads = [use.load_ns for use in verdict.uses]
    return loads, [tuple(server) for server in verdict.servers], verdict.value_ns


def test_devices_pay_within_and_servers_between() -> None:
    # 4 bytes from d0 to d1, in the same server s, and to d2, alone in t: d0 1 + 4 out, d1 2 + 4 in,
    # d2 3 and nothing in, having no neighbour; s 8 out, t 8 in
    assert judge(instance("sst", *FAN_OUT), [0, 1, 2]) == ([5, 6, 3], [("s", 8), ("t", 8)], 8)


def test_a_tensor_enters_a_server_once() -> None:
    # b and c on two devices of t: each device pays 4 in, the server 8 once
    on = instance("stt", *FAN_OUT)
    assert judge(on, [0, 1, 2]) == ([1, 6, 7], [("s", 8), ("t", 8)], 8)


def test_hosts_are_free_but_their_server_pays() -> None:
    on = instance("sst", *FAN_OUT, hosts="0")
    assert judge(on, [0, 1, 2]) == ([1, 6, 3], [("s", 8), ("t", 8)], 8)


def test_a_stated_host_time_is_the_cost_within() -> None:
    matrix = ((0, 5, 6), (5, 0, 7), (6, 9, 0))
    stated = Edge(producer="a", consumer="b", host_time_ns=3, transfer_ns=matrix)
    plain = Edge(producer="a", consumer="c", transfer_ns=matrix)
    on = instance("sst", stated, plain)
    # within s the matrix says 5; between s and t the least of 6 and 7 out, 6 and 9 in
    assert border_costs(on, LEVELS).tolist() == [[3, 3, 3], [5, 5, 0]]
    assert server_costs(on).tolist() == [[6, 6], [6, 6]]


def test_servers_form_a_chain_and_are_convex() -> None:
    # a on d0 in s feeds b on d1 in t feeds c on d2 in s: a chain of devices, not of servers
    on = instance("sts", Edge(producer="a", consumer="b"), Edge(producer="b", consumer="c"))
    for plans in ("chain", "convex"):
        semantics = LEVELS.model_copy(update={"plans": plans})
        (violation,) = evaluate(on, Plan.on([0, 1, 2]), semantics).violations
        assert (violation.rule, violation.op is None) == (plans, False)
        assert "server" in violation.message
        assert evaluate(on, Plan.on([0, 2, 1]), semantics).feasible
        assert evaluate(on, Plan.on([0, 1, 2]), semantics.model_copy(update={"levels": 1})).feasible


def test_replicas_are_of_one_server() -> None:
    semantics = LEVELS.model_copy(update={"replicas": True})
    on = instance("sst")
    assert evaluate(on, Plan(((0, 1), (0, 1), (2,))), semantics).value_ns == 3
    (violation,) = evaluate(on, Plan(((0, 2), (1,), (1,))), semantics).violations
    assert (violation.rule, violation.device) == ("replicas", "d2")


def test_in_one_server_a_host_time_is_enough() -> None:
    alone = instance("sss", Edge(producer="a", consumer="b", host_time_ns=3))
    assert evaluate(alone, Plan.on([0, 1, 1]), LEVELS).value_ns == 3 + 5
