"""Job files and command lines as fio has them: sections with options, of which [global] is inherited."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threefs.errors import InvalidArgument
from threefs_bench.load import options
from threefs_bench.load.job import Job, checked

MAX_FILE_BYTES = 1 << 20
MAX_JOBS = 1024

#: Options of the whole run. They stand anywhere on the command line; the default of those that may stand alone.
RUN_OPTIONS = {
    "output": None,
    "output-format": None,
    "json": "1",
    "eta": None,
    "client": None,
    "server": "",
    "allow-directory": None,
    "key-file": None,
    "help": "1",
    "version": "1",
}


@dataclass
class CommandLine:
    """The content of a command line: the jobs, and the options of the run."""

    jobs: list[Job] = field(default_factory=list)
    run: dict[str, str] = field(default_factory=dict)


@dataclass
class _Sections:
    """Sections as they are read: [global] holds for the jobs behind it, and may come again."""

    inherited: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] | None = None  # of the job that is being read; None: [global] is
    jobs: list[Job] = field(default_factory=list)

    def begin(self, name: str) -> None:
        self.end()
        self.given = None if name == "global" else {"name": name}

    def add(self, name: str, value: str) -> None:
        (self.inherited if self.given is None else self.given)[name] = value

    def end(self) -> None:
        if self.given is not None:
            self.jobs.append(checked(Job(self.given, dict(self.inherited))))
            self.given = None
        if len(self.jobs) > MAX_JOBS:
            raise InvalidArgument(f"there are more than {MAX_JOBS} jobs")


def parse_text(text: str, where: str, inherited: dict[str, str] | None = None) -> list[Job]:
    """The jobs of a file. Raises InvalidArgument, which names the line."""
    sections = _Sections(dict(inherited or {}))
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw)
        if not line:
            continue
        try:
            if line.startswith("["):
                if not line.endswith("]") or len(line) < 3:
                    raise InvalidArgument(f"{line!r} is not a section: write [name]")
                sections.begin(line[1:-1].strip())
            else:
                sections.add(*_option(line))
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}:{number}: {error.message}") from None
    try:
        sections.end()
        if not sections.jobs:
            raise InvalidArgument("it has no job: begin one with a line [name]")
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error.message}") from None
    return sections.jobs


def _without_comment(line: str) -> str:
    """A comment begins with `;` or `#`, at the beginning of a line or behind a space."""
    words = line.strip()
    if words.startswith((";", "#")):
        return ""
    for mark in (" ;", " #", "\t;", "\t#"):
        words = words.partition(mark)[0]
    return words.strip()


def _option(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    found = options.canonical(name.strip())
    if not equals:
        if not options.BY_NAME[found].is_flag:
            raise InvalidArgument(f"option {found} needs a value: {found}=...")
        return found, "1"
    return found, value.strip()


def read(path: Path, inherited: dict[str, str] | None = None) -> list[Job]:
    """The jobs of a file. Raises InvalidArgument, OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidArgument(f"{path} is longer than {MAX_FILE_BYTES} bytes, and no job file is")
    return parse_text(content.decode("utf-8", "replace"), str(path), inherited)


def parse_arguments(arguments: Sequence[str]) -> CommandLine:
    """Options and job files. Options before the first --name hold for all jobs behind them, those of files too.

    Raises InvalidArgument, OSError.
    """
    found = CommandLine()
    sections = _Sections()
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-") or word == "-":
            sections.end()
            found.jobs += sections.jobs + read(Path(word), sections.inherited)
            sections.jobs = []
            continue
        name, value = _argument(word, waiting)
        if name in RUN_OPTIONS:
            found.run[name] = value
        elif name == "name":
            sections.begin(value)
        else:
            sections.add(name, value)
    sections.end()
    found.jobs += sections.jobs
    return found


def _argument(word: str, waiting: list[str]) -> tuple[str, str]:
    """(name, value) of an option, which may have its value in the next word."""
    if word == "-h":
        return "help", "1"
    if not word.startswith("--"):
        raise InvalidArgument(f"{word!r} is not an option: all options here begin with --")
    name, equals, value = word[2:].partition("=")
    found = options.canonical(name, RUN_OPTIONS)
    if equals:
        return found, value
    if found in options.BY_NAME and options.BY_NAME[found].is_flag:
        return found, "1"
    alone = RUN_OPTIONS.get(found)
    if alone is not None:
        return found, alone
    if not waiting:
        raise InvalidArgument(f"option --{found} needs a value: --{found}=...")
    return found, waiting.pop(0)


def from_json(found: Mapping[str, Any]) -> Job:
    """A job that another process has sent. Raises InvalidArgument."""
    try:
        texts = [dict(found["given"]), dict(found["inherited"])]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"this is not a job: {error}") from None
    for text in texts:
        for name, value in text.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise InvalidArgument(f"an option and its value are texts, not {name!r}: {value!r}")
            options.canonical(name)
    return checked(Job(*texts))
