"""``python -m placegap.experiments.research.cases``: docs/cases.md, from what its commands print.

The situations are in cases.yaml. Models are traced: it needs the extra ``torch``, and minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from placegap.experiments.cli import main as placegap
from placegap.experiments.running.rules import Rules
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.exporters.modules import layer_list
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.modules import is_expert, layer_of, with_granularity
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.presets import find_preset
from placegap.solvers import run_method

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "cases.md"

RULES = {
    "exo": "exo's shares of memory",
    "llama-fit": "llama.cpp's fit",
    "ik-llama-fit": "ik_llama.cpp's fit",
    "halda": "Halda of prima.cpp",
    "parallax": "parallax",
    "llama-cpp": "llama.cpp's split by free memory (2025)",
    "vllm-even": "vLLM's even split",
    "sglang-even": "SGLang's even split",
}

HEAD = """# Cases: what people have, and what is best

Each case is a situation that people report, the commands that state it, what they print, and what
the rules of serving tools give for the same model and cards. Every plan is judged by the same
clock, with the rates of the [catalogue](clusters.md): what is compared is the split, not the tool.
`placegap convert` traces a model once ([models.md](models.md)); other cards need no second trace.
Where a tool cannot say the plan, its export is the best line that it can, with its price.

`python -m placegap.experiments.research.cases` writes this page, and a test runs every case with
fewer layers. Seconds are those of a core that other work used as well.

"""


@dataclass(frozen=True)
class CasePrint:
    """What a case prints: the plan's table, its exit status, printed figures, exports by file name,
    the value of each rule of a tool, None where it has no plan, that of the experts of so many
    first layers on the host, and the figures of `--granularity experts`.
    """

    text: str
    status: int
    figures: Mapping[str, str]
    exports: Mapping[str, str]
    by_hand: Mapping[str, int | None]
    experts: Mapping[int, int]
    apart: Mapping[str, str]


@cache
def cases() -> tuple[dict[str, Any], ...]:
    """The entries of cases.yaml, in order."""
    return tuple(read_yaml(HERE / "cases.yaml"))


def commands_of(number: int) -> list[str]:
    """The commands of a case, from 1 on."""
    case = cases()[number - 1]
    if "trace" not in case:
        return [f"placegap place {case['place']} --time-limit 30"]
    model, _, options = case["trace"].partition(" ")
    file = f"case{number}.json.gz"
    return [
        f"placegap convert {model} {file} {options}",
        f"placegap place {file} {case['place']} --time-limit 30",
    ]


def small_commands(number: int, folder: Path) -> list[str]:
    """The commands of a case with few layers, and its cluster's memory for them."""
    case, commands = cases()[number - 1], commands_of(number)
    small = case["small"]
    if "place" in small:
        commands[-1] = f"placegap place case{number}.json.gz {small['place']} --time-limit 30"
    if "layers" in small:
        name = case["trace"].partition(" ")[0]
        (folder / "small.json").write_text(json.dumps(_shortened(name, small["layers"])))
        commands[0] = commands[0].replace(name, f"hf:{folder}/small.json")
    return commands


def _shortened(name: str, layers: int) -> dict[str, Any]:
    """The configuration of a preset with another number of layers."""
    import transformers

    preset = find_preset(name.removeprefix("hf:"))
    kind = getattr(transformers, preset.model_class).config_class.model_type
    config = {**preset.config, "model_type": kind, "num_hidden_layers": layers}
    if kind == "llava":
        config["text_config"] = {"model_type": "llama", "num_hidden_layers": layers}
    return {**config, "architectures": [preset.model_class]}


def run_case(number: int, commands: list[str], folder: Path) -> CasePrint:
    """Run the commands of a case, and the rules of tools on what they placed, in a folder."""
    case = cases()[number - 1]
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text)
    with contextlib.chdir(folder):
        for command in commands[:-1]:
            status, _, err = _run(shlex.split(command)[1:])
            if status:
                raise RuntimeError(f"{command}\n{err}")
        words = shlex.split(commands[-1])[1:]
        status, out, err = _run([*words, "--quiet"])
        if "value" not in _figures(out):
            raise RuntimeError(f"{commands[-1]}\n{out}{err}")
        exports = dict(_exports(words, folder))
        refused = [line for line in err.splitlines() if line.startswith("placegap: export")]
        by_hand = dict(_by_hand(words, case["by_hand"]))
        experts, apart = dict[int, int](), dict[str, str]()
        if "experts" in case:
            experts = experts_on_host(*_asked(words))
            at = words.index("--granularity")
            others = ["--granularity", "experts", "--time-limit", "30", "--quiet"]
            apart = _figures(_run([*words[:at], *others])[1])
    text = "\n".join([*(line.rstrip() for line in out.strip("\n").splitlines()), *refused])
    return CasePrint(text, status, _figures(out), exports, by_hand, experts, apart)


