"""Loading is timed apart: by the clock of methods it takes no time."""

import time
from pathlib import Path
from typing import Any

import pytest

from placegap.instances.kernels import compiled_kernels
from placegap.instances.kernels.compiled_kernels import Dispatcher
from placegap.instances.kernels.kernel import kernel
from placegap.instances.kernels.loading import loading, loading_s
from placegap.solvers.core import registry
from placegap.solvers.core.clock import now_s

SLOW_S = 0.2


def test_a_kernel_that_is_kept_is_loaded_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_seven(x: int) -> int:
        return x + 7

    real = Dispatcher._load

    def slow(dispatcher: Dispatcher, entry: Path | None) -> bool:
        time.sleep(SLOW_S)
        return real(dispatcher, entry)

    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)
    assert kernel(add_seven)(1) == 8  # compiled, and kept
    monkeypatch.setattr(Dispatcher, "_load", slow)
    before, loaded = now_s(), loading_s()
    assert kernel(add_seven)(1) == 8
    assert loading_s() - loaded >= SLOW_S > now_s() - before


def test_the_module_of_a_method_is_loaded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(name: str) -> Any:
        time.sleep(SLOW_S)

    monkeypatch.setattr(registry, "import_module", slow)
    before, loaded = now_s(), loading_s()
    with pytest.raises(KeyError):  # the double registers nothing
        registry.Registry()["heft"]
    assert loading_s() - loaded >= SLOW_S > now_s() - before


def test_what_is_loaded_by_what_is_loaded_counts_once() -> None:
    loaded = loading_s()
    with loading():
        with loading():
            time.sleep(SLOW_S)
        time.sleep(SLOW_S)
    assert 2 * SLOW_S <= loading_s() - loaded < 3 * SLOW_S
