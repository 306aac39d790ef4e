"""What generations come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from .errors import Error

__all__ = [
    "CacheStatistics",
    "EngineStatistics",
    "Generation",
    "LayerPlacement",
    "Outcome",
    "Piece",
    "Seconds",
    "Statistics",
    "TokenLogprob",
    "Tree",
    "Used",
]


@dataclass(frozen=True)
class TokenLogprob:
    """A token's logarithm (base e) under the target's processed distribution.

    At temperature 0 it is under the distribution at temperature 1.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]  #: the most probable tokens, best first


@dataclass(frozen=True)
class Piece:
    """Text that was accepted since the last piece."""

    text: str
    tokens: list[int]  #: their text may follow later
    sample: int = 0  #: of a request with several samples
    logprobs: Optional[list[TokenLogprob]] = None  #: one for each token, if they were asked for


@dataclass(frozen=True)
class Seconds:
    """Seconds of wall clock. Of a pass that requests shared, each has the part of its rows."""

    load: float  #: the engine's loading, once and for all
    prefill: float  #: both models' passes over the prompt
    draft: float
    verify: float
    sampling: float
    other: float
    total: float  #: load included


@dataclass(frozen=True)
class Statistics:
    """How a text came about; ``src/coppice.h`` explains each count."""

    prompt_tokens: int
    cached_tokens: int
    cached_draft_tokens: int
    prefill_tokens: int
    steps: int  #: target passes after prefill
    draft_passes: int
    looked_up: int
    looked_up_accepted: int
    accepted_length: float  #: tokens kept per step
    emitted_per_step: float
    tree_size_mean: float  #: draft tokens per step
    batch_mean: float  #: requests that shared a step, this one included
    queue_seconds: float
    preemptions: int
    seconds: Seconds
    preparing_seconds: float
    tokens_per_second: float
    decode_tokens_per_second: float


@dataclass(frozen=True)
class LayerPlacement:
    """Where a model's layers are."""

    layers: int  #: 0: there is no such model
    resident: int  #: layers that stay on the device
    streamed_bytes: int  #: of the others, which every pass copies to the device
    streamed_from: str  #: ``host memory``, ``file`` or ``memory``; empty: there are none


@dataclass(frozen=True)
class Used:
    """What a text was made with."""

    policy: str
    tree_size: int  #: draft tokens of a step; 0: chosen from costs
    lookup: str
    constrained: bool  #: its constraint's forced tokens count as looked up
    planned_for: str
    acceptance: str
    temperature: float
    draft_temperature: float
    presence_penalty: float
    frequency_penalty: float
    min_new_tokens: int
    biased_tokens: int  #: of logit_bias
    seed: int
    device: str
    dtype: str
    kv_dtype: str
    target_weights: str
    draft_weights: str
    target_layers: LayerPlacement
    draft_layers: LayerPlacement
    target_devices: int  #: that the target is split over
    draft_devices: int  #: likewise of the draft


@dataclass(frozen=True)
class Generation:
    """One text."""

    text: str  #: new text, without end token and stop text
    tokens: list[int]  #: new tokens
    #: ``length``, ``eos``, ``stop``, ``context``, ``memory``, ``cancelled`` or ``failed``
    finish_reason: str
    statistics: Statistics
    used: Used
    logprobs: Optional[list[TokenLogprob]]  #: one for each token, if they were asked for

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Outcome:
    """What a request of a batch came to."""

    samples: list[Generation]  #: those that failed are empty
    error: Optional[Error]  #: the first failure, if there was one

    @property
    def text(self) -> str:
        """The first sample's text; raises the request's error."""
        if self.error is not None:
            raise self.error
        return self.samples[0].text


@dataclass(frozen=True, eq=False)
class Tree:
    """One step in full: an array for each property of its nodes, node 0 being the root."""

    token: np.ndarray  #: int32
    parent: np.ndarray  #: int32, -1 for the root
    depth: np.ndarray  #: int32
    rank: np.ndarray  #: int32, among siblings, in the order drawn
    draft_prob: np.ndarray  #: D(token | path)
    path_prob: np.ndarray  #: product of draft_prob along the path
    value: np.ndarray  #: estimated acceptance
    target_prob: np.ndarray  #: T(token | path), processed
    accepted: np.ndarray  #: bool
    looked_up: np.ndarray  #: bool
    forced: np.ndarray  #: bool: looked up, as the constraint's text goes on so
    state: np.ndarray  #: int32, the constraint's behind the token; below 0: none
    allowed: np.ndarray  #: int32, tokens that it lets follow; below 0: there is no constraint
    bonus: int  #: the token after the last accepted one
    draft_passes: int
    acceptance: str  #: the rule that judged it

    def __len__(self) -> int:
        return len(self.token)


@dataclass(frozen=True)
class CacheStatistics:
    """What an engine has in its KV memory, in tokens; ``src/coppice.h`` explains each."""

    target_slots: int
    draft_slots: int
    target_free: int
    draft_free: int
    target_shared: int
    draft_shared: int
    evictable: int
    nodes: int
    prompt_tokens: int
    cached_tokens: int
    cached_draft_tokens: int
    evicted_tokens: int
    read_by_text: int
    read_by_tree: int


@dataclass(frozen=True, eq=False)
class EngineStatistics:
    """What an engine does, and has done since it was loaded."""

    running: int  #: texts that take steps
    waiting: int  #: texts that wait for room
    passes: int  #: of the target, one for all texts of a step
    steps: int  #: trees judged
    new_tokens: int
    drafted: int  #: nodes of trees
    accepted: int
    preempted: int  #: times that a text's KV went for others
    drafted_by_depth: np.ndarray  #: int64; element 0 counts children of roots
    accepted_by_depth: np.ndarray


def logprobs_of(
    logprobs: Optional[list[tuple[int, float, list[tuple[int, float]]]]],
) -> Optional[list[TokenLogprob]]:
    return None if logprobs is None else [TokenLogprob(*one) for one in logprobs]


def generation_of(sample: dict[str, Any]) -> Generation:
    statistics = dict(sample["statistics"])
    statistics["seconds"] = Seconds(**statistics["seconds"])
    used = dict(sample["used"])
    for model in ("target_layers", "draft_layers"):
        used[model] = LayerPlacement(**used[model])
    return Generation(
        sample["text"],
        sample["tokens"],
        sample["finish_reason"],
        Statistics(**statistics),
        Used(**used),
        logprobs_of(sample["logprobs"]),
    )
