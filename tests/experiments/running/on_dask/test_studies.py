"""A study on Dask writes what a local one writes; kills lose and repeat no run."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from doubles.fake_study import log_lines, study_file, study_process, wait_for_lines
from doubles.hidden_extras import without_extras
from doubles.processes import begin, finish

from placegap.experiments.cli import main
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run as study
from placegap.experiments.studies.run import run_study

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="needs the dask extra")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local runs need no processes."""
    monkeypatch.setattr(study, "run_pool", run_here)


@contextmanager
def dask_scheduler() -> Iterator[tuple[str, Any, Callable[[], None]]]:
    """``dask scheduler``: its address, its process, and what starts a ``dask worker`` for it."""
    code = "import sys; from dask.__main__ import main; main()"
    asked = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler = begin(code, *asked, stdout=subprocess.DEVNULL)
    processes = [scheduler]
    try:
        assert scheduler.stderr is not None
        said = next(line for line in scheduler.stderr if "Scheduler at" in line)
        address = said.split()[-1]

        def start_worker() -> None:
            asked = f"worker {address} --nthreads 1 --no-nanny --no-dashboard".split()
            quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
            worker = begin(code, *asked, **quiet)
            processes.append(worker)

        yield address, scheduler, start_worker
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@needs_dask
def test_a_killed_study_and_a_killed_scheduler_lose_and_repeat_nothing(
    tmp_path: Path, fakes: list[str], here: None
) -> None:
    path = study_file(tmp_path, "{seconds: 0.2}", "0, 1, 2, 3, 4, 5, 6, 7")
    with dask_scheduler() as (address, scheduler, start_worker):
        process = study_process(path, tmp_path, "--scheduler", address)
        assert process.stderr is not None
        assert process.stderr.readline() == (
            f"placegap: no Dask worker has joined yet; start one: dask worker {address}\n"
        )
        start_worker()
        wait_for_lines(tmp_path, 2)
        process.kill()  # the cluster goes on without it
        process.communicate()
        done = (tmp_path / "runs.jsonl").read_bytes().count(b"\n")
        process = study_process(path, tmp_path, "--scheduler", address)
        wait_for_lines(tmp_path, done + 2)
        scheduler.kill()
        began = time.monotonic()
        _, err = finish(process)
        assert process.returncode == 2
        assert time.monotonic() - began < 20
        assert err.splitlines()[-1] == (
            f"placegap: the Dask scheduler at {address} is gone; {tmp_path / 'runs.jsonl'} has"
            " every finished run, and the same command continues from there"
        )
        assert not re.search("Traceback|distributed", err)
    run_study(path, tmp_path, workers=1, modules=fakes)
    lines = log_lines(tmp_path)
    assert len({line["key"] for line in lines}) == len(lines) == 8
    assert {line["status"] for line in lines} == {"feasible"}


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    path = study_file(tmp_path)
    code = (
        "from placegap.experiments.cli import main\n"
        "for option in ('--dask=2', '--scheduler=tcp://127.0.0.1:8786'):\n"
        "    print(main(['study', sys.argv[1], option]))\n"
    )
    done = without_extras(code, str(path), cwd=tmp_path)
    line = "placegap: needs distributed: pip install 'placegap[dask]'\n"
    assert (done.stdout, done.stderr) == ("2\n" * 2, line * 2)


def test_a_study_runs_in_one_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", str(study_file(tmp_path)), "--workers", "2", "--dask", "2"]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "placegap: --workers and --dask exclude each other; give one of them\n"
    )
