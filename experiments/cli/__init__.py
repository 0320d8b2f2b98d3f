"""The command line: ``placegap COMMAND``, its exit status and its one-line errors.

0: done. 1: no feasible plan, a plan that breaks a rule, methods that contradict each other, or an
output that could not be written when it was made, such as on a full disk. 2: bad input, or an
output that cannot be written at all, before any work. 130, 143, 129: stopped by Ctrl-C, SIGTERM or
SIGHUP. 141: the reader of the output has gone. Files are written first, then what is printed.
Modules that take long to load are loaded by the commands that need them.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from placegap.experiments.cli.version import print_version
from placegap.experiments.running.pool import handled, held, is_stopped, stop_status
from placegap.instances.files.output_files import OutputError, release_outputs
from placegap.instances.reading.errors import InputError, question

NOT_WRITTEN = 1
BAD_INPUT = 2
BROKEN_PIPE = 141


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; nothing but bugs raises."""
    _open_streams()
    given = list(sys.argv[1:] if args is None else args)
    with handled(for_good=args is None):
        # the version without the half second that loading the commands takes
        status = _end(print_version if given == ["--version"] else partial(_run, given))
        _drop_output()
    return status


def _end(run: Callable[[], int]) -> int:
    """The exit status of a command, with a line on why it ended early and on each lost output."""
    try:
        try:
            status = run()
            sys.stdout.flush()
        finally:
            with held():
                failures = release_outputs()
            for failure in failures:
                warn(str(failure))
        status = status or max(map(status_of, failures), default=0)
    except InputError as error:
        warn(str(error))
        status = status_of(error)
    except KeyboardInterrupt:
        warn("stopped")
        status = stop_status()
    except BrokenPipeError:  # the reader has seen enough
        status = BROKEN_PIPE
    except MemoryError:
        warn("out of memory")
        status = BAD_INPUT
    except OSError as error:
        warn(f"{error.filename or 'output'}: {error.strerror or error}")
        status = NOT_WRITTEN if error.filename is None else BAD_INPUT
    except Exception:
        if not is_stopped():
            raise
        warn("stopped")  # what an interrupt has made of a module that was being loaded
    return stop_status() if is_stopped() else status


def status_of(error: InputError) -> int:
    """The exit status of what a user can mend."""
    return NOT_WRITTEN if isinstance(error, OutputError) else BAD_INPUT


@contextmanager
def _without_threads() -> Iterator[None]:
    """NumPy brings threads for products of matrices, which no command makes; without them this
    process can be copied for its workers (`worker_process`).
    """
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def _run(args: list[str]) -> int:
    import typer

    with _without_threads():
        import numpy  # noqa: F401 (read once, when it is loaded)

    from placegap.experiments.cli.app import load_app

    # typer brings its own copy of click, or uses the installed one
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    requested = next(iter(args or os.environ.get("COMP_WORDS", "").split()[1:]), "")
    command = typer.main.get_command(load_app(requested))
    if "_PLACEGAP_COMPLETE" in os.environ:  # a shell that completes a line
        command.main([], "placegap")
    try:
        with warnings.catch_warnings(), command.make_context("placegap", list(args)) as context:
            warnings.showwarning = lambda said, *where, **more: warn(str(said))
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        if not args:  # the help has been printed
            return BAD_INPUT
        where = getattr(getattr(error, "ctx", None), "command_path", "placegap")
        raise InputError(f"{_message(error)} (see '{where} --help')") from None
    return 0


def warn(message: str) -> None:
    """Print one line on stderr, as the commands do."""
    from placegap.experiments.show.rendering import warn as print_line

    print_line(message)


def _message(error: Exception) -> str:
    text: str = getattr(error, "format_message", lambda: str(error))()
    text = text.replace("Value error, ", "").rstrip(".")
    if choice := re.search(r"'([^']*)' is not one of (.*)", text):
        return text + question(choice[1], re.findall("'([^']*)'", choice[2]))
    refused: list[Any] = getattr(error.__cause__, "errors", list)()
    if refused:  # by pydantic, which says no value
        text = text.partition(", unable")[0].replace("Input should be", "must be")
        means = getattr(getattr(error, "param", None), "help", None) or ""
        text += f" (got {refused[0]['input']!r}){': ' * bool(means)}{means.rstrip('.')}"
    return text


def _open_streams() -> None:
    """What was closed by the caller goes nowhere, and no file gets its number; what the terminal
    has no letters for is printed as escapes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 (stays open)
            setattr(sys, name, stream)
            if stream.fileno() == number:
                os.set_inheritable(number, True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What cannot be written must not be tried again when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
