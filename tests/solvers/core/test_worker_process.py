"""Worker processes run nothing of the user's script, wherever that comes from."""

import subprocess
import sys
from pathlib import Path

import pytest

POOL = """
print("here", flush=True)
from placegap.experiments.running.pool import run_pool
found = run_pool(["task"], len, workers=2, hard_limit_s=lambda name: 99)
print(*(ending.fate for ending in found))
"""


def run(script: str, way: str, folder: Path) -> str:
    """What a script prints, given by its file, on standard input or as an argument."""
    (folder / "script.py").write_text(script)
    arguments = {"file": ["script.py"], "stdin": ["-"], "argument": ["-c", script]}[way]
    done = subprocess.run(
        [sys.executable, *arguments],
        input=script if way == "stdin" else "",
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("way", ["file", "stdin", "argument"])
def test_a_script_without_a_guard_has_a_pool(way: str, tmp_path: Path) -> None:
    assert run(POOL, way, tmp_path) == "here\ndone\n"


def test_a_script_whose_streams_are_closed_has_workers(tmp_path: Path) -> None:
    # the pipe to the worker then has the number of a standard stream
    (tmp_path / "script.py").write_text(POOL + "open('fate', 'w').write('it ran')\n")
    command = f"{sys.executable} script.py <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "fate").read_text() == "it ran"


def test_files_of_the_working_folder_hide_no_modules_from_workers(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "multiprocessing.py").write_text("raise RuntimeError")
    script = "import os; os.chdir('there')\n" + POOL
    assert run(script, "file", tmp_path) == "here\ndone\n"
