"""``placegap --version``, without the half second that loading the commands takes."""

from __future__ import annotations

from importlib.metadata import version


def print_version() -> int:
    """Print the name and the version; the exit status."""
    print(f"placegap {version('placegap')}")
    return 0
