"""Models by name, by configuration and by function: what they are once traced."""

from pathlib import Path
from typing import Any

import pytest
from doubles.configs import config, gpt2

from placegap.instances import Graph, InputError
from placegap.instances.torch_models.fx_reader import read_fx_graph
from placegap.instances.torch_models.model import build_model, read_traced_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.tracing import parameter_count, traced
from placegap.instances.torch_models.training_model import read_training_model

pytestmark = pytest.mark.torch


def flops(graph: Graph) -> int:
    return sum(op.flops or 0 for op in graph.ops)


FIGURES = [  # as trials with torch 2.13 and transformers 5.23 found them: GFLOP, M parameters, ops
    ("gpt2", 291.65, 124.44, 220),
    ("resnet50", 8.18, 25.56, 174),
    ("swin-tiny", 8.98, 28.29, 300),
    ("t5-small", 71.61, 60.51, 370),
    pytest.param("llama-7b", 29_262, 6_738, 1128, marks=pytest.mark.deep),
]


@pytest.mark.parametrize(("name", "giga_flops", "mega_parameters", "most_ops"), FIGURES)
def test_a_known_model_has_its_flops_and_parameters(
    name: str, giga_flops: float, mega_parameters: float, most_ops: int
) -> None:
    graph = read_traced_model(f"hf:{name}").graph
    assert flops(graph) / 1e9 == pytest.approx(giga_flops, rel=1e-3)
    parameters = graph.provenance.parameters["parameters"]
    assert isinstance(parameters, int)
    assert parameters / 1e6 == pytest.approx(mega_parameters, rel=1e-3)
    assert len(graph.ops) <= 1.02 * most_ops
    assert "parameters_that_no_op_reads" not in params(graph)


# in millions, as the papers and the model cards say
PARAMETERS = {"gpt2": 124, "gpt2-medium": 355, "gpt2-large": 774, "gpt2-xl": 1558}
PARAMETERS |= {"gpt3-330m": 356, "gpt3-1.3b": 1316, "gpt3-2.7b": 2651, "gpt3-13b": 12853}
PARAMETERS |= {"llama-7b": 6738, "llama-70b": 68977, "mixtral-8x7b": 46703}
PARAMETERS |= {"bert-base": 109.5, "bert-large": 335.1, "vit-base": 86.6, "vit-large": 304.3}
PARAMETERS |= {"t5-small": 60.5, "t5-base": 222.9, "t5-large": 737.7, "resnet50": 25.6}
PARAMETERS |= {"swin-tiny": 28.3, "swin-small": 49.6, "swin-base": 87.8, "swin-large": 196.5}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_preset_has_the_parameters_of_its_model(name: str) -> None:
    model = build_model(f"hf:{name}", TraceOptions())
    assert parameter_count(model.module) / 1e6 == pytest.approx(PARAMETERS[name], rel=0.005)


def test_outputs_are_the_bytes_that_the_framework_allocates() -> None:
    import torch
    from torch.fx import GraphModule, Interpreter
    from torch.utils._pytree import tree_leaves

    model = build_model("hf:swin-tiny", TraceOptions())
    graph, held = traced("swin-tiny", model)
    program = read_fx_graph(graph, held)

    def storages(value: Any) -> dict[int, Any]:
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        return {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}

    class Counting(Interpreter):  # type: ignore[misc]
        total = 0

        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.name in program.op_of:
                old = {at for each in node.all_input_nodes for at in storages(self.env[each])}
                read = [result[user.args[1]] for user in node.users if isinstance(result, tuple)]
                new = storages(read or result)
                self.total += sum(new[at].nbytes() for at in new if at not in old)
            return result

    counting = Counting(GraphModule(model.module, graph))
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    with torch.no_grad():
        counting.run(*(torch.empty_like(each, device="meta") for each in inputs))
    ours = sum(op["resident_bytes"] - op["parameter_bytes"] for op in program.ops)
    assert ours == pytest.approx(counting.total, rel=0.01)


