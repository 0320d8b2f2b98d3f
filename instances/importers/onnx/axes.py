"""Along which axes an ONNX node can be split, and how long they are (`op_splitting.split`)."""

from __future__ import annotations

from placegap.instances.io.onnx_flops import Node, Shape

CONVOLUTIONS = frozenset({"Conv", "ConvInteger"})
PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger"})


def count_axes(node: Node, has_weights: bool) -> dict[str, int]:
    """Sizes of the batch and of the channels of a convolution or a matrix product.

    Axes of one element, and nodes of other types, are left out; so are the channels of grouped
    convolutions. A batch is what all inputs that are no weights share.

    Parameters
    ----------
    node : Node
    has_weights : bool
        Whether the second input is constant.

    Examples
    --------
    >>> count_axes(Node("Conv", [(8, 3, 12, 12), (16, 3, 3, 3)], [(8, 16, 10, 10)], {}), True)
    {'batch': 8, 'out_channel': 16, 'in_channel': 3}
    >>> count_axes(Node("Relu", [(8, 3)], [(8, 3)], {}), False)
    {}
    """
    if len(node.inputs) < 2 or not node.inputs[0] or not node.inputs[1] or not node.outputs[0]:
        return {}
    left, right, out = node.inputs[0], node.inputs[1], node.outputs[0]
    sizes: dict[str, int] = {}
    if node.op_type in CONVOLUTIONS and has_weights:
        sizes["batch"] = out[0]
        if node.attributes.get("group", 1) == 1:
            sizes |= {"out_channel": right[0], "in_channel": right[1]}
    elif node.op_type in PRODUCTS and min(len(left), len(right)) >= 2:
        if has_weights or _shares_batch(right, out):
            sizes["batch"] = out[0]
        summed = left[0] if node.op_type == "Gemm" and node.attributes.get("transA") else left[-1]
        sizes |= {"out_channel": out[-1], "in_channel": summed}
    return {axis: size for axis, size in sizes.items() if size > 1}


def _shares_batch(right: Shape, out: Shape) -> bool:
    return len(right) == len(out) > 2 and right[0] == out[0]
