"""Groups of cards that share layers: against an enumeration, and a pair that was reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
from draws.decoders import GB, HEADS, attention, decoder, machine, weights

from placegap.instances import Instance, Makespan, Op, evaluate
from placegap.instances.transforms.tensor_groups import SplitParts
from placegap.solvers import run_method
from placegap.solvers.solving.tensor_split import best_tensor_plan


class Part(NamedTuple):
    """A device, or a group with the shares of its cards."""

    cards: tuple[int, ...]
    shares: tuple[int, ...]


def partitions(cards: Sequence[int]) -> Iterator[list[Part]]:
    if not cards:
        yield []
        return
    first, *others = cards
    for size in range(len(others) + 1):
        for more in combinations(others, size):
            own = (first, *more)
            for rest in partitions([k for k in others if k not in more]):
                for shares in product(range(1, HEADS + 1), repeat=len(own)):
                    if sum(shares) == HEADS or (len(own) == 1 and shares == (1,)):
                        yield [Part(own, shares if len(own) > 1 else (HEADS,)), *rest]


def is_whole(op: Op) -> bool:
    return op.name.startswith(("embed", "norm"))


def part_ns(instance: Instance, op: Op, part: Part) -> float:
    """The slowest card, and all-reduces: two of a layer and one of the head."""
    found = 0.0
    for k, share in zip(part.cards, part.shares, strict=True):
        own = instance.cluster.kinds[instance.cluster.devices[k].kind]
        s = 1.0 if is_whole(op) else share / HEADS
        compute = (op.flops or 0) * s / own.peak("float32")
        moving = (op.bytes_moved or 0) * s / own.bandwidth_bytes_per_s
        found = max(found, own.launch_overhead_ns + 1e9 * max(compute, moving))
    if len(part.cards) > 1 and op.name.startswith(("down", "head")):
        t, size = len(part.cards), op.resident_bytes - (op.state_bytes or 0)
        steps = 2 if t == 2 else 4
        each = steps * 10_000 + 2 * (t - 1) / t * size / 16
        found += each * (2 if op.name.startswith("down") else 1)
    return found


def fits(instance: Instance, homes: Sequence[int], parts: Sequence[Part]) -> bool:
    ops = instance.graph.ops
    whole = sum(op.state_bytes or 0 for op in ops if op.name.startswith("norm"))
    for at, part in enumerate(parts):
        own = [op for op, home in zip(ops, homes, strict=True) if home == at]
        split = sum(op.resident_bytes for op in own if op.name != "embed")
        first = next((op for op in own if op.name == "embed"), None)
        out = 0 if first is None else first.resident_bytes - (first.state_bytes or 0)
        table = 0 if first is None else first.state_bytes or 0
        room = [instance.cluster.devices[k].memory_bytes or 0 for k in part.cards]
        if len(part.cards) == 1:
            if split + out + table > room[0]:
                return False
        elif not any(
            all(
                (split + out) * s / HEADS + whole + table * (k == holder) <= size
                for k, (s, size) in enumerate(zip(part.shares, room, strict=True))
            )
            for holder in range(len(room))
        ):
            return False
    return True


def enumerated(instance: Instance) -> float:
    """The least time of all groups, shares and placements of layers, with a group at least."""
    ops, cluster = instance.graph.ops, instance.cluster
    layers = list(dict.fromkeys(str(op.module).rpartition(".")[0] or op.module for op in ops))
    stop = [layers.index(str(op.module).rpartition(".")[0] or op.module) for op in ops]
    cards = [k for k, device in enumerate(cluster.devices) if not device.is_host]
    hosts = [Part((k,), (HEADS,)) for k, device in enumerate(cluster.devices) if device.is_host]
    best = np.inf
    for own in partitions(cards):
        parts = [*own, *hosts]
        if all(len(part.cards) == 1 for part in parts):
            continue
        time = [[part_ns(instance, op, part) for part in parts] for op in ops]
        for place in product(range(len(parts)), repeat=len(layers)):
            homes = [place[s] for s in stop]
            total = sum(time[i][home] for i, home in enumerate(homes))
            for i, (a, b) in enumerate(pairwise(homes)):
                if a != b:
                    size = ops[i].resident_bytes - (ops[i].state_bytes or 0)
                    total += 10_000 + len(parts[b].cards) * size / 16
            if total < best and fits(instance, homes, parts):
                best = total
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_groups_shares_and_cuts_are_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, cached, table = (int(rng.integers(1, 9)) * 10**7 for _ in range(3))
    ops = decoder(2 if seed % 2 else 3, size, cached, table, 8_000)
    need = sum(op.resident_bytes for op in ops)
    cards = [
        (int(rng.integers(2, 10)) * 100 * GB, int(need * rng.uniform(0.2, 0.7)))
        for _ in range(3 if seed % 2 else 2)
    ]
    instance = machine(ops, cards, (50 * GB, need) if seed < 4 else None)
    found, best = best_tensor_plan(instance, Makespan(), "layer", 60.0), enumerated(instance)
    if found is None:
        assert best == np.inf
        return
    assert found.result.value_ns == pytest.approx(best, abs=3 * len(ops))  # times are whole ns
    assert found.bound_ns == found.result.value_ns
    assert found.result.plan is not None
    verdict = evaluate(found.instance, found.result.plan, Makespan())
    assert (verdict.feasible, verdict.value_ns) == (True, found.result.value_ns)


def test_shares_follow_bandwidth_where_memory_is_slack() -> None:
    # of 4 heads the card of 600 GB/s has 3, and that of 200 GB/s one: both take bytes / 800 GB/s.
    # Two layers have two all-reduces each, the head one: 5 of 20 us and 1 ns a byte of 16
    ops = decoder(2, 10**8, 10**7, 10**7, 16_000)
    found = best_tensor_plan(
        machine(ops, [(600 * GB, 10**12), (200 * GB, 10**12)]), Makespan(), "layer", 60.0
    )
    assert found is not None
    assert [(group.cards, group.shares) for group in found.groups] == [((0, 1), (3, 1))]
    assert (found.num_reduced, found.reduced_ns) == (5, 4 * 21_000 + 22_000)


def test_shares_follow_memory_where_that_binds() -> None:
    # 4.2e8 bytes of layers and head, and no host: the fast card holds 1/2 of them, but not 3/4
    ops = decoder(2, 10**8, 10**6, 10**6, 16_000)
    instance = machine(ops, [(600 * GB, 25 * 10**7), (200 * GB, 10**12)])
    found = best_tensor_plan(instance, Makespan(), "layer", 60.0)
    assert found is not None
    assert found.groups[0].shares == (2, 2)


def test_the_reported_pair_gains_what_was_reported() -> None:
    # 60 layers of width 5,120 in 4.5 bits, 27e9 weights; reported for 27B: 22.1 and 37.1 tokens/s
    width, inner, words, bits = 5120, 23552, 152_064, 4.5

    def product_of(name: str, layer: str, rows: int, columns: int) -> Op:
        size = int(rows * columns * bits / 8)
        return weights(
            name, f"{layer}{name.partition('-')[0]}", size, 2 * columns, 2 * rows * columns
        )

    ops = [weights("embed", "embed", int(words * width * bits / 8), 2 * width, 0)]
    for n in range(60):
        layer = f"layers.{n}."
        ops += [
            product_of(f"qkv-{n}", layer, width, width + 2048),
            attention(8, 2 * 2 * 1024 * 4096, f"attn-{n}", layer[:-1]),
            product_of(f"o-{n}", layer, width, width),
            product_of(f"gate_up-{n}", layer, width, 2 * inner),
            product_of(f"down-{n}", layer, inner, width),
        ]
    ops.append(product_of("head", "", width, words))
    assert sum(op.parameter_bytes for op in ops) * 8 / bits == pytest.approx(27e9, rel=0.01)
    instance = machine(ops, [(448 * GB, 15 * GB)] * 2)
    whole = run_method(instance, Makespan(), "auto", {"workers": 1}, time_limit_s=20.0)
    found = best_tensor_plan(instance, Makespan(), "layer", 60.0)
    assert found is not None
    assert found.groups[0].shares == (4, 4)
    assert whole.value_ns is not None
    assert found.result.value_ns is not None
    assert 1.4 <= whole.value_ns / found.result.value_ns <= 2.0


def test_a_head_that_shares_its_weights_reduces_what_it_computes() -> None:
    # 16,000 bytes of logits, and a table of 1e7 that the embedding holds, too
    *ops, head = decoder(2, 10**8, 10**7, 10**7, 8_000)
    tied = head.model_copy(update={"state_bytes": 0, "shared_state": {"table": 10**7}})
    parts = SplitParts(machine([*ops, tied], [(GB, GB)] * 2))
    assert parts.reduced["head"] == (1, 16_000)
    assert (parts.embeddings, parts.embedding_bytes) == ({"embed"}, 10**7)
