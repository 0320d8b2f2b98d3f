"""A study says at once what it will do, how far it is, and what compiling took."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.extending import overload

from placegap.experiments.cli import main
from placegap.experiments.running import warm_up
from placegap.experiments.running.pool import Ending, run_here
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies import progress as study_progress
from placegap.experiments.studies import run as study
from placegap.experiments.studies.own_code import code_of
from placegap.experiments.studies.progress import (
    COMPILING,
    READING,
    RUNNING,
    WARMING,
    progress_shown,
)
from placegap.experiments.studies.run import run_study, run_task
from placegap.experiments.studies.runs import Run
from placegap.instances import Makespan
from placegap.instances.kernels import compiled_kernels
from placegap.instances.kernels.kernel import kernel

HEAVY = ("numba", "scipy", "networkx", "pandas", "pyomo", "highspy", "ortools", "matplotlib")
Capture = pytest.CaptureFixture[str]

STUDY = """
name: fakes
tables:
  - name: t
    semantics: {objective: makespan}
    instances: [zfnet512, resnet50]
    clusters: [celeritas-4xV100-pcie]
    methods: [{name: %s, params: [{}]}]
    seeds: [0, 1, 2]
    limits: {time_limit_s: 30}
"""

SOURCE = Source("zfnet512", "celeritas-4xV100-pcie")


def study_file(folder: Path, method: str = "fake") -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY % method)
    return path


def fake_run(**changes: Any) -> Run:
    facts = {
        "source": SOURCE,
        "instance_hash": load_source(SOURCE).content_hash,
        "semantics": Makespan(),
        "method": "fake",
        "params": {},
        "seed": 0,
        "time_limit_s": 30.0,
        "gap": 0.0,
        "versions": {},
    }
    return Run(**{**facts, **changes})


def test_a_study_says_what_it_will_do_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from placegap.experiments import cli\n"
        "from placegap.experiments.studies import run as study\n"
        f"study.run_rows_of = lambda *a, **k: sys.exit(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
        "cli.main(['study', sys.argv[1], '--workers', '2'])\n"
    )
    command = [sys.executable, "-c", code, str(study_file(tmp_path, "heft"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # two instances, three seeds, of which heft draws no number: one limit by one of two workers,
    # and the last: 15 + 30 s
    assert done.stderr.splitlines() == [
        "placegap: fakes: at most 2 runs of at most 30 s each, 2 at a time: at most 45 s in all",
        "[]",
    ]


def test_a_study_whose_runs_are_all_in_the_log_says_so(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(study, "run_pool", run_here)
    command = ["study", str(study_file(tmp_path)), "--out", str(tmp_path), "--workers", "1"]
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    log = tmp_path / "runs.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))
    assert main(command) == 0
    assert "nothing to run" not in capsys.readouterr().err
    assert log.read_text().count("\n") == 6
    assert main(command) == 0
    assert "all 6 runs" in capsys.readouterr().err


def test_a_piped_study_prints_a_line_when_something_changes_but_not_too_often(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    first, second = fake_run(), fake_run(method="other", seed=1)
    clock = iter([0.0, 1.0, 6.0, 7.0, 600.0, 609.0, 611.0])
    monkeypatch.setattr(study_progress.time, "monotonic", lambda: next(clock))
    with progress_shown("fakes") as told:  # at 0 s
        told.done, told.total = 3, 5
        told.started(first)  # too early for a line
        told.started(second)  # after 6 s
        told.doing((second.key, COMPILING))  # 1 s after a line
        told.doing((second.key, COMPILING))
        told.ended(first)  # 9 s after a line, and at ten minutes 10 s have to pass
        told.doing((second.key, RUNNING))
    assert capsys.readouterr().err == (
        "placegap: after 6.0 s: 3/5 runs; fake on zfnet512; other on zfnet512\n"
        "placegap: after 600 s: 3/5 runs; fake on zfnet512;"
        " compiling kernels for other on zfnet512\n"
        "placegap: after 611 s: 4/5 runs; other on zfnet512\n"
    )


def test_compiling_is_told_while_it_lasts_and_is_in_no_run_s_time(
    fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from doubles import fake_methods

    from placegap.solvers.core.registry import METHODS

    seen, sent = [], []

    def slow(x: int) -> int:
        return x

    @overload(slow)
    def typed(x):  # type: ignore[no-untyped-def]  # as the implementation
        time.sleep(0.5)  # the compiler comes by here, and compiled code does not
        seen.append(sent[-1:] == [(run.key, COMPILING)])
        return lambda x: x

    @kernel
    def calls(x: int) -> int:
        return slow(x)

    method = METHODS["fake"]

    def compiled(task: Any, params: Any) -> Any:
        calls(1)
        return fake_methods.run(task, params)

    monkeypatch.setitem(METHODS, "fake", type(method)(**{**vars(method), "run": compiled}))
    run = fake_run(params={"kind": "plan"}, code=code_of(METHODS["fake"], "makespan"))
    monkeypatch.setattr(warm_up, "_warm", set())
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)
    (ending,) = run_here([run], run_task, on_progress=sent.append)
    outcome = ending.answer
    assert outcome["status"] == "feasible", outcome["traceback"]
    assert seen
    assert all(seen)
    assert sent[:3] == [(run.key, at) for at in (READING, WARMING, COMPILING)]
    assert sent[-1] == (run.key, RUNNING)
    assert outcome["setup_s"] > 0.5 > outcome["solve_s"]


def test_a_run_that_is_killed_while_it_compiles_stays_out_of_the_log(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def slow_machine(tasks: Iterable[Run], function: Any, **options: Any) -> Iterator[Ending[Run]]:
        for number, task in enumerate(filter(None, tasks)):
            told = (task.key, (RUNNING, COMPILING, RUNNING, WARMING)[number % 4])
            yield Ending(task, "timeout", None, "killed at the hard limit of 210 s", 210.0, told)

    monkeypatch.setattr(study, "run_pool", slow_machine)
    path = study_file(tmp_path)
    runs = run_study(path, tmp_path, workers=1, modules=fakes)
    assert list(runs["status"]) == ["timeout", "not_run"] * 3
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 3
    failed, left_out = capsys.readouterr().err.splitlines()[:2]
    assert "fake on zfnet512 failed: killed at the hard limit of 210 s" in failed
    assert left_out == (
        "placegap: left out: fake on zfnet512, killed at the hard limit of 210 s while compiling"
        " its kernels"
    )
    monkeypatch.setattr(study, "run_pool", run_here)
    runs = run_study(path, tmp_path, workers=1, modules=fakes)
    assert list(runs["status"]) == ["timeout", "feasible"] * 3
