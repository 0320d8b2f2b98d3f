"""Moirai's MILP: horizons, warm starts, decided orders, and the strengthened relaxation."""

from dataclasses import replace

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.tiny import tiny_instance
from draws.twins import CLUSTERS, twin_instance
from references.brute_force import makespan_draws, oracle, scattered_instance

from placegap.formulations.moirai import SEMANTICS, Form, build, extract, warm_start
from placegap.instances import Edge, Instance, Makespan, Op, Plan, Semantics, evaluate, example
from placegap.instances.problem import Channels, Transfer
from placegap.instances.referee.channels import NO_CHANNEL, channels_of
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model

FORMS: tuple[Form, ...] = ("verbatim", "as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)
PER_EDGE = tuple(
    Makespan(channels=channels) for channels in ("free", "link", "port", "half_duplex")
)
STATED = [
    *((form, SEMANTICS) for form in FORMS[:2]),
    *(("strengthened", semantics) for semantics in PER_EDGE),
]
every_statement = pytest.mark.parametrize(
    ("form", "semantics"), STATED, ids=[f"{form}-{stated.channels}" for form, stated in STATED]
)


def lp_bound_ns(instance: Instance, form: Form) -> float:
    model = build(instance, SEMANTICS, form=form)
    found = solve_model(model, Limits(), relax=True)
    assert found.ending == "optimal"
    assert found.objective is not None
    return found.objective * pyo.value(model.unit_ns)


@every_statement
def test_a_warm_start_satisfies_every_row_and_is_read_back(
    form: Form, semantics: Semantics
) -> None:
    twins = [
        twin_instance(seed, num_ops=5, kinds=list(kinds)) for seed, kinds in enumerate(CLUSTERS)
    ]
    for instance in [*makespan_draws()[::30], *twins[1:3]]:
        for name in ("heft", "brute-force"):
            result = run_method(instance, semantics, name)
            if result.plan is None:
                continue
            horizon = result.value_ns if form == "strengthened" else None
            model = build(instance, semantics, form=form, horizon_ns=horizon)
            warm_start(model, instance, result.plan)
            rows = model.component_data_objects(pyo.Constraint, active=True)
            assert all(row.slack() >= -1e-9 for row in rows), instance.name
            again = evaluate(instance, extract(model, instance), semantics)
            assert (again.feasible, again.value_ns) == (True, result.value_ns)


def test_a_warm_start_takes_the_part_of_an_identical_device() -> None:
    # the longest op, 20 ns, is first: it is on device 0 in the representative
    plan, kept = Plan.on([1, 1, 0, 1]), [0, 0, 1, 0]
    for symmetry, devices in ((True, kept), (False, plan.devices.tolist())):
        model = build(example(), SEMANTICS, symmetry=symmetry)
        warm_start(model, example(), plan)
        assert extract(model, example()).devices.tolist() == devices


def test_the_optimum_stays_in_the_model_when_it_is_the_horizon() -> None:
    # FD-DPS, figure 3: op2 and op4 on the second device, 5 + 1 + 20 + 8 = 34; op3's 10 + 10 fit
    model = build(example(), SEMANTICS, horizon_ns=34)
    assert solve_model(model, Limits()).ending == "optimal"
    assert evaluate(example(), extract(model, example()), SEMANTICS).value_ns == 34
    assert solve_model(build(example(), SEMANTICS, horizon_ns=33), Limits()).ending == "infeasible"


# Linear relaxations in ns, verbatim, as published and strengthened, and the optimum: fingerprints,
# which only change when the models do.
LP_BOUNDS = (
    (tiny_instance(24, num_ops=4, num_devices=2, max_edges=5), 9.0, 9.0, 15.5, 16),
    (scattered_instance(39, num_ops=5, num_devices=3, max_edges=5), 17.0, 17.0, 27.0, 33),
)


def test_linear_relaxations_are_ordered() -> None:
    for instance, *expected in LP_BOUNDS:
        bounds = [lp_bound_ns(instance, form) for form in FORMS]
        assert [*bounds, oracle(instance, SEMANTICS)] == pytest.approx(expected, rel=1e-6)


def test_rows_of_8_are_those_of_the_authors_code() -> None:
    # S_r >= C_q - M (1 - d) - M (2 - z_q - z_r) + M (x_a + x_c - x_b - x_d - 2), M = 100,000, of
    # flows q = (a, b), r = (c, d) out of device 0. Figure 3: q = (op1, op2), r = (op1, op3), so
    # that a = c. With op 1 on device 0, both flows remote and r after q the row is S_r >= C_q; with
    # op 2 on device 0, too (z_q = 1 all the same), 100,000 less is asked, as published 0 less.
    for form, slack in (("verbatim", 100_000.0), ("as_published", 0.0)):
        model = build(example(), SEMANTICS, form=form)
        for variable in model.component_data_objects(pyo.Var):
            variable.set_value(0)
        q, r = "op1 -> op2", "op1 -> op3"
        for variable in (
            model.x["op1", "gpu0"],
            model.remote[q],
            model.remote[r],
            model.flow_before[q, r],
        ):
            variable.set_value(1)
        row = model.channel_no_overlap_forth[q, r, "out", "gpu0"]
        model.flow_end[q].set_value(7)
        model.flow_start[r].set_value(7)
        assert row.slack() == pytest.approx(0)
        model.x["op2", "gpu0"].set_value(1)
        assert row.slack() == pytest.approx(slack)


def loose_ops(*times_ns: int) -> Instance:
    """Ops without edges on one device."""
    ops = (Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate(times_ns))
    return draw.instance_of("loose", ops, (), draw.devices(["gpu"]))


@both_forms
def test_a_decided_order_counts_more_than_start_times_that_a_solver_rounded(form: Form) -> None:
    instance = loose_ops(10, 0)
    model = build(instance, SEMANTICS, form=form)
    warm_start(model, instance, Plan.on([0, 0], [[1, 0]]))
    model.op_start["op1"].set_value(1e-9)  # the op without duration, decided to be first
    assert extract(model, instance).device_order == ((1, 0),)


@pytest.mark.parametrize("channels", ["link", "port", "half_duplex"])
def test_a_decided_order_of_transfers_counts_more_than_rounded_times(channels: Channels) -> None:
    # both are ready at 0; the empty tensor, edge 1, goes first: it delays nothing, nor is it late
    ops = [Op(name=name, time_ns={kind: 0}) for name, kind in zip("abcd", "xxyy", strict=True)]
    edges = (Edge(producer="a", consumer="c", bytes=9), Edge(producer="b", consumer="d", bytes=0))
    links = draw.links(2, lambda a, b: (10**9, 0))
    instance = draw.instance_of("two", ops, edges, draw.devices(["x", "y"]), links)
    semantics = Makespan(channels=channels)
    model = build(instance, semantics)
    order = (Transfer(1, 1), Transfer(0, 1))
    held = [c for c in channels_of(channels, 2, 0, 1) if c != NO_CHANNEL]
    plan = replace(Plan.on([0, 0, 1, 1]), channel_order=dict.fromkeys(held, order))
    warm_start(model, instance, plan)
    model.flow_start["b -> d"].set_value(1e-9)
    assert extract(model, instance).channel_order == plan.channel_order


def test_orders_that_run_in_a_circle_give_way_to_start_times() -> None:
    # without duration all three may start at once, whatever the pairs say
    instance = loose_ops(0, 0, 0)
    model = build(instance, SEMANTICS, form="as_published", horizon_ns=10)
    warm_start(model, instance, Plan.on([0, 0, 0], [[2, 0, 1]]))
    for (i, j), before in {(0, 1): 1, (1, 2): 1, (0, 2): 0}.items():
        model.op_before[f"op{i}", f"op{j}"].set_value(before)
    for i, start in enumerate((3e-6, 5e-6, 4e-6)):  # apart by what a solver rounds
        model.op_start[f"op{i}"].set_value(start)
    assert extract(model, instance).device_order == ((0, 2, 1),)
