"""The same plan by other clocks: free channels, and no transfers at all."""

from placegap.experiments.research.other_clocks import other_clocks
from placegap.instances import Device, Edge, Graph, Instance, Makespan, Op, Plan, simulate
from placegap.instances.problem import Cluster, Link


def fan() -> Instance:
    """Op a hands 10 bytes to each of b and c; a link takes 1 ns per byte."""
    ops = tuple(Op(name=name, time_ns={"gpu": 5}) for name in "abc")
    edges = tuple(Edge(producer="a", consumer=name, bytes=10, tensor=name) for name in "bc")
    devices = tuple(Device(name=name, kind="gpu") for name in "xyz")
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a in devices
        for b in devices
        if a != b
    )
    cluster = Cluster(name="three", devices=devices, links=links)
    return Instance(name="fan", graph=Graph(name="fan", ops=ops, edges=edges), cluster=cluster)


def test_transfers_that_wait_for_one_port_do_not_wait_when_channels_are_free() -> None:
    plan = Plan.on([0, 1, 2])
    # with ports: a until 5, the tensors until 15 and 25, the last op until 30
    assert simulate(fan(), plan, Makespan(channels="port")).makespan_ns == 30
    # free: both tensors until 15, both ops until 20; without transfers: 5 + 5
    assert other_clocks(fan(), plan, Makespan(channels="port")) == {
        "free_channels_ns": 20,
        "no_transfers_ns": 10,
    }
