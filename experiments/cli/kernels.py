"""``placegap kernels``: what is compiled on this machine, and how long that took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Annotated

import typer

from placegap.experiments.cli.options import JsonOption
from placegap.experiments.show.figures import counted
from placegap.experiments.show.rendering import output, plain_table, print_line, spinner

HEAD = ("kernel", "compile CPU s", "size")


def kernels_command(
    warm: Annotated[
        bool, typer.Option("--warm", help="First compile the kernels that the methods need.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Compile all again, in a new process and folder.")
    ] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all compiled kernels.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the compiled kernels of this machine, slowest to compile first.

    Kernels are compiled at first use, and kept. A kernel is listed once for each set of types and
    each version of placegap that it was compiled for.
    """
    if measure:
        _measure(as_json)
        return
    with spinner("reading the compiled kernels"):
        from placegap.instances.kernels.compiled_kernels import forget_kernels, kept_kernels
        from placegap.instances.kernels.kernel_folder import cache_folder
        from placegap.instances.problem.integers import format_bytes
    folder = cache_folder()
    if clear:
        print_line(f"{forget_kernels()} compiled kernels deleted from {folder}")
        if not warm:
            return
    if warm:
        _compile_all()
    found = kept_kernels()
    if as_json:
        rows = [kept._asdict() for kept in found]
        print(json.dumps({"folder": str(folder), "kernels": rows}), flush=True)
        return
    texts = [(kept.name, f"{kept.compile_s:.2f}", format_bytes(kept.size_bytes)) for kept in found]
    if texts:
        output().print(plain_table(None, HEAD, texts))
    names, total_s = {kept.name for kept in found}, sum(kept.compile_s for kept in found)
    size = format_bytes(sum(kept.size_bytes for kept in found))
    print_line(
        f"{counted(len(names), 'kernel')}, compiled {counted(len(found), 'time')} in"
        f" {total_s:.1f} CPU s; {size} in {folder}"
    )


def _measure(as_json: bool) -> None:
    """Compile all kernels in a fresh process that finds none, and list them."""
    command = [sys.executable, "-m", "placegap.experiments.cli", "kernels", "--warm"]
    with tempfile.TemporaryDirectory(prefix="placegap-") as folder:
        done = subprocess.run(
            [*command, *(["--json"] if as_json else [])],
            check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    if done.returncode:
        raise typer.Exit(done.returncode)


def _compile_all() -> None:
    """Compile what a small instance makes the methods need, and keep it."""
    from placegap.experiments.running.warm_up import warm_up
    from placegap.instances.problem import BY_OBJECTIVE
    from placegap.solvers.core.registry import METHODS

    with spinner("compiling") as doing:
        for name in METHODS:
            for objective in METHODS[name].objectives:
                doing(f"compiling what {name} needs for {objective}")
                usual = BY_OBJECTIVE[objective](objective=objective)
                for semantics in dict.fromkeys((usual, usual.with_plans("any"))):
                    warm_up(name, semantics, {})
