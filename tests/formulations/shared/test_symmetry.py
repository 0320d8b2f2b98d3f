"""Identical devices are found, and of plans that differ in their names one is kept."""

from __future__ import annotations

import random
from itertools import permutations, product

import numpy as np
import pyomo.environ as pyo
import pytest
from draws.twins import CLUSTERS, gpus, twin_instance
from ortools.sat.python import cp_model
from references.brute_force import MAKESPAN_SEMANTICS, MAX_LOAD_SEMANTICS, oracle

from placegap.formulations import latency_ip, moirai, throughput_ip
from placegap.formulations.shared import devices as alike
from placegap.formulations.shared.devices import (
    canonical,
    count_symmetry_rows,
    first_uses,
    group_leaders,
    identical_devices,
    new_names,
    representative_devices,
    symmetry_order,
)
from placegap.formulations.shared.families import (
    assign_once,
    place_ops,
    placement,
)
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Semantics,
    evaluate,
)
from placegap.instances.costing.costing import cost_graph
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Transfer
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.simulate import simulate
from placegap.solvers import Limits, Task, brute_force
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.method import Params

PORT = Makespan()


def loose(*times_ns: int, num_devices: int = 3) -> Instance:
    """Ops without edges on identical devices."""
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": time}) for i, time in enumerate(times_ns))
    return Instance(
        name="loose", graph=Graph(name="loose", ops=ops), cluster=gpus(["gpu"] * num_devices)
    )


# ------------------------------------------------------------------------------------ the devices


def test_equal_devices_that_are_linked_alike_are_identical() -> None:
    assert identical_devices(loose(1, num_devices=4)) == ((0, 1, 2, 3),)
    assert identical_devices(loose(1, num_devices=1)) == ()


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("celeritas-4xV100-pcie", ((0, 1, 2, 3),)),
        # the first device of either host has the link to the other host
        ("2x4-gpu-slow-link", ((1, 2, 3), (5, 6, 7))),
        # equal pairs of kinds, and no two equal bandwidths
        ("moirai-intra-server", ()),
    ],
)
def test_clusters_that_ship_with_the_package(
    name: str, classes: tuple[tuple[int, ...], ...]
) -> None:
    ops = tuple(Op(name=x, flops=10**9, bytes_moved=10**6) for x in "ab")
    edge = Edge(producer="a", consumer="b", bytes=10**6)
    cluster = load_cluster(name)
    graph = cost_graph(Graph(name="two", ops=ops, edges=(edge,)), cluster)
    assert identical_devices(Instance(name="two", graph=graph, cluster=cluster)) == classes


def pair_beside_a_third(
    links: dict[tuple[str, str], int] | None = None, size: int = 4, **second: object
) -> Instance:
    """Two equal devices a and b and a third c; `links` and `second` change latencies and b."""
    kinds = {"a": "gpu", "b": "gpu", "c": "cpu"}
    devices = [Device(name=name, kind=kind) for name, kind in kinds.items()]
    devices[1] = devices[1].model_copy(update=second)
    latency = dict.fromkeys(permutations("abc", 2), 1) | (links or {})
    times = {"gpu": 2, "cpu": 5, "other": 3}
    ops = tuple(Op(name=name, time_ns=times) for name in ("p", "q"))
    return Instance(
        name="pair",
        graph=Graph(name="pair", ops=ops, edges=(Edge(producer="p", consumer="q", bytes=size),)),
        cluster=Cluster(
            name="pair",
            devices=tuple(devices),
            links=tuple(
                Link(source=x, target=y, bandwidth_bytes_per_s=10**9, latency_ns=ns)
                for (x, y), ns in latency.items()
            ),
        ),
    )


def test_what_tells_two_devices_apart() -> None:
    assert identical_devices(pair_beside_a_third()) == ((0, 1),)
    different = {
        "time": pair_beside_a_third(kind="other"),
        "memory": pair_beside_a_third(memory_bytes=7),
        "being a host": pair_beside_a_third(is_host=True),
        "the link to a third": pair_beside_a_third({("b", "c"): 2}),
        "the link from a third": pair_beside_a_third({("c", "b"): 2}),
        "the two ways between them": pair_beside_a_third({("a", "b"): 2}),
    }
    assert {why: identical_devices(instance) for why, instance in different.items()} == (
        dict.fromkeys(different, ())
    )


