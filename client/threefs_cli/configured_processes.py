"""The outcome of a configuration in the processes of a cluster: what nodes have said with their last heartbeats, and
clients when they asked for the routing. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from threefs import configuration
from threefs.configuration import KEYS, Configuration, Role, Source, Value
from threefs.errors import InvalidArgument
from threefs.wire import manager_pb2 as pb

STATE_WORDS = {
    pb.OWN_FILE: "own settings file",
    pb.AWAITS_RESTART: "waits for a restart",
    pb.REFUSED: "refused",
    pb.KEY_STATE_UNSPECIFIED: "",
}
_ROLES = {pb.STORAGE: Role.STORAGE, pb.META: Role.META}
_MANAGER = 0  # as a node id
_NO_NODE = -1  # as the node id of a client
_MAX_NAMED = 10  # clients: there may be thousands


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change in one process: the changed keys that concern it, by what it does with them."""

    name: str
    node_id: int
    applied: Sequence[str]
    awaiting_restart: Sequence[str]
    own_file: Sequence[str]
    refused: Sequence[str]
    missing: Sequence[str]  # it has not said what it does with them
    state: str
    is_planned: bool

    def described(self) -> dict[str, Any]:
        lists = ("applied", "awaiting_restart", "own_file", "refused", "missing")
        return {"node_id": self.node_id, "name": self.name, "state": self.state} | {
            each: list(getattr(self, each)) for each in lists
        }

    def lines(self) -> Iterator[str]:
        words = {
            "applied": "takes at once" if self.is_planned else "has taken",
            "awaiting_restart": "takes with its next start",
            "own_file": f"goes by its own {'options' if self.node_id == _NO_NODE else 'settings file'} for",
            "refused": "refuses",
            "missing": "has not taken",
        }
        for each, word in words.items():
            if names := getattr(self, each):
                yield f"{self.name} {word} {', '.join(names)}" + (f" ({self.state})" if each == "missing" else "")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that takes values, and what it has said last."""

    node_id: int
    name: str
    role: Role
    is_alive: bool
    report: pb.ConfigurationReport | None  # None: it has not said anything, or is of an older release
    client_id: str = ""  # of a connection or mount

    @property
    def version(self) -> int:
        return self.report.version if self.report is not None else 0

    def is_expected(self, current: Configuration) -> bool:
        """Whether it should say soon that it has this version."""
        return self.is_alive and self.report is not None and self.report.made_ns != current.made_ns

    def state(self, current: Configuration) -> str:
        if not self.is_alive:
            return "does not run"
        if self.report is None:
            return "does not say"
        if self.report.made_ns != current.made_ns:
            return f"behind, at version {self.report.version}"
        states = {key.state for key in self.report.keys}
        if pb.REFUSED in states:
            return "refused"
        return "waits for a restart" if pb.AWAITS_RESTART in states else "applied"

    def value(self, name: str, current: Configuration) -> tuple[Value | None, Source, str, str]:
        """(the value in force, its source, why it is not that of the cluster, the reason of a refusal)."""
        if self.report is None:
            return None, Source.CLUSTER, "does not say", ""
        try:
            value, source, state = configuration.in_force(name, current, self.report)
        except InvalidArgument:  # a later release takes it, and this one does not know how to show it
            return None, Source.CLUSTER, "a value of another release", ""
        reason = next((key.reason for key in self.report.keys if key.name == name), "")
        return value, source, STATE_WORDS[state], reason

    def exceptions(self) -> str:
        """The keys whose value in force is not that of the configuration, for people."""
        keys = self.report.keys if self.report is not None else ()
        return ", ".join(f"{key.name} ({self._word(key.state)})" for key in keys)

    def _word(self, state: pb.KeyState) -> str:
        return "own option" if state == pb.OWN_FILE and self.role is Role.CLIENT else STATE_WORDS[state]

    def outcome(self, changed: Collection[str], after: Configuration, *, is_planned: bool) -> Outcome:
        """`is_planned`: of a change that is not made."""
        found: dict[str, list[str]] = {
            each: [] for each in ("applied", "awaiting_restart", "own_file", "refused", "missing")
        }
        for name in sorted(changed):
            key = KEYS.get(name)
            if key is None or self.role in key.roles:
                found[self._outcome_of(name, after, is_planned=is_planned)].append(name)
        return Outcome(self.name, self.node_id, **found, state=self.state(after), is_planned=is_planned)

    def _outcome_of(self, name: str, after: Configuration, *, is_planned: bool) -> str:
        if not self.is_alive or self.report is None:
            return "missing"
        own = next((key.state for key in self.report.keys if key.name == name), pb.KEY_STATE_UNSPECIFIED)
        if own == pb.OWN_FILE:
            return "own_file"
        if is_planned:
            return "applied" if name not in KEYS or KEYS[name].is_hot else "awaiting_restart"
        if self.report.made_ns != after.made_ns:
            return "missing"
        return {pb.AWAITS_RESTART: "awaiting_restart", pb.REFUSED: "refused"}.get(own, "applied")

    def described(self, current: Configuration) -> dict[str, Any]:
        keys = self.report.keys if self.report is not None else ()
        who = {"client_id": self.client_id} if self.role is Role.CLIENT else {"node_id": self.node_id}
        return who | {
            "name": self.name,
            "version": self.version if self.report is not None else None,
            "state": self.state(current),
            "keys": [
                {"name": key.name, "value": key.value, "state": self._word(key.state), "reason": key.reason}
                for key in keys
            ],
        }


def processes(status: pb.GetStatusReply) -> list[Process]:
    """The primary manager first, then the nodes that have ever registered."""
    has_said = status.HasField("manager_configuration")
    primary = Process(_MANAGER, "manager", Role.MANAGER, True, status.manager_configuration if has_said else None)
    rows = sorted((row for row in status.nodes if row.node.address), key=lambda row: row.node.node_id)
    return [primary, *map(_of_node, rows)]


def _of_node(row: pb.NodeStatus) -> Process:
    role = _ROLES[row.node.kind]
    name = f"{'meta service' if role is Role.META else 'storage node'} {row.node.node_id}"
    report = row.configuration if row.HasField("configuration") else None
    return Process(row.node.node_id, name, role, row.alive, report)


def clients(status: pb.GetStatusReply) -> list[Process]:
    """The connections of the client library, and the mounts."""
    return [
        Process(_NO_NODE, one.name, Role.CLIENT, True, one.configuration, one.client_id.hex()) for one in status.clients
    ]


def leave_out(status: pb.GetStatusReply, client_id: bytes) -> None:
    """Take a connection out of the status: that of the command which shows the others."""
    others = [one for one in status.clients if one.client_id != client_id]
    del status.clients[:]
    status.clients.extend(others)


def successor(
    after: Configuration, changed: Iterable[str], status: pb.GetStatusReply
) -> tuple[Configuration, list[str]]:
    """The version that the processes are asked for after a change, and the changed keys that have their new values in
    it: somebody may have made another one since."""
    found = configuration.from_wire(status.configuration)
    newest = found if found.version > after.version else after
    return newest, [name for name in sorted(changed) if newest.texts.get(name) == after.texts.get(name)]


def superseded_line(newest: Configuration, kept: Collection[str], changed: Collection[str]) -> str:
    lost = ", ".join(sorted(set(changed) - set(kept)))
    return f"version {newest.version} has been made since" + (f", with another value of {lost}" if lost else "")


def client_outcomes(
    found: Sequence[Process], names: Sequence[str], after: Configuration, *, is_planned: bool
) -> list[Outcome]:
    """The outcome of a change of these keys, which clients take."""
    return [one.outcome(names, after, is_planned=is_planned) for one in found] if names else []


def client_lines(outcomes: Sequence[Outcome], names: Sequence[str]) -> Iterator[str]:
    """Those that take all of these keys are only counted."""
    different = [outcome for outcome in outcomes if list(outcome.applied) != list(names)]
    if plain := len(outcomes) - len(different):
        takes = "take at once" if outcomes[0].is_planned else "have taken"
        yield f"{plain} of {len(outcomes)} clients and mounts {takes} {', '.join(names)}"
    yield from outcome_lines(different[:_MAX_NAMED])
    if (more := len(different) - _MAX_NAMED) > 0:
        yield f"{more} others do not take all of it, either: `threefs config status --json` names them"


def outcome_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        yield from outcome.lines()
