"""Tasks on Dask end as in the local pool; a Dask worker that dies costs only what it ran."""

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doubles.pool_jobs import job
from doubles.processes import is_alive

from placegap.experiments.running import dask_pool
from placegap.experiments.running.dask_pool import cluster_at, local_cluster, num_slots, run_on_dask
from placegap.experiments.running.pool import Ending, run_pool
from placegap.instances import InputError

pytest.importorskip("distributed", reason="needs the dask extra")


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    with local_cluster(2) as client:
        yield client


def endings(client: Any, tasks: list[tuple[str, object]], limit_s: float = 20.0) -> list[Ending]:
    return list(run_on_dask(tasks, job, client=client, hard_limit_s=lambda task: limit_s))


def eventually(holds: Callable[[], bool]) -> bool:
    patience = time.monotonic() + 20
    while not holds() and time.monotonic() < patience:
        time.sleep(0.05)
    return holds()


def test_tasks_end_as_in_the_local_pool(two: Any) -> None:
    tasks = [("sleep", 0), ("die", signal.SIGSEGV), ("sleep", 60), ("nested", 0)]
    fates = {}
    for name, found in (
        ("dask", endings(two, tasks, limit_s=1.0)),
        ("local", list(run_pool(tasks, job, workers=2, hard_limit_s=lambda task: 1.0))),
    ):
        fates[name] = {ending.task: (ending.fate, ending.message) for ending in found}
    assert fates["dask"] == fates["local"]
    assert fates["dask"]["sleep", 60] == ("timeout", "killed at the hard limit of 1 s")
    assert [fate for fate, _ in fates["dask"].values()].count("crashed") == 1


def test_a_process_serves_many_tasks_and_ends_with_them(two: Any) -> None:
    found = endings(two, [("sleep", 0)] * 6)
    pids = {ending.answer for ending in found}
    assert len(found) == 6
    assert len(pids) <= num_slots(two) == 2
    assert str(found[0].made_by["versions"]).startswith("placegap ")
    assert eventually(lambda: not any(map(is_alive, pids)))


def test_a_dask_worker_that_dies_costs_only_its_run(two: Any) -> None:
    # the default of Dask tries a run three times more, and kills a worker each time
    tasks = [("kill parent", 0), *[("sleep", 0.1)] * 4]
    found = endings(two, tasks)
    assert sorted(ending.fate for ending in found) == ["crashed", *["done"] * 4]
    (crashed,) = (ending for ending in found if ending.fate == "crashed")
    assert crashed.message == "the Dask worker that ran it died"
    assert crashed.task == ("kill parent", 0)
    assert eventually(lambda: num_slots(two) == 2)  # Dask starts another worker


def test_news_arrive(two: Any) -> None:
    heard: list[object] = []
    tasks = [("news", [("key", True), ("key", False)])]
    (ending,) = run_on_dask(
        tasks, job, client=two, hard_limit_s=lambda task: 20.0, on_news=heard.append
    )
    assert ending.last_news == ("key", False)
    assert eventually(lambda: heard == [("key", True), ("key", False)])


def test_what_runs_when_the_study_leaves_is_ended(two: Any) -> None:
    heard: list[int] = []
    tasks = [("sleep", 0), ("pid and sleep", 60)]
    running = run_on_dask(
        tasks, job, client=two, hard_limit_s=lambda task: 99, on_news=heard.append
    )
    next(running)
    assert eventually(lambda: len(heard) == 1)
    assert is_alive(heard[0])
    running.close()
    assert eventually(lambda: not is_alive(heard[0]))
    assert endings(two, [("sleep", 0)])[0].fate == "done"  # its thread is free again


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "CONNECT_S", 0.5)
    line = "--scheduler tcp://127.0.0.1:1: no Dask scheduler"
    with pytest.raises(InputError, match=line) as caught, cluster_at("tcp://127.0.0.1:1"):
        pass
    assert "\n" not in str(caught.value)
