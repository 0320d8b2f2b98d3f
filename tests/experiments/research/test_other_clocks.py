"""The same plan by other clocks: free channels, and no transfers at all."""

from draws import draw

from placegap.experiments.research.other_clocks import other_clocks
from placegap.instances import Edge, Instance, Makespan, Op, Plan, simulate


def fan() -> Instance:
    """Op a hands 10 bytes to each of b and c; a link takes 1 ns per byte."""
    ops = tuple(Op(name=name, time_ns={"gpu": 5}) for name in "abc")
    edges = tuple(Edge(producer="a", consumer=name, bytes=10, tensor=name) for name in "bc")
    devices = draw.devices(["gpu"] * 3)
    return draw.instance_of("fan", ops, edges, devices, draw.fast_links(devices))


def test_transfers_that_wait_for_one_port_do_not_wait_when_channels_are_free() -> None:
    plan = Plan.on([0, 1, 2])
    # with ports: a until 5, the tensors until 15 and 25, the last op until 30
    assert simulate(fan(), plan, Makespan(channels="port")).makespan_ns == 30
    # free: both tensors until 15, both ops until 20; without transfers: 5 + 5
    assert other_clocks(fan(), plan, Makespan(channels="port")) == {
        "free_channels_ns": 20,
        "no_transfers_ns": 10,
    }
