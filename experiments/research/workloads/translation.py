"""Translation with LSTMs (Wu et al., 2016): unrolled in time, and as eight layers (GNMT)."""

from __future__ import annotations

from math import prod

from placegap.experiments.research.workloads.layers import (
    activation,
    add,
    concat,
    dense,
    embedding,
    loss,
    multiply,
    placeholder,
    scale,
    softmax,
    split,
    view,
)
from placegap.experiments.research.workloads.tape import Tape, Tensor, Weight

WORDS = 32_000  # pieces of words of both languages (Wu et al., section 4.1: 8,000 to 32,000)
GNMT_WORDS = 32_320  # of MLPerf's GNMT, whose sizes dnn-partitioning's layer graph has


def nmt(tape: Tape, batch: int, steps: int = 40, layers: int = 4, hidden: int = 2048) -> None:
    """Write an LSTM encoder and decoder with attention, one cell per layer and time step."""
    # The first encoder layer reads in both directions; from the third layer on, inputs are added to
    # outputs. The length of sentences is ours: Celeritas states layers, units and batch.
    words = [placeholder(tape, (batch,), f"source/{t}") for t in range(steps)]
    with tape.scope("encoder"):
        table = tape.weight("embedding", (WORDS, hidden))
        states = [_word(tape, word, table) for word in words]
        ahead = _layer(tape, states, hidden, "forward")
        back = _layer(tape, states[::-1], hidden, "backward")[::-1]
        states = [concat(tape, [a, b]) for a, b in zip(ahead, back, strict=True)]
        for number in range(1, layers):
            found = _layer(tape, states, hidden, f"layer{number}")
            states = (
                [add(tape, a, b) for a, b in zip(found, states, strict=True)]
                if number > 1
                else found
            )
    with tape.scope("attention"):
        memory = tape.op("Pack", states, (steps, batch, hidden), flops=0, rule="concat")
        keys = dense(tape, memory, hidden, bias=False, name="keys")
    with tape.scope("decoder"):
        table = tape.weight("embedding", (WORDS, hidden))
        targets = [placeholder(tape, (batch,), f"target/{t}") for t in range(steps)]
        inputs = [_word(tape, word, table) for word in targets]
        outputs = _decode(tape, inputs, memory, keys, layers, hidden)
    whole = tape.op("Pack", outputs, (steps, batch, hidden), flops=0, rule="concat")
    with tape.scope("projection"):
        logits = dense(tape, whole, WORDS, bias=False)
    if tape.dialect.training:
        loss(tape, logits)


def _word(tape: Tape, word: Tensor, table: Weight) -> Tensor:
    return tape.op(
        "GatherV2",
        [word],
        (*word.shape, table.shape[1]),
        weights=[table],
        flops=0,
        rule="gather",
        constants=("axis",),
    )


def _layer(tape: Tape, inputs: list[Tensor], hidden: int, name: str) -> list[Tensor]:
    """One LSTM layer over all steps: its weights are shared by the steps."""
    with tape.scope(name):
        cell = _Cell(tape, inputs[0].shape[1], hidden)
        state, memory = (
            tape.op("Fill", [], (inputs[0].shape[0], hidden), rule="none", view=True, name=what)
            for what in ("zero_state", "zero_memory")
        )
        outputs = []
        for t, x in enumerate(inputs):
            with tape.scope(f"step{t}"):
                state, memory = cell.step(x, state, memory)
            outputs.append(state)
        return outputs


