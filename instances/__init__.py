"""What the problem is: instances, semantics, plans, and the referee that judges them.

The public names stand in ``__init__.pyi``; the module of a name is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
