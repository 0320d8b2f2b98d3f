"""chain-sides: the sides of a bound as plans, where there is a chain and a port to keep work.

A chain of intervals with the work beside it, as the decomposition uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import pytest
from draws.tiny import tiny_instance
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, more_makespan, oracle

from placegap.formulations.shared.times import serial_horizon_ns
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Makespan,
    Op,
    evaluate,
    example,
)
from placegap.instances.problem.example import tight_example
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.solvers import run_method
from placegap.solvers.decomposition.arcs import ArcTable, interval_chain, lower_table
from placegap.solvers.decomposition.chain_sides import SideWork

PORT = Makespan(channels="port")


def decoder(layers: int) -> Instance:
    """An encoder's last op, then a chain of layers; each reads keys that are made beside the chain.

    The encoder's output is dear to send (20 ns for each reader), keys are cheap (1 ns). Ops of the
    chain take 10 ns, keys 9 ns.
    """
    chain = ["start", "encoded", *(f"layer{i}" for i in range(layers))]
    edges = [(a, b, 1) for a, b in pairwise(chain)]
    for i in range(layers):
        edges += [("encoded", f"keys{i}", 20), (f"keys{i}", f"layer{i}", 1)]
    ops = [Op(name=name, time_ns={"gpu": 10}) for name in chain]
    ops += [Op(name=f"keys{i}", time_ns={"gpu": 9}) for i in range(layers)]
    names = ("g0", "g1")
    return Instance(
        name="decoder",
        graph=Graph(
            name="decoder",
            ops=tuple(ops),
            edges=tuple(Edge(producer=a, consumer=b, bytes=size) for a, b, size in edges),
        ),
        cluster=Cluster(
            name="pair",
            devices=tuple(Device(name=name, kind="gpu") for name in names),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a, b in (names, names[::-1])
            ),
        ),
    )


def test_work_beside_a_chain_leaves_with_the_op_that_feeds_it() -> None:
    instance = decoder(60)  # more ops than one interval may have, so that layers are on the chain
    # one device: 62 ops of 10 ns and 60 of 9 ns, 1160 ns. With `encoded` and the keys elsewhere:
    # start 10, 1 to send, encoded 10, the first keys 9, 1 to send, and 60 layers: 631 ns; a tenth
    # more leaves room for the order of the keys
    alone = run_method(instance, PORT, "single-device")
    found = run_method(instance, PORT, "chain-sides", {"steps": 5_000})
    assert alone.value_ns == 1160
    assert found.plan is not None
    assert found.value_ns is not None
    assert found.value_ns <= 694
    placed = zip(instance.graph.ops, found.plan.placement, strict=True)
    devices = {op.name: at[0] for op, at in placed}
    away = [devices[f"keys{i}"] == devices["encoded"] for i in range(60)]
    assert sum(away) > 30


def test_where_it_has_nothing_to_say_it_says_why() -> None:
    single = tiny_instance(1, num_devices=1)
    row = Instance(
        name="row",
        graph=Graph(
            name="row", ops=(Op(name="a", time_ns={"gpu": 1}), Op(name="b", time_ns={"gpu": 1}))
        ),
        cluster=example().cluster,
    )
    said = {
        "free": run_method(example(), Makespan(channels="free"), "chain-sides").message,
        "one": run_method(single, PORT, "chain-sides").message,
        "tight": run_method(tight_example(), PORT, "chain-sides").message,
        "row": run_method(row, PORT, "chain-sides").message,
    }
    assert said == {
        "free": "channels are free: no port keeps work on a device",
        "one": "not for one device, nor for more than 20000 ops",
        "tight": "memory is tight",
        "row": "no chain of intervals",
    }


@pytest.mark.parametrize("seed", range(6))
def test_its_plans_are_feasible_on_unlike_devices(seed: int) -> None:
    instance = tiny_instance(seed, num_ops=7, num_devices=3)
    found = run_method(instance, PORT, "chain-sides", {"steps": 100}, incumbent=None)
    if found.plan is not None:
        assert evaluate(instance, found.plan, PORT).feasible


def check(draws: Iterator[Instance], least: int) -> None:
    checked = 0
    for number, instance in enumerate(draws):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        optimum = oracle(instance, semantics)
        sections = choose_chain(instance, intervals(instance))
        if instance.num_devices == 1 or not sections or optimum is None:
            continue
        limit_ns = serial_horizon_ns(instance)
        chain = interval_chain(ArcTable(instance, semantics), sections, limit_ns)
        plain_ns, _ = chain.shortest(lower_table)
        beside = SideWork(instance, semantics, chain, limit_ns, lambda: False)
        bound_ns, path = beside.shortest(lower_table)
        assert bound_ns <= optimum, (instance.name, semantics.label)
        assert plain_ns <= optimum
        # the arcs lie one behind the other, so that refining them may raise the bound
        assert [use.section for use in path] == list(sections)
        assert all(a.leave == b.entry for a, b in pairwise(path))
        checked += 1
    assert checked >= least


def test_no_bound_is_above_an_optimum() -> None:
    check(makespan_draws(), 30)


@pytest.mark.deep
def test_no_bound_is_above_an_optimum_of_thousands() -> None:
    check(islice(more_makespan(11_000), 4000), 1500)
