"""Every setting of an installation, declared once -> the resolved values of one run.

The fields of `Settings` are the table: name, type, default, help, and who asks for it. The command
line makes its options from it, the config file and the environment are checked against it, and
docs/settings.md is held to it by a test. A value is taken from, first found first: the command's
option, the environment variable, the config file (TOML), the default.
"""

# ruff: noqa: RUF009 - `_setting` is `dataclasses.field` with the metadata of the table

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from runtime.errors import UsageError

Scope = Literal["store", "creation", "models", "question"]
ENVIRONMENT_PREFIX = "SPECRAG_"
CONFIG_VARIABLE = "SPECRAG_CONFIG"

ROUTES = ("auto", "speculative", "standard", "drafter")
STRATEGIES = ("clusters", "round-robin", "by-source", "random")
CONTEXTS = ("rationale", "window")
TERMS = ("draft", "containment", "reflection")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value: how it is read from text, and how it is named to people.

    `read` raises ValueError, with a message for people, for what it cannot read. `choices` are all
    its values where there are few, for the shell's completion.
    """

    name: str
    read: Callable[[str], Any]
    choices: tuple[str, ...] = ()


def _integer(low: int, high: int = 1_000_000) -> Kind:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("it must be a whole number") from None
        if value < low:
            raise ValueError(f"it must be at least {low}")
        if value > high:
            raise ValueError(f"it must be at most {high:,}")
        return value

    return Kind("integer", read)


def _seconds(text: str) -> float | None:
    if text == "none":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < float("inf"):
        raise ValueError("it must be a number of seconds above 0, or none")
    return value


def _choice(*choices: str) -> Kind:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        return text

    return Kind("|".join(choices), read, choices)


def _several(*choices: str) -> Kind:
    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(part.strip() for part in text.split(",") if part.strip())
        unknown = [part for part in chosen if part not in choices]
        if unknown or not chosen:
            raise ValueError(f"it must be one or several of {','.join(choices)}")
        return tuple(dict.fromkeys(chosen))

    return Kind("list", read)


def _threshold(text: str) -> str | float:
    if text in ("strict", "lenient"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("it must be strict, lenient, or a number from 0 to 1")
    return value


def _flag(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    try:
        return values[text.lower()]
    except KeyError:
        raise ValueError("it must be true or false") from None


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("it must name a file or folder")
    return Path(os.path.expanduser(text))


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("it must be an address that begins with http:// or https://")
    return text.rstrip("/")


PATH = Kind("path", _path)
TEXT = Kind("text", str)
STEMMER = Kind("text", lambda text: None if text == "none" else text)
FLAG = Kind("flag", _flag)
SECONDS = Kind("seconds", _seconds)


def _setting(
    default: Any, kind: Kind, scope: Scope, help: str, *, short: str = "", shown: str = ""
) -> Any:
    """A field of the table. `shown` is the default in words where its value says too little."""
    return field(
        default=default,
        metadata={"kind": kind, "scope": scope, "help": help, "short": short, "shown": shown},
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved values of one run. Each field is a setting; see `SETTINGS` for the table."""

    kb: Path | None = _setting(
        None, PATH, "store", "Folder of the knowledge base.", shown="in your data folder"
    )
    stemmer: str | None = _setting(
        "english",
        STEMMER,
        "creation",
        "Snowball stemmer of a new knowledge base: english, german, french, ..., or none.",
    )
    drafter: Path | None = _setting(
        None, PATH, "models", "Bundle of the drafter.", shown="the one that comes with specrag"
    )
    verifier: Path | None = _setting(
        None, PATH, "models", "Bundle of the verifier.", shown="the one that comes with specrag"
    )
    verifier_url: str | None = _setting(
        None,
        Kind("address", _address),
        "models",
        "Ask the verifier at this address (Open Inference Protocol v2) instead of running it here.",
        shown="it runs here",
    )
    token: str | None = _setting(
        None, TEXT, "models", "Secret that the remote verifier asks for.", shown="no token"
    )
    plain_token: bool = _setting(
        False, FLAG, "models", "Send the token over unencrypted HTTP to another machine, too."
    )
    timeout: float = _setting(
        10.0, SECONDS, "models", "The longest the remote verifier may take to answer."
    )
    provider: str = _setting(
        "auto",
        TEXT,
        "models",
        "What the models run on: auto, cpu, cuda, tensorrt, openvino, qnn, coreml or directml; a "
        "device may follow a colon: cuda:1, openvino:NPU.",
    )
    drafter_provider: str | None = _setting(
        None, TEXT, "models", "What the drafter runs on, if not the same.", shown="as provider"
    )
    require_provider: bool = _setting(
        False, FLAG, "models", "Fail if the named provider cannot be used, instead of warning."
    )
    threads: int | None = _setting(
        None,
        _integer(1, 1024),
        "models",
        "CPU threads of each model.",
        shown="one per physical core",
    )
    engine_cache: Path | None = _setting(
        None,
        PATH,
        "models",
        "Folder for engines that TensorRT and OpenVINO compile.",
        shown="none are kept",
    )
    route: str = _setting(
        "auto", _choice(*ROUTES), "question", "Take this route and no other; auto decides."
    )
    k: int = _setting(10, _integer(1), "question", "How many windows are retrieved.", short="-k")
    subsets: int = _setting(
        4, _integer(1), "question", "How many drafts are made at most, m.", short="-m"
    )
    strategy: str = _setting(
        "clusters", _choice(*STRATEGIES), "question", "How windows are dealt into subsets."
    )
    seed: int = _setting(
        0,
        _integer(0, 2**63),
        "question",
        "Seed of the subsets; the same seed gives the same subsets.",
    )
    threshold: str | float = _setting(
        "lenient",
        Kind("strict|lenient|number", _threshold),
        "question",
        "The least confidence of an answer: strict (precision first), lenient (coverage first) "
        "or a number from 0 to 1.",
    )
    deadline: float | None = _setting(
        1.0,
        SECONDS,
        "question",
        "How long the drafter may take before standard RAG takes over; none waits for it.",
    )
    verify: str = _setting(
        "rationale", _choice(*CONTEXTS), "question", "What the verifier reads of each draft."
    )
    terms: tuple[str, ...] = _setting(
        ("draft", "reflection"),
        _several(*TERMS),
        "question",
        "Which probabilities make the score: draft, containment, reflection, with commas.",
        shown="draft,reflection",
    )
    refine: bool = _setting(
        True, FLAG, "question", "Let the verifier move the answer's boundaries."
    )
    rationale_tokens: int = _setting(
        128, _integer(1), "question", "How long a rationale may grow, in the drafter's tokens."
    )
    answer_tokens: int = _setting(30, _integer(1), "question", "The longest answer, in tokens.")
    exclude_flagged: bool = _setting(
        False, FLAG, "question", "Leave out documents with flags about safety, such as hidden text."
    )
    log: Path | None = _setting(
        None, PATH, "question", "Append each question's trace to this file, as JSON lines.",
        shown="no log",
    )  # fmt: skip

    def replaced(self, options: Mapping[str, Any]) -> Settings:
        """These settings with other values for some; text is read as the setting's kind.

        Raises:
            UsageError: an unknown name, or a value that is not of the setting's kind.
        """
        return replace(self, **_read_options(options))


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: as in the config file; a Python identifier.
        default: the value; `shown` is its text in help and docs.
        scope: "store" for every command that opens a knowledge base, "creation" for those that may
            make one, "models" for those that load a model, "question" for those that ask.
    """

    name: str
    kind: Kind
    default: Any
    shown: str
    help: str
    scope: Scope
    short: str

    @property
    def option(self) -> str:
        """The command line's option."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    def of(self, value: Any) -> Any:
        """A value from the command line or from Python, checked.

        Raises:
            UsageError: it is not of the setting's kind.
        """
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        return self.read(str(value), self.option)

    def read(self, text: str, origin: str) -> Any:
        """The value that `text` stands for.

        Args:
            origin: where it was written, for the message.

        Raises:
            UsageError: it is no such value.
        """
        try:
            return self.kind.read(text)
        except ValueError as error:
            raise UsageError(
                f"{self.name} cannot be {text!r}: {error}", where=origin, fix=self.help
            ) from None


