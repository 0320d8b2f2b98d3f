"""The best line of a tool, against all lines that it can say, each judged by the referee."""

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from draws.lines import GIB, home_model, layer_model

from placegap.instances import Instance, Makespan, MaxLoad, Semantics, load_cluster, load_corpus
from placegap.instances.exporters.lines import (
    EXLLAMA,
    LLAMACPP,
    OLLAMA,
    RANKS,
    LayerLine,
    LineClass,
    gpus_and_host,
    line_of,
    slots_of,
    why_not,
)
from placegap.instances.problem.modules import with_granularity
from placegap.instances.referee.evaluate import feasible_value
from placegap.solvers import run_method
from placegap.solvers.chains.best_line import ROOM_HALVINGS, best_line, free_bytes, roomiest_line


def all_lines(instance: Instance, kind: LineClass) -> Iterator[LayerLine]:
    """Every line of a class, by trying all devices of all slots and all sets of experts."""
    slots = slots_of(instance)
    _, host = gpus_and_host(instance.cluster)
    layers = range(int(slots.slot.max()) - 1)
    for home in product(range(instance.num_devices), repeat=len(layers) + 2):
        if len(LayerLine(home).devices) > len(set(home)):
            continue
        able = [n for n in layers if slots.expert.any() and home[n + 1] != host]
        able = able if kind.experts_apart and host is not None else []
        for count in range(len(able) + 1):
            for away in combinations(able, count):
                if why_not(instance, LayerLine(home, away), kind) is None:
                    yield LayerLine(home, away)


@pytest.mark.parametrize(
    "kind", [LLAMACPP, RANKS, OLLAMA, EXLLAMA], ids=["llamacpp", "ranks", "ollama", "exllama"]
)
@pytest.mark.parametrize(
    "semantics",
    [
        Makespan(memory="sum"),
        Makespan(memory="sum", channels="free", transfers="per_tensor"),
        Makespan(memory="peak"),
        MaxLoad(plans="any", memory="sum"),
        MaxLoad(plans="any", memory="peak"),
        MaxLoad(plans="any", memory="sum", load="overlap"),
    ],
    ids=lambda rules: rules.label.replace(" ", "-"),
)
def test_no_line_is_better_than_the_best_one(semantics: Semantics, kind: LineClass) -> None:
    proven = 0
    for seed in range(6):
        instance = layer_model(seed)
        slots, (_, host) = slots_of(instance), gpus_and_host(instance.cluster)
        values = [
            value
            for line in all_lines(instance, kind)
            if (value := feasible_value(instance, slots.plan(line, host), semantics)) is not None
        ]
        found = best_line(instance, semantics, kind)
        if not values:
            assert found is None
            continue
        if semantics.memory_rule == "sum" and semantics.label.find("overlap") < 0:
            assert found is not None
            assert found.bound is not None
            assert found.value_ns == min(values) == found.bound.value, seed
            proven += 1
        elif found is not None:
            assert found.value_ns >= min(values)
            assert found.bound is None or found.bound.value <= min(values)
            proven += found.bound is not None and found.bound.value == found.value_ns
        if found is not None:
            assert feasible_value(instance, found.plan, semantics) == found.value_ns
            assert why_not(instance, line_of(instance, found.plan), kind) is None
    assert proven >= 1 or "overlap" in semantics.label


def test_a_search_that_is_out_of_time_returns_what_it_has_and_a_bound() -> None:
    for seed in range(6):
        instance, semantics = layer_model(seed), MaxLoad(plans="any", memory="sum")
        best = best_line(instance, semantics, LLAMACPP)
        found = best_line(instance, semantics, LLAMACPP, 0.0)
        if best is None or found is None:
            continue
        assert found.bound is not None
        assert found.bound.value <= best.value_ns <= found.value_ns
        assert feasible_value(instance, found.plan, semantics) == found.value_ns


@pytest.mark.parametrize("kind", [LLAMACPP, RANKS], ids=["llamacpp", "ranks"])
def test_of_near_ties_the_line_with_most_room_is_taken(
    kind: LineClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placegap.solvers.chains.best_line.TIE", 0.3)  # so that there are many
    semantics, roomier = MaxLoad(plans="any", memory="sum"), 0
    for seed in range(12):
        instance = layer_model(seed)
        slots, (gpus, host) = slots_of(instance), gpus_and_host(instance.cluster)
        best = best_line(instance, semantics, kind)
        if best is None:
            continue
        found = roomiest_line(instance, semantics, kind, best)
        plans = [slots.plan(line, host) for line in all_lines(instance, kind)]
        values = [feasible_value(instance, plan, semantics) for plan in plans]
        limit = int(best.value_ns * 1.3)
        room = [
            free_bytes(instance, plan, semantics)
            for plan, value in zip(plans, values, strict=True)
            if value is not None and value <= limit
        ]
        assert found.value_ns <= limit
        free = free_bytes(instance, found.plan, semantics)
        largest = max(int(instance.arrays.memory_bytes[k]) for k in gpus)
        assert max(room) - largest // 2**ROOM_HALVINGS <= free <= max(room), seed
        roomier += free > free_bytes(instance, best.plan, semantics)
    assert roomier >= 3


def test_weights_that_both_ends_share_count_on_both() -> None:
    # GPT-2's head sends the gradient of its table to the first stage, past all between; alone on
    # the second card it is as good as any plan of whole layers
    cluster = load_cluster("2xRTX3090+2xRTX3080-10GB, pcie4")
    instance, semantics = load_corpus("gpt2-train").instance(cluster), MaxLoad(plans="chain")
    best = run_method(with_granularity(instance, "layer"), semantics, "ideal-dp")
    line = best_line(instance, semantics, RANKS)
    assert line is not None
    assert (best.status, line.value_ns) == ("optimal", best.value_ns)
    assert line.line.home[-1] not in line.line.home[:-1]


def test_layers_whose_experts_fit_no_card_run_on_it_without_them() -> None:
    # embedding, attention and head of 1 us on the card, and experts of 3 us on the host
    whole = home_model(experts=True, closed=True)
    ops = tuple(
        op.model_copy(update={"resident_bytes": 7 * GIB if "experts" in op.name else 0})
        for op in whole.graph.ops
    )
    instance = whole.with_graph(whole.graph.model_copy(update={"ops": ops}))
    found = best_line(instance, Makespan(memory="sum"), LLAMACPP)
    assert found is not None
    assert found.bound is not None
    assert found.value_ns == found.bound.value == 3000 + 4 * (1000 + 3000) + 1000
    assert found.line.away == (0, 1, 2, 3)
