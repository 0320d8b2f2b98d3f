"""The clock of time limits."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from placegap.instances import Makespan, example
from placegap.instances.kernels import compiled_kernels
from placegap.instances.kernels.kernel import kernel
from placegap.instances.kernels.loading import loading_s
from placegap.solvers import Method, Outcome, Task, run_method
from placegap.solvers.core.clock import (
    STOP,
    Clock,
    Interruptible,
    LimitReached,
    now_s,
    stop_requested,
    while_compiling,
)
from placegap.solvers.core.method import Params
from placegap.solvers.core.registry import METHODS, register


def fresh_kernel() -> int:
    """Compile and run a kernel that no cache holds."""

    @kernel
    def total_below(number: int) -> int:
        total = 0
        for i in range(number):
            total += i
        return total

    return int(total_below(3))


def test_the_clock_stands_while_a_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)
    loaded, wall, clock = loading_s(), time.perf_counter(), now_s()
    fresh_kernel()
    wall, clock, loaded = time.perf_counter() - wall, now_s() - clock, loading_s() - loaded
    assert loaded > 0
    assert clock == pytest.approx(wall - loaded, abs=1e-3)


def test_the_clock_runs_otherwise() -> None:
    before, clock = now_s(), Clock(0.01)
    time.sleep(0.02)
    assert now_s() - before >= 0.02
    with pytest.raises(LimitReached, match="time limit"):
        clock.check()


def test_a_result_says_apart_what_compiling_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)

    def run(task: Task, params: Params) -> Outcome:
        fresh_kernel()
        return Outcome(message="compiled")

    register(Method("compiles", "heuristic", ("makespan",), "none", "a fake", run, Params))
    try:
        result = run_method(example(), Makespan(), "compiles")
    finally:
        del METHODS["compiles"]
    assert result.setup_s > result.solve_s >= 0


# ------------------------------------------------------------------------------------ interrupts


def is_interrupted(region: Interruptible, work: Callable[[], object]) -> bool:
    """Whether some work in a region, or Python code that runs for a minute after it, is."""
    try:
        with region:
            work()
            end = time.monotonic() + 60.0
            while time.monotonic() < end:
                time.sleep(0.001)
    except KeyboardInterrupt:
        return True
    return False


def ctrl_c(region: Interruptible) -> None:
    signal.raise_signal(signal.SIGINT)


def stop_of_a_worker(region: Interruptible) -> None:
    signal.signal(STOP, lambda number, frame: region.interrupt())
    signal.raise_signal(STOP)


Sender = Callable[[Interruptible], None]


@pytest.fixture(params=[Interruptible.interrupt, ctrl_c, stop_of_a_worker])
def send(request: pytest.FixtureRequest) -> Iterator[Sender]:
    """What asks a region to end, in the main thread, at once."""
    before = signal.getsignal(STOP)
    sender: Sender = request.param
    yield sender
    signal.signal(STOP, before)


def test_a_request_interrupts_what_runs_in_the_region(send: Sender) -> None:
    region = Interruptible()
    assert is_interrupted(region, lambda: send(region))
    assert region.has_interrupted


def test_a_request_during_an_import_interrupts_after_it(
    send: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, sender = Interruptible(), ModuleType("sender_of_a_test")
    vars(sender)["send"] = lambda: send(region)
    monkeypatch.setitem(sys.modules, "sender_of_a_test", sender)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("inner_of_a_test", "outer_of_a_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "inner_of_a_test.py").write_text(
        "import sender_of_a_test\nsender_of_a_test.send()\nfor i in range(1000): pass\n"
    )
    (tmp_path / "outer_of_a_test.py").write_text("import inner_of_a_test\nis_whole = True\n")
    assert is_interrupted(region, lambda: import_module("outer_of_a_test"))
    assert sys.modules["outer_of_a_test"].is_whole


def test_a_request_while_a_kernel_is_compiled_interrupts_after_it(
    send: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)
    region, values = Interruptible(), list[int]()
    with while_compiling(lambda: send(region)):
        assert is_interrupted(region, lambda: values.append(fresh_kernel()))
    assert values == [0 + 1 + 2]


def test_a_request_takes_effect_once_and_stays_known() -> None:
    outer, reached = Interruptible(), False
    with outer:
        with pytest.raises(KeyboardInterrupt), Interruptible():
            outer.interrupt()
        outer.interrupt()
        reached = stop_requested()
    assert reached
    assert not stop_requested()


def test_a_request_that_comes_too_early_waits_for_the_region() -> None:
    region = Interruptible()
    region.interrupt()
    with pytest.raises(KeyboardInterrupt), region:
        pytest.fail("entered")


def test_a_request_that_comes_too_late_interrupts_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    region = Interruptible()
    with region:
        pass
    region.interrupt()
    time.sleep(0.05)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_region_is_interrupted_where_ctrl_c_is_ignored() -> None:
    # in the background of a script
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        region = Interruptible()
        with region:
            signal.raise_signal(signal.SIGINT)
        assert is_interrupted(region, threading.Timer(0.05, region.interrupt).start)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_region_of_another_thread_interrupts_nothing() -> None:
    region, ended = Interruptible(), list[bool]()

    def run() -> None:
        with region:
            region.interrupt()
            ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    time.sleep(0.05)
    assert ended == [True]