def _table() -> tuple[Setting, ...]:
    rows = []
    for column in fields(Settings):
        assert column.default is not MISSING
        facts = column.metadata
        shown = facts["shown"] or str(column.default).lower()
        rows.append(
            Setting(
                name=column.name,
                kind=facts["kind"],
                default=column.default,
                shown=shown,
                help=facts["help"],
                scope=facts["scope"],
                short=facts["short"],
            )
        )
    return tuple(rows)


SETTINGS: tuple[Setting, ...] = _table()
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


def resolve(
    options: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of one run.

    Args:
        options: values from the command line or from Python, as text or as what text stands for;
            None counts as not given.
        config: a config file that must exist; by default `$SPECRAG_CONFIG`, or else config.toml in
            the user's config folder if there is one.
        environment: instead of the process's own.

    Raises:
        UsageError: an unknown name, or a value that is not of the setting's kind.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for name, value in _from_config(config, environment).items():
        values[name] = value
    for setting in SETTINGS:
        text = environment.get(setting.variable)
        if text is not None and text != "":
            values[setting.name] = setting.read(text, f"environment variable {setting.variable}")
    return Settings(**values).replaced(options or {})


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Values from the command line or from Python, None left out."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        setting = _named(name, "the call")
        if value is not None:
            values[name] = setting.of(value)
    return values


def _named(name: str, origin: str) -> Setting:
    try:
        return BY_NAME[name]
    except KeyError:
        close = get_close_matches(name, BY_NAME, 1)
        raise UsageError(
            f"There is no setting called {name!r}",
            where=origin,
            fix=f"Did you mean {close[0]!r}?" if close else "See docs/settings.md for all of them",
        ) from None


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the config file is, or would be."""
    environment = os.environ if environment is None else environment
    named = environment.get(CONFIG_VARIABLE)
    if named:
        return Path(os.path.expanduser(named))
    return _user_folder("XDG_CONFIG_HOME", ".config", "user_config_path", environment) / (
        "config.toml"
    )


def knowledge_base_path(settings: Settings) -> Path:
    """The folder of the knowledge base: the setting, or the user's data folder.

    Raises:
        UsageError: there is neither.
    """
    if settings.kb is not None:
        return settings.kb
    data = _user_folder("XDG_DATA_HOME", ".local/share", "user_data_path", os.environ)
    if not data.is_absolute():
        raise UsageError("You have no home folder to keep a knowledge base in", fix="Name --kb DIR")
    return data / "knowledge-base"


def _user_folder(
    variable: str, beneath_home: str, function: str, environment: Mapping[str, str]
) -> Path:
    """The user's folder as platformdirs names it; on Linux without the 40 ms of importing it."""
    import sys

    if sys.platform == "linux":
        named = environment.get(variable, "")
        home = Path(os.path.expanduser("~"))  # as it is where there is no home
        base = Path(named) if named.startswith("/") else home / beneath_home
        return base / "specrag"
    import platformdirs

    folder: Path = getattr(platformdirs, function)("specrag", appauthor=False)
    return folder


def _from_config(config: Path | None, environment: Mapping[str, str]) -> dict[str, Any]:
    file = config or config_path(environment)
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if config is None and not environment.get(CONFIG_VARIABLE):
            return {}
        raise UsageError(
            "The config file does not exist", where=str(file), fix="Name another, or none"
        ) from error
    except OSError as error:
        raise UsageError(
            f"The config file cannot be read: {error.strerror}",
            where=str(file),
            fix="Make it readable, or name another with --config",
        ) from error
    return {
        name: _config_value(_named(name, str(file)), value, file)
        for name, value in _parsed_toml(data, file).items()
    }


def _parsed_toml(data: bytes, file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except RecursionError:
        reason = "it is nested too deep"
    except ValueError as error:
        reason = str(error)
    raise UsageError(
        f"The config file cannot be read: {reason}",
        where=str(file),
        fix='It is TOML: lines such as `k = 10` and `kb = "/data/manuals"`',
    )


def _config_value(setting: Setting, value: Any, file: Path) -> Any:
    origin = f"{setting.name} in {file}"
    if isinstance(value, bool):
        return setting.read("true" if value else "false", origin)
    if isinstance(value, list):
        return setting.read(",".join(map(str, value)), origin)
    read = setting.read(str(value), origin)
    if setting.kind is PATH and not read.is_absolute():
        return file.parent / read  # relative to the file that names it, not to where one stands
    return read
