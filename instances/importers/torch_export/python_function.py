"""Models from a function of the user's: ``py:module:function``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.tracing import Traceable, one_line

SHAPES = "(module, args), (module, kwargs) or (module, args, kwargs)"


def function_model(name: str) -> Traceable:
    """What the function returns: a module and the inputs of one call.

    Parameters
    ----------
    name : str
        ``module:function``; modules of the working folder are found, too.

    Raises
    ------
    InputError
        If there is no such function, it raises, or it returns something else.
    """
    source = f"py:{name}"
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise InputError("is not py:module:function", source)
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with one_line(source, f"module {module_name!r} cannot be imported"):
            module = import_module(module_name)
    finally:
        sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"module {module_name!r} has no function {function_name!r}", source)
    with one_line(source, f"{function_name} cannot be called"):
        return _traceable(function(), source)


def _traceable(returned: Any, source: str) -> Traceable:
    from torch.nn import Module

    parts = returned if isinstance(returned, tuple) else (returned,)
    match parts:
        case (Module() as module, tuple() | list() as args):
            return Traceable(module, tuple(args))
        case (Module() as module, dict() as kwargs):
            return Traceable(module, (), kwargs)
        case (Module() as module, tuple() | list() as args, dict() as kwargs):
            return Traceable(module, tuple(args), kwargs)
    raise InputError(f"the function must return {SHAPES}", source)
