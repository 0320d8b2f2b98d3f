"""The commands, in the order of the help; a command's module is loaded when the command is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Annotated

import typer
from rich.markup import escape

from placegap.experiments.cli.options import command
from placegap.experiments.cli.version import print_version

# Name of a command -> its module, which has a function ``NAME_command``.
MODULES = {
    "place": "place",
    "study": "study",
    "convert": "models",
    "coarsen": "models",
    "split": "models",
    "profile": "measured",
    "model": "model",
    "show": "show",
    "price": "price",
    "costs": "costs",
    "compare": "show",
    "verify": "verify",
    "cite": "publish",
    "record": "publish",
    "methods": "lists",
    "instances": "lists",
    "kernels": "kernels",
    "generate": "models",
    "standard-evaluation": "measured",
}

# What the help of a command ends with.
EXAMPLES = {
    "place": (
        "placegap place squeezenet --cluster 2xV100-pcie",
        'placegap place llama-7b --cluster "RTX4090+2xRTX3090, pcie4" --objective max_load'
        " -o plan.json",
        "placegap place model.onnx --cluster cluster.yaml --method heft --time-limit 20",
    )
}


def load_app(requested: str = "") -> typer.Typer:
    """The application with the requested command, or with all where there is no such."""
    app = typer.Typer(
        name="placegap",
        help="Place computation graphs on devices, and prove how far each placement is from"
        " optimal.",
        add_completion=requested not in MODULES or "_PLACEGAP_COMPLETE" in os.environ,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None  # else help is bold
    names: Sequence[str] = (requested,) if requested in MODULES else tuple(MODULES)
    for name in names:
        module = import_module(f"placegap.experiments.cli.{MODULES[name]}")
        run = getattr(module, f"{name.replace('-', '_')}_command")
        lines = [escape(line) for line in EXAMPLES.get(name, ())]
        epilog = "\n\n".join(["Examples:", *lines]) if lines else None
        takes_options = list(signature(run).parameters) == ["options"]
        app.command(name, epilog=epilog)(command(run) if takes_options else run)
    app.callback()(options)
    return app


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Answer what stands before a command."""
    if version:
        print_version()
        raise typer.Exit
