"""LangChain's own unit tests of a chat model. No engine is started."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_tests.unit_tests import ChatModelUnitTests

from grape_lc import ChatGrape

# The package has a function of the same name.
load = importlib.import_module("langchain_core.load.load")


class TestChatGrapeStandard(ChatModelUnitTests):
    @pytest.fixture(autouse=True)
    def _listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """LangChain revives classes of its own lists only, unless told which (allowed_objects).

        The suite does not tell, so the class stands in the list here.
        """
        allowed = {tuple(ChatGrape.lc_id())}
        monkeypatch.setitem(load._default_class_paths_cache, "all", allowed)

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatGrape

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "org/model", "dtype": "float32"}

    @property
    def supports_json_mode(self) -> bool:
        return True