def test_kinds_and_names_of_equal_times_do_not() -> None:
    instance = pair_beside_a_third(kind="cpu")
    same = tuple(
        op.model_copy(update={"time_ns": {"gpu": 2, "cpu": 2}}) for op in instance.graph.ops
    )
    graph = instance.graph.model_copy(update={"ops": same})
    assert identical_devices(Instance(name="x", graph=graph, cluster=instance.cluster)) == (
        (0, 1, 2),
    )


def test_times_of_one_tensor_suffice_to_tell_them_apart() -> None:
    # alike but for one tensor that goes from b to c in 9, not 5
    instance = pair_beside_a_third()
    matrix = [[0, 5, 5], [5, 0, 9], [5, 5, 0]]
    first = instance.graph.edges[0]
    edges = (
        first,
        first.model_copy(
            update={"tensor": "t", "transfer_ns": tuple(tuple(row) for row in matrix)}
        ),
    )
    graph = instance.graph.model_copy(update={"edges": edges})
    assert identical_devices(Instance(name="x", graph=graph, cluster=instance.cluster)) == ()


def test_links_that_no_tensor_tells_apart_are_alike() -> None:
    # latencies apart from bandwidths: an empty tensor takes the latency whatever the bandwidth
    instance = pair_beside_a_third(size=0)
    slow = tuple(
        link.model_copy(update={"bandwidth_bytes_per_s": 1}) if link.source == "a" else link
        for link in instance.cluster.links
    )
    cluster = instance.cluster.model_copy(update={"links": slow})
    assert identical_devices(Instance(name="x", graph=instance.graph, cluster=cluster)) == ((0, 1),)
    assert (
        identical_devices(Instance(name="x", graph=pair_beside_a_third().graph, cluster=cluster))
        == ()
    )


def test_labels_tell_devices_apart() -> None:
    instance = loose(1, num_devices=4)
    assert identical_devices(instance, labels=["s", "t", "s", "t"]) == ((0, 2), (1, 3))


def test_classes_are_those_of_all_swaps_that_change_nothing() -> None:
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        k = rng.choice([3, 4, 5])
        kinds = [rng.choice(["gpu", "gpu", "cpu"]) for _ in range(k)]
        instance = twin_instance(seed, num_ops=3, kinds=kinds)
        links = [
            link.model_copy(update={"latency_ns": rng.choice([0, 1])})
            if rng.random() < 0.1
            else link
            for link in instance.cluster.links
        ]
        cluster = instance.cluster.model_copy(update={"links": tuple(links)})
        instance = Instance(name="x", graph=instance.graph, cluster=cluster)
        arrays = instance.arrays
        move = arrays.transfer_ns[:, arrays.link_class]
        apart = [arrays.time_ns, arrays.host_ns, arrays.memory_bytes[None], arrays.is_host[None]]
        pairs = set()
        for a, b in permutations(range(k), 2):
            swap = list(range(k))
            swap[a], swap[b] = b, a
            same = (move == move[:, swap][:, :, swap]).all()
            if same and all((part == part[:, swap]).all() for part in apart):
                pairs.add((a, b))
        classes = identical_devices(instance)
        assert {pair for members in classes for pair in permutations(members, 2)} == pairs
        found += len(classes)
    assert found > 20


# -------------------------------------------------------------------------------- representatives


def survivors(instance: Instance) -> set[tuple[int, ...]]:
    """Placements that the rows of `symmetry_order` and the fixed variables leave."""
    model = pyo.ConcreteModel()
    possible = instance.arrays.able
    place_ops(model, possible)
    assign_once(model, instance)
    symmetry_order(model, instance)
    rows = list(model.component_data_objects(pyo.Constraint))
    found = set()
    for devices in placements(instance):
        for (i, k), variable in model.x.items():
            if not variable.fixed:
                variable.set_value(int(devices[i] == k))
        if all(row.slack() >= 0 for row in rows):
            found.add(devices)
    return found


