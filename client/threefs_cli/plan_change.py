"""Changes that `threefs up` may make to the plan of a cluster that has data, and why not the rest."""

import dataclasses

from threefs.errors import InvalidArgument
from threefs_cli.cluster_file import EMBEDDED, Plan


def check(before: Plan, after: Plan, *, runs: bool, where: str) -> None:
    """Raises InvalidArgument, which says what is possible. `runs`: some process of the cluster runs."""
    if after.engine != before.engine:
        raise InvalidArgument(
            f"the cluster in {where} keeps its metadata in the engine {before.engine}; `threefs meta dump` and "
            "`threefs meta load` move it to another one (docs/engines.md), or --dir names another cluster"
        )
    if after.managers < before.managers or after.metas < before.metas:
        raise InvalidArgument(
            f"the cluster in {where} has {before.managers} managers and {before.metas} meta services, and `threefs up` "
            "only adds some; one that is stopped is not missed while another one of its kind runs"
        )
    if after.managers > before.managers and runs:
        raise InvalidArgument(
            f"the cluster in {where} has {before.managers} managers, and every process that runs was given their "
            f"addresses; `threefs down`, then `threefs up --managers {after.managers}` adds some"
        )
    same_copies = after.replicas == before.replicas
    if same_copies and after.storage >= before.storage and after.min_replicas == before.min_replicas:
        return
    if same_copies and after.storage == before.storage:
        raise InvalidArgument(
            f"the cluster in {where} exists already; `threefs chain min-replicas {after.min_replicas}` changes how "
            "many copies a write needs"
        )
    raise InvalidArgument(
        f"the cluster in {where} has {before.storage} storage processes and {before.replicas} replicas; a larger "
        "--storage adds processes, `threefs node drain` empties one, and `threefs table set-replicas 1 COPIES` "
        "changes the copies"
    )


def requested(
    known: Plan | None,
    *,
    storage: int | None = None,
    replicas: int | None = None,
    min_replicas: int | None = None,
    managers: int | None = None,
    metas: int | None = None,
    engine: str | None = None,
) -> Plan | None:
    """The plan that the options ask for: options that are missing keep the plan of the cluster. None: no option.

    Raises InvalidArgument.
    """
    options = {
        "storage": storage,
        "replicas": replicas,
        "min_replicas": min_replicas,
        "managers": managers,
        "metas": metas,
        "engine": engine,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return None
    base = known or Plan()
    if known is None and replicas is None:
        given["replicas"] = min(base.replicas, storage or base.storage)
    _check_engine(known, managers or 1, metas or 1, engine)
    plan = dataclasses.replace(base, **given)  # type: ignore[arg-type]
    if plan.min_replicas > plan.replicas and given.keys() & {"min_replicas", "replicas"}:
        raise InvalidArgument(
            f"a write cannot need {plan.min_replicas} copies of {plan.replicas}; give --min-replicas {plan.replicas} "
            f"or --replicas {plan.min_replicas}"
        )
    return plan


def _check_engine(known: Plan | None, managers: int, metas: int, engine: str | None) -> None:
    """Raises InvalidArgument for several services in a cluster that has the embedded engine."""
    if known is None or known.engine != EMBEDDED or engine not in (None, EMBEDDED) or max(managers, metas) == 1:
        return
    raise InvalidArgument(
        "this cluster has the embedded engine, which one manager and one meta service can use; several need a cluster "
        "that was made with `--engine etcd` or `--engine postgresql`: make one with --dir, or move the metadata "
        "of this one by `threefs meta dump` and `threefs meta load` (docs/engines.md)"
    )
