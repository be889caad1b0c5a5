from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from grape_lc.bench.answers import contains
from grape_lc.workflow_package import load_workflow
from tests.unit.workflows.recorder import Recorder

search = load_workflow("search")
ROLES = ["query_rewriter", "searcher", "answer_generator", "safety_checker"]
RECORDER = "tests.unit.workflows.recorder:Recorder"


class Shelf(BaseRetriever):
    """Finds what is written for a query; keeps the queries."""

    books: dict[str, list[str]]
    asked: list[str] = []  # noqa: RUF012 - pydantic copies it

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.asked.append(query)
        return [
            Document(text, metadata={"title": f"T{text}"}) for text in self.books.get(query, [])
        ]


def test_each_role_reads_what_it_needs_and_no_more():
    shelf = Shelf(books={"q1": ["a", "b", "c"], "q2": ["b", "d"], "<question>": ["a", "e", "f"]})
    llm = Recorder(responses=["q1\n\n q2 \nq3", "<notes>", "<answer>", "<verdict>"])
    graph = search.build(llm, retriever=shelf)
    state = graph.invoke({"question": "<question>"})
    assert [name for name in graph.nodes if name != "__start__"] == ROLES
    assert shelf.asked == ["q1", "q2", "<question>"]
    passages = "[1] Ta\na\n\n[2] Tb\nb\n\n[3] Td\nd\n\n[4] Te\ne\n\n[5] Tc\nc"
    assert state == {
        "question": "<question>",
        "queries": "q1\n\n q2 \nq3",
        "passages": passages,
        "notes": "<notes>",
        "answer": "<answer>",
        "verdict": "<verdict>",
    }
    systems, messages = zip(*llm.prompts, strict=True)
    assert systems == tuple(getattr(search, role.upper()) for role in ROLES)
    assert all("<question>" in message for message in messages)
    names = ["q1", passages, "<notes>", "<answer>"]
    reads = [[name for name in names if name in message] for message in messages]
    assert reads == [[], [passages], ["<notes>"], ["<notes>", "<answer>"]]


def test_nothing_found_is_said():
    llm = Recorder()
    assert (
        search.build(llm, retriever=Shelf(books={})).invoke({"question": "x"})["passages"] == "none"
    )


def test_limits_are_bound_by_role():
    llm = Recorder()
    search.build(llm, retriever=Shelf(books={}), max_tokens={"searcher": 9}).invoke(
        {"question": "x"}
    )
    assert [options for _, options in llm.seen] == [{}, {"max_tokens": 9}, {}, {}]


def test_system_prompts_have_the_length_of_real_ones():
    for role in ROLES:
        assert 200 <= len(getattr(search, role.upper()).split()) <= 400


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("Answer: break\nIt ends the loop [1].", "break"),
        ("\n**Answer:** `break`\nBecause.", "`break`"),
        ("Well.\nanswer: 2 : 1", "2 : 1"),
        ("The answer is: x", "x"),
        ("An answer to all: no\nAnswer: y", "y"),
        ("break", "break"),
        ("\n\n", ""),
    ],
)
def test_the_short_answer_is_the_line_that_says_so(written: str, answer: str):
    assert search.short_answer(written) == answer


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4))
def test_passages_come_by_turns_and_once(found: list[list[int]]):
    best = search.best_of([[Document(str(n)) for n in numbers] for numbers in found])
    texts = [document.page_content for document in best]
    distinct = {str(n) for numbers in found for n in numbers}
    assert len(texts) == len(set(texts)) == min(len(distinct), search.MOST_PASSAGES)
    firsts = list(dict.fromkeys(str(numbers[0]) for numbers in found if numbers))
    assert texts[: len(firsts)] == firsts


def retriever(*texts: str, limit: int = 4) -> Any:
    passages = [("", text) for text in texts]
    return search.PassageRetriever.of(passages, limit)


def test_the_retriever_ranks_by_words_in_common_and_breaks_ties_by_order():
    shelf = retriever("cats and dogs", "the loop ends", "a loop", "a loop", limit=3)
    found = [document.page_content for document in shelf.invoke("which LOOP ends?")]
    assert found == ["the loop ends", "a loop", "a loop"]
    assert [d.page_content for d in shelf.invoke("dogs")] == ["cats and dogs"]
    assert shelf.invoke("of the") == shelf.invoke("zebra") == shelf.invoke("") == []


def test_titles_are_searched_too():
    shelf = search.PassageRetriever.of([("Loops", "They end."), ("Classes", "They end.")])
    [found] = shelf.invoke("classes")
    assert found.metadata["title"] == "Classes"


def test_no_passages_and_no_library_are_errors():
    with pytest.raises(ValueError, match="no passage"):
        retriever()
    # In a process of its own: the library may be loaded here.
    code = (
        "import sys; sys.modules['bm25s'] = None\n"
        "from workflows import search\n"
        "try: search.build(None)\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert "grape-lc[workflows]" in done.stdout


def test_most_built_in_questions_find_their_answer_among_the_passages_shown():
    """The question alone as query: what a rewriter that misses the point leaves."""
    shelf = search.PassageRetriever.of(search.load_passages())
    questions = search.load_questions()
    hits = 0
    for question in questions:
        shown = search.best_of([shelf.invoke(question.text)])
        hits += any(contains(document.page_content, question.answer) for document in shown)
    assert hits >= 0.75 * len(questions)


def test_the_command_prints_every_text_and_the_expected_answer(
    capsys: pytest.CaptureFixture[str],
):
    search.main(["--llm", RECORDER, "--question", "1"])
    out = capsys.readouterr().out
    question = search.load_questions()[1]
    assert question.text in out
    for role, text in zip(ROLES, ["<1>", "[1] ", "<3>", "<4>"], strict=True):
        assert f"## {role}\n\n{text}" in out
    assert out.endswith(f"## expected\n\n{question.answer}\n")


def test_the_command_names_a_missing_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(SystemExit) as stop:
        search.main([])
    assert stop.value.code == 2
    assert "grape-lc[workflows]" in capsys.readouterr().err


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]):
    for arguments, said in (
        (["--question", "999"], "there are questions 0 to"),
        (["--data", "missing"], "missing"),
    ):
        with pytest.raises(SystemExit) as stop:
            search.main(arguments)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
