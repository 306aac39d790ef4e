"""Reads the folders that ``coppice study --out FOLDER`` writes.

::

    study = coppice.study.read("study")
    for result in study.results:
        print(result.setting["policy"], result.prompt, result.accepted_length)

Needs no engine. ``src/study/README.md`` says what the figures mean.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Union

import numpy as np

from .errors import Error

__all__ = ["Result", "Study", "Trace", "Turn", "read", "read_trace"]

FORMAT = 8  #: of study.json, which this module reads

_CHECK = re.compile(rb',"check":"([0-9a-f]{16})"\}$')


@dataclass(frozen=True)
class Turn:
    """One turn of a prompt."""

    prompt_tokens: int  #: all tokens before the new ones, BOS and earlier turns included
    prefill_tokens: int  #: of the new ones, those that came with prefill
    tokens: list[int]
    text: str
    finish_reason: str


@dataclass(frozen=True, eq=False)
class Result:
    """What one prompt brought under one setting, in one round."""

    cell: str  #: the setting's name
    setting: dict[str, str]  #: ``policy``, and by name what ``cell`` says
    prompt: str  #: its id
    round: int
    run: str  #: id of the run that made it, one of ``Study.info["runs"]``
    turns: list[Turn]
    draft_passes: int
    looked_up: int
    seconds: dict[str, float]  #: by component; their sum is the generation without loading
    nodes: dict[str, Any]  #: counts of judged nodes
    tree_sizes: np.ndarray  #: draft tokens of each step, through all turns
    accepted: np.ndarray  #: of these, the accepted ones
    kept: np.ndarray  #: tokens kept, the bonus token included
    device: str
    dtype: str

    @property
    def new_tokens(self) -> int:
        return sum(len(turn.tokens) for turn in self.turns)

    @property
    def steps(self) -> int:
        return len(self.kept)

    @property
    def accepted_length(self) -> float:
        """Tokens kept per target pass; NaN without any."""
        return float(self.kept.mean()) if self.steps else float("nan")

    @property
    def decode_seconds(self) -> float:
        """All but prefill."""
        return sum(part for name, part in self.seconds.items() if name != "prefill")


@dataclass(frozen=True)
class Study:
    """A folder's results, and what it says of them."""

    info: dict[str, Any]  #: study.json: models, options, settings, runs
    prompts: list[dict[str, Any]]  #: prompts.jsonl
    results: list[Result]


@dataclass(frozen=True, eq=False)
class Trace:
    """All nodes of all trees of one text, an array for each property."""

    cell: str
    prompt: str
    nodes: dict[str, np.ndarray]
    record: dict[str, Any]  #: everything else that its line has


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Error(f"{file}: {error.strerror}; name a folder that coppice study wrote") from error


def _objects(file: Path, check: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The whole lines with their numbers; a line that a killed run left unfinished is left out."""
    data = _read_bytes(file)
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        found = _CHECK.search(line)
        if check and (found is None or _fnv1a(line[: found.start()]) != int(found[1], 16)):
            raise Error(
                f"{file} line {number}: its checksum is not that of the line, which was changed "
                "after it was written; restore the file, or delete the line"
            )
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise Error(f"{file} line {number}: it is no JSON ({error})") from error


def _setting_of(cell: str) -> dict[str, str]:
    # A tree's path may hold blanks, and an equals sign.
    policy, _, rest = cell.partition(" ")
    names = "size|tree_depth|beam_width|threshold|widths|tree|temperature|draft-temperature|acceptance|seed"
    parts = re.split(rf"(?:^| )({names})=", rest)[1:]
    return {"policy": policy, **dict(zip(parts[::2], parts[1::2]))}


def _result_of(line: dict[str, Any]) -> Result:
    return Result(
        cell=line["cell"],
        setting=_setting_of(line["cell"]),
        prompt=line["prompt"],
        round=line["round"],
        run=line["run"],
        turns=[Turn(**turn) for turn in line["turns"]],
        draft_passes=line["draft_passes"],
        looked_up=line["looked_up"],
        seconds=line["seconds"],
        nodes=line["nodes"],
        tree_sizes=np.array(line["tree_sizes"], dtype=np.int32),
        accepted=np.array(line["accepted"], dtype=np.int32),
        kept=np.array(line["kept"], dtype=np.int32),
        device=line["device"],
        dtype=line["dtype"],
    )


def read(folder: Union[str, os.PathLike[str]], *, check: bool = True) -> Study:
    """Reads a study's folder, in the order of its results.

    ``check=False`` leaves the checksums of the lines unchecked, which is faster. Raises
    :class:`coppice.Error` that names the file and the line for anything that is wrong.
    """
    path = Path(folder)
    info = json.loads(_read_bytes(path / "study.json"))
    if info.get("format") != FORMAT:
        raise Error(
            f"{path / 'study.json'}: its format is {info.get('format')}, and this module reads "
            f"{FORMAT}; use the coppice that wrote it"
        )
    results = []
    for number, line in _objects(path / "results.jsonl", check):
        try:
            results.append(_result_of(line))
        except (KeyError, TypeError) as error:
            raise Error(f"{path / 'results.jsonl'} line {number}: it is no result ({error})") from error
    prompts = [prompt for _, prompt in _objects(path / "prompts.jsonl", False)]
    return Study(info, prompts, results)


def read_trace(file: Union[str, os.PathLike[str]]) -> Iterator[Trace]:
    """Reads a ``--trace`` file text by text: every node of every step."""
    for _, line in _objects(Path(file), False):
        nodes = {name: np.array(column) for name, column in line.pop("nodes").items()}
        yield Trace(line["cell"], line["prompt"], nodes, line)
