"""The ideal DP over any devices: unequal kinds, replicated stages, servers; its bounds and ends."""

from itertools import islice

import pytest
from draws import draw
from draws.chains import wide_instance
from draws.equal_devices import equal_device_draws
from references.agreement import proves
from references.brute_force import max_load_draws, more_stages, oracle, stage_draws

from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Plan, Semantics
from placegap.instances.kernels import kernel as kernels
from placegap.instances.kernels.kernel import Kernel
from placegap.solvers import Result, run_method
from placegap.solvers.chains import bracket as ideal_kinds_bracket

CHAIN = MaxLoad(plans="chain")
OVERLAP = MaxLoad(plans="chain", load="overlap")
REPLICAS = MaxLoad(plans="chain", replicas=True)
SERVERS = MaxLoad(plans="chain", levels=2)
BOTH = MaxLoad(plans="chain", replicas=True, levels=2)
RULES = (OVERLAP, REPLICAS, SERVERS, BOTH)


def dp(instance: Instance, semantics: Semantics, **limits: object) -> Result:
    return run_method(instance, semantics, "ideal-dp", **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 300), marks=pytest.mark.deep)])
def test_it_finds_the_same_compiled_and_as_plain_python(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of unlike kinds, whose prices are floats, and of more blocks and nets than a word has."""
    loads = max_load_draws()
    found = []
    monkeypatch.setattr(kernels._settings, "plain", False)
    for _ in range(2):
        for seed in seeds:
            for instance in (loads[seed % len(loads)], wide_instance(seed)):
                result = dp(instance, OVERLAP if seed % 2 else CHAIN)
                found.append((result.plan, result.value_ns, result.bound_ns, result.status))
        monkeypatch.setattr(Kernel, "__call__", lambda self, *args: self.py_func(*args))
    half = len(found) // 2
    assert found[:half] == found[half:]


def draws(semantics: Semantics) -> list[Instance]:
    if semantics in (CHAIN, OVERLAP):
        return list(max_load_draws()[::11])
    return [*equal_device_draws()[::10], *stage_draws()[::20]]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start from orders: what is found is found by the search over all ideals."""
    monkeypatch.setattr(ideal_kinds_bracket.Bracket, "cut", lambda bracket, max_ideals: None)


# --------------------------------------------------------------------------------------- by hand


def test_two_devices_share_the_heavy_stage() -> None:
    # a b c of 2, 12, 2 ns on three equal devices. Stages {a, b} on two of them and {c}:
    # (14 + 1) / 2 = 8 and 2 + 1; all three share everything: 16 / 3, rounded up 6;
    # with 3 bytes of weights in b, which take 2 * 2 * 3 / 3 = 4 ns among three and 3 among two:
    # 6 + 4, or {a, b} | {c} 8 + 3, {a} | {b} | {c} 14; so 10
    proves(dp(row([2, 12, 2], kinds="xxx", weights=[0, 0, 0]), REPLICAS), 6)
    proves(dp(row([2, 12, 2], kinds="xxx", weights=[0, 3, 0]), REPLICAS), 10)


def test_links_decide_which_devices_share() -> None:
    # equal devices, 1 byte per ns from d0 to d1 and from d2 to d3, 1/4 elsewhere. Two ops of 16 ns
    # with 4 bytes of weights: each on a fast pair takes 17 / 2 = 9, and 4 for the weights;
    # on a slow pair 9 + 16; alone 16 + 1; both on all four 8 + 48
    graph, devices = row([16, 16], kinds="x", weights=[4, 4]).graph, draw.devices("xxxx")
    links = draw.links(4, lambda a, b: (10**9 // (1 if a // 2 == b // 2 else 4), 0))
    result = dp(draw.instance_of("pairs", graph.ops, graph.edges, devices, links), REPLICAS)
    proves(result, 13)
    assert sorted(result.plan.placement) == [(0, 1), (2, 3)]


def test_servers_pay_for_what_crosses_them() -> None:
    # four ops of 4 ns on two servers of two devices; a tensor takes 1 ns within a server, 20 ns
    # between servers. One op per device needs 20 at the servers; one server alone: 8 + 1
    graph = row([4, 4, 4, 4], kinds="x", size=0).graph
    devices = [Device(name=f"d{k}", kind="x", server=f"s{k // 2}") for k in range(4)]
    # with cheaper links, 5 ns: one op per device, 4 + 1 + 1, and 5 at the servers
    for far_ns, least_ns in ((20, 9), (5, 6)):
        links = draw.links(4, lambda a, b, far=far_ns: (10**18, 1 if a // 2 == b // 2 else far))
        instance = draw.instance_of("servers", graph.ops, graph.edges, devices, links)
        proves(dp(instance, SERVERS), least_ns)


def test_a_group_that_no_kind_can_hold_is_named() -> None:
    ops = [
        Op(name="a", time_ns={"x": 1, "y": 1}, resident_bytes=2, colocation="g"),
        Op(name="b", time_ns={"x": 1, "y": 1}, resident_bytes=2, colocation="g"),
    ]
    instance = draw.instance_of("group", ops, (), draw.devices("xy", (3, 2).__getitem__))
    result = dp(instance, CHAIN)
    assert result.status == "infeasible"
    assert "'a', 'b' together" in result.message


# ------------------------------------------------------------------------------------ agreement


@pytest.mark.parametrize("semantics", RULES, ids=lambda semantics: semantics.label)
@pytest.mark.parametrize("bisection", [0.0, 1.0])
def test_the_search_alone_finds_the_optimum(
    semantics: Semantics, bisection: float, bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By decisions only, or by one run for the value."""
    monkeypatch.setattr(ideal_kinds_bracket, "BISECTION", bisection)
    by_dp = 0
    for instance in draws(semantics)[::2]:
        result = dp(instance, semantics)
        proves(result, oracle(instance, semantics))
        by_dp += result.bound_origin.startswith("ideal-dp")
    assert by_dp >= 2


@pytest.mark.deep
@pytest.mark.parametrize("semantics", RULES, ids=lambda semantics: semantics.label)
def test_the_search_alone_finds_the_optimum_of_hundreds(semantics: Semantics, bare: None) -> None:
    for instance in islice(more_stages(10_000), 300):
        proves(dp(instance, semantics), oracle(instance, semantics))


# ------------------------------------------------------------------------------- limits and ends


@pytest.mark.parametrize("semantics", [OVERLAP, BOTH], ids=lambda semantics: semantics.label)
def test_with_too_many_ideals_value_and_bound_enclose_the_optimum(semantics: Semantics) -> None:
    stopped = 0
    for instance in draws(semantics)[::3]:
        best = oracle(instance, semantics)
        result = dp(instance, semantics, params={"max_ideals": 2})
        if best is not None and result.status != "optimal":
            stopped += 1
            assert "more than 2 ideals" in result.message
            assert result.bound_ns <= best
            assert result.value_ns is None or result.value_ns >= best
    assert stopped >= 1


def test_with_too_many_ideals_for_servers_the_bound_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch, bare: None
) -> None:
    monkeypatch.setattr(ideal_kinds_bracket, "MOST_SERVER_IDEALS", 2)
    loose = 0
    for instance in equal_device_draws()[::8]:
        best, result = oracle(instance, SERVERS), dp(instance, SERVERS)
        if best is None or result.bound_ns is None:
            continue
        assert result.bound_ns <= best
        assert result.value_ns is None or result.value_ns >= best
        if result.status != "optimal":
            assert "with servers at most 2" in result.message
            loose += 1
    assert loose >= 1


def test_without_time_there_are_a_plan_and_a_bound() -> None:
    result = dp(large(), BOTH, time_limit_s=0.0)
    assert result.status == "feasible"
    assert "time limit" in result.message
    assert result.bound_ns > 0


def test_ctrl_c_keeps_plan_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ideal_kinds_bracket, "enumerate_ideals", interrupt)
    result = dp(large(), CHAIN)
    assert (result.status, result.message) == ("feasible", "interrupted")
    assert result.bound_ns is not None


def test_too_many_kinds_give_a_plan_and_a_bound() -> None:
    # 2 ** 30 vectors of devices
    kinds = [f"k{k}" for k in range(30)]
    ops = [
        Op(name=f"op{i}", time_ns={kind: 20 + i + k for k, kind in enumerate(kinds)})
        for i in range(60)
    ]
    result = dp(draw.row(ops, draw.devices(kinds), host_time_ns=1), CHAIN)
    assert result.status == "feasible"
    assert "layers of states" in result.message


def test_a_replicated_incumbent_is_kept() -> None:
    instance = equal_device_draws()[0]
    best = dp(instance, BOTH)
    again = dp(instance, BOTH, time_limit_s=0.0, incumbent=best.plan)
    assert again.value_ns == best.value_ns
    # op 0 twice the devices of the cluster: not a plan of these rules
    worse = dp(instance, CHAIN, incumbent=Plan.on([0] * instance.num_ops))
    proves(worse, oracle(instance, CHAIN))


# ------------------------------------------------------------------------------------- instances


def row(
    times: list[int], *, kinds: str, weights: list[int] | None = None, size: int = 1
) -> Instance:
    """Ops in a row, a device per letter: y takes twice as long as x; a byte takes a ns."""
    weights = weights or [0] * len(times)
    ops = [
        Op(name=f"op{i}", time_ns={"x": t, "y": 2 * t}, parameter_bytes=w)
        for i, (t, w) in enumerate(zip(times, weights, strict=True))
    ]
    return draw.row(ops, draw.devices(kinds), bytes=size)


def large() -> Instance:
    """Seven chains of ten ops, 11 ** 7 ideals, on two kinds of devices in two servers."""
    ops = [
        Op(name=f"op{i}", time_ns={"x": 3 + i * i * 7 % 23, "y": 5 + i * 5 % 31}) for i in range(70)
    ]
    edges = [
        Edge(producer=f"op{i}", consumer=f"op{i + 1}", bytes=1 + i * 5 % 11)
        for i in range(70)
        if (i + 1) % 10
    ]
    devices = draw.devices("xyxy")
    plain = draw.instance_of("large", ops, edges, devices, draw.fast_links(devices))
    return draw.with_devices(plain, server=["s0", "s0", "s1", "s1"])
