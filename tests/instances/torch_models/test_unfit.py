"""Options that a traced model is too small for, in words."""

from types import SimpleNamespace

import pytest

from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.tracing import unfit_in_words


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("h.0.mlp", TraceOptions(), ""),
        ("h.0.mlp", TraceOptions(seq=1024, weights="q4_k_m"), ""),
        ("h.0.mlp", TraceOptions(seq=1025), "1025 tokens are more than its 1024 positions"),
        ("h.0.mlp", TraceOptions(decode=True, kv_tokens=4096), "4096 tokens are more than its"),
        ("h.0.mlp", TraceOptions(weights="experts=q4_k_m"), "it has no experts, whose format"),
        ("h.0.mlp.experts", TraceOptions(weights="experts=q4_k_m"), ""),
    ],
)
def test_more_than_the_model_has_is_said(path: str, options: TraceOptions, words: str) -> None:
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(max_position_embeddings=1024))
    module = SimpleNamespace(
        config=config, main_input_name="input_ids", named_modules=lambda: [(path, None)]
    )
    said = unfit_in_words(module, options)
    assert said.startswith(words)
    assert bool(said) == bool(words)
