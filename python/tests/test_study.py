"""Folders of studies, which the command writes."""

import json

import numpy as np
import pytest

import coppice
from conftest import STORIES


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    base = tmp_path_factory.mktemp("study")
    prompts = base / "prompts.txt"
    prompts.write_text("The captain\nA little dog\n")
    command(
        "study", "--target", STORIES / "target", "--draft", STORIES / "draft", "--device", "cpu",
        "--threads", 1, "--prompts", prompts, "--out", base / "out", "--policies", "dyspec,chain",
        "--tree-sizes", "4", "--temperatures", "0,0.8", "--max-new-tokens", 16,
        "--trace", base / "trace",
    )  # fmt: skip
    return base


def test_results_are_records(folder):
    study = coppice.study.read(folder / "out")
    assert len(study.prompts) == 2 and study.info["runs"]
    settings = {tuple(sorted(result.setting.items())) for result in study.results}
    assert len(study.results) == 2 * len(settings)
    greedy = {}
    for result in study.results:
        assert result.setting["policy"] in ("none", "dyspec", "chain")
        if result.setting["policy"] != "none":
            assert result.setting["size"] == "4"
        assert result.new_tokens == 16 or result.turns[-1].finish_reason == "eos"
        assert result.tree_sizes.shape == result.accepted.shape == result.kept.shape
        assert (result.accepted <= result.tree_sizes).all()
        assert 1.0 <= result.accepted_length <= 5.0
        assert 0.0 < result.decode_seconds
        if result.setting["temperature"] == "0":
            greedy.setdefault(result.prompt, set()).add(tuple(result.turns[0].tokens))
    assert all(len(texts) == 1 for texts in greedy.values())
    assert set(greedy) == {prompt["id"] for prompt in study.prompts}


def test_a_trace_has_every_node(folder):
    study = coppice.study.read(folder / "out")
    by_name = {(result.cell, result.prompt): result for result in study.results}
    traces = list(coppice.study.read_trace(folder / "trace"))
    assert traces
    for trace in traces:
        steps = trace.nodes["step"]
        sizes = np.bincount(steps) - 1  # without the root
        assert (sizes == by_name[trace.cell, trace.prompt].tree_sizes).all()


def test_a_changed_line_is_named(folder, tmp_path):
    for name in ("study.json", "prompts.jsonl"):
        (tmp_path / name).write_bytes((folder / "out" / name).read_bytes())
    lines = (folder / "out" / "results.jsonl").read_text().splitlines(True)
    lines[1] = lines[1].replace('"round":0', '"round":1')
    (tmp_path / "results.jsonl").write_text("".join(lines))
    with pytest.raises(coppice.Error, match="results.jsonl line 2: its checksum"):
        coppice.study.read(tmp_path)
    assert coppice.study.read(tmp_path, check=False).results[1].round == 1
    (tmp_path / "results.jsonl").write_text("".join(lines[:1]) + lines[1][:40])  # torn
    assert len(coppice.study.read(tmp_path).results) == 1


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(coppice.Error, match="name a folder that coppice study wrote"):
        coppice.study.read(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(coppice.Error, match="its format is 1"):
        coppice.study.read(tmp_path)


@pytest.mark.parametrize(
    "cell, setting",
    [
        (
            "static tree=/my trees/a=b seed.json temperature=0.6 acceptance=coupled seed=3",
            {"tree": "/my trees/a=b seed.json", "temperature": "0.6", "acceptance": "coupled", "seed": "3"},
        ),
        ("none temperature=0 acceptance=rejection seed=0", {"temperature": "0", "acceptance": "rejection", "seed": "0"}),
    ],
)
def test_settings_are_read(cell, setting):
    assert coppice.study._setting_of(cell) == {"policy": cell.split()[0], **setting}
