"""The oracle itself: against the definition, read literally, through the referee."""

import itertools
from collections.abc import Iterable, Iterator

import pytest
from draws import draw
from draws.equal_devices import equal_device_draws
from draws.tiny import tiny_instance
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    INFEASIBLE_DRAWS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    makespan_draws,
    max_load_draws,
    oracle,
    scattered_instance,
)

from placegap.instances import (
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    PlanError,
    Semantics,
    Transfer,
    evaluate,
    example,
    simulate,
)
from placegap.instances.referee.channels import channels_of
from placegap.solvers import run_method


def label(semantics: Semantics) -> str:
    return semantics.label.replace(" ", "-")


def placements(instance: Instance) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(instance.num_devices), repeat=instance.num_ops)


def all_plans(instance: Instance, device: tuple[int, ...], semantics: Semantics) -> Iterator[Plan]:
    """Every op order on every device, every transfer order on every channel."""
    rows = simulate(instance, Plan.on(device), semantics).transfers
    on_channel: dict[int, list[Transfer]] = {}
    for item, source, to in zip(
        rows.item.tolist(), rows.source.tolist(), rows.destination.tolist(), strict=True
    ):
        for channel in channels_of(semantics.channels, instance.num_devices, source, to):
            if channel >= 0:
                on_channel.setdefault(channel, []).append(Transfer(item, to))
    members = [[i for i, k in enumerate(device) if k == d] for d in range(instance.num_devices)]
    for ops in itertools.product(*(itertools.permutations(group) for group in members)):
        for moves in itertools.product(*map(itertools.permutations, on_channel.values())):
            orders = dict(zip(on_channel, moves, strict=True))
            yield Plan(Plan.on(device).placement, tuple(map(tuple, ops)), orders or None)


def best_by_definition(instance: Instance, semantics: Semantics) -> int | None:
    best = None
    for device in placements(instance):
        if not evaluate(instance, Plan.on(device), semantics).feasible:
            continue
        for plan in all_plans(instance, device, semantics):
            try:
                value = simulate(instance, plan, semantics).makespan_ns
            except PlanError:  # cyclic orders
                continue
            best = value if best is None else min(best, value)
    return best


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=label)
def test_the_makespan_is_the_least_over_all_placements_and_orders(semantics: Semantics) -> None:
    drawn = [tiny_instance(seed, num_ops=4, num_devices=2, max_edges=3) for seed in range(3)]
    drawn += [scattered_instance(seed, num_ops=4, num_devices=3, max_edges=4) for seed in range(4)]
    found = [best_by_definition(instance, semantics) for instance in drawn]
    assert [oracle(instance, semantics) for instance in drawn] == found


@pytest.mark.parametrize("semantics", [*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS], ids=label)
def test_the_max_load_is_the_least_over_all_assignments(semantics: Semantics) -> None:
    for seed in range(16):
        instance = tiny_instance(
            seed, num_ops=5, num_devices=2 + seed % 2, hosts=seed % 3 // 2, backward=seed % 4 > 1
        )
        verdicts = [evaluate(instance, Plan.on(d), semantics) for d in placements(instance)]
        best = min((v.value_ns for v in verdicts if v.feasible), default=None)
        assert oracle(instance, semantics) == best


@pytest.mark.parametrize("semantics", STAGE_SEMANTICS, ids=label)
def test_the_stages_are_the_best_of_all_that_the_referee_allows(semantics: Semantics) -> None:
    drawn = [i for i in equal_device_draws() if i.num_ops == 4 and i.num_devices == 3]
    for instance in drawn[STAGE_SEMANTICS.index(semantics) % 20 :: 20]:
        devices = range(instance.num_devices)
        sets = [s for r in (1, 2, 3) for s in itertools.combinations(devices, r)]
        plans = itertools.product(sets[: None if semantics.replicas else 3], repeat=4)
        verdicts = [evaluate(instance, Plan(placement), semantics) for placement in plans]
        best = min((v.value_ns for v in verdicts if v.feasible), default=None)
        assert oracle(instance, semantics) == best, instance.name


