"""The health of the configuration: processes that do not run with its newest version. One function per reason."""

from collections.abc import Iterator

from threefs import configuration
from threefs.configuration import KEYS, Value
from threefs.errors import InvalidArgument
from threefs.health.answers import Answers, listed, node_name
from threefs.health.verdict import Reason, Severity
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
    if not newest.version or status.configuration_age_ms < status.lease_ms:
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
            f"{node_name(row.node)} {state}; the newest is {newest.version}, "
            f"{status.configuration_age_ms / 1000:.0f} s old (the bound is T, {answers.lease_s:g} s)",
            advice,
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
                f"{name} refuses values of the configuration: "
                + listed(f"{key.name} ({key.reason})" for key in refused),
                "`threefs config set` another value, or `threefs config rollback`; if it does not know the key, end "
                "the upgrade: docs/upgrade.md",
            )
