"""How kernels are run: compiled once per machine, or as plain Python where little is to be done.

Compiling a kernel takes 0.1 to 4 s once, loading it 5 ms, and numba itself 0.7 s. A `bounded`
kernel of small arrays needs a few milliseconds as it stands: it and all that it calls run
uncompiled until that has cost as much time as it may save. `compiled_kernels` is numba's side; it
is loaded with the first kernel that is compiled.

`copy_to`, `set_all`, `sizes_of`, `draw`, `stable_order`, `push` and `pop` are numpy's slices,
`diff`, `integers` and `argsort`, and Python's heaps, in plain code, which numba compiles in a
fraction of the time: a slice that is assigned to brings the code of its error message along, into
the kernel and into every kernel that calls it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.loading import loading

F = TypeVar("F", bound=Callable[..., Any])

# Of a function that counts steps from arguments: infinite where plain Python differs.
Bounded = bool | Callable[..., float]

# Arrays of a kernel's arguments, together, up to which it may run as plain Python, and steps, of
# 0.02 to 0.6 us, where they are counted. A graph of 200 ops on 8 devices has about 5,000 entries;
# HEFT's schedule of it takes 0.1 s uncompiled.
SMALL_ENTRIES, SMALL_STEPS = 20_000, 300_000
PLAIN_S = 0.5  # CPU seconds of a kernel as plain Python, then it is compiled: what compiling takes


class Kernel:
    """A function of numbers and arrays, and what numba makes of it."""

    def __init__(self, function: FunctionType, options: dict[str, Any], bounded: Bounded) -> None:
        # numba takes it for its own dispatcher wherever it looks for one: in a kernel that calls it
        # (`_numba_type_`), and in one that takes its code in (`targetoptions`, `py_func`).
        # `options` are those of `numba.njit`. A bounded kernel may run uncompiled: its arrays'
        # lengths bound its work.
        update_wrapper(self, function)
        self.py_func, self.targetoptions, self.bounded = function, options, bounded
        self._dispatcher: Any = None
        self._plain_s, self._is_sought = 0.0, False
        self._run: Callable[..., Any] = self._choose

    def __call__(self, *args: Any) -> Any:
        """Run it: as it stands where the kernel that calls it is run so, lists and all."""
        return self.py_func(*args) if _thread.is_plain else self._run(*args)

    def __reduce__(self) -> str:
        """Pickle it by its name, as functions are."""
        return self.py_func.__qualname__

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher, made when it is first used."""
        if self._dispatcher is None:
            with loading():
                from placegap.instances.kernels.compiled_kernels import Dispatcher

                self._dispatcher = Dispatcher(self.py_func, targetoptions=self.targetoptions)
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_

    def _choose(self, *args: Any) -> Any:
        """Run it one way or the other, as long as it is not compiled."""
        if self._dispatcher is None or not self._dispatcher.overloads:
            began = time.thread_time()
            may_be = self.bounded and _settings.plain and self._plain_s < PLAIN_S
            if may_be and self._is_little(args):
                _thread.is_plain = True
                try:
                    return _plain(self.py_func(*args))
                finally:
                    _thread.is_plain = False
                    self._plain_s += time.thread_time() - began
        self._run = self.dispatcher
        return self._run(*args)

    def _is_little(self, args: tuple[Any, ...]) -> bool:
        """Whether compiling takes longer than running it as it stands."""
        steps = self.bounded(*args) if callable(self.bounded) else 0
        if steps > SMALL_STEPS or (steps == 0 and _entries(args) > SMALL_ENTRIES):
            return False
        if not self._is_sought and "numba" in sys.modules:
            # once numba is loaded, compiled code that is kept costs next to nothing
            self._is_sought = True
            return not self.dispatcher.is_kept(args)
        return True


class _Settings:
    #: Whether any kernel may run uncompiled.
    plain = True


_settings = _Settings()


@contextmanager
def all_compiled() -> Iterator[None]:
    """Run no kernel of this process as plain Python meanwhile."""
    before, _settings.plain = _settings.plain, False
    try:
        yield
    finally:
        _settings.plain = before


class _Thread(threading.local):
    #: Whether it is in a kernel that runs uncompiled.
    is_plain = False


_thread = _Thread()