class _Cell:
    """An LSTM cell as TensorFlow's BasicLSTMCell writes it."""

    def __init__(self, tape: Tape, inside: int, hidden: int) -> None:
        self.tape, self.hidden = tape, hidden
        self.kernel = tape.weight("kernel", (inside + hidden, 4 * hidden), decays=True)
        self.bias = tape.weight("bias", (4 * hidden,))

    def step(self, x: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The cell's output and memory after one more input."""
        tape, batch = self.tape, x.shape[0]
        both = concat(tape, [x, state])
        shape = (batch, 4 * self.hidden)
        gates = tape.op(
            "MatMul",
            [both],
            shape,
            weights=[self.kernel],
            rule="product",
            flops=2 * prod(shape) * both.shape[1],
        )
        gates = tape.op("BiasAdd", [gates], shape, weights=[self.bias], rule="bias")
        new, candidate, forget, out = split(tape, gates, 4)
        kept = activation(tape, scale(tape, forget, "Add"), "Sigmoid", 4)
        memory = add(
            tape,
            multiply(tape, memory, kept),
            multiply(
                tape, activation(tape, new, "Sigmoid", 4), activation(tape, candidate, "Tanh", 4)
            ),
        )
        shown = activation(tape, memory, "Tanh", 4)
        return multiply(tape, shown, activation(tape, out, "Sigmoid", 4)), memory


def _decode(
    tape: Tape, inputs: list[Tensor], memory: Tensor, keys: Tensor, layers: int, hidden: int
) -> list[Tensor]:
    """The decoder step by step: its first layer queries the context that all layers then read."""
    steps, batch = memory.shape[:2]
    with tape.scope("attention"):
        query_weight = tape.weight("query", (hidden, hidden), decays=True)
        v = tape.weight("v", (hidden,))
    cells = []
    for number in range(layers):
        with tape.scope(f"layer{number}"):
            cells.append(_Cell(tape, 2 * hidden, hidden))
    zero = [
        tape.op("Fill", [], (batch, hidden), rule="none", view=True, name="zero_state")
        for _ in range(2 * layers + 1)
    ]
    states, memories, context = zero[:layers], zero[layers : 2 * layers], zero[-1]
    outputs = []
    for t, word in enumerate(inputs):
        x = word
        for number, cell in enumerate(cells):
            with tape.scope(f"layer{number}/step{t}"):
                before = x
                x, memories[number] = cell.step(
                    concat(tape, [x, context]), states[number], memories[number]
                )
                states[number] = x
                x = add(tape, x, before) if number > 1 else x
            if number == 0:
                with tape.scope(f"attention/step{t}"):
                    query = tape.op(
                        "MatMul",
                        [x],
                        (1, batch, hidden),
                        weights=[query_weight],
                        flops=2 * batch * hidden**2,
                        rule="product",
                    )
                    both = activation(tape, add(tape, keys, query), "Tanh", 4)
                    scored = tape.op(
                        "Mul", [both], both.shape, weights=[v], rule="multiply_broadcast"
                    )
                    scores = tape.op(
                        "Sum",
                        [scored],
                        (steps, batch),
                        flops=prod(both.shape),
                        rule="mean",
                        constants=("indices",),
                    )
                    share = view(tape, softmax(tape, scores), (steps, batch, 1), "ExpandDims")
                    mixed = multiply(tape, memory, share)
                    context = tape.op(
                        "Sum",
                        [mixed],
                        (batch, hidden),
                        flops=prod(mixed.shape),
                        rule="mean",
                        constants=("indices",),
                    )
        outputs.append(x)
    return outputs


def gnmt(tape: Tape, batch: int, steps: int = 50, hidden: int = 1024, layers: int = 8) -> None:
    """Write GNMT with one op per layer, as PipeDream's profiler sees it."""
    # Items are parts of what a layer returns: its output and its last state.
    source, lengths, target = (
        placeholder(tape, (batch, steps), name) for name in ("source", "lengths", "target")
    )
    hidden0 = placeholder(tape, (batch, hidden), "hidden")
    x = embedding(tape, source, GNMT_WORDS, hidden, name="encoder.embedding")
    x = _lstm(tape, [x, lengths], 2 * hidden, 2)
    x = _item(tape, _lstm(tape, [_drop(tape, x)], hidden), hidden)
    for _ in range(2, layers):
        x = add(tape, _item(tape, _lstm(tape, [_drop(tape, x)], hidden), hidden), x)
    encoded = x
    states = [_part(tape, hidden0, hidden0.shape) for _ in range(layers)]
    x = embedding(tape, target, GNMT_WORDS, hidden, name="decoder.embedding")
    attention = _attention_lstm(tape, [x, states[0], encoded], hidden)
    x, context = _item(tape, attention, hidden), _part(tape, attention, attention.shape)
    _part(tape, attention, (batch, hidden))
    for number in range(1, layers):
        both = concat(tape, [_drop(tape, x), context], 2)
        found = _item(tape, _lstm(tape, [both, states[number]], hidden), hidden)
        x = add(tape, found, x) if number > 1 else found
    dense(tape, x, GNMT_WORDS, name="classifier")


def _drop(tape: Tape, x: Tensor) -> Tensor:
    return tape.op("Dropout", [x], x.shape)


def _part(tape: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tape.op("getitem", [x], shape, view=True, rule="view")


def _item(tape: Tape, x: Tensor, hidden: int) -> Tensor:
    """The output of a layer; its last state is an item that no op reads."""
    _part(tape, x, (x.shape[0], hidden))
    return _part(tape, x, x.shape)


def _lstm(tape: Tape, inputs: list[Tensor], width: int, directions: int = 1) -> Tensor:
    """A whole LSTM layer as one op, with two biases per gate (cuDNN's)."""
    batch, steps, inside = inputs[0].shape
    hidden = width // directions
    with tape.scope(tape.path("lstm")):
        weights = [
            weight
            for _ in range(directions)
            for weight in (
                tape.weight("input", (inside, 4 * hidden)),
                tape.weight("hidden", (hidden, 4 * hidden)),
                tape.weight("biases", (8 * hidden,)),
            )
        ]
    flops = 2 * batch * steps * directions * 4 * hidden * (inside + hidden)
    return tape.op("LSTM", inputs, (batch, steps, width), weights=weights, flops=flops)


def _attention_lstm(tape: Tape, inputs: list[Tensor], hidden: int) -> Tensor:
    """The decoder's first layer with normed Bahdanau attention, as one op."""
    batch, steps, inside = inputs[0].shape
    with tape.scope("attention"):
        weights = [
            tape.weight("input", (inside, 4 * hidden)),
            tape.weight("hidden", (hidden, 4 * hidden)),
            tape.weight("biases", (8 * hidden,)),
            tape.weight("query", (hidden, hidden)),
            tape.weight("keys", (hidden, hidden)),
            tape.weight("linear_att", (hidden,)),
            tape.weight("normalize", (hidden + 1,)),
        ]
    tokens = batch * steps
    flops = 2 * tokens * (4 * hidden * (inside + hidden) + 2 * hidden**2)
    flops += tokens * steps * hidden * 5  # add, tanh and weigh for each pair of words
    return tape.op(
        "RecurrentAttention", inputs, (batch, steps, hidden), weights=weights, flops=flops
    )
