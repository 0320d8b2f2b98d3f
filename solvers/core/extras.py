"""What an extra adds: whether it is here, and how to get it."""

from __future__ import annotations

from importlib.util import find_spec


def why_not_installed(package: str, extra: str) -> str | None:
    """How to get a package that is missing, or None.

    Examples
    --------
    >>> why_not_installed("no_such_package", "torch")
    "needs no_such_package: pip install 'placegap[torch]'"
    """
    if find_spec(package) is None:
        return f"needs {package}: pip install 'placegap[{extra}]'"
    return None
