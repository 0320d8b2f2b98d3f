"""Where compiled kernels are kept.

The folder is ``placegap-kernels`` in the one that NUMBA_CACHE_DIR names, else in the user's cache.
Where none of them can be written, kernels are kept in a temporary folder, and where there is none
either, nowhere; one line says so, and processes that are started inherit it.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

# Environment variable: set for processes that are started where no folder can be written.
UNCACHED = "PLACEGAP_UNCACHED_KERNELS"

FOLDER = "placegap-kernels"


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None if nowhere, which a line says when it is found out."""
    if UNCACHED in os.environ:
        return None
    stated = os.environ.get("NUMBA_CACHE_DIR", "")
    usual = Path(stated) if stated else user_cache() / "placegap"
    folder = usual.absolute() / FOLDER
    if (stated or usual.is_absolute()) and _is_writable(folder):
        return folder
    other = _temporary_folder()
    if other is None:
        os.environ[UNCACHED] = "1"
        what = "every process compiles its kernels anew"
    else:
        os.environ["NUMBA_CACHE_DIR"] = str(other)
        other /= FOLDER
        other.mkdir(exist_ok=True)
        what = f"compiled kernels are kept in {other}"
    if sys.stderr is not None:
        why = f"the folder NUMBA_CACHE_DIR={stated}" if stated else f"the user's cache {usual}"
        mend = "set NUMBA_CACHE_DIR to a folder that can"
        print(f"placegap: {why} cannot be written, and so {what}; {mend}", file=sys.stderr)
    return other


def user_cache() -> Path:
    """Where programs of this user keep what they can make again (XDG; Apple's and Microsoft's)."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _temporary_folder() -> Path | None:
    """A folder of this user's for temporary files, the same for every process; or None."""
    # What is in it is run: it is not used where anybody else may write into it.
    try:
        folder = Path(tempfile.gettempdir()) / f"placegap-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or shared:
            folder = Path(tempfile.mkdtemp(prefix="placegap-"))
        return folder if _is_writable(folder) else None
    except OSError:
        return None


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