def placements(instance: Instance) -> list[tuple[int, ...]]:
    """Every placement that keeps groups together and ops where they can run."""
    group, possible = instance.arrays.group.tolist(), instance.arrays.able
    homes = product(range(instance.num_devices), repeat=max(group) + 1)
    each = [tuple(home[g] for g in group) for home in homes]
    return [devices for devices in each if possible[range(len(group)), devices].all()]


def orbit(instance: Instance, devices: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
    """All placements that renaming identical devices leads to."""
    found = {devices}
    for members in identical_devices(instance):
        found = {
            tuple(dict(zip(members, names, strict=True)).get(k, k) for k in placement)
            for placement in found
            for names in permutations(members)
        }
    return frozenset(found)


def test_four_ops_on_three_identical_devices_have_14_placements() -> None:
    # partitions of 4 ops into at most 3 parts: 1 + 7 + 6 (Stirling numbers), of 3^4 = 81
    assert len(survivors(loose(4, 3, 2, 1))) == 14


def test_of_every_orbit_one_placement_is_left() -> None:
    smaller = 0
    for seed in range(24):
        kinds = list(CLUSTERS[seed % len(CLUSTERS)])
        instance = twin_instance(seed, num_ops=4, kinds=kinds)
        orbits = {orbit(instance, devices) for devices in placements(instance)}
        left = survivors(instance)
        assert [len(each & left) for each in orbits] == [1] * len(orbits), seed
        assert len(left) == len(orbits)
        smaller += len(left) < len(placements(instance))
    assert smaller > 20


def test_fewer_rows_leave_at_least_one_of_every_orbit(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = loose(5, 4, 3, 2, 1)
    monkeypatch.setattr(alike, "MOST_EARLIER", 2)
    left = survivors(instance)
    orbits = {orbit(instance, devices) for devices in placements(instance)}
    assert all(each & left for each in orbits)
    assert len(orbits) < len(left) < 3**5
    for each in orbits:
        assert tuple(canonical(instance, Plan.on(min(each)), PORT).devices.tolist()) in left


def test_the_longest_group_takes_the_first_device() -> None:
    instance = loose(1, 9, 5)
    assert group_leaders(instance) == [1, 2, 0]
    assert representative_devices(instance).tolist() == [
        [True, True, True],
        [True, False, False],
        [True, True, False],
    ]


def test_groups_count_as_one_op() -> None:
    # the group 1 + 1 + 1 comes before the op of 2; its first op stands for it
    ops = [Op(name=f"op{i}", time_ns={"gpu": 1}, colocation="g") for i in range(3)]
    graph = Graph(name="g", ops=(Op(name="alone", time_ns={"gpu": 2}), *ops))
    instance = Instance(name="g", graph=graph, cluster=gpus(["gpu", "gpu"]))
    assert group_leaders(instance) == [1, 0]
    assert representative_devices(instance)[1:].tolist() == [[True, False]] * 3
    assert first_uses(instance) == [alike.FirstUse(0, (1,), (1,), 0)]


def test_rows_are_counted() -> None:
    for seed in range(12):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        assert len(first_uses(instance)) <= count_symmetry_rows(instance)
    assert count_symmetry_rows(loose(1, 1, 1, 1)) == 8  # 4 groups, 2 rows each


def test_the_same_holds_as_clauses() -> None:
    # each first use as implications, for a solver without rows: again the 14 partitions
    instance = loose(4, 3, 2, 1)
    model, kept = cp_model.CpModel(), representative_devices(instance)
    x = {(i, k): model.new_bool_var(f"x{i}{k}") for i, k in np.argwhere(kept).tolist()}
    for i in range(instance.num_ops):
        model.add_exactly_one(x[i, k] for k in range(3) if (i, k) in x)
    for op, devices, earlier_ops, earlier_device in first_uses(instance):
        earlier = [x[i, earlier_device] for i in earlier_ops if (i, earlier_device) in x]
        for k in devices:
            model.add_bool_or([~x[op, k], *earlier])

    class Counter(cp_model.CpSolverSolutionCallback):
        found = 0

        def on_solution_callback(self) -> None:
            self.found += 1

    solver, counter = cp_model.CpSolver(), Counter()
    solver.parameters.enumerate_all_solutions = True
    solver.solve(model, counter)
    assert counter.found == 14


def test_it_serves_another_model_with_x() -> None:
    add = MaxLoad()
    for seed in range(8):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        optimum = oracle(instance, add)
        if optimum is None:
            continue
        model = throughput_ip.build(instance, add)
        symmetry_order(model, instance)
        assert solve_model(model, Limits()).ending == "optimal"
        plan = Plan.on(placement(model, instance.num_ops))
        assert evaluate(instance, plan, add).value_ns == optimum


BUILDS = {
    "makespan": (moirai.build, PORT),
    "max_load": (throughput_ip.build, MaxLoad(plans="chain")),
    "latency_subgraphs": (latency_ip.build, LatencySubgraphs()),
}


@pytest.mark.parametrize("objective", BUILDS)
@pytest.mark.parametrize(("op", "device"), list(product(range(2), range(3))))
def test_a_model_as_built_takes_constraints_that_name_devices(
    objective: str, op: int, device: int
) -> None:
    # on identical devices some optimum has the op wherever it is pinned
    build, semantics = BUILDS[objective]
    instance = loose(3, 5, 7)
    model = build(instance, semantics)
    model.pinned = pyo.Constraint(expr=model.x[op, device] == 1)
    found = solve_model(model, Limits())
    assert found.objective is not None
    # three ops on three devices: the longest decides
    assert round(found.objective * pyo.value(model.unit_ns)) == 7


# ------------------------------------------------------------------------------ plans, relabelled


@pytest.mark.parametrize(
    "semantics",
    [*MAKESPAN_SEMANTICS, *MAX_LOAD_SEMANTICS],
    ids=lambda semantics: semantics.label.replace(" ", "-"),
)
def test_a_representative_is_worth_what_its_plan_is(semantics: Semantics) -> None:
    renamed = 0
    for seed in range(len(CLUSTERS)):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed]))
        plan = brute_force.run(Task(instance, semantics), Params()).plan
        if plan is None:
            continue
        # brute force finds the plan that gives the first devices first; mirror it
        backwards = {
            a: b for m in identical_devices(instance) for a, b in zip(m, m[::-1], strict=True)
        }
        mirrored = renamed_by_schedule(instance, plan, semantics, backwards)
        value = evaluate(instance, plan, semantics)
        for each in (plan, mirrored):
            kept = canonical(instance, each, semantics)
            verdict = evaluate(instance, kept, semantics)
            assert (verdict.feasible, verdict.value_ns) == (True, value.value_ns)
            assert tuple(kept.devices.tolist()) in survivors(instance)
            assert canonical(instance, kept, semantics) == kept
            renamed += kept != each
        assert canonical(instance, mirrored, semantics) == canonical(instance, plan, semantics)
    assert renamed > 2


