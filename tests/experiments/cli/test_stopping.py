"""Ctrl-C: a placement keeps what its solver has, a second one ends it at once, nothing hangs."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
from doubles import processes
from doubles.processes import finish, send, wait_for
from draws.tiny import tiny_instance

from placegap.experiments.cli import main
from placegap.experiments.running import placing, pool
from placegap.instances import example
from placegap.instances.files.document import Document, save_document

POOL = """
import sys
from placegap.experiments.running.pool import run_pool
from doubles.stop_jobs import job
endings = run_pool(sys.argv[2:], job, workers=2, hard_limit_s=lambda task: 99,
                   stop_s=float(sys.argv[1]))
try:
    for ending in endings:
        print(ending.task, ending.fate, ending.answer, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""

PLACE = """
import sys
from functools import partial
from placegap.experiments.running import placing
placing.place = partial(placing.place, modules=["doubles.stop_solvers"])
placing.STOP_S = 100.0
from placegap.experiments.cli import main
sys.exit(main(["place", *sys.argv[1:], "--json"]))
"""


def begin(code: str, folder: Path, *args: str) -> subprocess.Popen[str]:
    """A program whose jobs and solvers tell when they begin, by files in a folder."""
    return processes.begin(code, *args, env={"PLACEGAP_TEST_STOP": str(folder)})


def test_tasks_are_told_to_stop_and_what_they_return_is_kept(tmp_path: Path) -> None:
    process = begin(POOL, tmp_path, "60", "first", "deaf", "never")
    wait_for(process, tmp_path / "first-begun", tmp_path / "deaf-begun")
    send(process)
    out, err = finish(process)
    # the deaf one fails; no further task is begun
    assert out == "first done first had this much\nstopped\n"
    assert err == ""
    assert not (tmp_path / "never-begun").exists()


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    process = begin(POOL, tmp_path, "90", "stubborn")
    wait_for(process, tmp_path / "stubborn-begun")
    send(process)
    wait_for(process, tmp_path / "stubborn-stopped")
    send(process)
    assert finish(process) == ("stopped\n", "")


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    """24 ops on 4 devices: minutes away from a proof by HiGHS, and by no cheap bound."""
    instance = tiny_instance(9, num_ops=24, num_devices=4, density=0.3)
    save_document(Document.of(instance), tmp_path / "hard.json")
    return tmp_path / "hard.json"


def test_ctrl_c_keeps_what_the_solver_has(tmp_path: Path, hard: Path) -> None:
    process = begin(PLACE, tmp_path, str(hard), "--time-limit", "600", "--method", "moirai")
    wait_for(process, tmp_path / "solving")
    send(process)
    out, err = finish(process)
    assert process.returncode == 130, err
    content = json.loads(out)
    assert (content["method"], content["status"]) == ("moirai", "feasible")
    assert "interrupt" in content["message"]
    assert "stopped; the plan is moirai's" in err
    assert "Traceback" not in err


def test_a_method_that_takes_its_process_down_is_one_line(
    tmp_path: Path,
    fakes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = example().graph.model_copy(update={"name": "real"})
    document = Document.of(example()).model_copy(update={"graph": graph})
    save_document(document, tmp_path / "model.json")
    monkeypatch.setattr(placing, "run_pool", pool.run_pool)  # it has to be another process
    monkeypatch.setattr(placing, "place", partial(placing.place, modules=fakes))
    command = ["place", str(tmp_path / "model.json"), "--method", "fake", "--param", "kind=crash"]
    assert main(command) == 1
    output, words = capsys.readouterr()
    assert output == ""
    # A line of progress comes before it where starting took long.
    last = "placegap: no plan: fake: the worker process died (signal SIGKILL)"
    assert words.splitlines()[-1] == last
