"""LangChain's own integration tests of a chat model, on the embedded model in fp32."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import ChatModelIntegrationTests

from grape_lc import ChatGrape, GrapeEngine


class TestChatGrapeStandard(ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _serve(self, engine: GrapeEngine) -> None:
        type(self).served = engine

    served: GrapeEngine

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatGrape

    @property
    def chat_model_params(self) -> dict[str, Any]:
        # Greedy, so that every run is the same. The penalty, on what was said and not on the
        # prompt, keeps a model of this size from saying one thing without end inside of a text.
        return {
            "engine": self.served,
            "temperature": 0,
            "frequency_penalty": 0.5,
            "max_tokens": 160,
        }

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        """The only model that this process has loaded."""
        return self.served.model_name

    @pytest.mark.xfail(reason="a model of 135M parameters does not call a tool of its own accord")
    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)
