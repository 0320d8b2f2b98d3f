"""Chains at their peak: the DP that looks up each stage's peak, against brute force."""

from itertools import islice

import pytest
from draws import draw
from draws.peak import peak_instances
from references.brute_force import oracle

from placegap.instances import Device, Edge, Instance, MaxLoad, Op, evaluate
from placegap.solvers import Outcome, Task
from placegap.solvers.chains.idle_steps import settle

CHAIN = MaxLoad(plans="chain", memory="peak")


def settled(instance: Instance, semantics: MaxLoad = CHAIN) -> Outcome:
    outcome = settle(Task(instance, semantics), Outcome(), None)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("load", ["add", "overlap"])
@pytest.mark.parametrize(
    ("number", "seed"), [(20, 0), pytest.param(2000, 10_000, marks=pytest.mark.deep)]
)
def test_the_best_chain_that_fits_is_found_and_proven(load: str, number: int, seed: int) -> None:
    compare(CHAIN.model_copy(update={"load": load}), number, seed)


def row_with_a_skip(*memory: int, weight: Op | None = None) -> Instance:
    """Four ops of 10 ns in a row. The first sends 60 bytes to the last one, and each 50 to the
    next; to another device all that takes 1,000 ns a tensor. `weight` sends nothing to the second.
    """
    ops = [Op(name=f"o{i}", time_ns={"gpu": 10}) for i in range(4)]
    pairs = [("o0", "o3", 60), ("o0", "o1", 50), ("o1", "o2", 50), ("o2", "o3", 50)]
    if weight is not None:
        ops, pairs = [*ops, weight], [*pairs, (weight.name, "o1", 0)]
    edges = tuple(
        Edge(producer=a, consumer=b, bytes=size, host_time_ns=1000 if size else 1)
        for a, b, size in pairs
    )
    devices = draw.devices(["gpu"] * len(memory), memory.__getitem__)
    if weight is not None:
        devices.append(Device(name="cpu", kind="cpu", memory_bytes=memory[0]))
    return draw.instance_of("row", ops, edges, devices)


@pytest.mark.parametrize("memory", [(120, 170), (170, 120)])
def test_devices_that_hold_the_floor_are_alike_only_with_equal_memory(
    memory: tuple[int, int],
) -> None:
    # while o1 runs, 60 + 50 + 50 bytes are live: one device holds everything in 40 ns, the other
    # one does not, and both hold the floor
    outcome = settled(row_with_a_skip(*memory))
    assert outcome.bound_value == oracle(row_with_a_skip(*memory), CHAIN) == 40


def test_what_takes_no_time_on_its_neighbour_s_devices_has_moved() -> None:
    # 160 bytes and 50 of weights do not fit into 170, so that the weights take 1 ns on the cpu, and
    # their op 1 ns more; moved along they would have to share two devices with the rest
    weight = Op(name="v", time_ns={"gpu": 0, "cpu": 1}, parameter_bytes=50)
    step = row_with_a_skip(170, 170, weight=weight)
    outcome, optimum = settled(step), oracle(step, CHAIN)
    assert optimum == 41
    assert (outcome.bound_value or 0) <= optimum


def compare(semantics: MaxLoad, number: int, seed: int) -> None:
    proven = fitting = 0
    for instance in islice(peak_instances(seed, semantics), number):
        optimum, outcome = oracle(instance, semantics), settled(instance, semantics)
        if outcome.plan is not None:
            verdict = evaluate(instance, outcome.plan, semantics)
            assert verdict.feasible
            assert verdict.value_ns >= optimum
            proven += verdict.value_ns == outcome.bound_value
        if optimum is not None:
            fitting += 1
            assert (outcome.bound_value or 0) <= optimum
    # where idle blocks hold what matters, a bound and a value may stay apart
    assert proven >= 0.9 * fitting
