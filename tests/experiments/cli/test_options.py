"""The semantics options: one for every rule, the same in every command that has them."""

from dataclasses import fields
from typing import Annotated, Any, get_args

import pytest
import typer

from placegap.experiments.cli import main
from placegap.experiments.cli.app import load_app
from placegap.experiments.cli.options import RULES
from placegap.experiments.running.rules import Rules
from placegap.instances.problem import DEFAULTS

COMMANDS: Any = typer.main.get_command(load_app())


@pytest.mark.parametrize("command", ["place", "verify", "coarsen"])
def test_every_rule_of_the_semantics_is_an_option(command: str) -> None:
    names = {rule.name for rule in fields(Rules)}
    assert names == set(RULES) == {"objective", *DEFAULTS}
    options = {option.name: option for option in COMMANDS.commands[command].params}
    assert all(options[name].opts == [f"--{name.replace('_', '-')}"] for name in names)
    assert all(options[name].default is None for name in names)
    assert "rules" not in options


TRACED = "Model, if traced (hf: and py:)"
GROUPS = {"Model", TRACED, "Cluster", "Objective", "Memory", "Search", "Output", "Export"}


def test_each_option_of_place_is_in_a_group_and_says_its_choices_and_default() -> None:
    given = COMMANDS.commands["place"].params
    options = [param for param in given if param.param_type_name == "option"]
    assert {option.rich_help_panel for option in options} == GROUPS
    for option in options:
        default = DEFAULTS.get(option.name)
        if default not in (None, False) and option.name != "plans":  # whose default is auto's
            assert f"default: {default})" in option.help
        kinds = get_args(get_args(RULES.get(option.name, Annotated[None, ""]))[0])
        choices = [choice for kind in kinds for choice in get_args(kind)]
        assert all(choice in option.help for choice in choices), option.name


def test_the_help_of_all_commands_cuts_no_sentence_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", "").split())
    for command in COMMANDS.commands.values():
        assert command.help.split("\n\n")[0] in words
