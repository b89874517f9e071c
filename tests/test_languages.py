"""The case file's questions, in every language, asked of a real knowledge base."""

from __future__ import annotations

import pytest

from benchmarks.languages import CASES, Measured, measure, read_cases

LANGUAGES = [language.name for language in read_cases(CASES).languages]


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, str], Measured]:
    return {(one.language, one.method): one for one in measure(read_cases(CASES))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_passage_that_answers_comes_first(
    language: str, results: dict[tuple[str, str], Measured]
) -> None:
    named = results[language, "named"]
    assert named.recall_10 >= 0.95, named.missed
    assert named.mrr >= 0.9, named.missed
    assert named.mrr >= results[language, "baseline"].mrr


@pytest.mark.parametrize("language", ["Russian", "Greek", "Hebrew", "Hindi", "Thai", "Korean"])
def test_other_scripts_need_no_choice_of_stemmer(
    language: str, results: dict[tuple[str, str], Measured]
) -> None:
    assert results[language, "default"].mrr >= 0.9


@pytest.mark.parametrize("language", read_cases(CASES).languages, ids=LANGUAGES)
def test_every_language_has_enough_cases(language: object) -> None:
    """Guards the table against rows that a handful of questions decide."""
    cases = read_cases(CASES)
    of_language = next(one for one in cases.languages if one == language)
    assert len(of_language.questions) >= 15
    assert len({question.passage for question in of_language.questions}) >= 15
