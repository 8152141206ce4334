"""The health of the configuration: processes that do not run with its newest version. One function per reason."""

from collections.abc import Iterable, Iterator

from threefs import configuration
from threefs.configuration import KEYS, Role, Value
from threefs.errors import InvalidArgument
from threefs.health.answers import Answers, listed, node_name
from threefs.health.verdict import Reason, Severity
from threefs.human_readable import count_of
from threefs.wire import manager_pb2 as pb


def managers_value(answers: Answers, name: str) -> Value:
    """The value that the primary manager runs with; of an older release the default."""
    current = configuration.from_wire(answers.status.configuration)
    try:
        value, _, _ = configuration.in_force(name, current, answers.status.manager_configuration)
    except InvalidArgument:  # of a later release
        value = None
    return KEYS[name].default if value is None else value


def lagging_processes(answers: Answers) -> Iterator[Reason]:
    """Processes that live and have not taken the newest version within T."""
    status = answers.status
    newest = status.configuration
    if not _is_due(status):
        return
    for row in status.nodes:
        if not row.alive or row.configuration.made_ns == newest.made_ns:
            continue
        if row.HasField("configuration"):
            state = f"runs with version {row.configuration.version} of the configuration"
            advice = "look at its log, and whether it reaches the manager; a restart takes the newest version, too"
        elif row.release != status.manager_release:
            state = "is of a release that does not say which version of the configuration it runs with"
            advice = "end the upgrade: docs/upgrade.md"
        else:
            continue  # it has just registered
        yield Reason(
            "configuration_behind",
            Severity.WARN,
            f"{node_name(row.node)} {state}; {_age(answers)}",
            advice,
        )


def _is_due(status: pb.GetStatusReply) -> bool:
    """Whether all processes should run with the newest version by now."""
    return bool(status.configuration.version) and status.configuration_age_ms >= status.lease_ms


def _age(answers: Answers) -> str:
    status = answers.status
    return (
        f"the newest is {status.configuration.version}, {status.configuration_age_ms / 1000:.0f} s old "
        f"(the bound is T, {answers.lease_s:g} s)"
    )


def lagging_clients(answers: Answers) -> Iterator[Reason]:
    """Connections of clients and mounts that ask for the routing and have not taken the newest version within T."""
    status = answers.status
    if not _is_due(status):
        return
    behind = [one for one in status.clients if one.configuration.made_ns != status.configuration.made_ns]
    if behind:
        yield Reason(
            "client_configuration_behind",
            Severity.WARN,
            f"{count_of(len(behind), 'client or mount has', 'clients and mounts have')} not taken the newest version "
            "of the configuration: "
            + listed(f"{one.name} (version {one.configuration.version})" for one in behind)
            + f"; {_age(answers)}",
            "look at its log; a new connection, or mounting again, takes the newest version, too "
            "(`threefs config status`)",
        )


def refused_values(answers: Answers) -> Iterator[Reason]:
    """Values that a process cannot take: it goes on with those it had."""
    reports = [("the primary manager", answers.status.manager_configuration)]
    reports += [(node_name(row.node), row.configuration) for row in answers.status.nodes if row.alive]
    for name, report in reports:
        refused = [key for key in report.keys if key.state == pb.REFUSED]
        if refused:
            yield Reason(
                "configuration_refused",
                Severity.WARN,
                f"{name} refuses values of the configuration: {_refusals(refused)}",
                "`threefs config set` another value, or `threefs config rollback`; if it does not know the key, end "
                "the upgrade: docs/upgrade.md",
            )


def _refusals(keys: Iterable[pb.KeyReport]) -> str:
    return listed(f"{key.name} ({key.reason})" for key in keys)


def _concerns_clients(name: str) -> bool:
    """A client of an older release refuses each key that it does not know."""
    return name not in KEYS or Role.CLIENT in KEYS[name].roles


def values_refused_by_clients(answers: Answers) -> Iterator[Reason]:
    """Values that clients and mounts cannot take: they go on with those they had."""
    found: dict[str, list[pb.KeyReport]] = {}
    for one in answers.status.clients:
        refused = [key for key in one.configuration.keys if key.state == pb.REFUSED and _concerns_clients(key.name)]
        if refused:
            found.setdefault(one.name, []).extend(refused)
    if found:
        yield Reason(
            "client_configuration_refused",
            Severity.WARN,
            f"{count_of(len(found), 'client or mount refuses', 'clients and mounts refuse')} values of the "
            "configuration: " + listed(f"{name}: {_refusals(keys)}" for name, keys in found.items()),
            "`threefs config set` another value, or `threefs config rollback`; programs that do not know the key are "
            "of an older release: docs/upgrade.md",
        )
