"""Files that a command will write, checked before it computes anything."""

from __future__ import annotations

import os
from pathlib import Path

from placegap.instances.reading.errors import InputError


def check_outputs(*paths: Path | None) -> None:
    """Refuse folders, files in folders that cannot be written to, and one file named twice.

    Raises
    ------
    InputError
        One line with the path and the mend.

    Examples
    --------
    >>> check_outputs(Path("plan.json"), None)
    >>> check_outputs(Path("a.json"), Path("./a.json"))
    Traceback (most recent call last):
    placegap.instances.reading.errors.InputError: a.json: two outputs have this name; choose another
    """
    seen: set[str] = set()
    for path in paths:
        if path is None:
            continue
        whole = os.path.realpath(path)
        if not path.name or path.is_dir():
            raise InputError("is a folder; name a file in it", path)
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: written to, not replaced
            if not os.access(path, os.W_OK):
                raise InputError("cannot be written: it may not be written to", path)
            continue
        if not Path(whole).parent.is_dir():
            raise InputError("cannot be written: its folder does not exist", path)
        if not os.access(Path(whole).parent, os.W_OK):
            raise InputError("cannot be written: its folder may not be written to", path)
        if whole in seen:
            raise InputError("two outputs have this name; choose another", path)
        seen.add(whole)
