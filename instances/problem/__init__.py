"""What the problem is: ops, edges, devices, links, semantics, and their arrays.

``__init__.pyi`` lists the names of `instance`, `plan` and `semantics`; the module of a name is
loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
