"""The command line: ``placegap COMMAND``, its exit status and its one-line errors.

0: done. 1: no feasible plan, a plan that breaks a rule, or methods that contradict each other.
2: bad input. 130: stopped by Ctrl-C. Modules that take long to load are loaded by the commands
that need them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

from placegap.instances.errors import InputError
from placegap.instances.near_names import near_names

BAD_INPUT = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; nothing but bugs raises.

    Examples
    --------
    >>> main(["instances", "--help"])  # doctest: +ELLIPSIS
    Usage: placegap instances [OPTIONS]
    ...
    0
    """
    given = list(sys.argv[1:] if args is None else args)
    try:
        if given == ["--version"]:
            print_version()  # without the half second that loading the commands takes
            status = 0
        else:
            status = _run(given)
        sys.stdout.flush()
    except InputError as error:
        warn(str(error))
        status = BAD_INPUT
    except KeyboardInterrupt:
        warn("stopped")
        status = INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough
        status = BROKEN_PIPE
    except MemoryError:
        warn("out of memory")
        status = BAD_INPUT
    except OSError as error:
        warn(f"{error.filename or 'output'}: {error.strerror or error}")
        status = BAD_INPUT
    if status in (BROKEN_PIPE, BAD_INPUT):
        _drop_output()
    return status


def print_version() -> None:
    """Print the name and the version."""
    print(f"placegap {version('placegap')}")


def _run(args: list[str]) -> int:
    import typer

    from placegap.experiments.cli_app import app

    # typer brings its own copy of click, or uses the installed one
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    command = typer.main.get_command(app)
    try:
        with command.make_context("placegap", list(args)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        if not args:  # the help has been asked for by saying nothing
            print(error)
            return BAD_INPUT
        raise InputError(f"{_message(error)} (see 'placegap --help')") from None
    return 0


def warn(message: str) -> None:
    """Print one line on stderr, as the commands do."""
    from placegap.experiments.rendering import warn as print_line

    print_line(message)


def _message(error: Exception) -> str:
    text: str = getattr(error, "format_message", lambda: str(error))()
    text = text.replace("Value error, ", "").rstrip(".")
    choice = re.search(r"'([^']*)' is not one of (.*)", text)
    near = near_names(choice[1], re.findall("'([^']*)'", choice[2])) if choice else []
    return f"{text}; did you mean {near[0]!r}?" if near else text


def _drop_output() -> None:
    """What cannot be written must not be tried again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
