"""Drafting policies of one's own: how the draft's token trees grow.

::

    class TwoChains(coppice.Policy):
        def grow(self, tree, evaluated):
            tips = []
            for node in evaluated:  # first the root, 0
                for _ in range(2 if node == 0 else 1):
                    if tree.room > 0 and (child := tree.draw(node)) is not None:
                        tips.append(child)
            if tree.room == 0 or tree[len(tree) - 1].depth == tree.max_depth:
                return []
            return tips  # to be evaluated by the draft's next pass

    engine.generate("The captain", policy=TwoChains, tree_size=8)

What a policy decides does not change what the text is distributed as, if it keeps the two rules at
the top of ``src/custom_policy.h``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ._coppice import DraftNode, GrowingTree

__all__ = ["DraftNode", "GrowingTree", "Policy"]


class Policy:
    """Derive from this, and give the class, or a function that makes one, as ``policy``.

    One object serves one generation, step after step, and may learn from what it saw. The option
    ``tree_size`` is the most draft tokens of a step, ``tree_depth`` the deepest depth. The engine
    calls the policy while it is locked: a policy must not use the engine. What it raises ends the
    generation with an :class:`coppice.Error` whose ``__cause__`` is that exception.
    """

    def begin(self, tree: GrowingTree) -> bool:
        """Begins a step. ``False``: without a tree, and without a pass of the draft."""
        return True

    def grow(self, tree: GrowingTree, evaluated: list[int]) -> Iterable[int]:
        """One round, after a pass of the draft has evaluated the nodes ``evaluated``.

        Draws children, and returns the nodes that the next pass is to evaluate; none: the tree is
        finished. Each must be in the tree, of a depth below ``tree.max_depth``, and not evaluated
        yet.
        """
        raise NotImplementedError
