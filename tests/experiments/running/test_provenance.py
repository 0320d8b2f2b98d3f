"""A result says which commit, versions and machine made it."""

from importlib.metadata import version

from placegap.experiments.running.provenance import made_by


def test_it_names_the_versions_that_decide_how_far_a_method_gets() -> None:
    for name in ("placegap", "highspy", "ortools", "numpy", "numba"):
        assert f"{name} {version(name)}" in str(made_by()["versions"])
