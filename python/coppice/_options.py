"""Options and their types. The structs of src/coppice.h explain each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Literal, Optional, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from .engine import Constraint
    from .policy import Policy

Weights = Literal["keep", "q8_0", "q6_k", "q4_k", "q4_0", "fp8", "int4"]


class EngineOptions(TypedDict, total=False):
    target_weights: Weights
    draft_weights: Weights
    device: Literal["auto", "cpu", "cuda"]
    cpu_dtype: Literal["auto", "f32", "bf16"]
    kv_dtype: Literal["auto", "f32", "bf16", "f16"]
    cost_table: Union[str, os.PathLike[str]]
    threads: int
    max_tree_size: int
    kv_tokens: int
    max_sequences: int
    max_batch_rows: int
    prefix_cache: bool
    gpu_layers: int
    draft_gpu_layers: int
    streamed_tree_size: int
    cost_cache: bool
    gpu_memory_fraction: float
    gpu_memory: int
    host_memory: int
    tensor_parallel: int
    draft_tensor_parallel: int
    devices: str
    rank_address: str
    rank_key: str
    rank_timeout: float
    progress: Callable[[str, float], object]


class GenerateOptions(TypedDict, total=False):
    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Union[dict[int, float], Sequence[tuple[int, float]]]
    seed: Optional[int]
    stream: int
    stop: Union[str, Sequence[str]]
    stop_tokens: Sequence[int]
    ignore_eos: bool
    constraint: Optional[Constraint]
    add_bos: bool
    logprobs: bool
    top_logprobs: int
    acceptance: Literal["auto", "rejection", "coupled"]
    # How the draft's trees grow: drafting/README.md.
    policy: Union[
        Literal[
            "dyspec",
            "dyspec-threshold",
            "chain",
            "static",
            "specinfer",
            "sequoia",
            "expand-rerank",
            "none",
        ],
        Callable[[], Policy],
    ]
    tree_size: int
    tree_depth: int
    threshold: float
    beam_width: int
    widths: Sequence[int]
    acceptance_vector: Sequence[float]
    tree: Union[str, os.PathLike[str]]
    plain_values: bool
    sampled_children: bool
    draft_temperature: Optional[float]
    lookup: Literal["auto", "none", "text", "engine"]
    use_draft: bool
