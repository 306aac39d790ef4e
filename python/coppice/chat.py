"""Conversations as a model reads them."""

from __future__ import annotations

import json
import os
from typing import Any, Optional, Sequence, Union

from . import _coppice
from .engine import Engine

__all__ = ["Chat"]

Messages = Union[str, Sequence[dict[str, Any]]]  #: as in OpenAI's API; a text is JSON


def _json(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


class Chat:
    """A model's chat template, in a sandbox.

    What messages, tools and values say never becomes a special token, however it is spelt. Raises
    :class:`coppice.Error` for a model without a template: none is guessed. ``template_name`` is one
    of those that have names.

    ::

        chat = coppice.Chat("models/stories/target")
        text = engine.generate(chat.tokens(engine, [{"role": "user", "content": "Hello"}]))
    """

    def __init__(
        self, model: Union[str, os.PathLike[str]], template_name: Optional[str] = None
    ) -> None:
        self._native = _coppice.Chat.of_model(os.fspath(model), template_name)

    @classmethod
    def from_source(cls, jinja: str, model: Union[str, os.PathLike[str]]) -> Chat:
        """A template of one's own, with the special tokens of a model."""
        chat = cls.__new__(cls)
        chat._native = _coppice.Chat.of_source(jinja, os.fspath(model))
        return chat

    def tokens(
        self,
        engine: Engine,
        messages: Messages,
        *,
        tools: Optional[Messages] = None,
        values: Optional[dict[str, Any]] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """A conversation in the engine's tokens, which are a prompt.

        ``values`` are names for the template, such as ``enable_thinking``.
        ``continue_final_message`` ends with the last message, an assistant's, which the model is
        to go on with.
        """
        given = _given(messages, tools, values, add_generation_prompt, continue_final_message)
        return self._native.tokens(engine._native, given)

    def text(
        self,
        messages: Messages,
        *,
        tools: Optional[Messages] = None,
        values: Optional[dict[str, Any]] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """The same as text."""
        return self._native.text(
            _given(messages, tools, values, add_generation_prompt, continue_final_message)
        )

    def takes(self, name: str) -> bool:
        """Whether the template reads such a name."""
        return self._native.takes(name)

    @property
    def takes_tools(self) -> bool:
        return self.takes("tools")

    @property
    def source(self) -> str:
        """The template's Jinja."""
        return self._native.source()


def _given(
    messages: Messages,
    tools: Optional[Messages],
    values: Optional[dict[str, Any]],
    add_generation_prompt: bool,
    continue_final_message: bool,
) -> dict[str, Any]:
    return {
        "messages": _json(messages),
        "tools": _json(tools),
        "values": _json(values),
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
    }
