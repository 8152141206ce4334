"""The values that this process runs with: of its settings file, else of the cluster's configuration, else defaults.

Parts of the process read values here, and name a function that is called when some of them have changed. What cannot be
taken is reported to the manager with the heartbeats; then the value before stays in force.
"""

from collections.abc import Callable, Iterable, Mapping

from threefs import configuration
from threefs.configuration import KEYS, NOTHING_SET, Configuration, Role, Value
from threefs.errors import InvalidArgument, InvalidSettings
from threefs.telemetry.library_logging import LibraryLogger
from threefs.wire import manager_pb2 as pb

_LOG = LibraryLogger(__name__)
Apply = Callable[[], None]


def own_values(settings: object) -> dict[str, Value]:
    """The keys of the configuration that the settings file of a process sets."""
    found = {name: getattr(settings, name, None) for name in KEYS}
    return {name: value for name, value in found.items() if value is not None}


class AppliedConfiguration:
    """Of one process. Until `begin`, the values of the file and the defaults are in force."""

    def __init__(self, role: Role, own: Mapping[str, Value]) -> None:
        """`own` has the values of the settings file. Raises InvalidSettings."""
        self.current: Configuration = NOTHING_SET
        self.on_adopted: Callable[[], None] = lambda: None  # the report has changed
        self._role = role
        self._own = dict(own)
        self._values: dict[str, Value] = {}
        self._applies: dict[str, Apply] = {}
        self._refused: dict[str, str] = {}
        self._began = False
        for name, value in own.items():
            try:
                configuration.check(KEYS[name], value)
            except InvalidArgument as error:
                raise InvalidSettings(f"the settings file: {error.message}") from None
        self._values.update(self._wanted()[0])
        #: The values that this process runs with, for the manager.
        self.report = self._make_report()

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), f"{name} is a whole number"
        return value

    def number(self, name: str) -> float:
        value = self._values[name]
        assert not isinstance(value, str), f"{name} is a number"
        return value

    def word(self, name: str) -> str:
        return str(self._values[name])

    def on_change(self, names: Iterable[str], apply: Apply) -> None:
        """Call `apply` once whenever some of these values have changed. If it raises, they change back."""
        for name in names:
            assert self._role in KEYS[name].roles, f"{name} concerns this program"
            self._applies[name] = apply

    def begin(self, current: Configuration) -> None:
        """The process starts: it takes all values, also those that need a restart."""
        self._take(current, is_start=not self._began)
        self._began = True

    def adopt(self, current: Configuration) -> None:
        """A newer version has come: take the values that a running process takes."""
        self._take(current, is_start=False)

    def _take(self, current: Configuration, *, is_start: bool) -> None:
        self.current = current
        wanted, self._refused = self._wanted()
        changed = {
            name: value
            for name, value in wanted.items()
            if value != self._values[name] and (is_start or KEYS[name].is_hot)
        }
        applies: dict[Apply, list[str]] = {}
        for name in changed:
            applies.setdefault(self._applies[name], []).append(name)
        for apply, names in applies.items():
            self._apply(apply, {name: changed[name] for name in names})
        if changed or self._refused:
            _LOG.info("the configuration is applied", version=current.version, changed=changed, refused=self._refused)
        self.report = self._make_report()
        self.on_adopted()

    def _apply(self, apply: Apply, values: Mapping[str, Value]) -> None:
        before = {name: self._values[name] for name in values}
        self._values.update(values)
        try:
            apply()
        except Exception as error:  # the process goes on with what it had
            _LOG.exception("values of the configuration cannot be applied", values=dict(values))
            self._values.update(before)
            self._refused.update((name, f"{type(error).__name__}: {error}") for name in values)

    def _wanted(self) -> tuple[dict[str, Value], dict[str, str]]:
        """(the values that should be in force, why others are refused)."""
        wanted: dict[str, Value] = {name: key.default for name, key in KEYS.items() if self._role in key.roles}
        refused: dict[str, str] = {}
        for name, text in self.current.texts.items():
            key = KEYS.get(name)
            if key is None:
                refused[name] = "this release does not know the key"
            elif self._role in key.roles and name not in self._own:
                try:
                    wanted[name] = configuration.parse(key, text)
                except InvalidArgument as error:
                    refused[name] = error.message
                    wanted[name] = self._values.get(name, key.default)
        wanted.update(self._own)
        return wanted, refused

    def _make_report(self) -> pb.ConfigurationReport:
        wanted, _ = self._wanted()
        report = pb.ConfigurationReport(version=self.current.version, made_ns=self.current.made_ns)
        for name in sorted(wanted.keys() | self._refused.keys()):
            value = self._values.get(name)
            if name in self._refused:
                state = pb.REFUSED
            elif name in self._own:
                state = pb.OWN_FILE
            elif value != wanted[name]:
                state = pb.AWAITS_RESTART
            else:
                continue
            text = "" if value is None else configuration.text_of(value)
            report.keys.add(name=name, value=text, state=state, reason=self._refused.get(name, ""))
        return report
