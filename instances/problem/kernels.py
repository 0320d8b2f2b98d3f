"""How kernels are compiled: once per machine, and without what nobody calls.

Compiling is most of a first run. numba writes a second entry into every kernel, for C code that
holds its address; there is none here, and without it kernels compile in a tenth less time. Another
twelfth went into looking for garbage among the millions of small objects of a compiler.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar, overload

from numba import njit
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, allocates: bool = True, **options: bool | str) -> Callable[[F], F]: ...
def kernel(function: Any = None, *, allocates: bool = True, **options: bool | str) -> Any:
    """Compile a function of numbers and arrays where it is first called, and keep the result.

    Parameters
    ----------
    function : callable
        What `numba.njit` can compile.
    allocates : bool
        Whether it makes or returns arrays. Where it does not, no references to those that it gets
        are counted. Counting was up to three quarters of the time of small functions.
    **options
        More options of njit: ``nogil``, ``inline``, ``boundscheck``, ``fastmath``.

    Examples
    --------
    `sizes_of` is a kernel; code that is typed in has no file beside which to keep the result.

    >>> import numpy as np
    >>> from placegap.instances.problem.plain_loops import sizes_of
    >>> sizes_of(np.array([0, 2, 5])).tolist()
    [2, 3]
    """
    # numba calls it nrt; left out, it would be what the caller of the kernel has
    chosen: dict[str, Any] = {"cache": True, "no_cfunc_wrapper": True, "_nrt": allocates, **options}
    return njit(**chosen) if function is None else njit(**chosen)(function)


class _LessGarbage(event.Listener):
    """Garbage is looked for a hundred times less often while numba compiles."""

    def __init__(self) -> None:
        self.depth, self.usual = 0, gc.get_threshold()

    def on_start(self, event: object) -> None:
        self.depth += 1
        if self.depth == 1:
            self.usual = gc.get_threshold()
            gc.set_threshold(100 * self.usual[0], *self.usual[1:])

    def on_end(self, event: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            gc.set_threshold(*self.usual)


event.register("numba:compile", _LessGarbage())
