"""Ops, with their modes and caches, and the edges between them."""

from __future__ import annotations

from pydantic import Field

from placegap.instances.problem.op_kernel import OpKernel
from placegap.instances.problem.part import Count, Flag, InstancePart, Name, Positive


class Mode(InstancePart):
    """One way to run an op under hybrid_pipeline: its tensor degree, time and memory.

    All numbers are per device, for each of the `tensor` devices.

    Examples
    --------
    >>> Mode(name="recompute", tensor=2, time_ns={"gpu": 70}, held_bytes=1).tensor
    2
    """

    #: What is chosen ("keep", "recompute"); with each tensor degree it is another mode.
    name: Name
    #: Devices that the op is split over.
    tensor: Positive = 1
    #: Forward and backward of one microbatch with the collectives within the op, per device kind.
    time_ns: dict[str, Count]
    #: What replicas sum up once per batch: gradients.
    parameter_bytes: Count = 0
    #: What is held however many microbatches are in flight: weights, gradients, optimizer state.
    state_bytes: Count = 0
    #: sharded_bytes, gradient_bytes: Parts of `state_bytes` that replicas may divide among them:
    #: the optimizer's state, and the gradients.
    sharded_bytes: Count = 0
    gradient_bytes: Count = 0
    #: Activations that each microbatch in flight holds.
    held_bytes: Count = 0
    #: Scratch memory while the op runs: of a stage the largest counts.
    workspace_bytes: Count = 0
    #: enter_bytes, leave_bytes: More bytes for an edge that comes from, or goes to, an op of
    #: another stage, by its name.
    enter_bytes: dict[Name, Count] = Field(default_factory=dict)
    leave_bytes: dict[Name, Count] = Field(default_factory=dict)


class Cache(InstancePart):
    """Memory that an op holds for each earlier token: keys and values of attention.

    Examples
    --------
    >>> window = Cache(token_bytes=8, tokens=4, most_tokens=100)
    >>> window.held_bytes(0), window.held_bytes(50), window.held_bytes(200)
    (0, 400, 800)
    """

    #: Of one token, in all sequences of the batch.
    token_bytes: Positive
    #: For how many tokens the op's `resident_bytes` and `state_bytes` have room.
    tokens: Count = 0
    #: No more are kept: a sliding window or a chunk; None for no limit.
    most_tokens: Positive | None = None

    def held_bytes(self, tokens: int) -> int:
        """Bytes for a number of tokens."""
        kept = tokens if self.most_tokens is None else min(tokens, self.most_tokens)
        return self.token_bytes * kept


OWN_MODE = "own"  # the one mode of an op that states none


class Op(InstancePart):
    """One operation of a computation graph.

    Examples
    --------
    >>> Op(name="conv1", kind="Conv", time_ns={"gpu": 1200}).time_ns["gpu"]
    1200
    """

    #: Unique in its graph.
    name: Name
    #: What it computes ("Conv"); a label.
    kind: str = "op"
    #: Time per device kind; a kind that is absent cannot run the op.
    time_ns: dict[str, Count] = Field(default_factory=dict)
    #: Bytes that occupy the op's device for as long as the plan is installed; the only size that
    #: counts against a device's memory under the rule `sum`.
    resident_bytes: Count = 0
    #: parameter_bytes, workspace_bytes: Weights (a part of `resident_bytes`), and scratch memory
    #: while the op runs.
    parameter_bytes: Count = 0
    workspace_bytes: Count = 0
    #: What the op holds between passes: weights, their gradients, optimizer state, caches. None
    #: stands for `parameter_bytes`.
    state_bytes: Count | None = None
    #: More of it, by name, that other ops hold by the same name (tied weights), and that a device
    #: holds once; not a part of `state_bytes`.
    shared_state: dict[Name, Positive] = Field(default_factory=dict)
    #: Which part of `resident_bytes` and `state_bytes` grows with the context, for max_context.
    caches: tuple[Cache, ...] = ()
    #: Ops of one group (colour class) run on one device.
    colocation: Name | None = None
    #: Whether the op belongs to the backward pass of a training graph.
    backward: Flag = False
    #: Of a backward op: whether gradients and updates of weights are all that depends on it, so
    #: that it may wait while gradients of inputs go on (zero-bubble schedules).
    weight_gradient: Flag = False
    #: Of a backward op: whether it runs once per iteration, and not with each microbatch, as the
    #: updates of weights do. pipeline_iteration alone looks at it.
    update: Flag = False
    #: Path of the module the op came from.
    module: str | None = None
    #: flops, bytes_moved: What costing turns into times.
    flops: Count | None = None
    bytes_moved: Count | None = None
    #: The number type it computes in ("float16"), for costing; None stands for "float32".
    dtype: str | None = None
    #: What it computes, for tables of measured kernels; no part of the content hash, as the times
    #: that came of it are.
    kernel: OpKernel | None = None
    #: Axes along which an op may be split into parts (`op_splitting`).
    splittable_axes: tuple[str, ...] = ()
    #: Sizes of its axes, where known; a part of an axis has whole elements of it.
    axis_sizes: dict[str, Positive] = Field(default_factory=dict)
    #: How it may run under hybrid_pipeline, which looks at nothing else of the op; none: in one
    #: way, by its own fields (`ways`).
    modes: tuple[Mode, ...] = ()

    def bytes_at(self, tokens: int) -> int:
        """Resident bytes with caches of the given number of tokens instead of the stated ones."""
        more = (each.held_bytes(tokens) - each.held_bytes(each.tokens) for each in self.caches)
        return self.resident_bytes + sum(more)

    @property
    def ways(self) -> tuple[Mode, ...]:
        """Its modes; without stated modes, one mode made of the op's own fields.

        Resident bytes beyond the state are held once per microbatch in flight.
        """
        if self.modes:
            return self.modes
        state = self.parameter_bytes if self.state_bytes is None else self.state_bytes
        return (
            Mode(
                name=OWN_MODE,
                time_ns=self.time_ns,
                parameter_bytes=self.parameter_bytes,
                state_bytes=state,
                held_bytes=max(0, self.resident_bytes - state),
                workspace_bytes=self.workspace_bytes,
            ),
        )


class Edge(InstancePart):
    """A tensor that a producer sends to one consumer.

    Edges out of one op with the same `tensor` name share that tensor (and must agree on its size
    and times); an edge without a tensor name has its own tensor.
    """

    #: producer, consumer: Names of ops.
    producer: Name
    consumer: Name
    #: Size of the tensor.
    bytes: Count = 0
    #: Name of the tensor, unique per producer.
    tensor: Name | None = None
    #: Time to move the tensor between an accelerator and host memory, where the source states it.
    host_time_ns: Count | None = None
    #: Explicit transfer times, row = sending device, column = receiving device, in the order of the
    #: cluster's devices; used in place of the links.
    transfer_ns: tuple[tuple[Count, ...], ...] | None = None
