"""coppice: speculative decoding with dynamic token trees.

A draft model proposes a tree of tokens, the target model judges the whole tree in one pass, and the
text is distributed exactly as the target alone would have written it::

    import coppice

    engine = coppice.Engine("models/stories/target", "models/stories/draft")
    for piece in engine.stream("Once upon a time", temperature=0.8):
        print(piece.text, end="", flush=True)
"""

from . import study
from ._coppice import version as _version
from .chat import Chat
from .engine import Constraint, Engine, Prefix, Request, Sequence, Stream
from .errors import Error, UsageError
from .policy import DraftNode, GrowingTree, Policy
from .results import (
    CacheStatistics,
    EngineStatistics,
    Generation,
    LayerPlacement,
    Outcome,
    Piece,
    Seconds,
    Statistics,
    TokenLogprob,
    Tree,
    Used,
)

__version__ = _version()

__all__ = [
    "CacheStatistics",
    "Chat",
    "Constraint",
    "DraftNode",
    "Engine",
    "EngineStatistics",
    "Error",
    "Generation",
    "GrowingTree",
    "LayerPlacement",
    "Outcome",
    "Piece",
    "Policy",
    "Prefix",
    "Request",
    "Seconds",
    "Sequence",
    "Statistics",
    "Stream",
    "TokenLogprob",
    "Tree",
    "UsageError",
    "Used",
    "study",
]
