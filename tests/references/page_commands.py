"""The commands that README and pages print, and how tests run them: what stands in for the files
that a page speaks of, and what is left out, with the reason.
"""

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import yaml
from doubles.bad_files import good_piper
from references.own_methods import my_placer

from placegap.experiments.studies.config import load_study
from placegap.instances import Document, example, save_document
from placegap.instances.files.document import write_json

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "experiments" / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
)
"""All that people read before the code, by path."""

PROGRAMS = r"placegap|cat|python3?|pip|pytest|ruff|mypy|mkdocs|make"
COMMAND = re.compile(rf"(?P<mark>\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:{PROGRAMS}) .*")
INLINE = re.compile(rf"`((?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:{PROGRAMS}) [^`]+)`")
STUDY = re.compile(r"\*\*`(placegap study [^`]+)`\*\*")

LEFT_OUT: Mapping[str, str] = {
    r"make .*|python3 -m venv .*|pip install .*": "installs, or runs what takes minutes",
    r"python -m placegap\.experiments\.research\.(sweeps|record) .*": "minutes, or rewrites",
    r"python -m placegap\.experiments\.research\.papers --record": "rewrites docs/papers",
    r"placegap place +\S+\.gguf .*": "the tests of GGUF files have such a model",
    r"placegap (convert|place) .*llama-70b\.json\.gz .*": "minutes; tests have small decoders",
    r"placegap study experiments/benchmark/.*|placegap place nmt-train .*": "minutes to hours",
    r"placegap (profile|place) +py:my_model:build .*": "test_run_pipeline.py runs one",
    r"placegap record .*": "tests/experiments/cli/test_publish.py has a better plan",
}
"""Patterns of commands that no test runs, and why."""

WITH_TORCH = re.compile(r".*\b(hf|py):.*|.* --method (hrl|placeto) .*|.*--times times\.csv.*")
"""Commands that need PyTorch: `make test-torch` runs them."""

SMALLER: Mapping[str, Mapping[str, str]] = {
    "docs/models.md": {"cuda": "cpu"},
    "docs/pipelines.md": {"MODEL": "bvlc_alexnet", "2x1:vanilla": "2x1:keep"},
    "docs/trust.md": {"5": "0.2"},
}
"""Words of a page that stand for a file of the reader's, or that ask for minutes, and what a test
says there.
"""

MY_CLUSTER = """
name: my-cluster
devices:
  - {name: gpu, count: 4, kind: A100-80GB}
links:
  - {all_to_all: all, bandwidth_bytes_per_s: 25_000_000_000, latency_ns: 5_000}
"""

NAMED = {"hf:gpt2": "hf:./config.json", "hf:llama-7b": "hf:./config.json"} | {
    "hf:llava-1.5-7b": "hf:./config.json",
    "hf:whisper-small": "hf:./config.json",
}
"""What is traced in place of the models whose trace takes long."""

LIMIT_S = "0.2"
"""What `place` gets where the page shows no output of it."""


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes
    ----------
    text : str
        Without its comment, and on one line.
    shown : str
        What the page shows as its output.
    """

    page: str
    line: int
    text: str
    shown: str = ""

    @property
    def left_out(self) -> str | None:
        """Why no test runs it, or None."""
        found = (why for form, why in LEFT_OUT.items() if re.fullmatch(form, self.text))
        return next(found, None)

    @property
    def needs_torch(self) -> bool:
        """Whether it runs in `make test-torch` alone."""
        return WITH_TORCH.fullmatch(self.text) is not None

    @property
    def words(self) -> list[str]:
        """As a test runs it: smaller models, and the limits of a test."""
        smaller = {**NAMED, **SMALLER.get(self.page, {})}
        if ".gantt " in self.text:
            smaller["inception_v1"] = "squeezenet"
        words = [smaller.get(word, word) for word in shlex.split(self.text)]
        if words[:2] == ["placegap", "place"]:
            proof = "ideal-dp" if "--granularity" in words else "decomposition"
            proof = "memory-knapsack" if "--decode" in words else proof  # tokens, one by one
            words += ["--method", proof] if self.shown else ["--time-limit", LIMIT_S]
        return words


def commands(page: str) -> list[Command]:
    """The commands of a page in code blocks, in indented blocks and under titles, in order."""
    found = []
    lines = _code(ROOT / page)
    for number, line in lines:
        text = line
        while text.endswith("\\"):
            text = text[:-1].rstrip() + " " + next(lines)[1].strip()
        match = COMMAND.match(text)
        if match is None:
            if found and found[-1].shown and line:
                found[-1] = replace(found[-1], shown=found[-1].shown + line + "\n")
            continue
        for part in text.removeprefix("$ ").split(" && "):
            words = shlex.split(part, comments=True)
            plain = shlex.join(words).replace(".venv/bin/", "")
            found.append(Command(page, number, plain, "\n" if match["mark"] else ""))
    return found


def _code(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of code blocks without a language or of a shell, and of indented blocks."""
    fence = ""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        start = re.match(r"\s*```(\w*)$", line)
        if start is not None:
            fence = "" if fence else start[1] or "bash"
        elif fence == "bash" or (not fence and line.startswith("    ")):
            yield number, line.strip()
        elif not fence and STUDY.match(line):
            yield number, STUDY.sub(r"\1", line)


