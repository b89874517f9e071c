"""The settings table: what counts first, what is refused, and by which name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.settings import BY_NAME, SETTINGS, Settings, config_path, knowledge_base_path, resolve
from runtime.decision import MODES
from runtime.drafting import DraftingOptions
from runtime.errors import UsageError
from runtime.pipeline import AskOptions
from runtime.subsets import STRATEGIES
from runtime.verification import ALL_TERMS


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_option_beats_environment_beats_config_beats_default(config: Path) -> None:
    config.write_text("k = 7\nsubsets = 3\nseed = 5\n")
    environment = {"SPECRAG_K": "8", "SPECRAG_SUBSETS": "2"}
    found = resolve({"k": "9"}, config=config, environment=environment)
    assert (found.k, found.subsets, found.seed, found.route) == (9, 2, 5, "auto")


def test_values_from_toml_have_their_types(config: Path) -> None:
    config.write_text(
        'threshold = 0.5\nterms = ["draft", "reflection"]\nrefine = false\ndeadline = "none"\n'
        'kb = "kb"\nverifier_url = "http://10.0.0.7:8600/"\n'
    )
    found = resolve(config=config, environment={})
    assert found.threshold == 0.5
    assert found.terms == ("draft", "reflection")
    assert found.refine is False
    assert found.deadline is None
    assert found.kb == config.parent / "kb", "relative to the file, not to where one stands"
    assert found.verifier_url == "http://10.0.0.7:8600"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", "0"), ("k", "ten"), ("k", "1.5"), ("route", "sideways"), ("threshold", "1.5"),
        ("threshold", "nan"), ("threshold", "loose"), ("terms", "draft,luck"), ("terms", ""),
        ("deadline", "0"), ("deadline", "inf"), ("verifier_url", "10.0.0.7"), ("seed", "-1"),
        ("kb", ""),
    ],
)  # fmt: skip
def test_bad_values_are_refused_with_their_origin(name: str, value: str, config: Path) -> None:
    variable = BY_NAME[name].variable
    if value:  # an empty variable counts as not set
        with pytest.raises(UsageError) as refused:
            resolve(environment={variable: value})
        assert refused.value.where == f"environment variable {variable}"
    with pytest.raises(UsageError):
        resolve({name: value}, environment={})
    config.write_text(f"{name} = {value!r}\n")
    with pytest.raises(UsageError) as refused:
        resolve(config=config, environment={})
    assert str(config) in str(refused.value)


def test_unknown_names_are_refused_with_a_suggestion(config: Path) -> None:
    config.write_text("treshold = 0.5\n")
    with pytest.raises(UsageError, match="Did you mean 'threshold'"):
        resolve(config=config, environment={})
    with pytest.raises(UsageError, match="no setting called 'windows'"):
        resolve({"windows": 3}, environment={})


def test_a_config_file_that_was_named_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(UsageError, match="does not exist"):
        resolve(config=missing, environment={})
    with pytest.raises(UsageError, match="does not exist"):
        resolve(environment={"SPECRAG_CONFIG": str(missing)})
    assert resolve(environment={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}).k == 10


def test_a_config_file_that_is_no_toml(config: Path) -> None:
    config.write_bytes(b"k = \xff")
    with pytest.raises(UsageError, match="cannot be read"):
        resolve(config=config, environment={})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'k = "caf\xe9"\n', "it is not UTF-8 text"),
        (b"k = " + b"[" * 5000, "nested too deep"),
        (b'kb = "a\\u0000b"\n', "it must name a file or folder"),
        (b"k = 99999999999999999999\n", "at most 1,000,000"),
        (b"threads = 100000\n", "at most 1,024"),
    ],
)
def test_what_a_config_file_cannot_hold(config: Path, data: bytes, reason: str) -> None:
    """Guards the words of a codec, and the tracebacks that nesting, the largest k and NUL gave; so
    many threads had the models wait for each other for minutes."""
    config.write_bytes(data)
    with pytest.raises(UsageError, match=reason):
        resolve(config=config, environment={})


def test_a_config_file_from_windows(config: Path) -> None:
    """Its editor begins files with a byte order mark, which was called an invalid statement."""
    config.write_bytes(b"\xef\xbb\xbfk = 7\r\nsubsets = 3\r\n")
    found = resolve(config=config, environment={})
    assert (found.k, found.subsets) == (7, 3)


def test_a_user_that_does_not_exist_and_a_user_without_a_home(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were RuntimeErrors: "~nobody-here" is a name like any other then."""
    assert resolve({"kb": "~nobody-here/kb"}, environment={}).kb == Path("~nobody-here/kb")
    for variable in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    settings = resolve(environment={})
    with pytest.raises(UsageError, match="no home folder"):
        knowledge_base_path(settings)


def test_where_things_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert knowledge_base_path(Settings()) == tmp_path / "specrag" / "knowledge-base"
    assert knowledge_base_path(Settings(kb=Path("here"))) == Path("here")
    found = config_path({"XDG_CONFIG_HOME": str(tmp_path)})
    assert found == tmp_path / "specrag" / "config.toml"


def test_folders_agree_with_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux the 40 ms of importing platformdirs are saved; the answer must be the same."""
    import platformdirs

    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert knowledge_base_path(Settings()).parent == platformdirs.user_data_path("specrag", False)
    assert config_path({}).parent == platformdirs.user_config_path("specrag", False)


def test_defaults_are_those_of_the_pipeline() -> None:
    """The table repeats defaults that runtime/ has too, so that reading it imports nothing."""
    ask, drafting = AskOptions(), DraftingOptions()
    defaults = Settings()
    assert defaults.route == ask.route
    assert defaults.k == ask.windows
    assert defaults.subsets == ask.subsets
    assert defaults.strategy == ask.strategy
    assert defaults.seed == ask.seed
    assert defaults.threshold == ask.threshold
    assert defaults.deadline == ask.drafter_deadline
    assert defaults.verify == ask.verification.context
    assert defaults.terms == ask.verification.terms
    assert defaults.refine == ask.verification.refine
    assert defaults.rationale_tokens == drafting.rationale_tokens
    assert defaults.answer_tokens == drafting.max_answer_tokens
    assert defaults.exclude_flagged == ask.retrieval.exclude_flagged


def test_choices_are_those_of_the_pipeline() -> None:
    assert set(BY_NAME["strategy"].kind.choices) == set(STRATEGIES)
    assert resolve({"terms": ",".join(ALL_TERMS)}, environment={}).terms == ALL_TERMS
    for mode in MODES:
        assert resolve({"threshold": mode}, environment={}).threshold == mode


def test_the_table_is_complete() -> None:
    assert len({setting.option for setting in SETTINGS}) == len(SETTINGS)
    for setting in SETTINGS:
        assert setting.help.endswith("."), setting.name
        assert setting.shown, setting.name


def test_replaced_checks_like_resolve() -> None:
    changed = Settings().replaced({"k": 5, "terms": ["draft"], "threshold": 0.25, "log": None})
    assert (changed.k, changed.terms, changed.threshold) == (5, ("draft",), 0.25)
    with pytest.raises(UsageError):
        Settings().replaced({"k": 0})
