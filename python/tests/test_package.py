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
            described = {name for name in described if name[0] != "_"}
            there = {name for name in vars(getattr(_coppice, node.name)) if name[0] != "_"}
            assert described == there, node.name
    described = {node.name for node in stub.body if hasattr(node, "name")}
    assert described == {name for name in vars(_coppice) if name[0] != "_"}


def test_everything_public_says_what_it_is():
    for name in coppice.__all__:
        one = getattr(coppice, name)
        assert (one.__doc__ or "").strip(), name
        for member, value in vars(one).items():
            if member[0] != "_" and callable(getattr(value, "__func__", value)):
                assert (getattr(value, "__doc__", None) or "").strip(), f"{name}.{member}"
    for name in coppice.study.__all__:
        assert (getattr(coppice.study, name).__doc__ or "").strip(), name


@pytest.mark.parametrize("page", ["README.md", "python/README.md"])
def test_the_pages_programs_run(page, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    assert programs
    names = {}  # a page is read from top to bottom
    for program in programs:
        exec(compile(program, page, "exec"), names)
    assert capfd.readouterr().out
