"""Lines for llama.cpp, exllama, ollama and SGLang, and what they cannot say."""

import pytest
from draws.lines import home_model as model

from placegap.experiments.running.exporting import check_format
from placegap.instances import Edge, InputError, Instance, Makespan, Op, Plan
from placegap.instances.exporters.lines import slots_of
from placegap.instances.exporters.table import export_plan
from placegap.instances.problem.modules import with_granularity


def line(kind: str, instance: Instance, *home: int) -> str:
    return export_plan(kind, instance, Plan.on(list(home)), Makespan())


def test_llama_cpp_counts_the_last_layers_and_the_output() -> None:
    # the output is the last of the slots that -ngl counts
    assert line("llamacpp", model(), 1, 1, 1, 0, 0, 0) == "-ngl 3\n"
    assert line("llamacpp", model(), 1, 1, 1, 1, 1, 0) == "-ngl 1\n"
    assert line("llamacpp", model(), 1, 1, 1, 1, 1, 1) == "-ngl 0\n"
    assert line("ollama", model(), 1, 1, 1, 0, 0, 0) == "PARAMETER num_gpu 3\n"
    # of 5 on GPUs, the output included, one is on the first
    assert line("llamacpp", model(gpus=2), 2, 0, 1, 1, 1, 1) == "-ngl 5 -ts 1,4\n"


def test_tools_take_cards_in_any_order_and_none_needs_to_be_told_among_equal_ones() -> None:
    assert line("llamacpp", model(gpus=2), 2, 1, 0, 0, 0, 0) == "-ngl 5 -ts 1,4\n"
    unlike = model(gpus=3, unlike=True)
    said = line("llamacpp", unlike, 3, 2, 0, 0, 0, 0)
    assert said == "--device CUDA2,CUDA0 -ngl 5 -ts 1,4\n"
    assert line("llamacpp", unlike, 3, 1, 1, 1, 1, 1) == "--device CUDA1 -ngl 5\n"
    ranks = "CUDA_VISIBLE_DEVICES=2,0 SGLANG_PP_LAYER_PARTITION=1,3\n"
    assert line("sglang", unlike, 2, 2, 0, 0, 0, 0) == ranks


def test_ranks_may_hold_the_embedding_or_the_head_alone() -> None:
    # vLLM's get_pp_indices takes ranks without a layer
    assert line("vllm", model(gpus=3), 0, 1, 1, 1, 1, 2) == "VLLM_PP_LAYER_PARTITION=0,4,0\n"
    assert line("megatron", model(gpus=3), 0, 1, 1, 1, 1, 2) == "E|t*4|L\n"
    assert line("exllama", model(gpus=3), 0, 1, 1, 1, 1, 2) == "-gs 1.00,4.00,1.00\n"


def test_llama_cpp_leaves_experts_on_the_host_by_number_or_by_pattern() -> None:
    moe = model(experts=True)
    assert line("llamacpp", moe, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0) == "-ngl 5 --n-cpu-moe 2\n"
    # layer 0 is on the host as a whole
    assert line("llamacpp", moe, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0) == "-ngl 4 --n-cpu-moe 2\n"
    said = line("llamacpp", moe, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0)
    assert said == '-ngl 5 -ot "blk\\.(1|3)\\.ffn_.*_exps\\.=CPU"\n'


def test_experts_behind_the_layers_are_of_no_layer() -> None:
    plain = model()
    more = Op(name="mtp", module="mtp.experts", time_ns={"gpu": 1000, "cpu": 3000})
    edges = (*plain.graph.edges, Edge(producer="head", consumer="mtp"))
    update = {"ops": (*plain.graph.ops, more), "edges": edges}
    slots = slots_of(plain.with_graph(plain.graph.model_copy(update=update)))
    assert slots.slot.tolist() == [0, 1, 2, 3, 4, 5, 5]  # embedding, four layers, what is behind
    assert not slots.expert.any()


def test_exllama_takes_what_each_gpu_holds() -> None:
    # embedding and one layer; three layers and the head
    assert line("exllama", model(gpus=2), 0, 0, 1, 1, 1, 1) == "-gs 2.00,4.00\n"


def test_layers_may_be_divided_where_a_line_is_looked_for_by_itself() -> None:
    divided = model(experts=True)
    for kind in ("llamacpp", "ollama"):
        check_format(kind, divided, Makespan(), "m.json")
    check_format("device_map", with_granularity(divided, "layer"), Makespan(), "m.json")
    with pytest.raises(InputError, match="may divide layer"):
        check_format("device_map", divided, Makespan(), "m.json")