def _run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = placegap(words)
    return status, out.getvalue(), err.getvalue()


def _by_hand(words: list[str], methods: list[str]) -> Iterator[tuple[str, int | None]]:
    """What the rules of tools take where a command places a model: as plans of any kind."""
    fine, semantics = _asked(words)
    instance = with_granularity(fine, "experts")  # layers, where there are none
    for method in methods:
        yield method, run_method(instance, semantics, method).value_ns


def _asked(words: list[str]) -> tuple[Instance, Semantics]:
    """What a command places, op by op, and how a plan of any kind is judged."""
    asked = dict(pairwise(words))
    devices = asked.get("--devices")
    source = Source(words[1], asked["--cluster"], devices=Path(devices) if devices else None)
    instance, objective = load_source(source), asked["--objective"]
    rules = Rules(objective=objective, plans="any" if objective == "max_load" else None)
    return instance, rules.override(instance.semantics)


def experts_on_host(instance: Instance, semantics: Semantics) -> dict[int, int]:
    """What it takes where the experts of the first layers are on the last device, the host, and all
    else on the first one: of as few layers as fit, and of all.
    """
    layers, host, found = layer_list(instance), instance.num_devices - 1, dict[int, int]()
    expert_of = [
        layer if is_expert(op) else None
        for op, layer in zip(instance.graph.ops, layer_of(instance.graph), strict=True)
    ]
    for count in range(1, len(layers) + 1):
        away = set(layers[:count])
        home = [host if layer in away else 0 for layer in expert_of]
        verdict = evaluate(instance, Plan.on(home), semantics)
        fits = verdict.feasible and verdict.value_ns is not None
        if fits and (not found or count == len(layers)):
            found[count] = verdict.value_ns or 0
    return found


def _exports(words: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """What ``--export KIND=FILE`` wrote, by the file's name."""
    for word in words:
        kind, equals, name = word.partition("=")
        if equals and not kind.startswith("-") and (folder / name).is_file():
            yield name, (folder / name).read_text().strip()


def _figures(out: str) -> dict[str, str]:
    """Status, value and gap as they are printed."""
    return dict(re.findall(r"^(status|value|gap) +([^(\n]*[^(\s])", out, re.MULTILINE))


def value_ns(outcome: CasePrint) -> float:
    """The value that is printed, in ns: to four digits."""
    number, unit = outcome.figures["value"].split()
    return float(number.replace(",", "")) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]


def section(number: int, outcome: CasePrint) -> Iterator[str]:
    """The lines of a case on the page."""
    case = cases()[number - 1]
    yield from (f"## {number}. {case['title']}", "", case["situation"], "")
    for name, text in case.get("files", {}).items():
        yield from (f"`{name}`:", "", "```yaml", text.strip(), "```", "")
    yield from ("```bash", *commands_of(number), "```", "", "```text", outcome.text, "```", "")
    for name, text in outcome.exports.items():
        yield from (f"`{name}` has the line `{text}`.", "")
    best = value_ns(outcome)
    rows = [
        (RULES[name], "does not fit")
        if value is None
        else (RULES[name], f"{value / 1e6:.2f} ms, {100 * (value / best - 1):+.1f} %")
        for name, value in outcome.by_hand.items()
    ]
    yield from markdown_grid(("by hand", "takes"), rows)
    yield ""
    if outcome.experts:
        yield from _said_of_experts(outcome, best)


def _said_of_experts(outcome: CasePrint, best: float) -> Iterator[str]:
    experts, apart = outcome.experts, outcome.apart
    (few, some_ns), (_, all_ns) = min(experts.items()), max(experts.items())
    share = f"{100 * (some_ns / best - 1):+.1f} %"
    yield (
        "Layers need not stay whole: a tool that can leave experts alone on the host"
        f" (`--n-cpu-moe {few}`) has them of {few} layers there, which takes"
        f" {some_ns / 1e6:.2f} ms, {share}. With those of all layers there (`-ot exps=CPU`) it is"
        f" {all_ns / 1e6:.2f} ms. `--granularity experts`, which `--export llamacpp` has where no"
        f" other is asked for, lets experts alone be elsewhere: {apart['value']} with a gap of"
        f" {apart['gap']}, HiGHS' word. The optimum above is that of whole layers."
    )
    yield ""


def main(page: Path = PAGE) -> None:
    """Run every case, and write the page."""
    os.environ["COLUMNS"] = "120"
    lines: list[str] = []
    for number in range(1, len(cases()) + 1):
        with tempfile.TemporaryDirectory() as folder:
            lines += section(number, run_case(number, commands_of(number), Path(folder)))
        write_text(HEAD + "\n".join(lines).rstrip() + "\n", page)
        print(f"case {number} of {len(cases())}", flush=True)


if __name__ == "__main__":
    main()
