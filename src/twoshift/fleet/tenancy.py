"""What tenants' jobs may do on a server, and what tenants have had of its devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twoshift.blobs.roots import Roots
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs
from twoshift.serve.deployments import Deployment
from twoshift.serve.keys import ANYONE
from twoshift.serve.ledger import LIVE, Counted
from twoshift.serve.settings import ServeSettings
from twoshift.serve.tenants import Tenant

if TYPE_CHECKING:  # a server without jobs does without their packages
    from twoshift.batch.allowance import Allowance
    from twoshift.batch.job_seats import Payer, Used

__all__ = ["allowances", "counted", "own_files"]

_DATABASE_FILES = ("", "-wal", "-shm", "-journal", ".lock")


def own_files(home: Path, database: Path | None, files: str) -> tuple[str, ...]:
    """Of the server: no job reads or writes there."""
    of_database = () if database is None else tuple(f"{database.absolute()}{end}" for end in _DATABASE_FILES)
    return str(home.absolute()), files if "://" in files else str(Path(files).absolute()), *of_database


def allowances(
    settings: ServeSettings,
    tenants: Mapping[str, Tenant],
    ours: Sequence[str],
    blobs_for: Callable[[str], Blobs],
    confined: Callable[[Roots, str], Blobs],  # the same, below some roots
) -> Callable[[str], Allowance]:
    """By owner; one that no key has any more has what a tenant without limits has."""
    from twoshift.batch.allowance import Allowance

    def of(owner: str) -> Allowance:
        tenant = tenants.get(owner) or Tenant(owner)
        limits = tenant.settings
        quotas = limits.concurrent_jobs, limits.open_jobs, tenant.check_storage
        if settings.is_private and not settings.job_roots:  # whoever asks may do all that anyway
            anywhere = Roots((os.sep,), tuple(ours))
            return Allowance(blobs_for, partial(_check_private, anywhere), _any_place, tenant.why_spent, *quotas)
        roots = _roots(settings, owner, ours)
        checks = partial(_check_output, roots), roots.check
        return Allowance(partial(confined, roots), *checks, tenant.why_spent, *quotas)

    return of


def _roots(settings: ServeSettings, owner: str, ours: Sequence[str]) -> Roots:
    named = {name: each.job_roots for name, each in settings.tenants.items()}
    own = named.get(owner)
    others = [root for name, roots in named.items() if name != owner for root in roots or ()]
    return Roots(settings.job_roots if own is None else own, (*ours, *others))


def _any_place(_place: str, _field: str) -> None:
    """Whoever asks may reach it anyway."""


def _check_private(roots: Roots, output: str) -> None:
    if "://" not in output and not roots.holds_file(os.path.realpath(output)):
        raise InvalidInput("output", output, "a folder outside TWOSHIFT_HOME and outside the server's own files")


def _check_output(roots: Roots, output: str) -> None:
    roots.check(output, "output")
    if "://" not in output:  # a job's lock and what it has begun lie there: no link may lead them elsewhere
        for folder in ("_twoshift", "_twoshift/staging"):
            roots.check(f"{output.rstrip('/')}/{folder}", "output")


def counted(
    models: Mapping[str, Deployment], background: Mapping[str, Callable[[], Mapping[Payer, Used]]]
) -> list[Counted]:
    """Since the start; of what no key has asked for, anyone's.

    `background` tells by lane what jobs and streams have had, all of it on devices that serve.
    """
    found: dict[tuple[str, str, str, str], Counted] = {}
    for name, model in models.items():
        for version, stats in model.stats_by_version().items():
            for tenant, use in stats.tenants.items():
                had = (use.rows, use.tokens, use.device_s, 0.0, use.output_tokens, use.output_s)
                _add(found, Counted(tenant or ANYONE.tenant, LIVE, name, *had, version))
    for lane, told in background.items():
        for (owner, name, version), used in told().items():
            device_s = used.device_s
            had = (used.rows, used.tokens, device_s, device_s, used.output_tokens, used.output_s)
            _add(found, Counted(owner or ANYONE.tenant, lane, name, *had, version))
    return list(found.values())


def _add(found: dict[tuple[str, str, str, str], Counted], more: Counted) -> None:
    """One for each tenant, lane, model and version: anyone's may come under two names."""
    before = found.get(more.who) or Counted(*more[:3], 0, 0, 0.0)
    found[more.who] = more._replace(
        rows=before.rows + more.rows,
        tokens=before.tokens + more.tokens,
        device_s=before.device_s + more.device_s,
        harvested_s=before.harvested_s + more.harvested_s,
        output_tokens=before.output_tokens + more.output_tokens,
        output_s=before.output_s + more.output_s,
    )
