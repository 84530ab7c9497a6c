"""Slow questions: asked once for many, in few threads, and never in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, get_ident

import pytest

from kafka_ingest.errors import DatabaseUnavailable, TooBusy
from kafka_ingest.page.answers import LANE_QUEUE, LANE_THREADS, Answers

SECONDS = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A question that counts how often it was asked, and answers when it may."""

    def __init__(self, *, at_once: bool = True, error: Exception | None = None) -> None:
        self.asked = 0
        self.threads: set[int] = set()
        self.may_answer = Event()
        self._error = error
        if at_once:
            self.may_answer.set()

    def __call__(self) -> int:
        self.asked += 1
        self.threads.add(get_ident())
        assert self.may_answer.wait(SECONDS)
        if self._error:
            raise self._error
        return self.asked


def test_ten_readers_ask_once() -> None:
    question = Counted(at_once=False)

    async def ask_all() -> list[int]:
        answers = Answers()
        asked = [asyncio.create_task(answers.ask("db", "key", question)) for _ in range(10)]
        await asyncio.sleep(0)
        question.may_answer.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(ask_all()) == [1] * 10
    assert question.asked == 1


def test_an_answer_is_kept_for_seconds_from_when_it_came() -> None:
    clock, question = Clock(), Counted()
    answers = Answers(fresh_seconds=5, clock=clock)

    def ask(key: str = "key") -> int:
        return asyncio.run(answers.ask("db", key, question))

    assert (ask(), ask()) == (1, 1)
    clock.now = 5.0
    assert ask() == 1
    clock.now = 5.1
    assert ask() == 2
    assert ask("another key") == 3


def test_an_error_is_kept_as_an_answer_is() -> None:
    question, answers = Counted(error=DatabaseUnavailable("no server")), Answers()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="no server"):
            asyncio.run(answers.ask("db", "key", question))
    assert question.asked == 1


def test_what_is_of_one_reader_is_never_kept() -> None:
    question, answers = Counted(), Answers()
    assert [asyncio.run(answers.run("db", question)) for _ in range(2)] == [1, 2]


def test_questions_run_in_threads_of_their_own() -> None:
    question = Counted()
    asyncio.run(Answers().run("db", question))
    assert get_ident() not in question.threads


def _fill(answers: Answers, lane: str, question: Callable[[], int]) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(answers.run(lane, question)) for _ in range(LANE_THREADS + LANE_QUEUE)]


def test_a_lane_that_is_full_refuses_at_once_and_holds_up_no_other() -> None:
    slow, quick = Counted(at_once=False), Counted()

    async def ask() -> int:
        answers = Answers()
        waiting = _fill(answers, "slow", slow)
        await asyncio.sleep(0)
        with pytest.raises(TooBusy, match="too many questions wait for slow"):
            await answers.run("slow", slow)
        found = await answers.run("quick", quick)
        slow.may_answer.set()
        await asyncio.gather(*waiting)
        assert await answers.run("slow", quick) == 2
        return found

    assert asyncio.run(ask()) == 1
    assert len(slow.threads) <= LANE_THREADS


def test_a_reader_waits_no_longer_than_patience_and_the_question_goes_on_for_the_next() -> None:
    question = Counted(at_once=False)

    async def ask() -> int:
        answers = Answers(patience_seconds=0.05)
        with pytest.raises(TooBusy, match="db has not answered"):
            await answers.ask("db", "key", question)
        question.may_answer.set()
        return await Answers.ask(answers, "db", "key", question)

    assert asyncio.run(ask()) == 1
    assert question.asked == 1
