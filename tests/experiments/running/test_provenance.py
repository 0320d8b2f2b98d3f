"""A result says which commit, versions and machine made it."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from placegap.experiments.running.provenance import made_by


def test_it_names_the_versions_that_decide_how_far_a_method_gets() -> None:
    for name in ("placegap", "highspy", "ortools", "numpy", "numba"):
        assert version(name) in made_by()


def test_it_names_the_commit_that_is_checked_out() -> None:
    git = subprocess.run(
        ("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"),
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode:
        pytest.skip("not in a repository of git")
    said = made_by().partition(" at ")[2].partition(";")[0].removesuffix("-dirty")
    assert said
    assert git.stdout.startswith(said)
