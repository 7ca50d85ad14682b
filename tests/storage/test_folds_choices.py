"""Choices: of the notes of one name the newest counts."""

from __future__ import annotations

from callboard.actors.state import AgentState
from callboard.storage.events import LogForked, Note
from callboard.storage.folds import Choices


def chosen(*notes: Note) -> Choices:
    fold = Choices()
    for seq, note in enumerate(notes):
        fold.apply(seq, 0, note)
    return fold


def test_the_newest_choice_of_a_name_counts() -> None:
    fold = chosen(
        Note(kind="choice/model", data="a"),
        Note(kind="choice/tone", data=["x"]),
        Note(kind="choice/model", data="b"),
        Note(kind="model"),
    )
    assert (fold.get("model"), fold.get("tone"), fold.get("other")) == ("b", ["x"], None)


def test_a_choice_is_taken_back_by_none() -> None:
    assert chosen(Note(kind="choice/model", data="a"), Note(kind="choice/model")).get("model") is None


def test_a_snapshot_and_a_fork_keep_it() -> None:
    state = AgentState()
    state.apply(0, 0, Note(kind="choice/model", data="a"))
    again = AgentState.load(state.dump())
    again.apply(1, 0, LogForked(agent="b", name="n", source="a", at=0))
    assert again.choices.get("model") == "a"
    assert Choices.load(again.choices.dump()).get("model") == "a"
