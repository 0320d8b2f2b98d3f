"""OR-tools' CP-SAT, loaded without pandas, which takes four times as long as the rest of it.

`cp_model` uses two classes of pandas to check its arguments. No caller can pass such an object
without loading pandas, so two empty classes serve until then.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["cp_model"]


class _PandasIfLoaded(ModuleType):
    """Stands for pandas in `cp_model`: the module where it is loaded, else empty classes."""

    def __getattr__(self, name: str) -> Any:
        loaded = sys.modules.get("pandas", self)
        if loaded is not self:
            return getattr(loaded, name)
        if name in ("Index", "Series"):
            return type(name, (), {})
        raise AttributeError(name)


def _load() -> ModuleType:
    known = sys.modules
    is_first = "pandas" not in known and "ortools.sat.python.cp_model" not in known
    if is_first:
        known["pandas"] = _PandasIfLoaded("pandas")
    try:
        from ortools.sat.python import cp_model
    finally:
        if is_first:
            del known["pandas"]
    return cp_model


if TYPE_CHECKING:
    from ortools.sat.python import cp_model
else:
    cp_model = _load()