def test_a_configuration_file_is_a_model(tmp_path: Path) -> None:
    document = read_traced_model(gpt2(tmp_path), TraceOptions(batch=2, seq=4))
    # per layer and token: products with 8 x 24, 8 x 8, 8 x 32 and 32 x 8 weights; attention in 2
    # heads of 4 over 4 tokens twice; then the 8 x 11 head; 8 tokens in all, 2 FLOP each
    layer = 8 * 24 + 8 * 8 + 2 * 8 * 32 + 2 * 2 * 4 * 4
    assert flops(document.graph) == 2 * 8 * (2 * layer + 8 * 11)
    assert document.name == "config"
    assert document.graph.provenance.parameters["batch"] == 2


def test_blocks_and_tied_weights_are_one_group_on_request(tmp_path: Path) -> None:
    graph = read_traced_model(gpt2(tmp_path), TraceOptions(seq=8, keep_modules=True)).graph
    groups = {op.module: op.colocation for op in graph.ops}
    assert groups["transformer.h.0.attn.c_attn"] == groups["transformer.h.0"] == "transformer.h.0"
    assert groups["lm_head"] is None  # alone in its group
    graph = read_traced_model(gpt2(tmp_path), TraceOptions(seq=8, tied="together")).graph
    groups = {op.module: op.colocation for op in graph.ops if op.colocation is not None}
    assert groups == dict.fromkeys(("transformer.wte", "lm_head"), "transformer.wte.weight")


@pytest.mark.parametrize(
    ("kind", "channels"),
    # keys and values of all 8 channels in 2 layers; of 2 of 4 heads of 4 channels in one layer
    [("gpt2", 2 * 2 * 8), ("llama", 2 * 8)],
)
def test_attention_holds_the_cache_that_is_asked_for_and_shared_heads_once(
    kind: str, channels: int, tmp_path: Path
) -> None:
    llama = config(tmp_path, "llama", "16 1 4 2 8 11")
    name = gpt2(tmp_path) if kind == "gpt2" else llama
    states = []
    for tokens in (0, 10):
        graph = read_traced_model(name, TraceOptions(batch=3, seq=8, kv_tokens=tokens)).graph
        states.append(sum(op.state_bytes or 0 for op in graph.ops))
    # 3 examples x 10 tokens x 4 bytes
    assert states[1] - states[0] == channels * 3 * 10 * 4


