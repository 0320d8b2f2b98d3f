"""A small graph that uses every field, for round trips."""

import json

import yaml

from placegap.instances import Graph

RICH = """
name: rich
ops:
  - {name: b, kind: Conv, time_ns: {gpu: 3, cpu: 4}, resident_bytes: 9, parameter_bytes: 5,
     workspace_bytes: 2, state_bytes: 6, shared_state: {tied: 4}, colocation: x, backward: true,
     weight_gradient: true, update: true, module: m.b, flops: 10, bytes_moved: 20, dtype: float16,
     splittable_axes: [batch], axis_sizes: {batch: 8},
     kernel: {type: product, m: 8, n: 5, k: 3, batch: 2, dtype: float16}}
  - {name: a, time_ns: {gpu: 1}, colocation: x}
edges:
  - {producer: a, consumer: b, bytes: 7, tensor: two, host_time_ns: 3}
  - {producer: a, consumer: b, bytes: 8, tensor: one, transfer_ns: [[0, 1], [2, 0]]}
provenance: {source: here, changes: [none], parameters: {seed: 3}}
"""


def rich_graph() -> Graph:
    """Every field of an op and of an edge in use, and two tensors between the same two ops."""
    return Graph.model_validate_json(json.dumps(yaml.safe_load(RICH)))
