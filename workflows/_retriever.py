"""A retriever that ranks passages by BM25, for the example agent that searches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, PrivateAttr

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun

    from .inputs import Passage

STOP_WORDS = "en"


class PassageRetriever(BaseRetriever):
    """Finds the passages that fit a query best; a LangChain retriever like any other.

    limit: passages found at most for a query. Passages that share no word with the query are
        not found. Of equal ones the earlier comes first.

    Needs the library bm25s: the extra ``workflows`` of this package. Raises
    ModuleNotFoundError without it, and ValueError when there is no passage.
    """

    passages: list[Document]
    limit: int = Field(default=4, ge=1)
    _index: Any = PrivateAttr()

    @classmethod
    def of(cls, passages: Iterable[Passage], limit: int = 4) -> Self:
        """A retriever of titled passages."""
        documents = [Document(text, metadata={"title": title}) for title, text in passages]
        return cls(passages=documents, limit=limit)

    def model_post_init(self, context: Any, /) -> None:
        """Count the words of all passages."""
        if not self.passages:
            raise ValueError("there is no passage to search")
        bm25s = _bm25s()
        self._index = bm25s.BM25()
        texts = [
            f"{passage.metadata.get('title', '')}\n{passage.page_content}"
            for passage in self.passages
        ]
        self._index.index(_words(texts), show_progress=False)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        words = _words([query])[0]
        if not words:
            return []
        scores = self._index.get_scores(words)
        ranked = sorted(range(len(self.passages)), key=lambda index: (-scores[index], index))
        return [self.passages[index] for index in ranked[: self.limit] if scores[index] > 0]


def _words(texts: list[str]) -> list[list[str]]:
    """Words of two letters at least, in lower case, without those that are in every text."""
    words: list[list[str]] = _bm25s().tokenize(
        texts, stopwords=STOP_WORDS, return_ids=False, show_progress=False
    )
    return words


def _bm25s() -> Any:
    try:
        import bm25s  # late: the other examples do without it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}; the search example needs bm25s: pip install 'grape-lc[workflows]'",
            name=error.name,
        ) from error
    return bm25s
