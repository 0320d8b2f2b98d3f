"""Where the files that ship inside the package are."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def data_path(*parts: str) -> Path:
    """Path of a file or folder under ``instances/data``.

    Examples
    --------
    >>> data_path("devices.yaml").name
    'devices.yaml'
    """
    return Path(str(resources.files("placegap.instances"))).joinpath("data", *parts)
