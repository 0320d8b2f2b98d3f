"""Every method returns the same plan whatever Python's hash seed."""

from references.hash_seeds import printed_here_and_there

PROGRAM = """
from references.agreement import little
from itertools import islice
from references.brute_force import more_makespan, more_max_load
from references.placers import pressed_instance
from placegap.instances import Makespan, MaxLoad
from placegap.solvers import METHODS, run_method
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import why_not

draws = [*islice(more_makespan(1), 1, 2), *islice(more_max_load(0), 3, 4)]
rules = [Makespan(), MaxLoad(plans="chain"), MaxLoad(plans="any")]
for instance in draws:
    for semantics in rules:
        for name, method in METHODS.items():
            params = little(method)
            if why_not(method, Task(instance, semantics), method.params(**params)) is None:
                result = run_method(instance, semantics, name, params)
                print(instance.name, semantics.label, name, result.status, result.value_ns,
                      result.bound_ns, result.plan)

instance = pressed_instance(3, num_ops=60, num_devices=4)  # large enough for ties
for semantics in rules:
    for name in ("single-device", "m-topo", "etf", "m-etf", "heft", "peft"):
        task, method = Task(instance, semantics), METHODS[name]
        if why_not(method, task, method.params()) is None:
            print(name, method.run(task, method.params()))
"""


def test_plans_values_and_bounds_do_not_depend_on_the_hash_seed() -> None:
    here, there = printed_here_and_there(PROGRAM)
    assert {"moirai", "cp-sat", "ideal-dp", "throughput-ip", "heft"} <= set(here.split())
    assert here.count("Outcome(plan=Plan(placement=") >= 4  # of the large one
    assert here == there
