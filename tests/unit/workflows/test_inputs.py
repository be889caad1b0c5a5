from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grape_lc.bench.answers import contains
from grape_lc.workflow_package import load_workflow

load_workflow("code")
from grape_lc._workflows import inputs  # type: ignore[import-not-found]  # noqa: E402


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# -- problems -------------------------------------------------------------------------------------


def test_the_problems_are_many_and_of_the_stated_size():
    problems = inputs.load_problems()
    assert len(problems) >= 24
    assert len({problem.id for problem in problems}) == len(problems)
    for problem in problems:
        assert 60 <= len(problem.text.split()) <= 250, problem.id
        assert "xample" in problem.text, problem.id


def test_problems_are_read_from_files_and_folders(tmp_path: Path):
    (tmp_path / "b.jsonl").write_text('{"question_id": 7, "question_content": "B"}\n\n')
    (tmp_path / "a.jsonl").write_text(
        '{"question_content": "A", "question_title": "T"}\n{"other": 1}\n[1]\n'
    )
    (tmp_path / "notes.txt").write_text("not read")
    assert inputs.load_problems(tmp_path) == [("a/1", "T", "A"), ("7", "7", "B")]
    assert inputs.load_problems(str(tmp_path / "b.jsonl")) == [("7", "7", "B")]


def test_public_tests_are_read_by_problem(tmp_path: Path):
    source = write(
        tmp_path / "p.jsonl",
        {"id": "io", "question_content": "A", "public_test_cases": [{"input": "1", "output": "2"}]},
        {
            "id": "function",
            "question_content": "B",
            "public_test_cases": [
                {"input": "{}", "output": "3", "function": "f"},
                {"input": "", "output": "", "function": "g", "test_code": "def check(c): ..."},
            ],
        },
        {"id": "none", "question_content": "C"},
    )
    assert inputs.load_problem_tests(source) == {
        "io": [("1", "2", None, None)],
        "function": [("{}", "3", "f", None), ("", "", "g", "def check(c): ...")],
    }


# -- documents ------------------------------------------------------------------------------------


def test_the_documents_are_long_chapters_of_pythons_help():
    documents = inputs.load_documents()
    assert len(documents) >= 12
    assert len({document.id for document in documents}) == len(documents)
    assert all(len(document.text) > 5000 for document in documents)
    debugger = next(document for document in documents if document.id == "debugger")
    assert "pdb" in debugger.title
    assert "breakpoint" in debugger.text


def test_documents_are_read_from_lines_with_a_text(tmp_path: Path):
    source = write(
        tmp_path / "papers.jsonl",
        {"id": "1", "title": "T", "text": " body \n"},
        {"text": "no name"},
        {"question": "no text"},
    )
    expected = [("1", "T", "body"), ("papers/2", "papers/2", "no name")]
    assert inputs.load_documents(source) == inputs.load_documents(tmp_path) == expected
    assert [d.text for d in inputs.load_documents(source, longest=5)] == ["body", "no"]
    assert [d.text for d in inputs.load_documents(source, longest=1)] == ["b", "n"]
    with pytest.raises(ValueError, match="longest=0"):
        inputs.load_documents(longest=0)


texts = st.text("ab. \n", max_size=120) | st.text(max_size=80)


@given(texts, st.integers(1, 12))
@example("a. b. c. d", 3)
@example("a\n\n b", 2)
def test_the_parts_of_a_text_are_the_text(text: str, count: int):
    if count > len(text.split()):
        with pytest.raises(ValueError, match="cannot be cut"):
            inputs.split_document(text, count)
        return
    parts = inputs.split_document(text, count)
    assert len(parts) == count
    assert all(part and part == part.strip() for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert [word for part in parts for word in part.split()] == text.split()


def test_parts_are_of_about_one_length_and_end_with_paragraphs_where_they_can():
    paragraphs = [f"{'word ' * 40}end {n}." for n in range(24)]
    for count in (2, 3, 4, 6):
        parts = inputs.split_document("\n\n".join(paragraphs), count)
        assert all(re.search(r"end \d+\.$", part) for part in parts)
        assert {len(part.split("\n\n")) for part in parts} == {24 // count}
    for document in inputs.load_documents():
        lengths = [len(part) for part in inputs.split_document(document.text, 4)]
        assert max(lengths) < 2 * len(document.text) / 4


@pytest.mark.parametrize("count", [0, -1, 3])
def test_a_text_is_not_cut_into_more_parts_than_words(count: int):
    with pytest.raises(ValueError, match=f"2 words cannot be cut into {count} parts"):
        inputs.split_document("two words", count)


# -- questions ------------------------------------------------------------------------------------


def test_the_questions_are_many_and_answered_in_the_passages():
    questions = inputs.load_questions()
    passages = inputs.load_passages()
    assert len(questions) >= 24
    assert len({question.id for question in questions}) == len(questions)
    for question in questions:
        assert question.text.endswith("?")
        assert not contains(question.text, question.answer), question.id
        assert any(contains(passage.text, question.answer) for passage in passages), question.id


def test_passages_are_of_a_size_to_show_several_of_them():
    passages = inputs.load_passages()
    assert len(passages) > 200
    assert len({passage.text for passage in passages}) == len(passages)
    assert all(len(passage.text) < 2000 for passage in passages)
    assert all(passage.title and passage.text == passage.text.strip() for passage in passages)


def test_questions_and_passages_are_read_as_hotpotqa_has_them(tmp_path: Path):
    shared = {"title": "A", "text": "a"}
    source = write(
        tmp_path / "hotpotqa.jsonl",
        {"id": "1", "question": "Q?", "answer": "yes", "paragraphs": [shared]},
        {"question": "R?", "paragraphs": [{"title": "B", "text": "b"}, shared]},
    )
    write(tmp_path / "livecode.jsonl", {"question_content": "no question"})
    assert inputs.load_questions(tmp_path) == [("1", "Q?", "yes"), ("hotpotqa/2", "R?", None)]
    assert inputs.load_passages(source) == [("A", "a"), ("B", "b")]


# -- all of them ----------------------------------------------------------------------------------

LOADERS: list[tuple[Callable[..., Any], str]] = [
    (inputs.load_problems, "question_content"),
    (inputs.load_problem_tests, "question_content"),
    (inputs.load_documents, "text"),
    (inputs.load_questions, "question"),
    (inputs.load_passages, "paragraphs"),
]


@pytest.mark.parametrize(("load", "field"), LOADERS)
def test_unusable_files_are_named(load: Callable[..., Any], field: str, tmp_path: Path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({field: "A"}) + '\n{"question')
    with pytest.raises(ValueError, match="line 2"):
        load(broken)
    with pytest.raises(FileNotFoundError, match="missing"):
        load(tmp_path / "missing")
    broken.write_text('{"other": "A"}')
    with pytest.raises(ValueError, match=f"{field} in .*broken"):
        load(tmp_path)
