"""SIGTERM and SIGHUP end a command like Ctrl-C: the plan so far, a status, and nothing left."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from doubles import processes
from doubles.processes import PLACEGAP, dispositions, finish, no_session, send, session, wait_for

from placegap.experiments.cli import main
from placegap.experiments.running import pool
from placegap.instances import example
from placegap.instances.files.document import Document, save_document
from placegap.instances.files.plan_file import load_plan

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

PLACE = """
import sys
from functools import partial
from placegap.experiments.running import placing
placing.place = partial(placing.place, modules=['doubles.fake_methods'])
import doubles.fake_methods
from placegap.experiments.cli import main
command = ['place', 'model.json', '-o', 'plan.json', '--json', '--method', 'fake']
sys.exit(main([*command, *sys.argv[1:]]))
"""
LONG = ("--param", "seconds=60", "--param", "tells=true")


def place(folder: Path, code: str = PLACE, *args: str, **options: Any) -> subprocess.Popen[str]:
    """A placement that makes a file "now" once it has a plan, and then takes a minute."""
    graph = example().graph.model_copy(update={"name": "real"})
    document = Document.of(example()).model_copy(update={"graph": graph})
    save_document(document, folder / "model.json")
    process = processes.begin(code, *(args or LONG), cwd=folder, **options)
    wait_for(process, folder / "now")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_placement_prints_and_writes_the_plan_so_far(tmp_path: Path, number: int) -> None:
    process = place(tmp_path)
    assert len(session(process.pid)) == 2  # the command and its worker
    send(process, number)
    if number != signal.SIGINT:
        process.send_signal(number)  # `timeout` sends it twice: to the command, and to all
    out, err = finish(process)
    assert process.returncode == 128 + number
    assert json.loads(out)["value_ns"] == 43
    assert load_plan(example(), tmp_path / "plan.json") is not None
    assert "stopped; the plan is fake's" in err
    assert "Traceback" not in err
    assert no_session(process.pid)


def test_signals_that_are_ignored_from_the_start_stay_so(tmp_path: Path) -> None:
    # SIGHUP under nohup; SIGINT in the background of a script. SIGTERM ends it all the same.
    process = place(tmp_path, ignored=[signal.SIGHUP, signal.SIGINT])
    send(process, signal.SIGHUP)
    send(process, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    send(process, signal.SIGTERM)
    out, err = finish(process)
    assert process.returncode == 143
    assert json.loads(out)["value_ns"] == 43
    assert "stopped; the plan is fake's" in err


def test_a_terminal_that_closes_costs_no_plan(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    process = place(tmp_path, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.close(ours)  # what is written from now on fails
    send(process, signal.SIGHUP)
    finish(process)
    assert process.returncode == 129
    assert load_plan(example(), tmp_path / "plan.json") is not None
    assert no_session(process.pid)


LOADING = """
import os, signal, sys
class SignalHere:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, SignalHere())
from placegap.experiments.cli import main
sys.exit(main(["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie"]))
"""


def test_a_signal_that_comes_while_modules_are_loaded_is_one_line() -> None:
    process = processes.begin(LOADING, "placegap.experiments.running.placing")
    assert finish(process) == ("", "placegap: stopped\n")
    assert process.returncode == 143


@pytest.mark.parametrize("module", ["lazy_loader", "concurrent", "placegap.instances.problem"])
def test_ctrl_c_before_the_command_line_is_loaded_is_one_line(module: str) -> None:
    code = LOADING.replace("SIGTERM", "SIGINT").replace(
        "class", "sys.argv[0] = 'placegap'\nclass", 1
    )
    process = processes.begin(code, module)
    assert finish(process) == ("", "placegap: stopped\n")
    assert process.returncode == 130


def test_a_signal_in_the_second_opinion_keeps_the_first_and_says_so(tmp_path: Path) -> None:
    code = PLACE.replace(
        "import doubles.fake_methods\n",
        "import doubles.fake_methods\n"
        "def ask(*args):\n    open('now', 'w').close()\n    import time\n    time.sleep(60)\n"
        "placing.ask_second = ask\n",
    )
    process = place(tmp_path, code, "--second-opinion")
    send(process, signal.SIGINT)
    out, _ = finish(process)
    assert process.returncode == 130
    content = json.loads(out)
    assert content["value_ns"] == 43
    assert content["second_opinion"]["sentence"] == "stopped"


@pytest.mark.parametrize(
    ("command", "number"),
    [(["convert", "zfnet512", "out.json"], signal.SIGTERM), (["verify", "a", "b"], signal.SIGHUP)],
)
def test_every_command_ends_with_the_signals_status(
    command: list[str],
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from placegap.experiments.running import sources

    def signal_here(*args: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(sources, "find_model", signal_here)
    monkeypatch.setattr(sources, "load_source", signal_here)
    with dispositions():
        assert main(command) == 128 + number
        assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_DFL] * 3
    assert capsys.readouterr() == ("", "placegap: stopped\n")


def test_what_is_held_ends_before_a_signal_is_heard() -> None:
    done = []

    def hold(*numbers: int) -> None:
        with pool.held():
            for number in numbers:
                signal.raise_signal(number)
            done.append(numbers)

    with dispositions(), pool.handled():
        with pytest.raises(KeyboardInterrupt):
            hold(signal.SIGTERM, signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):  # who asks again does not want to wait
            hold(signal.SIGINT, signal.SIGINT)
    assert done == [(signal.SIGTERM, signal.SIGTERM)]


def test_a_solver_in_a_process_of_its_own_ends_with_a_kill(tmp_path: Path) -> None:
    program = tmp_path / "scotch_gpart"  # the first name that is looked for
    program.write_text("#!/bin/sh\ntouch begun\nexec sleep 60\n")
    program.chmod(0o755)
    command = ["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie", "--method", "scotch"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = processes.begin(PLACEGAP, *command, cwd=tmp_path, env={"PATH": path})
    wait_for(process, tmp_path / "begun")
    process.kill()
    process.communicate()
    assert no_session(process.pid)
