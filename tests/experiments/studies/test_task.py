"""What the log keeps of a run."""

from placegap.experiments.running.sources import Source
from placegap.experiments.studies.run import run_task
from placegap.experiments.studies.runs import Run
from placegap.instances import Makespan
from placegap.solvers.core.registry import find_method
from placegap.solvers.solving.run_method import versions_of

LIMIT_S = 10.0


def run(**changes: object) -> Run:
    facts = {
        "source": Source("zfnet512", "celeritas-4xV100-pcie"),
        "instance_hash": "h",
        "semantics": Makespan(),
        "method": "heft",
        "params": {},
        "seed": 0,
        "time_limit_s": LIMIT_S,
        "gap": 0.0,
        "versions": versions_of(find_method("heft")),
    }
    return Run(**{**facts, **changes})


def test_an_instance_that_changes_while_the_study_runs_is_an_error() -> None:
    outcome = run_task(run(instance_hash="other"))
    assert outcome["status"] == "error"
    assert "has changed since the study began" in outcome["message"]
