"""``placegap price``: what a line that somebody runs takes, and what would be better."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from placegap.experiments.cli.options import (
    BROKEN_RULES,
    JsonOption,
    ModelOptions,
    TimedOptions,
    load_instance,
    search_option,
    source_of,
)
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.figures import format_gap, format_value
from placegap.experiments.show.rendering import output, print_json, spinner
from placegap.instances.costing.fitted import beside_line
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import USUAL_S


@dataclass(frozen=True, kw_only=True)
class PriceOptions(ModelOptions, TimedOptions):
    line: Annotated[
        list[str],
        typer.Option(
            "--line",
            metavar="LINE|FILE.json",
            help="Options of llama.cpp, exllama, vLLM, SGLang, KTransformers or Megatron, such as"
            " '-ngl 47 -ts 28,19 --n-cpu-moe 10', or a device map or torchtitan's parts as a .json"
            " file. The last one is priced; others are measured (--measured-tokens).",
        ),
    ] = field()  # required here
    rules: Rules
    time_limit: Annotated[
        float, search_option("--time-limit", metavar="S", help="Seconds for the best options.")
    ] = USUAL_S
    as_json: JsonOption = False


def price_command(options: PriceOptions) -> None:
    """Evaluate the options of a serving tool: time, memory, gap, and what to change first.

    It also prints the best options of that tool, proven for one pass (makespan) and for the
    heaviest load (max_load). The exit status is 1 if the options violate a constraint, such as
    memory.
    """
    from placegap.experiments.running.exporting import best_options, line_class
    from placegap.experiments.running.placing import choose_semantics
    from placegap.experiments.show.anatomy import anatomy_object, take_apart
    from placegap.experiments.show.words import print_anatomy
    from placegap.instances.exporters.read_lines import read_line
    from placegap.instances.problem.modules import with_granularity
    from placegap.solvers.core.result import relative_gap
    from placegap.solvers.solving.known_bounds import known_bound

    instance = load_instance(source_of(options))
    semantics = choose_semantics(options.rules, instance, None).semantics
    if not options.time_limit > 0:
        raise InputError("--time-limit must be positive")
    *others, priced = options.line
    if len(others) > len(options.measured_tokens or ()):
        raise InputError("one --line is priced: --measured-tokens says what others reach")
    cards, read = instance, read_line(instance, priced)
    kind, plan, instance = read.kind, read.plan, read.instance
    semantics = semantics.model_copy(update=dict(read.rules))
    of = line_class(kind, semantics)
    with spinner("searching for the best options"):
        own = cards if read.is_shared else instance
        best = best_options(own, semantics, read, options.time_limit)
        bound, _ = known_bound(instance, semantics)
        whole = instance  # with modes, ops are layers
        if not semantics.has_modes:
            whole = with_granularity(instance, "experts" if of and of.experts_apart else "layer")
        found = take_apart(instance, plan, semantics, bound, kind, whole=whole)
    if found is None:
        raise InputError("the line cannot be executed: a device cannot run an op", priced)
    least = None if best is None or best.bound is None else best.bound.value
    gap = relative_gap(found.value, least) if found.verdict.feasible else None
    if options.as_json:
        content = anatomy_object(found)
        if best is not None:
            content["best"] = {
                "line": best.text or None,
                "value_ns": best.value_ns,
                "bound_ns": least,
            }
        print_json({"line": priced, "tool": kind, "gap_of_tool": gap, **content})
    else:
        print_anatomy(output(), found)
        if semantics.objective == "makespan":
            for sentence in beside_line(instance, found.verdict.value_ns):
                output().print(f"line    {sentence}")
        if best is not None:
            words = format_value(best.value_ns, semantics.unit)
            words += ", optimal for this format" if best.value_ns == least else ""
            words += f"; the options above have a gap of {format_gap(gap)} to it" if gap else ""
            words += "; the options above are as good" if gap == 0 else ""
            words += "".join(f"; {note}" for note in best.notes)
            output().print()
            text = best.text or "cannot express it"
            output().print(f"best    {kind} {text}: {words}", soft_wrap=True)
        elif of is not None:
            output().print()
            output().print(f"best    no line of {kind} was found that fits")
    if not found.verdict.feasible:
        raise typer.Exit(BROKEN_RULES)
