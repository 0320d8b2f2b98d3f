"""Instance in, result out: exact algorithms, solver back ends, bounds and placers.

The public names stand in ``__init__.pyi``; the module of a name is loaded when it is first used,
and methods are loaded when they are used (`core.method_homes`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
