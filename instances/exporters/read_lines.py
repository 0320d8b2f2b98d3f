"""Lines that people run, read back as plans: of llama.cpp, vLLM, SGLang, KTransformers, exllama,
ollama, Megatron; and files of torchtitan and accelerate.

Written from the tools' sources, as `lines` states them, and not from what is exported. A line that
is not of its tool's class (`LineClass`) is refused. Options that decide no placement are passed
over.
"""

from __future__ import annotations

import csv
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from io import StringIO
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from placegap.instances.exporters.hybrid import FULL, KEEP, SELECTIVE, hybrid_plan, read_layers
from placegap.instances.exporters.lines import (
    VISIBLE,
    LayerLine,
    even_counts,
    filled,
    filling_bytes,
    gpus_and_host,
    line_of,
    slots_of,
    why_not,
)
from placegap.instances.exporters.modules import (
    APART,
    layer_list,
    parted_experts,
    priced_map,
    run_order,
)
from placegap.instances.exporters.stages import TORCHTITAN
from placegap.instances.exporters.table import EXPORTERS
from placegap.instances.files.document import read_json
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.modules import feeders, layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import read_content
from placegap.instances.reading.printable import printable
from placegap.instances.transforms.tensor_groups import (
    CardGroup,
    SplitParts,
    on_groups,
    share_units,
)

EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
# Tensors of a layer in GGUF that ``-ot`` may name: of experts, and others.
REST = (
    *("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "attn_norm", "ffn_norm"),
    *("ffn_gate", "ffn_up", "ffn_down", "ffn_gate_inp", "ffn_up_shexp", "ffn_down_shexp"),
)

# Options that decide a placement, by the names that they have here.
OPTIONS = {
    "visible": (VISIBLE.rstrip("="),),
    "vllm": ("VLLM_PP_LAYER_PARTITION",),
    "sglang": ("SGLANG_PP_LAYER_PARTITION",),
    "ollama": ("num_gpu",),
    "ngl": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    "ts": ("-ts", "--tensor-split"),
    "device": ("-dev", "--device"),
    "ncmoe": ("-ncmoe", "--n-cpu-moe"),
    "cmoe": ("-cmoe", "--cpu-moe"),
    "ot": ("-ot", "--override-tensor"),
    "sm": ("-sm", "--split-mode"),
    "mg": ("-mg", "--main-gpu"),
    "exllama": ("-gs", "--gpu-split", "--gpu_split"),
    "pp": ("-pp", "--pipeline-parallel-size", "--pp-size", "--pipeline-model-parallel-size"),
    "dp": ("-dp", "--data-parallel-size", "--dp-size"),
    "tp": ("-tp", "--tensor-parallel-size", "--tp-size", "--tensor-model-parallel-size"),
    "ktransformers": ("--kt-num-gpu-experts",),
    "megatron": ("--pipeline-model-parallel-layout",),
    "recompute": ("--recompute-granularity",),
    "recompute_method": ("--recompute-method",),
    "recomputed": ("--recompute-num-layers",),
    "sharding": ("--use-distributed-optimizer",),
    "batch": ("--global-batch-size",),
    "micro_batch": ("--micro-batch-size",),
}
FLAGS = ("cmoe", "sharding")  # options without a value

MOST_PARTS = 10_000  # of Megatron's layout; more are a slip

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d\d?)?", re.ASCII | re.IGNORECASE)
MOST_DIGITS = 30  # of a number: thousands, or such an exponent, take minutes to compute with
# Options that no other tool has, by the names of their tools.
TOOLS = ("vllm", "sglang", "megatron", "exllama", "ollama", "ktransformers")

Given = dict[str, str]


class ReadLine(NamedTuple):
    """A tool, its plan, and the instance as the tool runs it."""

    kind: str
    plan: Plan
    instance: Instance
    rules: Mapping[str, Any] = {}  # of hybrid plans: what the line says of the semantics
    is_shared: bool = False  # whether cards hold each layer together; they are one device then


