"""Megatron-LM's ``--pipeline-model-parallel-layout``, as a string.

Source: Megatron Core's page "Custom Pipeline Model Parallel Layout": stages are split by ``|``; E
is the embedding, t a decoder layer, L the loss (with final norm and head); ``t*3`` is ``ttt``. The
stages are in the order in which a microbatch passes them: all of the first virtual rank first.
"""

from __future__ import annotations

from placegap.instances.io.export_modules import layer_stages
from placegap.instances.io.export_stages import counts_with_ends
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Semantics


def write_megatron(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The layout of a plan, in one line.

    Raises
    ------
    InputError
        If the model has no single list of layers, or the plan none of Megatron's pipelines.
    """
    stages = layer_stages(instance, plan, semantics)
    return layout(counts_with_ends(instance, stages, "megatron")) + "\n"


def layout(counts: list[int]) -> str:
    """The layout of so many layers in each stage.

    Examples
    --------
    >>> layout([3, 4, 4, 0])
    'Et*3|t*4|t*4|L'
    >>> layout([1])
    'EtL'
    """
    stages = ["" if not count else "t" if count == 1 else f"t*{count}" for count in counts]
    stages[0] = f"E{stages[0]}"
    stages[-1] = f"{stages[-1]}{',' if '*' in stages[-1] else ''}L"
    return "|".join(stages)
