"""The quickstart notebook runs from top to bottom in a kernel of its own."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "quickstart.ipynb"

# Leaves room for fetching and converting the model on a machine's first run.
CELL_LIMIT_S = 300


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)
    return notebook


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(out["text"] for out in cell["outputs"] if out.get("name") == "stdout")


def test_outputs_are_stripped(notebook: nbformat.NotebookNode):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_it_runs_and_shows_tokens_prefilled_ahead(notebook: nbformat.NotebookNode):
    client = NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    done = client.execute()
    code = [cell for cell in done["cells"] if cell["cell_type"] == "code"]
    assert all(out["output_type"] != "error" for cell in code for out in cell["outputs"])
    tables = [printed(cell) for cell in code if "show(state" in cell["source"]]
    assert len(tables) == 2  # after invoke and after ainvoke
    for table in tables:
        rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row.split()}
        for node in ("summarize", "title"):
            prompt, ahead, answer = map(int, rows[node])
            assert 0 < ahead < prompt
            assert answer > 0
        assert int(rows["extract"][1]) == 0
