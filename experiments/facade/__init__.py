"""placegap: place DNN computation graphs on devices, and prove how far from optimal that is.

This folder is imported as ``placegap`` itself, above the four of the house. The public names stand
in ``__init__.pyi``; what a name needs is loaded when it is first used.
"""

import os
import signal
import sys

if sys.platform == "win32" or not hasattr(signal, "SIGUSR1"):
    _words = "placegap runs on Linux and macOS; on Windows use WSL"
    _command = os.path.splitext(os.path.basename(sys.argv[0]))[0].removesuffix("-script")
    if _command in ("placegap", "-m"):
        print(_words, file=sys.stderr)
        sys.exit(2)
    raise ImportError(_words)

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
