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

_is_command = (
    sys.orig_argv[1:3] == ["-m", "placegap"] or os.path.basename(sys.argv[0]) == "placegap"
)
if _is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # end as later, when the command line is loaded and has its own handlers
    signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"placegap: stopped\n"), os._exit(130)))

import lazy_loader  # noqa: E402

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