def read_line(instance: Instance, text: str) -> ReadLine:
    """The plan of a line, or of the file of that name."""
    try:
        is_hybrid = any(op.modes for op in instance.graph.ops)
        if text.strip().endswith(".toml"):
            return _torchtitan(instance, Path(text.strip()))
        if text.strip().endswith(".csv"):
            return _table(instance, Path(text.strip()))
        if text.strip().endswith(".json"):
            return _file(instance, Path(text.strip()))
        is_layout = re.fullmatch(r"E[Etm|,*()\d ]*L", text.strip())
        given = {"megatron": text.strip()} if is_layout else _options(text)
        kind = next((tool for tool in TOOLS if tool in given), "")
        if not kind and given.keys() & {"pp", "tp"}:
            is_sglang = "sglang" in text or "--pp-size" in text or "--tp-size" in text
            kind = "sglang" if is_sglang else "megatron" if "model-parallel" in text else "vllm"
        if not kind and not given.keys() & {"ngl", "ts", "device", "ncmoe", "cmoe", "ot", "sm"}:
            raise InputError(
                "has no option of llama.cpp, exllama, vLLM, SGLang, KTransformers or Megatron that"
                " decides a placement (-ngl, -ts, -gs, VLLM_PP_LAYER_PARTITION=..), and names no"
                " .json"
            )
        gpus, _ = gpus_and_host(instance.cluster)
        gpus = _gpus(gpus, given["visible"]) if "visible" in given else gpus
        if is_hybrid:
            return _hybrid(instance, given, kind)
        if (ranks := _count(given, "tp", 1)) > 1:
            if kind not in ("vllm", "sglang"):
                raise InputError("splits tensors of each layer, which is read of vLLM and SGLang")
            rows = [(1,) * ranks] * (len(gpus) // ranks)
            shared, groups = _shared(instance, gpus, rows)
            counts = _counts(shared, given, kind, len(groups))
            return _said(shared, kind, _ranks(shared, counts, groups), is_shared=True)
        if given.get("sm") in ("tensor", "row"):
            return _tensors(instance, given, gpus)
        if kind == "ktransformers":
            return _parted(instance, _whole(given[kind]), gpus)
        if kind in ("", "ollama"):
            kind = kind or "llamacpp"
            line = _llamacpp(instance, given, gpus, kind)
        elif kind == "exllama":
            shares = _numbers(given, kind)
            if len(shares) > len(gpus):
                raise InputError(
                    f"there are {len(shares)} shares, and {len(gpus)} GPUs in the cluster"
                )
            line = LayerLine(filled(filling_bytes(instance), shares, gpus))
        else:
            line = _ranks(instance, _counts(instance, given, kind, len(gpus)), gpus)
        return _said(instance, kind, line)
    except InputError as error:
        raise InputError(f"--line {text!r}: {error}") from None


def _shared(
    instance: Instance, gpus: Sequence[int], rows: Sequence[tuple[int, ...]]
) -> tuple[Instance, list[int]]:
    """The instance whose cards are groups with these shares, and the groups by number."""
    ends = list(accumulate(map(len, rows), initial=0))
    if not rows or len(gpus) < ends[-1]:
        raise InputError(f"needs more GPUs than the {len(gpus)} of the cluster")
    groups = [
        CardGroup(tuple(gpus[a:b]), row)
        for a, b, row in zip(ends[:-1], ends[1:], rows, strict=True)
    ]
    parts = SplitParts(instance)
    coarse = instance.with_graph(parts.with_times(groups))
    found = on_groups(coarse, parts, groups, groups[0])
    assert found is not None  # the first group may hold the embedding
    numbers = {device.name: k for k, device in enumerate(found.cluster.devices)}
    return found, [numbers[group.name(instance.cluster)] for group in groups]


def _tensors(instance: Instance, given: Given, gpus: Sequence[int]) -> ReadLine:
    """llama.cpp's cards that hold each layer together, all of them, in shares of whole heads."""
    used = _gpus(gpus, given["device"]) if "device" in given else list(gpus)
    num = len(layer_list(instance)) + 1
    if given.get("ngl", "all") not in ("all", "auto", "-1", "-2") and _count(given, "ngl", 0) < num:
        raise InputError("leaves layers on the host; -sm tensor is read with all layers on cards")
    if given.keys() & {"ncmoe", "cmoe", "ot"}:
        raise InputError("has experts on the host; -sm tensor is read with all layers on cards")
    memory = [instance.cluster.devices[k].memory_bytes for k in used]
    shares = [Fraction(1 if None in memory else size or 1) for size in memory]
    shares = _numbers(given, "ts") if "ts" in given else shares
    if len(shares) != len(used):
        raise InputError(f"-ts has {len(shares)} shares, and there are {len(used)} GPUs")
    units = share_units(instance.graph)
    ends = [round(units * end / sum(shares)) for end in accumulate(shares, initial=Fraction(0))]
    row = tuple(b - a for a, b in pairwise(ends))
    if not all(row):
        raise InputError(f"-ts leaves a GPU none of the {units} parts of each layer")
    shared, group = _shared(instance, used, [row])
    return ReadLine("llamacpp", Plan.on(group * shared.num_ops), shared, is_shared=True)


def _hybrid(instance: Instance, given: Given, kind: str) -> ReadLine:
    """A training line of Megatron, or vLLM's line with three sizes."""
    tensor, ranks = _count(given, "tp", 1), _count(given, "pp", 1)
    numbered = len(read_layers(instance).numbered)
    if kind == "megatron" and kind not in given:
        if numbered % ranks:
            raise InputError(f"{numbered} layers are no multiple of {ranks} stages; give a layout")
        counts = [numbered // ranks] * ranks
    elif kind in ("megatron", "vllm"):
        counts = _counts(instance, given, kind, ranks) if kind in given else []
        counts = counts or even_counts(numbered, ranks, kind)
    else:
        raise InputError(
            "is no line of Megatron or vLLM, and no .toml of torchtitan: these run hybrid plans"
        )
    if "pp" in given and len(counts) != ranks:
        raise InputError(f"has {ranks} pipeline ranks, and {len(counts)} stages")
    block = _count(given, "recomputed", 1)
    does: Callable[[int], str] = lambda at: KEEP  # noqa: E731
    if given.get("recompute") == "selective":
        does = lambda at: SELECTIVE  # noqa: E731
    elif given.get("recompute") == "full":
        is_block = given.get("recompute_method") == "block"
        does = lambda at: FULL if at < block or not is_block else KEEP  # noqa: E731
    plan = hybrid_plan(instance, counts, tensor, does)
    replicas = instance.num_devices // (tensor * len(counts))
    if _count(given, "dp", replicas) != replicas:
        raise InputError(f"the cluster has devices for {replicas} replicas; all of them are used")
    rules: dict[str, Any] = {"recompute": "per_layer", "degrees": "one"}
    if kind == "megatron":
        rules["sharding"] = "optimizer" if "sharding" in given else "none"
    if "batch" in given:
        rules["microbatches"] = _count(given, "batch", 1) // _count(given, "micro_batch", 1)
    return ReadLine(kind, plan, instance, rules)


def _torchtitan(instance: Instance, path: Path) -> ReadLine:
    """The degrees, parts and recomputation of torchtitan's file."""
    try:
        content = tomllib.loads(read_content(path).decode())
        degrees, ac = content["parallelism"], content.get("activation_checkpoint", {})
        ranks = int(degrees.get("pipeline_parallel_degree", 1))
        tensor = int(degrees.get("tensor_parallel_degree", 1))
        parts = degrees.get("module_fqns_per_model_part", [])
        counts = [sum(str(name).startswith("layers.") for name in part) for part in parts]
        mode, option = ac.get("mode", "none"), str(ac.get("selective_ac_option", "op"))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"is no file of torchtitan: {error}", path) from None
    num = len(read_layers(instance).numbered)
    if not parts and ranks > 0 and num % ranks == 0:
        counts = [num // ranks] * ranks
    if len(counts) != ranks or tensor < 1:
        raise InputError("module_fqns_per_model_part has no part for each stage", path)
    each = int(option) if option.isdecimal() else 0
    does: Callable[[int], str] = lambda at: {"none": KEEP, "full": FULL}.get(mode, SELECTIVE)  # noqa: E731
    if mode == "selective" and each:
        does = lambda at: KEEP if (at + 1) % each else FULL  # noqa: E731
    plan = hybrid_plan(instance, counts, tensor, does)
    return ReadLine("torchtitan", plan, instance, {"recompute": "per_layer", "degrees": "one"})


def _said(instance: Instance, kind: str, line: LayerLine, *, is_shared: bool = False) -> ReadLine:
    """A line of a tool; one that is not of its class is refused."""
    of, (_, host) = EXPORTERS[kind].line, gpus_and_host(instance.cluster)
    assert of is not None
    why = why_not(instance, line, of)
    if why is not None:
        raise InputError(f"{why}; what is read is what --export {kind} can write")
    return ReadLine(kind, slots_of(instance).plan(line, host), instance, is_shared=is_shared)


def _options(text: str) -> Given:
    """Options that decide a placement, each with its last value, or with all for ``-ot``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"cannot be parsed: {error}") from None
    name_of, given = {word: name for name, each in OPTIONS.items() for word in each}, Given()
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        name = name_of.get(option)
        if name is None:
            continue
        if not equals and name not in FLAGS:
            if at + 1 == len(words):
                raise InputError(f"{word} needs a value")
            value = words[at + 1]
        given[name] = f"{given[name]},{value}" if name == "ot" and name in given else value
    return given


def _number(text: str) -> Fraction:
    if len(text) > MOST_DIGITS or NUMBER.fullmatch(text.strip()) is None:
        raise InputError(f"{text!r} is not a number")
    return Fraction(text.strip())


def _whole(text: str) -> int:
    number = _number(text)
    if number.denominator > 1:
        raise InputError(f"{text!r} is not a whole number")
    return int(number)


def _numbers(given: Given, name: str) -> list[Fraction]:
    found = [_number(part) for part in re.split("[,/]", given[name])]
    if min(found) < 0:
        raise InputError(f"{OPTIONS[name][0]} has a share below 0")
    return found


def _count(given: Given, name: str, usual: int) -> int:
    number = _whole(given.get(name, str(usual)))
    if number < min(usual, 1):
        raise InputError(f"{OPTIONS[name][0]} must be {min(usual, 1)} or more")
    return number


def _gpus(gpus: Sequence[int], names: str) -> list[int]:
    """GPUs by their names in a row, each once."""
    found = [_gpu(gpus, name) for name in names.split(",")]
    if len(set(found)) < len(found):
        raise InputError(f"{names!r} names a GPU twice")
    return found


def _gpu(gpus: Sequence[int], name: str) -> int:
    """A GPU by its number, also after the name of a backend."""
    found = re.fullmatch(r"[A-Za-z]*([0-9]{1,9})", name.strip())
    if found is None or int(found[1]) >= len(gpus):
        raise InputError(f"there is no GPU {name.strip()!r} among the {len(gpus)} of the cluster")
    return gpus[int(found[1])]


def _llamacpp(instance: Instance, given: Given, gpus: list[int], kind: str) -> LayerLine:
    """As ``load_tensors`` puts layers and the output on devices, and overrides tensors."""
    num = len(layer_list(instance)) + 1
    _, host = gpus_and_host(instance.cluster)
    if given.get("sm", "layer") not in ("layer", "none"):
        raise InputError("splits tensors of each layer (-sm), but lines have whole layers")
    chosen = given.get("device", ",".join(map(str, range(len(gpus)))))
    used = [] if chosen in ("", "none") else _gpus(gpus, chosen)
    if given.get("sm") == "none":
        used = [_gpu(used, given.get("mg", "0"))]
    name = "ollama" if kind == "ollama" else "ngl"
    is_all = given.get(name, "all") in ("all", "auto", "-1", "-2")
    on_gpus = num if is_all else min(_count(given, name, 0), num)
    on_gpus = on_gpus if used else 0
    if on_gpus < num and host is None:
        raise InputError(f"leaves {num - on_gpus} layers on the host, and the cluster has none")
    memory = [instance.cluster.devices[k].memory_bytes for k in used]
    usual = [Fraction(1 if None in memory else size or 1) for size in memory]
    shares = _numbers(given, "ts") if "ts" in given else usual
    if len(shares) > len(used):
        raise InputError(f"-ts has {len(shares)} shares, and there are {len(used)} GPUs")
    ends = list(accumulate(shares))
    if on_gpus and not ends[-1]:
        raise InputError("-ts has no share above 0")
    home = [-1 if host is None else host] * (num - on_gpus)
    for at in range(on_gpus):
        share = ends[-1] * Fraction(at, on_gpus)
        home.append(used[next(n for n, end in enumerate(ends) if end > share)])
    home.insert(0, home[0] if host is None else host)
    return LayerLine(tuple(home), tuple(_away(instance, given, gpus, home)))


def _away(instance: Instance, given: Given, gpus: list[int], home: Sequence[int]) -> Iterator[int]:
    """Layers on GPUs whose experts are on the host; the first pattern that matches counts."""
    _, host = gpus_and_host(instance.cluster)
    moved, layers = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU", len(layer_list(instance))
    patterns = given["ot"].split(",") if "ot" in given else []
    patterns += [moved] if "cmoe" in given else []
    patterns += [rf"blk\.{n}{moved}" for n in range(min(_count(given, "ncmoe", 0), layers))]
    for n in range(layers if patterns else 0):
        found = dict[str, str]()
        for tensor in (*EXPERTS, *REST):
            for pattern in patterns:
                regex, equals, target = pattern.rpartition("=")
                if not equals:
                    raise InputError(f"-ot {pattern!r} is no PATTERN=DEVICE (exps=CPU)")
                try:
                    matches = re.search(regex, f"blk.{n}.{tensor}.weight")
                except (re.error, OverflowError, RecursionError) as error:
                    raise InputError(f"-ot {regex!r} is not a pattern: {error}") from None
                if matches:
                    found.setdefault(tensor, target)
        if not found:
            continue
        if not found.keys() == set(EXPERTS) or len(set(found.values())) > 1:
            raise InputError(
                f"-ot moves {len(found)} tensors of layer {n}, such as {min(found)}; what is read"
                " are patterns of all experts of a layer (exps=CPU)"
            )
        target = next(iter(found.values()))
        if not target.startswith("CPU"):
            if _gpu(gpus, target) != home[n + 1]:
                raise InputError(
                    f"-ot puts the experts of layer {n} on {target}, and the layer is on another"
                    " device; what is read are experts with their layer or on the CPU (exps=CPU)"
                )
        elif host is None:
            raise InputError("-ot names the host, and the cluster has none")
        elif home[n + 1] != host:
            yield n


def _parted(instance: Instance, on_card: int, gpus: Sequence[int]) -> ReadLine:
    """A number of experts of each layer on a card with all else, the others on the host."""
    _, host = gpus_and_host(instance.cluster)
    if host is None or not gpus:
        raise InputError(
            "has experts on a card and on the host, and the cluster has no"
            f" {'host' if host is None else 'card'}"
        )
    parted = parted_experts(instance, on_card)
    home = [host if op.name.endswith(APART) else gpus[0] for op in parted.graph.ops]
    return ReadLine("ktransformers", Plan.on(home), parted)


def _counts(instance: Instance, given: Given, kind: str, num_gpus: int) -> list[int]:
    """Layers of each rank."""
    if kind == "megatron":
        return _layout(given["megatron"])
    if kind in given:
        return [_whole(part) for part in given[kind].split(",")]
    ranks = _count(given, "pp", 1)
    if ranks > num_gpus:
        raise InputError(f"there are {ranks} stages, and {num_gpus} GPUs in the cluster")
    return even_counts(len(layer_list(instance)), ranks, kind)


def _layout(text: str) -> list[int]:
    """Decoder layers of each stage of Megatron's layout."""
    text = text.replace(" ", "").replace(",", "")
    while group := re.search(r"\(([^()]*)\)\*([0-9]{1,20})|([Etm L|])\*([0-9]{1,20})", text):
        part, times = (group[1], group[2]) if group[2] else (group[3], group[4])
        if len(text) + len(part) * int(times) > MOST_PARTS:
            raise InputError(f"the layout repeats {part!r} {times} times")
        text = text[: group.start()] + part * int(times) + text[group.end() :]
    if not re.fullmatch(r"E[t|]*m*L", text):
        raise InputError(
            "the layout is not a sequence of E, t, m, L and |, with E first and L last"
        )
    return [stage.count("t") for stage in text.split("|")]


def _ranks(instance: Instance, counts: list[int], gpus: list[int]) -> LayerLine:
    """Layers in their order on ranks; the first has what is before them, the last what is after."""
    num = len(layer_list(instance))
    if sum(counts) != num or min(counts) < 0:
        stages = ", ".join(map(str, counts))
        raise InputError(f"the stages have {stages} layers, and the model has {num}")
    if len(counts) > len(gpus):
        raise InputError(f"there are {len(counts)} stages, and {len(gpus)} GPUs in the cluster")
    inner = [k for k, count in zip(gpus, counts, strict=False) for _ in range(count)]
    return LayerLine((gpus[0], *inner, gpus[len(counts) - 1]))


def _file(instance: Instance, path: Path) -> ReadLine:
    """A map of accelerate, or the parts of torchtitan."""
    content = read_json(path)
    gpus, host = gpus_and_host(instance.cluster)
    layers = layer_of(instance.graph)
    if isinstance(content, list) and all(isinstance(part, list) for part in content):
        if len(content) > len(gpus):
            raise InputError(f"there are {len(content)} parts, and {len(gpus)} GPUs in the cluster")
        own = {name: layer for layer, names in TORCHTITAN.items() for name in names}
        parts = dict[str, int]()
        for k, part in zip(gpus, content, strict=False):
            for name in map(str, part):
                if parts.setdefault(own.get(name, name), k) != k:
                    raise InputError(f"two parts name {name!r}")
        plan = _by_prefix(instance, layers, parts)
        return _said(instance, "torchtitan", line_of(instance, plan))
    if not isinstance(content, dict):
        raise InputError(
            "is neither a map of modules (device_map) nor a list of parts (torchtitan)"
        )
    if isinstance(splits := content.get("split_spec"), dict):
        return _split_points(instance, gpus, layers, list(splits))
    if host is None and "cpu" in content.values():
        raise InputError("the map has modules on the CPU, and the cluster has no host")
    place = {
        str(module): host if where == "cpu" and host is not None else _gpu(gpus, str(where))
        for module, where in content.items()
    }
    main = next((k for k in place.values() if k != host), None)
    priced = instance if main is None or host is None else priced_map(instance, main)
    return ReadLine("device_map", _by_prefix(instance, layers, place), priced)


def _split_points(
    instance: Instance, gpus: Sequence[int], layers: Sequence[str | None], begins: list[str]
) -> ReadLine:
    """Stages of torch.distributed.pipelining, each from a module on in the order of the code."""
    if len(begins) + 1 > len(gpus):
        raise InputError(f"there are {len(begins) + 1} stages, and {len(gpus)} GPUs in the cluster")
    if unknown := set(begins).difference(filter(None, layers)):
        raise InputError(f"split_spec names {min(unknown)!r}, which is no layer of the model")
    order, stage, place = run_order(instance), 0, dict[str, int]()
    for i in sorted(range(instance.num_ops), key=lambda i: order[i]):
        layer = layers[i]
        if layer is not None and layer not in place and not instance.arrays.backward[i]:
            stage += layer in begins
            place[layer] = gpus[stage]
    return ReadLine("pipelining", _by_prefix(instance, layers, place), instance)


def _table(instance: Instance, path: Path) -> ReadLine:
    """The table of ops of ``--export csv``."""
    rows = csv.DictReader(StringIO(read_content(path).decode(errors="replace")))
    devices = {printable(spec.name): k for k, spec in enumerate(instance.cluster.devices)}
    place = dict[str, list[int]]()
    for row in rows:
        device = row.get("device") or ""
        if device not in devices:
            raise InputError(f"has an op on {device!r}, which is no device of the cluster", path)
        place.setdefault(row.get("name") or "", []).append(devices[device])
    names = [printable(op.name) for op in instance.graph.ops]
    if lost := [name for name in names if name not in place]:
        raise InputError(f"has no row for op {lost[0]!r}", path)
    return ReadLine("csv", Plan(tuple(tuple(place[name]) for name in names)), instance)


def _by_prefix(instance: Instance, layers: Sequence[str | None], place: dict[str, int]) -> Plan:
    """Each op where the innermost module that a file names is; others where what feeds them is."""
    if not place:
        raise InputError("the file places no module")
    fed_by, home = feeders(instance, layers), dict[int, int]()
    order = instance.arrays.index.topological_order.tolist()
    order.sort(key=lambda i: layers[i] is None)  # what nothing feeds is where the layers begin
    for i in order:
        path = (instance.graph.ops[i].module or "").split(".")
        names = [".".join(path[begin:end]) for end in range(len(path), 0, -1) for begin in (0, 1)]
        found = next((place[name] for name in names if name in place), place.get(""))
        if layers[i] is not None and found is None:
            raise InputError(f"the file has no place for {layers[i]!r}")
        usual = home.get(fed_by.get(i, order[0]), next(iter(place.values())))
        home[i] = usual if found is None else found
    return Plan.on([home[i] for i in range(instance.num_ops)])
