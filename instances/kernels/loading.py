"""How long this process has loaded modules and kernels, which no time of a method includes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Loading:
    began: float | None = None
    total_s = 0.0


_loading = _Loading()


@contextmanager
def loading() -> Iterator[None]:
    """Load modules or kernels, or compile these."""
    if _loading.began is not None:
        yield
        return
    _loading.began = time.perf_counter()
    try:
        yield
    finally:
        _loading.total_s += time.perf_counter() - _loading.began
        _loading.began = None


def loading_s() -> float:
    """Seconds spent so far, on what is being loaded now, perhaps by another thread, included."""
    began = _loading.began  # before the total: no moment is left out
    return _loading.total_s + (0.0 if began is None else time.perf_counter() - began)


Watcher = tuple[Callable[[], object], Callable[[], object]]

# What is called when this process begins to compile a kernel, or to wait for another process that
# does; and when it ends, after all kernels that this one calls.
watchers: list[Watcher] = []
