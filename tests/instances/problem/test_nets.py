"""Nets: the cut of the hypergraph is the communication of max_load."""

import random

import numpy as np
from draws import draw
from draws.chains import chain_instance
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Op
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.nets import Nets, build_nets
from placegap.instances.referee.loads import device_loads


def instance(edges: list[tuple[str, str, int]]) -> Instance:
    """Ops a, b, c on a host and an accelerator; each producer has one tensor."""
    ops = (Op(name=name, time_ns={"x": 1}) for name in "abc")
    tensors = (Edge(producer=a, consumer=b, tensor="out", host_time_ns=t) for a, b, t in edges)
    return draw.instance_of("i", ops, tensors, draw.devices(["x"] * 2, hosts=1))


def pins(nets: Nets) -> list[list[int]]:
    return [part.tolist() for part in np.split(nets.pin, nets.net_ptr[1:-1])]


def test_a_tensor_is_one_net_however_many_consumers_it_has_and_hosts_pay_nothing() -> None:
    nets = build_nets(instance([("a", "b", 5), ("a", "c", 5)]), np.arange(3))
    assert pins(nets) == [[0, 1, 2]]
    assert nets.weight_ns.tolist() == [[0, 5]]


def test_nets_with_the_same_pins_add_up() -> None:
    nets = build_nets(instance([("a", "c", 5), ("b", "c", 7)]), np.array([0, 0, 1]))
    assert pins(nets) == [[0, 1]]
    assert nets.weight_ns.tolist() == [[0, 12]]


def test_tensors_within_a_block_and_tensors_that_cost_nothing_are_no_nets() -> None:
    nets = build_nets(instance([("a", "b", 5), ("b", "c", 0)]), np.array([0, 0, 1]))
    assert nets.num_nets == 0
    assert nets.block_ptr.tolist() == [0, 0, 0]


def test_nets_of_blocks_are_the_pins_seen_from_the_other_side() -> None:
    for seed in range(10):
        on = tiny_instance(seed, num_ops=6, density=0.5)
        nets = build_nets(on, np.arange(6))
        seen = [[e for e, members in enumerate(pins(nets)) if v in members] for v in range(6)]
        listed = [part.tolist() for part in np.split(nets.net, nets.block_ptr[1:-1])]
        assert listed == seen


def test_what_cut_nets_weigh_is_what_devices_pay() -> None:
    """On asymmetric clusters too: every device pays its own weight of the nets cut there."""
    rng = random.Random("nets")
    for seed in range(30):
        on = (
            chain_instance(seed)
            if seed % 2
            else tiny_instance(seed, num_ops=6, num_devices=3, density=0.5, hosts=seed % 4 // 2)
        )
        block = contract(on).block
        nets = build_nets(on, block)
        of_block = np.array([rng.randrange(on.num_devices) for _ in range(int(block.max()) + 1)])
        _, incoming, outgoing = device_loads(on, of_block[block])
        for k in range(on.num_devices):
            paid = sum(
                int(nets.weight_ns[e, k])
                for e, members in enumerate(pins(nets))
                if 0 < sum(of_block[v] == k for v in members) < len(members)
            )
            assert paid == incoming[k] + outgoing[k]
