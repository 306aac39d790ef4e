"""Stubs, pages, and what needs no engine."""

import ast
import re
from pathlib import Path

import pytest

import coppice
from coppice import _coppice
from conftest import ROOT


def test_the_version_is_the_librarys():
    text = (ROOT / "CMakeLists.txt").read_text()
    assert coppice.__version__ == re.search(r"project\(coppice VERSION ([0-9.]+)", text)[1]


def test_the_stub_is_the_module():
    stub = ast.parse((Path(coppice.__file__).parent / "_coppice.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            described = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            there = {name for name in vars(getattr(_coppice, node.name)) if name[0] != "_"}
            assert described == there, node.name
    described = {node.name for node in stub.body if hasattr(node, "name")}
    assert described == {name for name in vars(_coppice) if name[0] != "_"}


@pytest.mark.parametrize("page", ["README.md", "python/README.md"])
def test_the_pages_programs_run(page, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    assert programs
    names = {}  # a page is read from top to bottom
    for program in programs:
        exec(compile(program, page, "exec"), names)
    assert capfd.readouterr().out