@pytest.mark.deep
def test_the_draws_tell_all_semantics_of_stages_apart() -> None:
    optima = [[oracle(i, s) for i in equal_device_draws()] for s in STAGE_SEMANTICS]
    assert len({tuple(values) for values in optima}) == len(STAGE_SEMANTICS)


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=label)
def test_the_referee_reproduces_the_makespan_from_the_orders(semantics: Semantics) -> None:
    for instance in makespan_draws():
        result = run_method(instance, semantics, "brute-force")
        best = oracle(instance, semantics)
        assert (result.value_ns, result.bound_ns) == (best, best)
        assert result.status == ("infeasible" if best is None else "optimal")
        if result.plan is not None:
            assert best is not None
            assert simulate(instance, Plan(result.plan.placement), semantics).makespan_ns >= best


@pytest.mark.parametrize("semantics", MAX_LOAD_SEMANTICS, ids=label)
def test_the_referee_reproduces_the_max_load(semantics: Semantics) -> None:
    for instance in max_load_draws():
        result = run_method(instance, semantics, "brute-force")
        assert result.value_ns == oracle(instance, semantics)
        assert result.status == ("infeasible" if result.plan is None else "optimal")


def test_more_channels_cannot_hurt() -> None:
    tighter_and_tighter = [Makespan(channels=c) for c in ("free", "link", "port", "half_duplex")]
    sums = [total(makespan_draws(), semantics) for semantics in tighter_and_tighter]
    for instance in makespan_draws():
        values = [oracle(instance, semantics) or 0 for semantics in tighter_and_tighter]
        assert values == sorted(values)
    assert len(set(sums)) == 4  # the draws tell the four channel models apart


def test_sending_a_tensor_once_cannot_hurt() -> None:
    edge, tensor = (Makespan(transfers=t) for t in TRANSFERS)
    assert all((oracle(i, tensor) or 0) <= (oracle(i, edge) or 0) for i in makespan_draws())
    assert total(makespan_draws(), tensor) < total(makespan_draws(), edge)


def test_larger_classes_of_plans_have_smaller_optima() -> None:
    classes = [MaxLoad(plans=c) for c in ("any", "convex", "chain")]
    feasible = [i for i in max_load_draws() if oracle(i, classes[-1]) is not None]
    for instance in feasible:
        values = [oracle(instance, semantics) or 0 for semantics in classes]
        assert values == sorted(values)
    assert len({total(feasible, semantics) for semantics in classes}) == 3


def test_the_draws_are_as_many_as_they_say() -> None:
    for draws, semantics in (
        (makespan_draws(), MAKESPAN_SEMANTICS[0]),
        (max_load_draws(), MAX_LOAD_SEMANTICS[0]),
    ):
        assert len({instance.content_hash for instance in draws}) == 110
        assert [oracle(i, semantics) for i in draws].count(None) == INFEASIBLE_DRAWS


def test_the_diamond_takes_34() -> None:
    # op1 and op3 on one device until 15, op2 on the other from 6 to 26 (its input takes 1 ns), the
    # result of op3 arrives there at 25, op4 runs from 26 to 34. No better: op4 on the other device
    # than op2 starts at 27; all on one device take 43; op1, op2 together make op3 start at 25.
    assert oracle(example(), Makespan()) == 34


def test_a_chain_of_two_devices_is_the_best_of_three_cuts() -> None:
    # Three ops of 4 ns in a row, transfers of 1 ns, two equal devices: a | b c is 4 + 1 and 1 + 8,
    # a b | c is 8 + 1 and 1 + 4, all on one is 12; overlapped, a | b c is max(8, 1).
    instance = row_of_three()
    for plans in ("chain", "convex", "any"):
        assert oracle(instance, MaxLoad(plans=plans)) == 9
        overlap = MaxLoad(plans=plans, load="overlap")
        assert oracle(instance, overlap) == 8


def row_of_three() -> Instance:
    ops = [Op(name=name, time_ns={"gpu": 4}) for name in "abc"]
    return draw.row(ops, draw.devices(["gpu"] * 2), bytes=1)


TRANSFERS = ("per_edge", "per_tensor")


def total(instances: Iterable[Instance], semantics: Semantics) -> int:
    return sum(oracle(instance, semantics) or 0 for instance in instances)
