"""Repeated layers in their room: never above an optimum, and above what memory leaves out."""

import random
from collections.abc import Iterator
from itertools import cycle, islice

import pytest
from draws.layered import stacks, windows
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Instance, Makespan
from placegap.instances.oracle.placements import best_schedule
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.memory_pressure import with_device_memory
from placegap.solvers.repeated_layers.layer_bound import prove_layers
from placegap.solvers.repeated_layers.room_bound import prove_room
from placegap.solvers.repeated_layers.sections import bottlenecks_of

SCALE, MEMORY = 1_000, ("sum", "peak")


def proven_ns(instance: Instance, semantics: Makespan) -> tuple[int, int]:
    """The bounds without memory and with it."""
    relaxed, _ = relax_memory(instance, semantics)
    arrays, bottlenecks = relaxed.arrays, bottlenecks_of(relaxed)
    proof = prove_layers(relaxed, semantics, bottlenecks, held=arrays.resident_bytes)
    assert proof is not None
    return proof.ns, prove_room(proof, arrays.memory_bytes)


def tight(draw: Instance, seed: int) -> Instance:
    """A draw with bytes, of which each device holds a share, and times that prices divide."""
    rng = random.Random(f"tight-{seed}")
    ops = tuple(
        op.model_copy(
            update={
                "time_ns": {kind: SCALE * ns for kind, ns in op.time_ns.items()},
                "resident_bytes": SCALE * rng.choice([1, 2, 2, 5]),
            }
        )
        for op in draw.graph.ops
    )
    edges = tuple(
        edge.model_copy(update={"bytes": SCALE * edge.bytes}) for edge in draw.graph.edges
    )
    graph = draw.graph.model_copy(update={"ops": ops, "edges": edges})
    return with_device_memory(draw.with_graph(graph), rng.choice([0.35, 0.5, 0.6, 0.8]))


def compare(draws: Iterator[Instance], number: int) -> tuple[int, int, int]:
    """How many instances have a plan; of how many memory raises the bound; and how many close."""
    done = raised = equal = 0
    rules = [rule.model_copy(update={"memory": m}) for rule in MAKESPAN_SEMANTICS for m in MEMORY]
    for seed, (draw, semantics) in enumerate(
        zip(islice(draws, number), cycle(rules), strict=False)
    ):
        instance = tight(draw, seed)
        best = best_schedule(instance, semantics)
        if best is not None:
            free_ns, bound_ns = proven_ns(instance, semantics)
            assert free_ns <= bound_ns <= best[0], (instance.name, semantics.label)
            done, raised = done + 1, raised + (bound_ns > free_ns)
            equal += bound_ns == best[0]
    return done, raised, equal


def test_it_is_never_above_the_optimum() -> None:
    for draws in (windows, stacks):
        done, raised, equal = compare(draws(0), 200)
        assert done >= 100
        assert raised >= 0.15 * done
        assert equal >= 0.1 * done


@pytest.mark.deep
def test_it_is_never_above_the_optimum_of_thousands() -> None:
    for draws in (windows, stacks):
        done, _, _ = compare(draws(20_000), 4_000)
        assert done >= 2_000
