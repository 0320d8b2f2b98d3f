"""The commands, in the order of the help."""

from __future__ import annotations

from typing import Annotated

import typer

from placegap.experiments.cli import print_version
from placegap.experiments.cli.kernels import kernels_command
from placegap.experiments.cli.lists import instances_command, methods_command
from placegap.experiments.cli.measured import (
    profile_command,
    run_command,
    standard_evaluation_command,
)
from placegap.experiments.cli.models import (
    coarsen_command,
    convert_command,
    generate_command,
    split_command,
)
from placegap.experiments.cli.options import command
from placegap.experiments.cli.place import place_command
from placegap.experiments.cli.show import compare_command, show_command
from placegap.experiments.cli.study import study_command
from placegap.experiments.cli.verify import verify_command

app = typer.Typer(
    name="placegap",
    help="Place computation graphs on devices, and prove how far each placement is from optimal.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("place")(command(place_command))
app.command("study")(command(study_command))
app.command("convert")(command(convert_command))
app.command("coarsen")(command(coarsen_command))
app.command("split")(command(split_command))
app.command("profile")(command(profile_command))
app.command("run")(command(run_command))
app.command("show")(command(show_command))
app.command("compare")(command(compare_command))
app.command("verify")(command(verify_command))
app.command("methods")(methods_command)
app.command("instances")(instances_command)
app.command("kernels")(kernels_command)
app.command("generate")(generate_command)
app.command("standard-evaluation")(command(standard_evaluation_command))


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Answer what stands before a command."""
    if version:
        print_version()
        raise typer.Exit
