"""Bad usage of every command: one line on stderr, exit status 2, nothing written."""

from pathlib import Path

import pytest
from doubles.command_line import one_line

from placegap.experiments.cli import main
from placegap.instances import Cache, example
from placegap.instances.files.document import Document, save_document

ON = "--cluster 8xH100-nvlink"
CHAIN = "place net.json --objective max_load --plans chain"
HYBRID = "--objective hybrid_pipeline --microbatches 16"
EVALUATE = "standard-evaluation diamond.json m.csv --batch 16 -o big.json"

CASES = [
    ("--nonsense", "No such option: --nonsense"),
    ("place", "Missing argument 'MODEL' (see 'placegap place --help')"),
    ("place vgg19 --decode --context 8", "vgg19: --context is for models that are traced"),
    ("place vgg19 --seed x", "Invalid value for '--seed'"),
    ("place nosuch", "'nosuch', and no such graph in the corpus; 'placegap instances' lists them"),
    ("place vgg19", "has no default cluster; pass --cluster NAME"),
    ("place vgg19 --time-limit nan", "--time-limit must be positive"),
    # what was given, and what the option takes
    ("place vgg19 --time-limit 5m", "must be a valid number (got '5m'): Seconds for the method"),
    ("place vgg19 --gap 5%", "(got '5%'): Stop at this relative gap; 0.05 is 5 %"),
    ("place vgg19 --gap 5", "--gap is a share, from 0 to below 1: 5 % is 0.05 (got 5)"),
    ("place vgg19 --seed -1", "'--seed': must be greater than or equal to 0 (got '-1')"),
    ("place vgg19 --objective latency", "did you mean 'makespan', the latency of one request?"),
    ("place vgg19 --objective throughput", "did you mean 'max_load', the time per sample of a"),
    (
        "place diamond.json --method moirai --param from=published",
        "fields: start (bool), solver (highs, scip), form (verbatim, as_published,"
        " strengthened), symmetry (bool); did you mean 'form'?",
    ),
    (
        "place diamond.json --method heft --param speed=1",
        "of heft: speed: unknown field (got '1'); fields: none",
    ),
    ("place diamond.json --objective makespan --plans chain", "--plans chain belongs to max_load,"),
    ("show vgg19 --time-unit ms", "states its times in ns"),
    ("convert vgg19 vgg19.txt", "the name must end in .json or .json.gz"),
    ("generate layered x.json --param ops", "is not key=value"),
    ("generate layered x.json --param ops=no", "parameters of layered: ops"),
    # near names are offered for whatever is chosen by name
    ("plac", "Did you mean 'place'"),
    (f"place zfnet {ON}", "did you mean 'zfnet512'"),
    (f"place ./zfnet {ON}", "did you mean 'zfnet512'"),  # as a study names its graphs
    ("place zfnet512 --cluster ./8xH10-nvlink", "did you mean '8xH100-nvlink'"),
    ("place zfnet512 --cluster 8xH10-nvlink", "did you mean '8xH100-nvlink'"),
    (f"place zfnet512 {ON} --method heff", "did you mean 'heft'"),
    (f"place zfnet512 {ON} --objective maxload", "id you mean 'max_load'"),
    (f"place zfnet512 {ON} --coarsen moirai", "did you mean 'moirai-fusion'"),
    ("generate layerd x.json", "did you mean 'layered'"),
    # told before a model is traced, which is not there
    ("place hf:no-such-model", "hf:no-such-model has no default cluster; pass --cluster"),
    (f"place hf:no-such-model {ON} --method heff", "there is no method 'heff'"),
    (f"place hf:no-such-model {ON} --method heft --param x=1", "of heft: x: unknown field"),
    ("place hf:no-such-model --cluster own.yaml", "own.yaml: device 'g0': no op of hf:no-such-m"),
    ("place hf:no-such-model --cluster own.yaml", "'H100', which the catalogue does not have; did"),
    (f"place hf:no-such-model {ON} --costs measured:vlm", "there are no costs 'measured:vlm'"),
    (f"costs hf:no-such-model {ON} --costs roofline", "are compared with rooflines: choose"),
    # a file at fault, or in the place of another
    ("place squeezenet --cluster c.yaml", "c.yaml: links: no path leads from 'g0' to 'g1'; add a"),
    ("place squeezenet --cluster diamond.json", "diamond.json: is a model; name a cluster here"),
    (f"verify squeezenet diamond.json {ON}", "diamond.json: is a model; name a plan here"),
    ("verify diamond.json", "name a plan to evaluate, or a certificate"),
    ("study c.yaml", "c.yaml: is a cluster; name a study here"),
    ("place c.yaml", "c.yaml: is YAML: a cluster (--cluster) or a study"),
    ("show squeezenet --dim N=8", "squeezenet has no open dimensions"),
    (f"place bert-24-layers-train --cluster 2x8xH100 {HYBRID}", "no op names the module of a n"),
    (f"place llama-8b-train --dim seq=4 --cluster 2x8xH100 {HYBRID}", "choose from batch, tok"),
    (
        f"place llama-8b-train {ON} {HYBRID} --costs measured:vllm",
        "tables of a framework have no modes",
    ),
    (f"place llama-8b-train --cluster T4+V100-16GB,pcie3 {HYBRID}", "differ in kind or memory"),
    ("coarsen diamond.json --with pesto-merge --param ops=0", "parameters of pesto-merge: ops"),
    ("coarsen diamond.json --param ops=3", "need a transform (--with)"),
    ("coarsen diamond.json --with zero-time -o coarse.txt", "must end in .json or .json.gz"),
    ("coarsen diamond.json --with zero-time -o a.json --map a.json", "two outputs have this name"),
    ("coarsen diamond.json --with zero-time --objective latency_subgraphs", "no merge is known"),
    ("place diamond.json --coarsen-param ops=3", "needs a transform (--coarsen)"),
    ("place diamond.json --coarsen pesto-merge --coarsen-param ops", "param 'ops' is not"),
    ("split diamond.json --param parts=1", "parts: must be at least 2"),
    ("split diamond.json --param parts=1000000", "parts: must be at most 1024"),
    ("split diamond.json --param axes=depth", "axes[0]: must be 'batch'"),
    ("place vgg19 --cluster 8xH100 --times nosuch", "nosuch: No such file"),
    ("convert vgg19 o.json --times t.csv", "vgg19: has no default cluster"),
    ("profile vgg19", "vgg19: only models that are traced can be measured (hf:, py:)"),
    ("profile hf:gpt2 --train", "updates of weights are not measured; add --optimizer none"),
    ("place vgg19 --train", "--train is for models that are traced (hf:, py:, .gguf)"),
    ("place hf:gpt2 --optimizer adam", "--optimizer needs --train"),
    ("place hf:gpt2 --train --kv-tokens 9", "--context is for inference; leave out --train"),
    (
        "place nosuch.json --method moirai --write model.txt",
        "model.txt: does not end in .mps or .lp",
    ),
    ("place diamond.json --method moirai --write a.lp -o plan.json", "there is no plan for -o"),
    ("place nosuch.json --method heft --write a.lp", "heft has no MIP model to write"),
    ("place nosuch.json --write a.lp", "auto has no MIP model to write; methods that have one: m"),
    (f"{EVALUATE} --links m.csv", "m.csv: row 1: unknown column 'op'; the header is source"),
    (
        f"{EVALUATE.replace('diamond.json', 'vgg19')} {ON}",
        "no row names an op of the model 'vgg19'",
    ),
    (f"{EVALUATE} {ON}", "m.csv: row 2: no row names a device kind of '8xH100-nvlink'"),
    (f"{EVALUATE} --plan big.json", "two outputs have this name"),
    (f"{EVALUATE} --plot cdf.svg", "the name must end in .png"),
    (f"{EVALUATE} --batch 8 --plot cdf.png", "no row has batch 8, so there is nothing to draw"),
    ("place diamond.json --at-most 1.02", "--at-most limits loads under --objective max_context"),
    ("place net.json --objective max_context --at-most 0.5", "from 1 to 1000"),
    ("place net.json --objective max_context --at-most 1 --at-most-ns 3", "leave out one"),
    (f"place resnet50 {ON} --objective max_context", "no op has a cache; trace the model with --c"),
    ("costs resnet50", "name some (--cluster)"),
    (f"costs resnet50 {ON} --costs roofline", "choose measured or calibrated"),
    (f"costs resnet50 {ON} --costs measurd", "did you mean 'measured'"),
    ("costs resnet50 --cluster T4", "not for T4 at these rates"),
    ("place net.json --tensor-split --objective max_load", "needs --objective makespan"),
    ("place net.json --tensor-split --granularity op", "leave out --granularity"),
    ("price net.json --line x", "has no option of llama.cpp"),
    (f"{CHAIN} --export device_mapp=a", "'device_mapp'; did you mean 'device_map'?"),
    (f"{CHAIN} --export csv", "--export 'csv' is not KIND=FILE (device_map, torchtitan, "),
    (f"{CHAIN} --export csv=a --export csv=b", "--export 'csv' is given twice"),
    (f"{CHAIN} --export onnx=a.onnx", "net.json: is not an ONNX file, and --export onnx writes"),
    (f"{CHAIN} --export csv=a --method m-sct-lp", "m-sct-lp computes only bounds, so there"),
    (f"{CHAIN} --export device_map=a --granularity op", "a plan may divide layer 'h.0', but"),
]


@pytest.mark.parametrize(("command", "message"), CASES, ids=[command for command, _ in CASES])
def test_it_is_one_line_and_exit_status_2_and_writes_nothing(
    command: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = example().graph
    has_cache = {"caches": (Cache(token_bytes=1),)}
    ops = [
        op.model_copy(update={"module": f"h.{i // 2}.a", **has_cache})
        for i, op in enumerate(graph.ops)
    ]
    layers = example().with_graph(graph.model_copy(update={"ops": tuple(ops)}))
    for name, instance in (("diamond.json", example()), ("net.json", layers)):
        save_document(Document.of(instance), name)
    rows = [f"{op.name},gpu,{size},{size},9\n" for op in graph.ops for size in (1, 2, 16)]
    Path("m.csv").write_text("op,device,batch,time_us,memory_bytes\n" + "".join(rows))
    for name, kind in (("c.yaml", "T4"), ("own.yaml", "H100")):
        devices = f"[{{name: g, count: 2, kind: {kind}, memory_bytes: null}}]"
        Path(name).write_text(f"name: c\ndevices: {devices}\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    quiet = ["-q"] * command.startswith("place ")  # progress would be a line, too
    assert main([*command.split(), *quiet]) == 2
    assert message in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
