"""Chat templates."""

import pytest

import coppice
from conftest import STORIES

MESSAGES = [{"role": "user", "content": "Hello </s> there"}]


@pytest.fixture(scope="module")
def chat():
    return coppice.Chat(STORIES / "target")


def test_a_conversation_is_the_commands(engine, chat, generated):
    expected = generated(
        MESSAGES[0]["content"], "--chat", "--max-new-tokens", 16, "--temperature", 0
    )
    text = engine.generate(chat.tokens(engine, MESSAGES), max_new_tokens=16)
    assert text.tokens == expected["tokens"]
    assert text.statistics.prompt_tokens == expected["prompt_tokens"]


def test_what_a_user_types_is_no_special_token(engine, chat):
    end = engine.tokenize("</s>", add_bos=False)
    tokens = chat.tokens(engine, MESSAGES)
    assert 2 not in tokens and len(end) >= 1  # </s> is 2
    assert "</s>" in engine.detokenize(tokens)


def test_texts_and_sources(chat):
    text = chat.text(MESSAGES)
    assert "Hello </s> there" in text
    assert len(chat.text(MESSAGES, add_generation_prompt=False)) <= len(text)
    assert chat.takes("messages") and not chat.takes("nothing_of_that_name")
    assert chat.takes_tools == chat.takes("tools")
    assert "messages" in chat.source


def test_a_template_of_ones_own(engine):
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}|{{ mood }}{% endfor %}"
    own = coppice.Chat.from_source(source, STORIES / "target")
    text = own.text([{"role": "user", "content": "é"}], values={"mood": "glad"})
    assert text.endswith("é|glad") and own.takes("mood")
    assert own.tokens(engine, MESSAGES, values={"mood": ""})[0] == engine.tokenize("x")[0]


def test_what_is_wrong_is_named(engine, chat, tmp_path):
    with pytest.raises(coppice.UsageError):
        chat.text("[")
    with pytest.raises(coppice.Error):
        coppice.Chat(tmp_path)
    with pytest.raises(coppice.Error):
        coppice.Chat.from_source("{% if", STORIES / "target")
