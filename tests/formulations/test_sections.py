"""What paths and the LP prove of a section is never above its optimum, and often equal to it."""

from collections.abc import Iterator

import pytest
from draws.bottlenecks import bottleneck_instance
from draws.draw import edges, instance_of, links
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.formulations import sections
from placegap.formulations.shared.times import bare_lengths, path_bounds
from placegap.instances import Device, Instance, Makespan, Op, Semantics, example
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Section, SectionMaker, cuts, sections_between
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

by_label = pytest.mark.parametrize(
    "semantics", MAKESPAN_SEMANTICS[::3], ids=lambda s: s.label.replace(" ", "-")
)


def pinned() -> Iterator[tuple[Instance, Section, int | None, int | None, Instance | None]]:
    """Sections of random graphs, ends pinned; no instance where an end cannot be there."""
    for seed in range(0, 45, 9):
        whole = bottleneck_instance(seed)
        maker, devices = SectionMaker(whole), range(whole.num_devices)
        for section in sections_between(whole, cuts(whole)):
            for a in [None] if section.entry is None else devices:
                for b in [None] if section.exit is None else devices:
                    try:
                        made = maker.make(section, a, b)
                    except ValueError:
                        made = None
                    yield whole, section, a, b, made


@by_label
def test_path_bounds_are_bounds_and_bare_lengths_are_exact(semantics: Semantics) -> None:
    bare, tight = 0, 0
    for whole, section, a, b, made in pinned():
        best = NO_WAY if made is None else oracle(made, semantics)
        if best is None:  # memory
            continue
        bound = int(path_bounds(whole, section)[a or 0, b or 0])
        assert bound <= best
        assert (bound == NO_WAY) == (best == NO_WAY)
        tight += bound == best < NO_WAY
        if section.num_inner == 0:
            assert bare_lengths(whole, section, semantics)[a or 0, b or 0] == best
            bare += best < NO_WAY
    assert bare > 15
    assert tight > 6


def lp_bound_ns(problem: Instance, semantics: Semantics, horizon_ns: int) -> float:
    model = sections.build(problem, semantics, horizon_ns=horizon_ns)
    found = solve_model(model, Limits(), relax=True)
    assert found.ending == "optimal"
    assert found.dual_bound is not None
    return found.dual_bound * model.unit_ns.value


@by_label
def test_the_lp_is_a_relaxation(semantics: Semantics) -> None:
    tight = 0
    draws = [*[made for *_, made in pinned() if made is not None][::12], *makespan_draws()[::22]]
    for problem in draws:
        best = oracle(problem, semantics)
        if best is not None:
            bounds = [lp_bound_ns(problem, semantics, best + extra) for extra in (0, 5)]
            assert max(bounds) <= best + 1e-6
            tight += bounds[0] >= best - 1e-6
    assert tight > 2


def test_the_lp_proves_more_than_paths() -> None:
    # The diamond of 5, 20, 10, 8 with both ends on the first device. Paths: 20 + 8 after op1.
    # Optimal: op2 on the other device, 1 + 20 + 1 + 8 = 30, beside op3. A fraction of op2 must
    # leave the device, or its 38 ns of work do not fit, and a fraction pays for its way.
    made = SectionMaker(example()).make(sections_between(example(), (0, 3))[1], 0, 0)
    port = Makespan()
    assert oracle(made, port) == 30
    assert 28.5 < lp_bound_ns(made, port, 40) <= 30


def test_an_op_that_leaves_in_fractions_to_many_devices_pays_as_if_it_went_to_one() -> None:
    # Four ops of 1000 ns between a fork and a join of 0 ns on d0; a transfer takes 1000 ns. If y of
    # each op stays, d0 works for 4000 y, and its port sends for 4000 (1 - y); after the last
    # arrival an op and its answer follow, 2000 ns of which at least 1 - y count. 4000 y =
    # 6000 (1 - y) is 2400. If only what one device gets counted, it were 2222. Three at home: 3000.
    ops = [Op(name=f"op{i}", time_ns={"gpu": 1000 * (0 < i < 5)}) for i in range(6)]
    pairs = [*((0, i) for i in range(1, 5)), *((i, 5) for i in range(1, 5))]
    star = instance_of(
        "star",
        ops,
        edges(pairs, [1000] * 6, [False] * 6, lambda: 1000),
        [Device(name=f"d{k}", kind="gpu") for k in range(3)],
        links(3, lambda a, b: (10**9, 0)),
    )
    made = SectionMaker(star).make(sections_between(star, (0, 5))[1], 0, 0)
    assert oracle(made, Makespan()) == 3000
    assert 2399 < lp_bound_ns(made, Makespan(), 4000) <= 3000


def test_the_lp_says_nothing_below_a_horizon_that_no_schedule_meets() -> None:
    # The example takes 34; no plan of at most 20 ns exists, as the longest path alone shows.
    model = sections.build(example(), Makespan(), horizon_ns=20)
    assert solve_model(model, Limits(), relax=True).ending == "infeasible"
