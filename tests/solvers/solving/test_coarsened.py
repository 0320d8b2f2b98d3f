"""Placing a coarser instance: the referee judges on the ops as they are, and bounds stay honest."""

from __future__ import annotations

from itertools import islice

from draws import draw
from references.brute_force import more_max_load, oracle

from placegap.instances import Edge, Instance, Makespan, MaxLoad, Op, Plan, evaluate, example
from placegap.solvers.solving.coarsened import solve_coarse

FREE = Makespan(channels="free")
CHAIN = MaxLoad(plans="chain")
THREE = {"ops": 3}


def test_the_value_is_the_referees_on_the_ops_and_there_is_no_bound() -> None:
    # op1 and op3 are merged (the dearest edge): all on one device, 43 ns; the optimum is 34
    result = solve_coarse(
        example(), FREE, "brute-force", transform="pesto-merge", transform_params=THREE
    )
    assert (result.status, result.value_ns, result.bound_ns) == ("feasible", 43, None)
    assert evaluate(example(), result.plan, FREE).value_ns == 43
    assert result.instance_hash == example().content_hash
    assert result.options["coarsen"] == "pesto-merge"
    assert result.options["pesto-merge ops"] == "3"
    assert result.details["coarse_ops"] == 3
    assert "4 ops to 3; no bound (coarse: 43 ns)" in result.message


def test_an_exact_transform_keeps_the_bound() -> None:
    seen = 0
    for instance in islice(more_max_load(0), 6):
        result = solve_coarse(instance, CHAIN, "ideal-dp", transform="colour-classes")
        best = oracle(instance, CHAIN)
        assert (result.value_ns, result.bound_ns) == (best, best)
        assert result.status == ("infeasible" if best is None else "optimal")
        seen += result.details["coarse_ops"] < instance.num_ops
    assert seen >= 1


def test_that_nothing_fits_proves_something_only_where_the_transform_is_exact() -> None:
    # a and b of one group hold 2 bytes each, c `last`, d 1; each of the two devices holds 4
    def four(last: int) -> Instance:
        fields = (("a", 2, "w"), ("b", 2, "w"), ("c", last, None), ("d", 1, None))
        ops = [
            Op(name=name, time_ns={"gpu": 1}, resident_bytes=size, colocation=group)
            for name, size, group in fields
        ]
        edges = [Edge(producer="c", consumer="d", host_time_ns=1)]
        return draw.instance_of("four", ops, edges, draw.devices(["gpu"] * 2, lambda k: 4))

    def status(instance: Instance, transform: str) -> str:
        return solve_coarse(instance, CHAIN, "ideal-dp", transform=transform).status

    assert status(four(3), "colour-classes") == "optimal"
    assert status(four(4), "colour-classes") == "infeasible"
    assert status(four(4), "co-placement") == "infeasible"  # c and d fit nowhere together
    segments = {"reach": 2, "memory_share": 1.0}
    found = solve_coarse(
        four(4), CHAIN, "ideal-dp", transform="celeritas-fusion", transform_params=segments
    )
    assert (found.status, found.bound_ns) == ("no_plan", None)


def test_an_incumbent_that_sets_merged_ops_apart_is_no_start() -> None:
    given = Plan.on([0, 0, 1, 0])
    merge = {"transform": "pesto-merge", "transform_params": THREE}
    result = solve_coarse(example(), FREE, "cp-sat", {"workers": 1}, incumbent=given, **merge)
    assert result.value_ns == 43
