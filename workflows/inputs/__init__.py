"""What the example agents work on, and its loaders: problems, documents, questions,
tasks.
"""

from __future__ import annotations

from .documents import Document, load_documents, split_document
from .problems import Problem, ProblemTest, load_problem_tests, load_problems
from .questions import Passage, Question, load_passages, load_questions
from .tasks import Task, load_tasks

__all__ = [
    "Document",
    "Passage",
    "Problem",
    "ProblemTest",
    "Question",
    "Task",
    "load_documents",
    "load_passages",
    "load_problem_tests",
    "load_problems",
    "load_questions",
    "load_tasks",
    "split_document",
]