def _plain(value: Any) -> Any:
    """What compiled code returns: numbers of Python for those of numpy, in tuples as well."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = map(_plain, value)
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


def _entries(value: object) -> int:
    """Entries of the arrays in it."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_entries, value)) if isinstance(value, tuple) else 0


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(
    *, allocates: bool = True, bounded: Bounded = False, **options: bool | str
) -> Callable[[F], F]: ...
def kernel(
    function: Any = None, *, allocates: bool = True, bounded: Bounded = False, **options: bool | str
) -> Any:
    """Compile a function of numbers and arrays where it is first called, and keep the result."""
    # Where it neither makes nor returns arrays (`allocates` is false), references to those that it
    # gets are not counted. Counting was up to three quarters of the time of small functions. With
    # `bounded`, a low power of its arrays' lengths bounds its work, and plain Python computes the
    # same (no bits of unsigned numbers, no sums beyond 64 bits): on small arrays it then runs
    # uncompiled, with all that it calls. Where lengths say too little, `bounded` counts the steps.
    # More options of njit: ``nogil``, ``inline``, ``boundscheck``, ``fastmath``.
    # there is no C code that holds a kernel's address, and without the entry for it kernels compile
    # in a tenth less time; _nrt left out would be what the caller of the kernel has
    chosen = {"nopython": True, "boundscheck": None, "no_cfunc_wrapper": True, "_nrt": allocates}

    def made(function: Any) -> Any:
        return Kernel(function, {**chosen, **options}, bounded)

    return made if function is None else made(function)


@kernel(nogil=True, allocates=False, bounded=True)
def copy_to(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Write the first entries of an array over all of another one; both have one axis."""
    # The source must be as long as the target; this is not checked.
    for at in range(len(target)):
        target[at] = source[at]


@kernel(nogil=True, allocates=False, bounded=True)
def set_all(target: NDArray[Any], value: int) -> None:
    """Write a number into every entry of an array of one axis."""
    for at in range(len(target)):
        target[at] = value


@kernel(nogil=True, bounded=True)
def sizes_of(ptr: Ints) -> Ints:
    """How many entries each group has, from pointers to the first of each: `np.diff`."""
    sizes = np.empty(len(ptr) - 1, np.int64)
    for at in range(len(sizes)):
        sizes[at] = ptr[at + 1] - ptr[at]
    return sizes


@kernel(nogil=True, allocates=False, bounded=True)
def draw(rng: np.random.Generator, count: int) -> int:
    """One of 0..count - 1, about equally likely; `rng.integers` makes an array for each number."""
    return int(rng.random() * count)


@kernel(nogil=True, allocates=False, bounded=True)
def push(heap: Ints, size: int, key: Ints, x: int) -> int:
    """Put an item into a heap by its key, ties by number; the heap's new size."""
    # `heapq` needs lists of tuples, whose code takes numba seconds.
    at = size
    while at > 0:
        parent = heap[(at - 1) // 2]
        if key[parent] < key[x] or (key[parent] == key[x] and parent < x):
            break
        heap[at] = parent
        at = (at - 1) // 2
    heap[at] = x
    return size + 1


@kernel(nogil=True, allocates=False, bounded=True)
def pop(heap: Ints, size: int, key: Ints) -> int:
    """Take the first item, ``heap[0]``, out of a heap that `push` filled; its new size."""
    left = size - 1
    last, at = heap[left], 0
    while 2 * at + 1 < left:
        child = 2 * at + 1
        x, y = heap[child], heap[min(child + 1, left - 1)]
        if key[y] < key[x] or (key[y] == key[x] and y < x):
            child, x = child + 1, y
        if key[last] < key[x] or (key[last] == key[x] and last < x):
            break
        heap[at] = x
        at = child
    heap[at] = last
    return left


RUN = 16  # entries that are put in order one by one before runs are merged


@kernel(nogil=True, bounded=True)
def stable_order(key: Ints) -> Ints:
    """A stable `np.argsort`."""
    n = len(key)
    order, merged = np.empty(n, np.int64), np.empty(n, np.int64)
    for begin in range(0, n, RUN):
        for x in range(begin, min(n, begin + RUN)):
            at = x
            while at > begin and key[order[at - 1]] > key[x]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = x
    width = RUN
    while width < n:
        for begin in range(0, n, 2 * width):
            left, middle = begin, min(n, begin + width)
            right, end = middle, min(n, begin + 2 * width)
            for at in range(begin, end):
                if right == end or (left < middle and key[order[left]] <= key[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order
