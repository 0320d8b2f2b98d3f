"""Models of text that look at images: pixels among the inputs, and towers whose images are packed.

LLaVA and Gemma 3 take images as pixels. Qwen2-VL takes patches in a row, and a grid that says how
many there are in each image: sizes that a trace cannot follow into the tower. All images here are
of one size, so that its tower is called beforehand with the sizes that follow from it.
"""

from __future__ import annotations

from inspect import signature
from math import prod
from types import SimpleNamespace
from typing import Any

from placegap.instances.torch_models.fx_nodes import kind_of_node, sizes_of, tensors_in
from placegap.instances.torch_models.inference_phase import use_packed_attention

USUAL_IMAGE = 224  # pixels along an edge


def takes_images(module: Any) -> bool:
    """Whether a model of transformers takes text, and images beside it."""
    takes_both = {"input_ids", "pixel_values"} <= set(signature(module.forward).parameters)
    return takes_both and getattr(module.config, "vision_config", None) is not None


def packs_images(model_class: Any) -> bool:
    """Whether images come as patches in a row, with a grid."""
    return "image_grid_thw" in signature(model_class.forward).parameters


def image_inputs(module: Any, batch: int) -> dict[str, Any]:
    """One image for each example, of the size that the configuration states."""
    # Of a tower that packs them a hook is registered, which calls it.
    import torch

    vision = module.config.vision_config
    if not packs_images(type(module)):
        size = (batch, getattr(vision, "num_channels", 3), *image_size(vision))
        return {"pixel_values": torch.zeros(size, dtype=module.dtype)}
    merge, patch = vision.spatial_merge_size, vision.patch_size
    height, width = (side // (patch * merge) * merge for side in image_size(vision))
    tower = module.model.visual
    use_packed_attention(tower.config)
    numbers = vision.in_channels * vision.temporal_patch_size * patch**2
    pixels = torch.zeros((batch * height * width, numbers), dtype=module.dtype)

    def look(called: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        patches = kwargs.pop("pixel_values")
        found = tower(
            patches,
            grid_thw=None,
            position_ids=torch.zeros((len(patches), 2), dtype=torch.long, device=patches.device),
            cu_seqlens=torch.zeros(batch + 1, dtype=torch.int32, device=patches.device),
            max_seqlen=height * width,
        )
        seen = SimpleNamespace(pooler_output=(found.pooler_output,))
        return args, {**kwargs, "mm_encoder_outputs": {"image": seen}}

    module.register_forward_pre_hook(look, with_kwargs=True)
    return {"pixel_values": pixels}


def refuse_short_text(graph: Any) -> None:
    """Raise a ValueError where an image has more tokens than the text that it is put into."""
    for node in graph.nodes:
        if node.op == "call_function" and kind_of_node(node) == "masked_scatter":
            text, image = (sizes_of(tensors_in(node.args[at])[0]) for at in (0, 2))
            if prod(image) > prod(text):
                most = -(-prod(image) // (prod(text) // text[1]))
                raise ValueError(f"an image takes {most} tokens, so the text needs more (--seq)")


def image_size(config: Any) -> tuple[int, int]:
    """Height and width in pixels."""
    size: Any = getattr(config, "image_size", None) or USUAL_IMAGE
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    return int(size), int(size)
