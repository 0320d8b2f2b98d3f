"""placegap: place DNN computation graphs on devices, and prove how far from optimal that is.

This folder is imported as ``placegap`` itself, above the four of the house. The public names stand
in ``__init__.pyi``; what a name needs is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