FUNCTIONS = """
import torch
import transformers

def args():
    return torch.nn.Linear(3, 5), (torch.zeros(7, 3),)

def kwargs():
    return torch.nn.Linear(3, 5), {"input": torch.zeros(7, 3)}

class Branch(torch.nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x

def branch():
    return Branch(), (torch.zeros(3),)

def alone():
    return torch.nn.Linear(3, 5)

def broken():
    raise KeyError("oops")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.text = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
        self.tower = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        self.mixed = torch.nn.Linear(4, 4)
        self.folded = torch.nn.Parameter(torch.zeros(4))
        self.tied = torch.nn.Linear(4, 4)
        self.tied.weight = self.mixed.weight

    def forward(self, x):
        x = self.text["a"](x) + torch.exp(self.folded)  # folded into a constant, and so read
        return x @ self.mixed.weight

def towers():
    return Net(), (torch.zeros(2, 4),)

def keeping(use_cache):
    sizes = dict(vocab_size=11, hidden_size=16, intermediate_size=8, num_hidden_layers=1)
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, use_cache=use_cache)
    ids = torch.zeros((1, 8), dtype=torch.long)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids}

def cached():
    return keeping(True)

def uncached():
    return keeping(False)

class Own:
    def __init__(self, x):
        self.parts = {"x": [x]}
        self.again = self

class Wrapped(torch.nn.Linear):
    def forward(self, x):
        return Own(super().forward(x))

def own():
    return Wrapped(3, 5), (torch.zeros(7, 3),)
"""


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_models")
def test_a_function_returns_a_module_and_its_inputs_or_is_refused_in_one_line() -> None:
    for function in ("args", "kwargs"):
        document = read_traced_model(f"py:my_models:{function}")
        assert [op.flops for op in document.graph.ops] == [210]
        assert document.name == f"my_models.{function}"
    for name, message in (
        ("branch", r"cannot be traced: GuardOnDataDependent.*: it branches on values"),
        ("alone", r"the function must return \(module, args\)"),
        ("broken", r"broken cannot be called: KeyError: 'oops'"),
        ("missing", r"module 'my_models' has no function 'missing'"),
    ):
        with pytest.raises(InputError, match=rf"^py:my_models:{name}: (?!py:).*{message}[^\n]*$"):
            read_traced_model(f"py:my_models:{name}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gtp2"}, "transformers has no model_type 'gtp2'"),
        ({"model_type": None}, "it has no model_type"),
        ({"n_head": 3}, "cannot be built: ValueError"),
        ({"n_layer": 10**6}, "above the limit of 100000; PLACEGAP_MAX_TORCH_MODULES"),
        # the reason stands on the second line of what transformers says
        (
            {"model_type": "llama", "hidden_size": 10, "num_attention_heads": 3},
            r"ValueError: The hidden size \(10\) is not a multiple of the number of attention",
        ),
        (
            {"torch_dtype": "float8_e4m3fn"},
            "its dtype 'float8_e4m3fn' is not one of float32, float16",
        ),
        ({"torch_dtype": "auto"}, r"its dtype 'auto' is not one of .*; choose one \(--dtype\)"),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 99}},
            r"its quantization_config states 99 bits; a weight has 1 to 16",
        ),
        ({"text_config": {"quantization_config": {"quant_method": "vptq"}}}, "method 'vptq', none"),
    ],
)
def test_a_bad_configuration_is_one_line(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    name = gpt2(tmp_path, **fields)
    with pytest.raises(InputError, match=f"^{name.removeprefix('hf:')}.*{message}"):
        read_traced_model(name, TraceOptions(seq=8))


def params(graph: Graph) -> dict[str, Any]:
    return dict(graph.provenance.parameters)


@pytest.mark.parametrize(
    ("fields", "dtype", "found"),
    [
        ({}, None, "float32"),
        ({"torch_dtype": "bfloat16"}, None, "bfloat16"),
        ({"torch_dtype": "torch.float16"}, None, "float16"),
        # and a quantization of nothing is none
        ({"torch_dtype": "auto", "quantization_config": None}, "float16", "float16"),
    ],
)
def test_the_number_type_is_the_configurations_unless_another_is_asked_for(
    fields: dict[str, Any], dtype: Any, found: str, tmp_path: Path
) -> None:
    graph = read_traced_model(gpt2(tmp_path, **fields), TraceOptions(seq=8, dtype=dtype)).graph
    product = next(op for op in graph.ops if op.kind == "addmm")
    assert (product.dtype or "float32") == found
    # 8 tokens of 24 channels, beside 8 x 24 weights and 24 biases
    assert product.resident_bytes == (8 * 24 + 8 * 24 + 24) * (4 if found == "float32" else 2)
    # 11 x 8 of tokens and 16 x 8 of positions; of two layers 8 x 24 + 24, 8 x 8 + 8, 8 x 32 + 32
    # and 32 x 8 + 8 of products, two norms of 16; and a last norm
    weights = 8 * 27 + 2 * (216 + 72 + 288 + 264 + 32) + 16
    size = weights * (4 if found == "float32" else 2)
    assert params(graph)["traced_as"] == (
        f"batch 1, 8 tokens, {found}, {size / 1000:.2f}".rstrip("0") + " kB of weights"
    )


@pytest.mark.usefixtures("own_models")
@pytest.mark.parametrize("train", [False, True])
def test_what_no_op_reads_is_named_and_outputs_may_hold_tensors_in_objects(train: bool) -> None:
    reader = read_training_model if train else read_traced_model

    def read(name: str) -> Graph:
        return reader(f"py:my_models:{name}", TraceOptions(train=train)).graph

    # of text.b 20 numbers, of the tower 2 x 72, of two biases 4 each: 172 of 4 bytes
    unread = params(read("towers"))["parameters_that_no_op_reads"]
    assert unread == "text.b, tower, mixed.bias, 1 more (688 B)"
    # the cache holds keys and values that are computed anyhow
    assert flops(read("cached")) == flops(read("uncached"))
    assert flops(read("own")) == 210 * (1 + train)
    with pytest.raises(InputError, match=r"branch: cannot be traced.*\Z"):
        read("branch")
