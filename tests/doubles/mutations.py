"""Damaged inputs of every importer: drawn with a seed, read in a child that has limits.

``python -m doubles.mutations FIRST COUNT FOLDER IMPORTER...`` reads the damaged inputs of these
numbers, and says one JSON line for each that ends in anything but an instance or a one-line
`InputError`. Each importer has a child and a folder of its own.
"""

import csv
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from doubles.bad_files import good_dnn, good_document
from doubles.damage import as_json, damaged_model, damaged_workbook, json_damage, text_damage

from placegap.experiments import load_runs
from placegap.experiments.research.bench.measuring import peak_bytes
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study
from placegap.instances import Document, InputError, Makespan, Plan, load_corpus
from placegap.instances.certificates.verification import verify
from placegap.instances.costing.catalogue import load_catalogue
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import parse_document
from placegap.instances.files.plan_file import describe_plan, load_stated_plan
from placegap.instances.importers.dnn_partitioning import load_split
from placegap.instances.importers.measured_times import MEASURED, load_times, with_times
from placegap.instances.importers.measurements import load_ops
from placegap.instances.importers.reader import load_model
from placegap.instances.importers.standard_evaluation import standard_evaluation

CPU_S = 10
WALL_S = 120
MOST_RSS_BYTES = 2_000_000_000
MOST_CHARACTERS = 300
OTHER_CLUSTER = "2x4-gpu-slow-link"
"""For models whose own cluster is lost."""


@dataclass(frozen=True)
class Importer:
    """A good input, how it is damaged, and how it is read."""

    file: str
    damaged: Callable[[random.Random], bytes]
    read: Callable[[Path], object]
    needs_torch: bool = False
    """Whether torch is loaded first: its import is no part of a read."""


CLUSTER_YAML = """\
name: two-hosts
devices:
  - {name: cpu, kind: Xeon-5220, is_host: true}
  - {name: gpu, count: 2, kind: T4, server: left}
  - &own {names: [x, y], kind: mine, memory_bytes: null}
  - {name: card, memory_bytes: 24e9, reserved_bytes: 1e9, bandwidth_bytes_per_s: 9.36e11,
     peak_flops_per_s: {float32: 3.56e13, float16: 7.1e13}, launch_overhead_ns: 4e3}
  - {name: host, kind: slow, is_host: true, server: left}
kinds:
  slow: {peak_flops_per_s: 1e12, bandwidth_bytes_per_s: 5e10, memory_bytes: 64e9, is_cpu: true}
links:
  - {all_to_all: [card, host, gpu1], bandwidth_bytes_per_s: 3.15e10}
  - {all_to_all: [cpu, gpu0, gpu1], bandwidth_bytes_per_s: 15_750_000_000, latency_ns: 10_000}
  - {between: [x, y], bandwidth_bytes_per_s: 7}
  - {source: x, target: cpu, bandwidth_bytes_per_s: 9}
  - matrix_bytes_per_s: {cpu: {x: 5}}
"""

CLUSTER_TEXT = "2x(4xT4:64GB + 1 x host)+1x(3*rtx-3090:1.5TiB), PCIe-3 x8, nvlink, ethernet-10g"

STUDY_YAML = """\
name: small
tables:
  - name: one
    semantics: {objective: makespan, channels: port}
    instances: [squeezenet, {generate: layered, params: {ops: 9, width: 3}, seeds: [0, 1]}]
    clusters: [2x4-gpu-slow-link]
    methods: [heft, {name: etf}, {name: cp-sat, params: {workers: 1}}]
    seeds: [0]
    limits: {time_limit_s: 1, gap: 0.01}
  - extends: one
    name: two
    sweep: {instances.layered.params.ops: [8], methods.cp-sat.params.workers: 2}
"""


def ops_csv() -> str:
    """Measurements of the good document's ops."""
    rows = [
        f"{op},gpu,{batch},{2.5 * batch},{100 * batch}"
        for op in ("first", "second", "third")
        for batch in (1, 2, 4)
    ]
    return "\n".join(["op,device,batch,time_us,memory_bytes", *rows, ""])


def _document() -> Document:
    return parse_document(good_document(), "good")


@cache
def good_plan() -> dict[str, Any]:
    """A plan of the good document, with all that a file may state."""
    instance, semantics = _document().instance(), Makespan(channels="link")
    plan = Plan.on([0, 1, 1])
    content = describe_plan(instance, plan, semantics, "heft", value=26)
    raw: dict[str, Any] = content.model_dump(mode="json", exclude_none=True)
    raw["device_order"] = {"g0": ["first"], "g1": ["second", "third"]}
    raw["channel_order"] = {"g0 -> g1": [{"producer": "first", "consumer": "second", "to": "g1"}]}
    return raw


def damaged_plan(rng: random.Random) -> bytes:
    """A damaged plan of the good document; it is scheduled when the first one is wanted."""
    return json_damage(good_plan())(rng)


