"""Drafting policies written in Python."""

import pytest

import coppice


class TwoChains(coppice.Policy):
    """The two most promising chains."""

    def grow(self, tree, evaluated):
        tips = []
        for node in evaluated:
            for _ in range(2 if node == 0 else 1):
                if tree.room > 0 and (child := tree.draw(node)) is not None:
                    tips.append(child)
        if tree.room == 0 or tree[len(tree) - 1].depth == tree.max_depth:
            return []
        return tips


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_policy_grows_the_trees(engine, temperature):
    # Coupled acceptance: the text is that of plain decoding whatever the trees are.
    options = dict(
        temperature=temperature, acceptance="coupled", seed=5, max_new_tokens=24
    )
    plain = engine.generate("The captain", policy="none", **options)
    text = engine.generate("The captain", policy=TwoChains, tree_size=8, **options)
    assert text.tokens == plain.tokens
    assert text.used.policy == "TwoChains" and text.used.tree_size == 8
    assert text.statistics.steps < plain.statistics.steps


def test_its_tree_is_what_it_drew(engine):
    drawn = []

    class Noted(TwoChains):
        def grow(self, tree, evaluated):
            tips = super().grow(tree, evaluated)
            drawn[:] = [tree[i] for i in range(len(tree))]
            assert (tree.max_size, tree.max_depth, tree.any_is_exact) == (8, 3, True)
            return tips

    tree = engine.judge_tree("The captain", policy=Noted, tree_size=8, tree_depth=3)
    nodes = {(node.token, node.depth, node.rank) for node in drawn}
    assert nodes == set(zip(tree.token.tolist(), tree.depth.tolist(), tree.rank.tolist()))
    assert len(tree) == 7 and tree.depth.max() == 3
    assert drawn[1].path_prob == drawn[1].draft_prob > 0 and drawn[0].parent == -1


def test_a_step_may_have_no_tree(engine):
    class Never(coppice.Policy):
        def begin(self, tree):
            return False

    text = engine.generate("The captain", policy=Never, max_new_tokens=8)
    assert text.statistics.draft_passes == 0 and text.statistics.tree_size_mean == 0


def test_one_object_serves_one_generation(engine):
    made = []

    def factory():
        made.append(TwoChains())
        return made[-1]

    texts = engine.samples("The captain", 3, policy=factory, tree_size=4, max_new_tokens=8)
    assert len(texts) == len(made) == 3


class Raises(coppice.Policy):
    def grow(self, tree, evaluated):
        raise LookupError("mine")


class Begins(Raises):
    def begin(self, tree):
        raise LookupError("mine")


class Unmade(Raises):
    def __init__(self):
        raise LookupError("mine")


@pytest.mark.parametrize("policy", [Raises, Begins, Unmade])
def test_what_a_policy_raises_is_the_cause(engine, policy):
    for call in (engine.generate, engine.judge_tree, lambda *a, **o: engine.stream(*a, **o).result):
        with pytest.raises(coppice.Error, match=policy.__name__) as error:
            call("The captain", policy=policy)
        assert isinstance(error.value.__cause__, LookupError)
    assert engine.generate("The captain", max_new_tokens=2).tokens


@pytest.mark.parametrize("grown, message", [([99], "99"), (3, "grow"), ([0] * 100, "100")])
def test_broken_rules_are_named(engine, grown, message):
    class Wrong(coppice.Policy):
        def grow(self, tree, evaluated):
            return grown

    with pytest.raises(coppice.Error, match="Wrong") as error:
        engine.generate("The captain", policy=Wrong)
    assert message in str(error.value) + str(error.value.__cause__)


def test_a_tree_is_good_during_its_call(engine):
    kept = []

    class Keeps(TwoChains):
        def grow(self, tree, evaluated):
            kept.append(tree)
            return super().grow(tree, evaluated)

    engine.generate("The captain", policy=Keeps, tree_size=4, max_new_tokens=4)
    with pytest.raises(coppice.UsageError, match="good only while"):
        kept[0].room
