"""The placer that CONTRIBUTING shows, and how a test leaves the registry as it was."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.registry import METHODS, MODULES

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def renamed(code: str) -> str:
    """Code of a page with another name for its method: a reader may have saved it as it stands."""
    return code.replace("my-placer", "shown-placer")


def my_placer() -> str:
    """The text of the file."""
    blocks = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "@method(" in block]
    return renamed(text)


@contextmanager
def methods_restored(folder: Path) -> Iterator[None]:
    """Forget the methods that are registered meanwhile, and the modules of a folder."""
    known = dict(vars(METHODS))
    copies = {name: dict(value) for name, value in known.items() if isinstance(value, dict)}
    path, environment = list(sys.path), os.environ.get(MODULES)
    try:
        yield
    finally:
        # methods of the package stay: their modules, once loaded, would not register them again
        copies["_loaded"] |= {name: m for name, m in METHODS._loaded.items() if name in HOMES}
        vars(METHODS).clear()
        vars(METHODS).update({**known, **copies})
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
        sys.path[:] = path
        os.environ.pop(MODULES, None)
        if environment is not None:
            os.environ[MODULES] = environment