def load_instance(path: Path, **dims: int) -> object:
    """Read a model, and what every command asks of it."""
    document = load_model(path, dims=dims)
    instance = document.instance(load_cluster(OTHER_CLUSTER) if document.cluster is None else None)
    return instance.content_hash


def read_cluster_text(path: Path) -> object:
    """Read a line that states a cluster, and place a graph on it where it is small."""
    try:
        cluster = load_cluster(path.read_bytes().decode(errors="replace"))
        assert load_cluster(cluster.name).devices == cluster.devices
        small = len(cluster.devices) < 30
        return load_corpus("squeezenet").instance(cluster).content_hash if small else cluster
    except InputError as error:
        raise InputError(str(error), path) from None


def read_cluster(path: Path) -> object:
    return load_corpus("squeezenet").instance(load_cluster(path)).content_hash


def read_plan(path: Path) -> object:
    instance = _document().instance()
    return verify(instance, load_stated_plan(instance, path), any_content=True)


def read_measurements(path: Path) -> object:
    document = _document()
    assert document.cluster is not None
    return standard_evaluation(document, document.cluster, load_ops([path]), 8)


def times_csv() -> str:
    """Measured times of the good document's ops."""
    rows = [f"{op},gpu,{1.5 * time}" for time in (1, 2, 3) for op in ("first", "second", "x")]
    return "\n".join(["name,device_kind,time_us", *rows, ""])


def good_trace() -> dict[str, Any]:
    """A trace of the good document's ops."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1}]
    for start in (0, 100):
        for at, name in enumerate(("op:first", "op:second", "loss")):
            for category in ("user_annotation", "gpu_user_annotation", "cpu_op"):
                times = {"ts": start + 10 * at, "dur": 9.5}
                events.append({"ph": "X", "cat": category, "name": name, "pid": 1, **times})
    return {"schemaVersion": 1, "traceEvents": events}


def read_measured_times(path: Path) -> object:
    """Read measured times and put them into the good document."""
    document = _document()
    assert document.cluster is not None
    measured = with_times(document.graph, load_times(path), document.cluster)
    assert "\n" not in str(measured.graph.provenance.parameters[MEASURED])
    return document.model_copy(update={"graph": measured.graph}).instance().content_hash


def read_study(path: Path) -> object:
    return list(plan_study(load_study(path), path))


GOOD_RUN = {
    **{"key": "k", "study": "s", "table": "t", "instance": "i", "cluster": "c", "seed": 0},
    **{"instance_hash": "012345678912", "method": "heft", "label": "heft", "status": "feasible"},
    **{"rules": '{"objective":"makespan","channels":"free"}', "params": "{}", "message": "a, b"},
    **{"num_ops": 7, "ccr": 0.5, "time_limit_s": 2.0, "value_ns": 90, "bound_ns": 80, "gap": 0.1},
    **{"bound_class": "any", "best_bound_ns": 85, "best_bound_by": "m", "solve_s": 3e-05},
}


def damaged_log(rng: random.Random) -> bytes:
    """A log of three runs, of which one line is damaged, or any bytes."""
    lines = [as_json({**GOOD_RUN, "seed": at, "details": {"rows": at}}) for at in range(3)]
    if rng.random() < 0.5:
        lines[rng.randrange(3)] = json_damage(GOOD_RUN)(rng).replace(b"\n", b" ")
        return b"\n".join(lines)
    return text_damage(b"\n".join(lines).decode())(rng)


def runs_csv() -> str:
    text = io.StringIO()
    csv.writer(text).writerows([GOOD_RUN, *[GOOD_RUN.values()] * 2])
    return text.getvalue()


def read_runs(path: Path) -> object:
    with redirect_stderr(io.StringIO()):  # a line that was cut off is a warning
        return load_runs(path)


def read_split_file(path: Path) -> object:
    model = path.with_name("good-dnn.json")
    model.write_bytes(as_json(good_dnn()))
    return load_split(load_model(model).instance(), path)


CONFIGS = yaml.safe_load("""
- {model_type: gpt2, architectures: [GPT2LMHeadModel], n_layer: 1, n_embd: 8, n_head: 2,
   n_positions: 16, vocab_size: 11, activation_function: gelu_new}
- {model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 4,
   num_key_value_heads: 2, intermediate_size: 8, vocab_size: 11, hidden_act: silu,
   rope_parameters: {rope_type: default, rope_theta: 10000.0}}
- {model_type: swin, architectures: [SwinModel], image_size: 8, patch_size: 2, depths: [1, 1],
   window_size: 2, num_heads: [1, 2], embed_dim: 4, num_labels: 3}