def renamed_by_schedule(
    instance: Instance, plan: Plan, semantics: Semantics, new: dict[int, int]
) -> Plan:
    """The plan with its devices renamed, its orders read off the referee's schedule."""
    devices = [new.get(k, k) for k in plan.devices.tolist()]
    if semantics.objective != "makespan":
        return Plan.on(devices)
    schedule = simulate(instance, plan, semantics)
    table = schedule.transfers
    return plan_from_times(
        instance,
        semantics,
        devices,
        list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)),
        [
            (Transfer(item, new.get(to, to)), start, end)
            for item, to, start, end in zip(
                *(
                    column.tolist()
                    for column in (table.item, table.destination, table.start_ns, table.end_ns)
                ),
                strict=True,
            )
        ],
    )


def test_names_within_a_class_follow_the_first_use() -> None:
    # ops 1, 2, 0 in this order: device 2 is used first, then 0; 1 is not used
    assert new_names(loose(1, 9, 5), Plan.on([0, 2, 0])) == [1, 2, 0]


def test_orders_that_a_plan_leaves_open_stay_open() -> None:
    instance = loose(3, 2)
    kept = canonical(instance, Plan.on([1, 2]), PORT)
    assert kept == Plan.on([0, 1])
    part = Plan(((1,), (2,)), device_order=(None, (0,), None))
    assert canonical(instance, part, PORT).device_order == ((0,), None, None)