def inline_commands(page: str) -> list[str]:
    """The commands in the sentences of a page."""
    return INLINE.findall((ROOT / page).read_text())


def python_blocks(page: str) -> list[tuple[str, str]]:
    """The Python of a page, and what the page shows that it prints."""
    form = r"^( *)```python\n(.*?)^ *```(?:\n+```text\n(.*?)```)?"
    found = re.findall(form, (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [(re.sub(f"^{indent}", "", code, flags=re.M), shown) for indent, code, shown in found]


def yaml_blocks(page: str) -> list[str]:
    """The YAML of a page."""
    return re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def furnish(folder: Path) -> None:
    """Put the files there of which the pages speak: what a reader has, and smaller studies."""
    (folder / "docs").mkdir()
    (folder / "my-cluster.yaml").write_text(MY_CLUSTER)
    (folder / "mine.yaml").write_text(yaml_blocks("README.md")[0])
    (folder / "near_inputs.py").write_text(python_blocks("README.md")[0][0])
    (folder / "restarts.py").write_text(python_blocks("docs/own-methods.md")[0][0])
    (folder / "my_placer.py").write_text(my_placer())
    save_document(Document.of(example()), folder / "net.json")
    save_document(Document.of(example()), folder / "model.json")
    _save_onnx(folder / "model.onnx")
    for name in ("bert32a100.json", "resnet.json"):
        write_json(good_piper(), folder / name)
    (folder / "serving.yaml").write_text(yaml_blocks("docs/serving.md")[0])
    (folder / "c64.yaml").write_text(yaml_blocks("docs/pipelines.md")[0])
    rows = ["op,device,batch,time_us,memory_bytes"]
    for op in example().graph.ops:
        rows += [f"{op.name},gpu,{batch},{2 * batch},{10 * batch}" for batch in (1, 2, 4)]
    (folder / "small-batches.csv").write_text("\n".join(rows) + "\n")
    checker = ROOT / "instances/certificates/certificate_checker.py"
    for file in (checker, checker.with_name("certificate_ideals.py")):
        shutil.copy(file, folder)
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 11}'
    )
    (folder / "my_models.py").write_text(python_blocks("docs/models.md")[0][0])
    for name, study in _studies():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(study)
    for clusters in (ROOT / "experiments").rglob("clusters"):
        shutil.copytree(clusters, folder / clusters.relative_to(ROOT), dirs_exist_ok=True)


@cache
def _studies() -> tuple[tuple[str, str], ...]:
    """The smallest forms of the studies, by their paths."""
    (example,) = yaml_blocks("docs/studies.md")
    read = {"my-study.yaml": yaml.safe_load(example)}
    for path in (ROOT / "experiments").rglob("*.yaml"):
        stated = yaml.safe_load(path.read_text())
        if isinstance(stated, dict) and {"tables", "name"} <= stated.keys():
            whole = load_study(path).model_dump(mode="json", exclude_unset=True)
            read[path.relative_to(ROOT).as_posix()] = whole
    return tuple((name, yaml.safe_dump(smallest(study))) for name, study in read.items())


def _save_onnx(path: Path) -> None:
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    sizes = (64, 64, 64, 8)
    nodes, weights, shown = [], [], "x"
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        weights.append(
            make.make_tensor(f"w{layer}", number, [rows, columns], [0.0] * rows * columns)
        )
        nodes.append(make.make_node("MatMul", [shown, f"w{layer}"], [f"y{layer}"], f"layer{layer}"))
        shown = f"y{layer}"
    graph = make.make_graph(
        nodes,
        "net",
        [make.make_tensor_value_info("x", number, ["batch", sizes[0]])],
        [make.make_tensor_value_info(shown, number, ["batch", sizes[-1]])],
        weights,
    )
    path.write_bytes(make.make_model(graph).SerializeToString())


def smallest(study: dict[str, Any]) -> dict[str, Any]:
    """A study of one run: the first table, instance, cluster and method, and a second."""
    table = next(one for one in study["tables"] if _at_hand(one["instances"]))
    (instance, *_) = _at_hand(table["instances"])
    if isinstance(instance, dict) and isinstance(instance.get("device_memory"), list):
        instance = {**instance, "device_memory": instance["device_memory"][:1]}
    few = {
        "instances": [instance],
        "methods": table["methods"][:1],
        "limits": {"time_limit_s": 0.2},
    }
    if "clusters" in table:
        few["clusters"] = table["clusters"][:1]
    name = instance if isinstance(instance, str) else instance["model"]
    small = {**study, "tables": [{**table, **few}]}
    if "smoke" in study:
        small["smoke"] = {"instances": [name], "time_limit_s": 0.2}
    return small


def _at_hand(instances: list[Any]) -> list[Any]:
    """Those that ship with placegap."""
    return [
        one
        for one in instances
        if isinstance(one, str) or not (one.get("optional") or "generate" in one)
    ]
