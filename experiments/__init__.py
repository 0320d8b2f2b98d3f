"""Studies, their tables and plots, and the command line.

The public names stand in ``__init__.pyi``; the module of a name is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
