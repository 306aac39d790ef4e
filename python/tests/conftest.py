import json
import os
import subprocess
from pathlib import Path

import pytest

import coppice

ROOT = Path(__file__).resolve().parents[2]
STORIES = ROOT / "models" / "stories"

#: Texts that do not depend on time or company.
REPEATABLE = {"acceptance": "coupled", "tree_size": 8, "seed": 5, "max_new_tokens": 24}


@pytest.fixture(scope="session")
def engine():
    return coppice.Engine(STORIES / "target", STORIES / "draft", device="cpu", threads=1)


@pytest.fixture(scope="session")
def command():
    """Runs the command, and returns what it prints."""
    path = os.environ.get("COPPICE_COMMAND", str(ROOT / "build" / "coppice"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built; COPPICE_COMMAND names the command")

    def run(*words):
        return subprocess.run(
            [path, *map(str, words)], check=True, capture_output=True, text=True
        ).stdout

    return run


@pytest.fixture(scope="session")
def generated(command):
    """What ``coppice generate`` says of one text."""

    def run(prompt, *words):
        models = ("--target", STORIES / "target", "--draft", STORIES / "draft")
        common = ("--device", "cpu", "--threads", 1, "--format", "json")
        return json.loads(command("generate", *models, *common, "--prompt", prompt, *words))

    return run
