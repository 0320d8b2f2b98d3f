"""What a process of a pipeline does: it builds the model, cuts it, and runs its stages.

The cuts, the stages and the schedules are those of ``torch.distributed.pipelining``. Each process
builds the whole model from one seed, so that all have the same weights, and keeps its stages. It
has one thread: more would compete with the other stages for cores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)
from torch.export.unflatten import InterpreterModule
from torch.utils import _pytree as pytree

from placegap.experiments.research.pipeline_run import (
    WARM_UPS,
    PipelineJob,
    ProcessReport,
    StageWork,
)
from placegap.experiments.running.machine_link import join_group
from placegap.instances.torch_models.model import builder
from placegap.instances.torch_models.op_times import NS_PER_MS, random_like
from placegap.instances.torch_models.tracing import Traceable, built

WHOLE = "module"
"""What a `LossOf` calls the model."""


class LossOf(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A model and its loss, as the training graph has it: its first output if that is a number,
    else the sum of all outputs.
    """

    def __init__(self, module: nn.Module, labels: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.label_names = tuple(labels)
        for name, label in labels.items():
            self.register_buffer(name, label)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss, as a tensor of one number."""
        labels = {name: getattr(self, name) for name in self.label_names}
        found = pytree.tree_leaves(self.module(*args, **kwargs, **labels))
        tensors = [t for t in found if isinstance(t, torch.Tensor) and t.is_floating_point()]
        loss = tensors[0] if tensors[0].dim() == 0 else sum(tensor.sum() for tensor in tensors)
        return loss.reshape(1)


def run_stages(job: PipelineJob, store: str, rank: int) -> ProcessReport:
    """Run a pipeline together with the other processes."""
    device = join_group(job.device, store, rank, job.num_processes)
    warnings.simplefilter("ignore")  # about torch's own calls
    torch.manual_seed(job.seed)  # random weights, as the class draws them
    model = built(*builder(job.model, job.tracing), "cpu")
    prefix = ""
    if job.tracing.train:
        model, prefix = _with_loss(model), f"{WHOLE}."
    batches = microbatches(model, job.semantics.microbatches, job.seed)
    is_last = rank == job.num_processes - 1
    wanted = _outputs(model.module, batches) if is_last else []
    pipe = pipeline(
        model.module,
        *batches[0],
        split_spec={prefix + name: SplitPoint.BEGINNING for name in job.begins},
    )
    _use_generated_code(pipe.split_gm)
    if pipe.num_stages != job.num_stages:
        raise ValueError(f"torch makes {pipe.num_stages} stages of the plan's {job.num_stages}")
    stages = [pipe.build_stage(s, device) for s in range(rank, job.num_stages, job.num_processes)]
    watches = [_Watch(stage, device) for stage in stages]
    schedule = _schedule(job, stages)
    args, kwargs = pytree.tree_map(lambda *parts: torch.cat(parts), *batches)
    given = {"args": args, "kwargs": kwargs} if rank == 0 else {"args": (), "kwargs": {}}
    given = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), given)
    target = {"target": torch.zeros(len(batches), device=device)} if job.tracing.train else {}
    spans, difference = [], None
    for _ in range(WARM_UPS + job.iterations):
        for stage in stages:
            stage.submod.zero_grad(set_to_none=True)
        for watch in watches:
            watch.clear()
        distributed.barrier()
        begin = time.perf_counter_ns()
        with torch.set_grad_enabled(job.tracing.train):
            schedule.step(
                *given["args"],
                **given["kwargs"],
                **(target if is_last else {}),
                return_outputs=False,
            )
        if job.device == "cuda":
            torch.cuda.synchronize()
        spans.append((begin, time.perf_counter_ns()))
        for watch in watches:
            watch.note()
        if is_last and difference is None:
            difference = _difference(watches[-1].outputs, wanted)
    distributed.barrier()
    distributed.destroy_process_group()
    return ProcessReport(
        tuple(spans[WARM_UPS:]), tuple(watch.work() for watch in watches), difference
    )


def microbatches(
    model: Traceable, count: int, seed: int
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Random inputs of microbatches, of the shapes that the model is called with."""
    for leaf in pytree.tree_leaves((model.args, model.kwargs)):
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            raise ValueError("an input is no tensor with a first dimension of examples")
    generator = torch.Generator().manual_seed(seed)
    return [
        pytree.tree_map(
            lambda leaf: random_like(leaf, "cpu", generator), (tuple(model.args), model.kwargs)
        )
        for _ in range(count)
    ]


def _use_generated_code(module: nn.Module) -> None:
    """Run traced modules by the code that torch generates, as it does when it compiles.

    Otherwise an interpreter in Python runs node after node, which takes tens of us for each.
    """
    for each in module.modules():
        if isinstance(each, InterpreterModule):
            each._run_with_interpreter = False


def _with_loss(model: Traceable) -> Traceable:
    from placegap.instances.torch_models.joint_program import set_training_modes
    from placegap.instances.torch_models.training_model import labels_of

    set_training_modes(model.module)
    return Traceable(LossOf(model.module, labels_of(model)), model.args, model.kwargs)


def _outputs(module: nn.Module, batches: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
    """What the unsplit module returns for each microbatch."""
    with torch.no_grad():
        return [_tensors(module(*args, **kwargs)) for args, kwargs in batches]


def _tensors(output: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(output)
    return [leaf.detach().cpu() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _difference(found: list[list[torch.Tensor]], wanted: list[list[torch.Tensor]]) -> float:
    """The largest difference of two numbers of equal places."""
    pairs = [
        (a.double(), b.double())
        for one, other in zip(found, wanted, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    return max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)


def _schedule(job: PipelineJob, stages: list[Any]) -> Any:
    """Torch's schedule of the same name; without a backward pass all are the forward part."""
    count = job.semantics.microbatches
    options: dict[str, Any] = {"scale_grads": False}
    if job.tracing.train:  # the module returns its loss; torch asks for a target as well
        options["loss_fn"] = lambda output, target: output.sum()
    if job.semantics.schedule == "interleaved":
        return ScheduleInterleaved1F1B(stages, count, **options)
    if job.semantics.schedule == "gpipe" or not job.tracing.train:
        return ScheduleGPipe(stages[0], count, **options)
    return Schedule1F1B(stages[0], count, **options)


class _Watch:
    """Times of the forward and backward work of a stage, and what it returns."""

    def __init__(self, stage: Any, device: torch.device) -> None:
        self.stage, self.device = stage.stage_index, device
        self.outputs: list[list[torch.Tensor]] = []
        self.passes: dict[str, list[tuple[Any, Any]]] = {"forward": [], "backward": []}
        self.sums: dict[str, list[int]] = {"forward": [], "backward": []}
        is_last = stage.is_last
        forward, backward = stage.forward_one_chunk, stage.backward_one_chunk

        def timed_forward(*args: Any, **kwargs: Any) -> Any:
            begin = self._mark()
            output = forward(*args, **kwargs)
            self.passes["forward"].append((begin, self._mark()))
            if is_last and not self.sums["forward"]:  # in the first iteration
                self.outputs.append(_tensors(output))
            return output

        def timed_backward(*args: Any, **kwargs: Any) -> Any:
            begin = self._mark()
            found = backward(*args, **kwargs)
            self.passes["backward"].append((begin, self._mark()))
            return found

        stage.forward_one_chunk, stage.backward_one_chunk = timed_forward, timed_backward

    def clear(self) -> None:
        """Begin an iteration."""
        for spans in self.passes.values():
            spans.clear()

    def note(self) -> None:
        """End an iteration."""
        for name, spans in self.passes.items():
            self.sums[name].append(sum(self._between(begin, end) for begin, end in spans))

    def work(self) -> StageWork:
        """Of the iterations that count."""
        forward, backward = (tuple(self.sums[name][WARM_UPS:]) for name in self.passes)
        return StageWork(self.stage, forward, backward)

    def _mark(self) -> Any:
        if self.device.type == "cpu":
            return time.thread_time_ns()  # without what other programs take of the core
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, begin: Any, end: Any) -> int:
        if self.device.type == "cpu":
            return int(end - begin)
        return int(begin.elapsed_time(end) * NS_PER_MS)
