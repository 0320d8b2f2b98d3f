"""Everything on one device."""

from __future__ import annotations

from placegap.instances import Cluster, Device, Graph, Instance, MaxLoad, Op, evaluate
from placegap.solvers import Task
from placegap.solvers.placers.baselines import single_device

MAX_LOAD = MaxLoad(plans="chain")


def instance_of(ops: tuple[Op, ...], devices: tuple[Device, ...]) -> Instance:
    return Instance(
        name="single",
        graph=Graph(name="single", ops=ops),
        cluster=Cluster(name="single", devices=devices),
    )


OPS = (
    Op(name="a", time_ns={"cpu": 9, "gpu": 2, "npu": 1}, resident_bytes=3),
    Op(name="b", time_ns={"cpu": 9, "gpu": 2}, resident_bytes=4),
)


def test_the_fastest_device_that_runs_and_holds_everything_is_taken() -> None:
    # npu0 cannot run b, gpu0 is too small, gpu1 takes 4 and cpu0 18
    devices = (
        Device(name="npu0", kind="npu"),
        Device(name="gpu0", kind="gpu", memory_bytes=6),
        Device(name="cpu0", kind="cpu"),
        Device(name="gpu1", kind="gpu", memory_bytes=7),
        Device(name="gpu2", kind="gpu"),
    )
    instance = instance_of(OPS, devices)
    plan = single_device(Task(instance, MAX_LOAD)).plan
    assert plan is not None
    assert plan.placement == ((3,), (3,))
    assert evaluate(instance, plan, MAX_LOAD).value_ns == 4


def test_where_no_device_will_do_each_one_says_why() -> None:
    devices = (Device(name="npu0", kind="npu"), Device(name="gpu0", kind="gpu", memory_bytes=6))
    outcome = single_device(Task(instance_of(OPS, devices), MAX_LOAD))
    assert outcome.plan is None
    assert outcome.message == (
        "no device runs and holds all ops: 'npu0' cannot run op 'b'; 'gpu0' holds 6 bytes of 7"
    )
    assert not outcome.proven_infeasible  # two devices would do