""")


def damaged_config(rng: random.Random) -> bytes:
    """A damaged configuration of one of three small models."""
    # the number of layers stays: without it these are sound models of 12 or 32 layers, whose trace
    # takes longer than an input may
    config = rng.choice(CONFIGS)
    data = json_damage(config)(rng)
    layers = {name: config[name] for name in ("n_layer", "num_hidden_layers") if name in config}
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    lost = isinstance(content, dict) and not layers.keys() & content.keys()
    return as_json({**layers, **content}) if lost else data


def read_config(path: Path) -> object:
    from placegap.instances.torch_models.model import read_traced_model
    from placegap.instances.torch_models.options import TraceOptions

    return read_traced_model(f"hf:{path}", TraceOptions(seq=4))


def load_torch(folder: Path) -> None:
    """Load torch and the classes of the small models."""
    for number, config in enumerate(CONFIGS):
        path = folder / f"good-{number}.json"
        path.write_bytes(as_json(config))
        read_config(path)


CATALOGUE_YAML = """\
T4: {peak_flops_per_s: 8_100_000_000_000, bandwidth_bytes_per_s: 320_000_000_000,
     memory_bytes: 16_000_000_000, launch_overhead_ns: 5_000, source: a datasheet}
mine: {peak_flops_per_s: {float32: 2e13, int8: 1.6e14}, bandwidth_bytes_per_s: 9e11,
       memory_bytes: 24e9, reserved_bytes: 1.5e9, nvlink_bytes_per_s: 5.625e10}
"""
SPLIT, CLUSTER = yaml.safe_load("""
- {fpgas: [{load: 1.5, nodes: [1, 4]}, {nodes: [2, 3]}], cpus: [], maxLoad: 2.5}
- {name: c, devices: [{name: g, count: 2, kind: T4}],
   links: [{all_to_all: all, bandwidth_bytes_per_s: 9, latency_ns: 1}]}
""")

IMPORTERS: dict[str, Importer] = {
    "json": Importer("own.json", json_damage(good_document()), load_instance),
    "dnn": Importer("dnn.json", json_damage(good_dnn()), load_instance),
    "dnn-split": Importer("split.json", json_damage(SPLIT), read_split_file),
    "moirai": Importer("moirai.xlsx", damaged_workbook, load_instance),
    "onnx": Importer("net.onnx", damaged_model, partial(load_instance, batch=2, seq=4)),
    "cluster-yaml": Importer("c.yaml", text_damage(CLUSTER_YAML), read_cluster),
    "cluster-json": Importer("c.json", json_damage(CLUSTER), read_cluster),
    "cluster-text": Importer("text.txt", text_damage(CLUSTER_TEXT), read_cluster_text),
    "plan": Importer("plan.json", damaged_plan, read_plan),
    "measurements": Importer("ops.csv", text_damage(ops_csv()), read_measurements),
    "times-csv": Importer("times.csv", text_damage(times_csv()), read_measured_times),
    "times-trace": Importer("trace.json", json_damage(good_trace()), read_measured_times),
    "study": Importer("study.yaml", text_damage(STUDY_YAML), read_study),
    "runs-log": Importer("runs.jsonl", damaged_log, read_runs),
    "runs-csv": Importer("runs.csv", text_damage(runs_csv()), read_runs),
    "catalogue": Importer("devices.yaml", text_damage(CATALOGUE_YAML), load_catalogue),
    "hf-config": Importer("config.json", damaged_config, read_config, needs_torch=True),
}
"""Every kind of file that is read."""


def read_damaged(name: str, first: int, count: int, folder: Path) -> None:
    """Read inputs one by one; each has `CPU_S` seconds, all together `MOST_RSS_BYTES`."""
    importer = IMPORTERS[name]
    path = folder / importer.file
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    path.write_bytes(importer.damaged(random.Random(0)))
    if importer.needs_torch:
        load_torch(folder)
    for number in range(first, first + count):
        data = importer.damaged(random.Random(f"{name} {number}"))
        path.write_bytes(data)
        (folder / "progress").write_text(str(number))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # kills, whatever code runs
        signal.alarm(WALL_S)
        started = time.process_time()
        try:
            importer.read(path)
        except InputError as error:
            line = str(error)
            if "\n" in line or len(line) > MOST_CHARACTERS or path.name not in line:
                print(json.dumps([number, f"no short line with the file: {line}"]), flush=True)
        except BaseException:
            print(json.dumps([number, traceback.format_exc()[-1500:]]), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if time.process_time() - started > CPU_S / 2:
            print(json.dumps([number, "takes half of the time limit"]), flush=True)
    signal.alarm(0)
    peak = peak_bytes()
    if peak > MOST_RSS_BYTES:
        print(json.dumps([first, f"some input took {peak} bytes"]), flush=True)


SAID, ENDED = "said", "ended"
"""Files of an importer's folder: what its child said, and its exit code."""


def read_each(names: list[str], first: int, count: int, folder: Path) -> None:
    """Read the inputs of importers, each in a fork of this process: modules are loaded once."""
    fork = multiprocessing.get_context("fork")
    for name in names:
        (folder / name).mkdir()
        child = fork.Process(target=_read_aside, args=(name, first, count, folder / name))
        child.start()
        child.join()
        (folder / name / ENDED).write_text(str(child.exitcode))


def _read_aside(name: str, first: int, count: int, folder: Path) -> None:
    with (folder / SAID).open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    read_damaged(name, first, count, folder)


if __name__ == "__main__":
    read_each(sys.argv[4:], int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
