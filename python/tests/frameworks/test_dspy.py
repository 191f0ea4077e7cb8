"""DSPy's programs with the retrieval module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest
from conftest import TEXTS
from dspy.utils import DummyLM

from plaid_ir import Index
from plaid_ir.dspy import PlaidRetriever


class Program(dspy.Module):
    def __init__(self, index: Index) -> None:
        super().__init__()
        self.retrieve = PlaidRetriever(index, k=2, options={"where": {"year": {"$gte": 2020}}})
        self.answer = dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> Any:
        found = self.retrieve(question)
        return dspy.Prediction(found=found, answer=self.answer(context=found.passages, question=question).answer)


def test_retrieval(filled: Index) -> None:
    retrieve = PlaidRetriever(filled, k=1)
    found = retrieve(TEXTS[1])
    assert (found.passages, found.ids, found.metadata) == ([TEXTS[1]], ["dog"], [{"year": 2020, "ptex.fullbanner": "TeX 1"}])
    assert found.scores[0] > 0
    assert set(retrieve("animals", k=9).ids) == {"cat", "dog", "bird"}
    assert retrieve("animals", k=9, where="year < 2020").ids == ["cat"]
    with pytest.raises(ValueError, match="unknown field"):
        retrieve("animals", where={"yeer": 1})


def test_an_empty_index(index: Index) -> None:
    assert PlaidRetriever(index)("cats").passages == []


async def test_async(filled: Index) -> None:
    assert (await PlaidRetriever(filled, k=1).acall(TEXTS[1])).ids == ["dog"]


def test_a_program(filled: Index, tmp_path: Path) -> None:
    program = Program(filled)
    with dspy.context(lm=DummyLM([{"answer": "at night"}] * 9)):
        said = program(question="when do dogs bark?")
        assert said.answer == "at night" and set(said.found.ids) == {"dog", "bird"}
        copy = program.deepcopy()
        assert copy.retrieve is not program.retrieve and copy.retrieve.index is filled
        copy.retrieve.k = 1
        copy.save(str(tmp_path / "program.json"))
        program.load(str(tmp_path / "program.json"))
        assert len(program(question="when do dogs bark?").found.ids) == 1
        optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=1, max_labeled_demos=1)
        train = [dspy.Example(question="when do dogs bark?", answer="at night").with_inputs("question")]
        assert optimizer.compile(program, trainset=train)(question="who sings?").answer == "at night"


def test_a_tool(filled: Index) -> None:
    retrieve = PlaidRetriever(filled, k=1)

    def find_passages(query: str) -> list[str]:
        """Finds passages about a topic."""
        return retrieve(query).passages  # type: ignore[no-any-return]

    steps = [
        {"next_thought": "look", "next_tool_name": "find_passages", "next_tool_args": {"query": TEXTS[1]}},
        {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}},
        {"reasoning": "it says so", "answer": "at night"},
    ]
    with dspy.context(lm=DummyLM(steps)):
        said = dspy.ReAct("question -> answer", tools=[find_passages])(question="when do dogs bark?")
    assert said.answer == "at night" and TEXTS[1] in str(said.trajectory["observation_0"])
