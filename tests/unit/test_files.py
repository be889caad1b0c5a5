"""Files written as a whole, through links, and never in the place of what is no file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from grape_lc.files import is_special, write_whole


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_the_old_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("one", "two ñ"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["a.json"]


def test_a_shared_file_has_the_usual_mode(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    write_whole(tmp_path / "a", "x", shared=True)
    assert (tmp_path / "a").stat().st_mode == usual.stat().st_mode


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(folder / "target.json")
    for text in ("new", "old"):  # a link into nothing, and one to a file
        write_whole(link, text)
        assert link.is_symlink()
        assert (folder / "target.json").read_text() == text
    assert names(folder) == ["target.json"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_special(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "through it")
    reader.join(10)
    assert got == ["through it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_stays_one() -> None:
    write_whole("/dev/null", "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.fixture
def closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which no file can be made; for root too, whom permissions do not stop."""

    def denied(*args: object, **options: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("grape_lc.files.tempfile.NamedTemporaryFile", denied)
    return tmp_path


def test_a_file_is_overwritten_where_its_folder_is_closed(closed_folder: Path) -> None:
    path = closed_folder / "a.json"
    path.write_text("an old and longer text")
    path.chmod(0o664)
    write_whole(path, "new ñ", shared=True)
    assert path.read_text(encoding="utf-8") == "new ñ"
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800", shared=True)
    assert path.read_text(encoding="utf-8") == "new ñ"
    write_whole(path, "secret")
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_file_has_no_place_in_a_closed_folder(closed_folder: Path) -> None:
    with pytest.raises(PermissionError):
        write_whole(closed_folder / "a.json", "x")
    assert names(closed_folder) == []


def test_nothing_is_left_where_replacing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Path, target: object) -> Path:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="no"):
        write_whole(tmp_path / "a", "x")
    assert names(tmp_path) == []


def test_nor_where_the_text_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a", "\ud800")
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["a\0b", "\ud800.json"])
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError, match=r"null byte|surrogates"):
        write_whole(path, "x")
