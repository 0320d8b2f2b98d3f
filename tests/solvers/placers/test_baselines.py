"""Everything on one device, in turn, or anywhere."""

from draws import draw
from references.placers import pressed_instance

from placegap.instances import Device, Makespan, MaxLoad, Op, evaluate
from placegap.solvers import METHODS, Limits, Task
from placegap.solvers.core.method import Params
from placegap.solvers.placers.baselines import single_device

MAX_LOAD = MaxLoad(plans="chain")


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
    instance = draw.instance_of("single", OPS, (), devices)
    plan = single_device(Task(instance, MAX_LOAD)).plan
    assert plan.placement == ((3,), (3,))
    assert evaluate(instance, plan, MAX_LOAD).value_ns == 4


def test_where_no_device_will_do_each_one_says_why() -> None:
    gpus = (Device(name=name, kind="gpu", memory_bytes=6) for name in ("gpu0", "gpu1", "gpu2"))
    devices = (Device(name="npu0", kind="npu"), *gpus)
    outcome = single_device(Task(draw.instance_of("single", OPS, (), devices), MAX_LOAD))
    assert outcome.plan is None
    assert outcome.message == (
        "no device runs and holds all ops: op 'b' cannot run on 'npu0'; 1 B of 7 B do not fit on"
        " 'gpu0' and 2 more"
    )
    assert not outcome.proven_infeasible  # two devices would do


def test_round_robin_skips_what_is_full_and_keeps_groups_together() -> None:
    # op0, op1 on d0, d1; then whoever is next in turn among those with room
    instance = pressed_instance(2, num_ops=12, num_devices=3)
    outcome = METHODS["round-robin"].run(Task(instance, Makespan()), Params())
    first = instance.arrays.index.topological_order[:3].tolist()
    assert [outcome.plan.placement[op] for op in first] == [(0,), (1,), (2,)]


def test_the_seed_alone_decides_where_random_places() -> None:
    instance = pressed_instance(2, num_ops=12, num_devices=3)
    semantics = Makespan()
    plans = [
        METHODS["random"].run(Task(instance, semantics, Limits(seed=seed)), Params()).plan
        for seed in (1, 1, 2)
    ]
    assert plans[0] is not None
    assert plans[0] == plans[1] != plans[2]
