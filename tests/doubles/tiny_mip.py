"""A method that solves a tiny MIP, for the tests of the runner, the solvers and the files.

Its model is max-load of ops without edges; importing this module registers nothing.
"""

from collections.abc import Iterator

import pyomo.environ as pyo
import pytest
from draws import draw

from placegap.instances import Instance, MaxLoad, Op, Plan
from placegap.solvers import METHODS, Method, Outcome, Task
from placegap.solvers.core.method import Formulation, Params
from placegap.solvers.core.registry import register
from placegap.solvers.models.run_mip import MipParams, run_mip

ANY = MaxLoad(plans="any")
NAME = "tiny-mip"


def ops_on(*times_ns: int, devices: int = 2, memory: int | None = None, size: int = 1) -> Instance:
    """Independent ops, alike on all devices; each takes `size` bytes of a device's memory."""
    ops = [
        Op(name=f"op {i}", time_ns={"gpu": time}, resident_bytes=size)
        for i, time in enumerate(times_ns)
    ]
    return draw.instance_of("ops", ops, (), draw.devices(["gpu"] * devices, lambda k: memory))


def build(instance: Instance) -> pyo.ConcreteModel:
    """x[i, k]: op i is on device k; most: the largest load, in ns."""
    arrays = instance.arrays
    n, num_devices = instance.num_ops, instance.num_devices
    capacity = arrays.memory_bytes.tolist()
    model = pyo.ConcreteModel()
    model.unit_ns = pyo.Param(initialize=1.0)
    model.x = pyo.Var(range(n), range(num_devices), domain=pyo.Binary)
    model.most = pyo.Var(domain=pyo.NonNegativeReals)

    @model.Constraint(range(n))
    def assign_once(model: pyo.ConcreteModel, i: int) -> object:
        return sum(model.x[i, k] for k in range(num_devices)) == 1

    @model.Constraint(range(num_devices))
    def load_covers(model: pyo.ConcreteModel, k: int) -> object:
        return sum(int(arrays.time_ns[i, k]) * model.x[i, k] for i in range(n)) <= model.most

    @model.Constraint(range(num_devices))
    def memory_capacity(model: pyo.ConcreteModel, k: int) -> object:
        size = arrays.resident_bytes.tolist()
        if capacity[k] >= sum(size):
            return pyo.Constraint.Skip
        return sum(size[i] * model.x[i, k] for i in range(n)) <= capacity[k]

    model.objective = pyo.Objective(expr=model.most)
    return model


def warm_start(model: pyo.ConcreteModel, plan: Plan) -> None:
    device = plan.devices.tolist()
    for (i, k), variable in model.x.items():
        variable.set_value(int(device[i] == k))
    model.most.set_value(0)
    model.most.set_value(max(pyo.value(row.body) for row in model.load_covers.values()))


def extract(model: pyo.ConcreteModel) -> Plan:
    on = {i: k for (i, k), variable in model.x.items() if variable.value > 0.5}
    return Plan.on([on[i] for i in sorted(on)])


def formulation(task: Task, params: Params) -> Formulation:
    return Formulation(
        name=NAME,
        starts=(),
        granularity_ns=1,
        build=lambda start: build(task.instance),
        warm_start=warm_start,
        extract=extract,
    )


def run(task: Task, params: Params) -> Outcome:
    assert isinstance(params, MipParams)
    return run_mip(task, formulation(task, params), params.solver)


METHOD = Method(
    name=NAME,
    claim="exact",
    objectives=("max_load",),
    paper="none",
    summary="a tiny MIP",
    run=run,
    params=MipParams,
    formulation=formulation,
)


@pytest.fixture
def registered() -> Iterator[None]:
    """The method is there for one test."""
    if NAME not in METHODS:
        register(METHOD)
    yield
    METHODS.pop(NAME, None)
