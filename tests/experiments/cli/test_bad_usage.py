"""Bad usage of every command: one line on stderr, exit status 2, nothing written."""

from pathlib import Path
from typing import get_args

import pytest
from doubles.command_line import one_line
from doubles.fake_study import study_file
from draws.hybrid import layer_row

from placegap.experiments.cli import main
from placegap.instances import (
    Cache,
    Instance,
    Makespan,
    MaxLoad,
    Plan,
    Semantics,
    example,
    load_corpus,
    save_plan,
)
from placegap.instances.corpus.measured_chains import MEASURED, PREFIX
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document, save_document
from placegap.instances.problem import MemoryRule, PlanClass

ON = "--cluster 8xH100-nvlink"
CHAIN = "place net.json --objective max_load --plans chain"
HYBRID = "--objective hybrid_pipeline --microbatches 16"
PORT = Makespan()
NEO = f"place {PREFIX}{next(iter(MEASURED))}"
UNLIKE = "--cluster 4xA100-4xV100"
INTERLEAVED = "--objective pipeline_iteration --schedule interleaved --stages-per-device 2"
EVALUATE = "standard-evaluation diamond.json m.csv --batch 16 -o big.json"

CASES = [
    ("--nonsense", "No such option: --nonsense"),
    ("place", "Missing argument 'MODEL' (see 'placegap place --help')"),
    ("methods heff", "did you mean 'heft'? (--module FILE adds your own)"),
    ("instances corpsu", "did you mean 'corpus'?"),
    *(
        (f"place vgg19 --{rule} ?", f"'?' is not one of {', '.join(map(repr, get_args(known)))} (")
        for rule, known in (("plans", PlanClass), ("memory", MemoryRule))
    ),
    ("show vgg19 --dim L=" + "9" * 5000, "--dim 'L': the size must be a positive integer"),
    ("convert vgg19 o.json --seq 8", "vgg19: --seq is for models that are traced (hf:, py:"),
    ("convert diamond.json o.json --pipeline 2x2", "is not DxT:MODE"),
    ("convert row.json o.json --pipeline 9x9:keep", "replicas must divide"),
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
    ("place vgg19 --objective throughput", "mean 'max_load', the time per sample of a"),
    (
        "place diamond.json --method moirai --param from=published",
        "fields: start (bool), solver (str), form (verbatim, as_published,"
        " strengthened), symmetry (bool), most_rows (int); did you mean 'form'?",
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
    ("place squeezenet --cluster 2xMINE+T4,pcie3", "there is no device kind 'MINE'"),
    ("place squeezenet --devices own.yaml", "--devices states kinds for --cluster; name one, too"),
    (
        "place llama-8b-train --cluster 2x2xH100 --bubble --degrees free",
        "for degrees free; add --degrees one or --no-bubble",
    ),
    # chains with measured times
    (f"place {PREFIX}gpt-neo {UNLIKE}", "chain 'gpt-neo'; did you mean 'gpt-neo-2.7b'?"),
    (f"{NEO} {UNLIKE} --dim batch=2", "no rows for batch 2; microbatch and tensor are one of 1, 2"),
    (f"{NEO} {UNLIKE} --dim microbatch=3", "no rows for microbatch 3; microbatch and tensor"),
    (f"{NEO} {UNLIKE} --dim tensor=8", "no embedding was measured on A100-40GB, V100-16GB with"),
    (f"{NEO} {UNLIKE} --dim microbatch=8", "on V100-16GB with microbatch 8 and tensor 1; it was"),
    (f"{NEO} --cluster 2xT4-pcie", "on T4 with microbatch 1 and tensor 1; it was on A100"),
    (f"{NEO} --cluster 2xT4-pcie --objective hybrid_pipeline", "measured on T4"),
    (f"{NEO} {UNLIKE} --objective hybrid_pipeline", "needs equal devices"),
    # plans
    ("show foreign.json --model diamond.json", "other content"),
    ("show broken.json --model diamond.json", "no device 'gpu9'"),
    ("show stuck.json --model diamond.json", "cannot be executed"),
    ("show plan.json --html a.html", "--model"),
    ("show plan.json --model diamond.json --gantt a.gif", ".png or .svg"),
    ("show diamond.json --html a.html", "--html is for plans"),
    ("show plan.json --cluster 8xH100-nvlink", "--model"),
    ("compare plan.json diamond.json", "is not a plan"),
    ("compare plan.json plan.json", "--model"),
    ("compare plan.json load.json --model diamond.json", "cannot be compared"),
    # gpu0 -> gpu1 -> gpu0 is no chain
    (
        "place diamond.json --start plan.json --objective max_load",
        "cannot be the start for diamond: its plan is inf",
    ),
    (
        "place diamond.json --start plan.json --method heft --objective max_load",
        "heft does not apply to diamond: does not do max_load",
    ),
    ("place diamond.json --start empty.json", "empty.json: "),
    # studies
    *(
        (f"study study.yaml --shard={shard}", f"--shard '{shard}' is not I/N, such as 1/4")
        for shard in ("3/2", "0/2", "1", "a/b", "1/2/3", "")
    ),
    ("study none.yaml --dry-run", "none.yaml: No such file"),
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
    (f"place llama-8b-train {ON} {HYBRID} --costs measured:vllm", "a framework have no modes"),
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
    ("place nosuch.json --method moirai --write model.txt", "model.txt: does not end in .mps or"),
    ("place diamond.json --method moirai --write a.lp -o plan.json", "there is no plan for -o"),
    ("place nosuch.json --method heft --write a.lp", "heft has no MIP model to write"),
    ("place nosuch.json --write a.lp", "auto has no MIP model to write; methods that have one: m"),
    ("place diamond.json --method moirai --solver gurobbi", "did you mean 'gurobi'?"),
    ("place diamond.json --method heft --solver scip", "parameters of heft: solver: unknown"),
    ("model moiray diamond.json", "there is no model 'moiray'; did you mean 'moirai'?"),
    ("model moirai nosuch.json", "nosuch.json"),
    ("model moirai diamond.json --write a.txt", "a.txt: does not end in .mps or .lp"),
    ("model moirai diamond.json --form publishd", "did you mean 'as_published'?"),
    ("model pesto diamond.json --channels link --symmetry", "has no symmetry"),
    ("model moirai diamond.json --form as_published --channels link", "moirai does not apply to"),
    (f"{EVALUATE} --links m.csv", "m.csv: row 1: unknown column 'op'; the header is source"),
    (f"{EVALUATE.replace('diamond.json', 'vgg19')} {ON}", "row names an op of the model 'vgg19'"),
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
    (
        "place diamond.json --export device_map=a --granularity op",
        "export device_map: no op of diamond names its module; trace the",
    ),
    ("place stages.json --export vllm=a", "export vllm: diamond has no layers"),
    (f"place net.json {INTERLEAVED} --export vllm=a", "export vllm: vllm has one stage per device"),
    (f"{CHAIN} --price-layers", "add --granularity layer"),
    (f"{CHAIN} --export device_map=a --granularity op", "a plan may divide layer 'h.0', but"),
]


def with_modules(instance: Instance, module: str) -> Instance:
    """Two ops a module; each op has a cache."""
    ops = [
        op.model_copy(update={"module": module.format(i // 2), "caches": (Cache(token_bytes=1),)})
        for i, op in enumerate(instance.graph.ops)
    ]
    return instance.with_graph(instance.graph.model_copy(update={"ops": tuple(ops)}))


def save_plans(folder: Path, instance: Instance) -> None:
    def save(name: str, plan: Plan, rules: Semantics = PORT, of: Instance = instance) -> None:
        save_plan(of, plan, rules, folder / name)

    save("plan.json", Plan.on([0, 0, 1, 0]))
    save("load.json", Plan.on([0] * 4), MaxLoad(plans="any"))
    save("stuck.json", Plan.on([0] * 4, [[3, 2, 1, 0], []]))
    other = load_corpus("zfnet512").instance(load_cluster("moirai-inter-server"))
    save("foreign.json", Plan.on([0] * other.num_ops), of=other)
    text = (folder / "plan.json").read_text()
    (folder / "broken.json").write_text(text.replace('"gpu1"', '"gpu9"'))
    (folder / "empty.json").write_text("{}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, clusters, plans, a study and a table of measurements."""
    folder = tmp_path_factory.mktemp("files")
    diamond = example()
    for name, instance in (
        ("diamond", diamond),
        ("net", with_modules(diamond, "h.{}.a")),
        ("stages", with_modules(diamond, "s{}")),
        ("row", layer_row()),
    ):
        save_document(Document.of(instance), folder / f"{name}.json")
    save_plans(folder, diamond)
    study_file(folder)
    rows = [f"{op.name},gpu,{size},{size},9\n" for op in diamond.graph.ops for size in (1, 2, 16)]
    (folder / "m.csv").write_text("op,device,batch,time_us,memory_bytes\n" + "".join(rows))
    for name, kind in (("c.yaml", "T4"), ("own.yaml", "H100")):
        devices = f"[{{name: g, count: 2, kind: {kind}, memory_bytes: null}}]"
        (folder / name).write_text(f"name: c\ndevices: {devices}\n")
    return folder


@pytest.mark.parametrize(("command", "message"), CASES, ids=[command[:90] for command, _ in CASES])
def test_it_is_one_line_and_exit_status_2_and_writes_nothing(
    command: str,
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    quiet = ["-q"] * command.startswith("place ")  # progress would be a line, too
    assert main([*command.split(), *quiet]) == 2
    assert message in one_line(capsys)
    assert sorted(path.name for path in folder.iterdir()) == before
