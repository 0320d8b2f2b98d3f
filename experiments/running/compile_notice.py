"""While a process compiles kernels, a file of its own is there, for another process to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def compile_notice(file: Path | None) -> Iterator[None]:
    """Have `file` there whenever numba compiles meanwhile; None: nobody looks.

    Examples
    --------
    >>> import tempfile
    >>> from numba import njit
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "compiling")
    ...     with compile_notice(file):
    ...         found = njit(lambda x: x + 1)(1)
    ...     found, file.exists()
    (2, False)
    """
    if file is None:
        yield
        return
    from numba.core import event

    there: Path = file

    class Notice(event.Listener):
        depth = 0  # kernels compile those that they call

        def on_start(self, started: Any) -> None:
            self.depth += 1
            there.touch()

        def on_end(self, ended: Any) -> None:
            self.depth -= 1
            if not self.depth:
                there.unlink(missing_ok=True)

    try:
        with event.install_listener("numba:compile", Notice()):
            yield
    finally:
        file.unlink(missing_ok=True)
