"""max_context: the referees, brute force and the method agree; and what a user gets of it."""

from __future__ import annotations

import random

import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Cache, Device, Instance, MaxContext, Op, Plan, evaluate, recheck
from placegap.solvers import run_method


def row(
    layers: int, cards: int, *, weights: int = 10, ends: int = 0, memory: int = 100
) -> Instance:
    """Layers of a few bytes and one byte a token, between a first and a last op that hold more."""
    cache = (Cache(token_bytes=1, tokens=3),)
    ops = [
        Op(name=f"layer{i}", time_ns={"gpu": 1}, resident_bytes=weights + 3, caches=cache)
        for i in range(layers)
    ]
    for name, at in (("embed", 0), ("head", len(ops) + 1)):
        ops.insert(at, Op(name=name, time_ns={"gpu": 0}, resident_bytes=ends))
    return draw.row(ops, draw.devices(["gpu"] * cards, lambda k: memory), host_time_ns=0)


def drawn(rng: random.Random) -> Instance:
    """A small graph with windows, groups and unlike devices."""
    plain = tiny_instance(
        rng.randrange(10**6), num_ops=rng.randint(2, 5), num_devices=rng.randint(1, 3)
    )
    caches = [
        tuple(
            Cache(
                token_bytes=rng.randint(1, 4),
                tokens=rng.randint(0, 5),
                most_tokens=rng.choice([None, None, rng.randint(1, 8)]),
            )
            for _ in range(rng.choice([0, 1, 1, 2]))
        )
        for _ in plain.graph.ops
    ]
    if not any(caches):
        caches[0] = (Cache(token_bytes=1),)
    state = [sum(each.held_bytes(each.tokens) for each in own) for own in caches]
    held = [size + rng.randint(0, 12) for size in state]
    rooms = [rng.choice([*range(10, 90), None, 40]) for _ in plain.cluster.devices]
    instance = draw.with_ops(plain, caches=caches, resident_bytes=held)
    return draw.with_devices(instance, memory_bytes=rooms)


def rules(rng: random.Random) -> MaxContext:
    return MaxContext(
        plans=rng.choice(["any", "convex", "chain"]),
        load=rng.choice(["add", "overlap"]),
        at_most_ns=rng.choice([None, rng.randint(0, 45)]),
    )


def agree(seed: int) -> bool:
    """Whether referees, brute force and the method agree on a drawn instance; if it has a plan."""
    rng = random.Random(seed)
    instance, semantics = drawn(rng), rules(rng)
    home = [
        rng.choice([k for k, d in enumerate(instance.cluster.devices) if d.kind in op.time_ns])
        for op in instance.graph.ops
    ]
    first, second = (judge(instance, Plan.on(home), semantics) for judge in (evaluate, recheck))
    assert first.value_tokens == second.value_tokens
    assert {each.rule for each in first.violations} == {each.rule for each in second.violations}
    least = run_method(instance, semantics, "brute-force")
    found = run_method(instance, semantics, "most-tokens", time_limit_s=60)
    assert (found.status, found.value_tokens) == (least.status, least.value_tokens)
    if first.feasible:
        assert least.value_tokens >= (first.value_tokens or 0)
    return found.plan is not None


def test_referees_brute_force_and_the_method_agree() -> None:
    assert 3 <= sum(agree(seed) for seed in range(10)) < 10  # some have no plan


@pytest.mark.deep
def test_they_agree_on_thousands() -> None:
    assert sum(agree(seed) for seed in range(1_000, 4_000)) > 1_000


def test_lighter_ends_have_room_for_more_tokens_than_an_even_split() -> None:
    # 8 layers on 4 cards of 100 bytes, and 30 bytes more at either end. Even: the first card has
    # 100 - 30 - 2 * 10 bytes for 2 layers, 25 tokens. One layer less at the ends, and 3 in the
    # middle: (100 - 40) / 1 = 60 and (100 - 30) / 3 = 23 tokens: the even split is best.
    instance = row(8, 4, ends=30)
    even = Plan.on([0, 0, 0, 1, 1, 2, 2, 3, 3, 3])
    assert evaluate(instance, even, MaxContext(plans="chain")).value_tokens == 25
    assert run_method(instance, MaxContext(plans="chain")).value_tokens == 25
    # with 60 bytes at the ends: even (100 - 60 - 20) / 2 = 10, lighter (100 - 30) / 3 = 23
    heavy = row(8, 4, ends=60)
    assert evaluate(heavy, even, MaxContext(plans="chain")).value_tokens == 10
    best = run_method(heavy, MaxContext(plans="chain"))
    assert (best.value_tokens, best.bound_tokens, best.status) == (23, 23, "optimal")
    assert [use.tokens for use in best.evaluation.uses] == [30, 23, 23, 30]


def test_a_load_limits_the_tokens() -> None:
    # of 8 layers of 1 ns, a load of 2 ns allows the even split alone: 10 tokens, as above
    heavy = row(8, 4, ends=60)
    limited = run_method(heavy, MaxContext(plans="chain", at_most_ns=2))
    assert (limited.status, limited.value_tokens) == ("optimal", 10)
    assert run_method(heavy, MaxContext(plans="chain", at_most_ns=1)).status == "infeasible"


def test_caches_beyond_64_bits_go_where_memory_has_no_limit() -> None:
    # 10**15 bytes a token: the card holds 7 tokens of one op; the host holds 10**9 of either
    cache = (Cache(token_bytes=10**15),)
    ops = tuple(Op(name=name, time_ns={"gpu": 1, "cpu": 9}, caches=cache) for name in "ab")
    card = Device(name="card", kind="gpu", memory_bytes=7 * 10**15)
    host = Device(name="host", kind="cpu")
    devices = (card, host)
    instance = draw.instance_of("caches", ops, (), devices, draw.fast_links(devices))
    for at_most_ns, tokens in ((None, 10**9), (9, 7)):
        semantics = MaxContext(plans="any", at_most_ns=at_most_ns)
        found = run_method(instance, semantics, "most-tokens")
        assert (found.status, found.value_tokens) == ("optimal", tokens)
        assert recheck(instance, found.plan, semantics).value_tokens == tokens
    everywhere = evaluate(instance, Plan.on([1, 1]), MaxContext(plans="any"))
    assert [use.memory_bytes for use in everywhere.uses] == [0, 2 * 10**24]


def test_a_question_that_no_method_can_answer_stays_open() -> None:
    # a layer of 2**61 ns is beyond what the methods for loads add up
    plain = row(1, 2)
    times = [{"gpu": 2**61 * bool(op.caches)} for op in plain.graph.ops]
    long = draw.with_ops(plain, time_ns=times)
    found = run_method(long, MaxContext(plans="chain"), "most-tokens")
    assert (found.status, found.value_tokens) == ("no_plan", None)
    assert "0 tokens fit: times or bytes are too large" in found.message
