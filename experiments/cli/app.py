"""The commands, one module each."""

from __future__ import annotations

from typing import Annotated

import typer

from placegap.experiments.cli import coarsen as cli_coarsen
from placegap.experiments.cli import convert as cli_convert
from placegap.experiments.cli import lists as cli_lists
from placegap.experiments.cli import print_version
from placegap.experiments.cli import split as cli_split
from placegap.experiments.cli import standard_evaluation as cli_standard
from placegap.experiments.cli import study as cli_study
from placegap.experiments.cli import verify as cli_verify
from placegap.experiments.cli.measured import profile as cli_profile
from placegap.experiments.cli.measured import run as cli_run
from placegap.experiments.cli.place import command as cli_place
from placegap.experiments.cli.show import command as cli_show
from placegap.experiments.cli.show import compare as cli_compare

app = typer.Typer(
    name="placegap",
    help="Place computation graphs on devices, and prove how far each placement is from optimal.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("place")(cli_place.place_command)
app.command("study")(cli_study.study_command)
app.command("convert")(cli_convert.convert_command)
app.command("coarsen")(cli_coarsen.coarsen_command)
app.command("split")(cli_split.split_command)
app.command("profile")(cli_profile.profile_command)
app.command("run")(cli_run.run_command)
app.command("show")(cli_show.show_command)
app.command("compare")(cli_compare.compare_command)
app.command("verify")(cli_verify.verify_command)
app.command("methods")(cli_lists.methods_command)
app.command("instances")(cli_lists.instances_command)
app.command("generate")(cli_convert.generate_command)
app.command("standard-evaluation")(cli_standard.standard_evaluation_command)


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
