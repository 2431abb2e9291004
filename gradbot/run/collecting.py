"""Finding cases with a worker: it imports the modules and runs the generators, and may die of it.

A module or a file of cases that kills the worker is left out from then on and listed with the cause. For a generator
of cases that does, one case stands in, with that crash as its result. Everything else is collected again in a new
worker, so that nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradbot import codec, messages
from gradbot.errors import GradbotError
from gradbot.model import Case, Crash, Discovery, ImportProblem
from gradbot.run.pool import Ended, Pool, Task

MOST_DEATHS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a worker found: the completed discovery, the cases, and which generators of cases killed it.

    For a generator that did, by its reference (`declared:<file>:<name>`), one case stands in.
    """

    discovery: Discovery
    cases: tuple[Case, ...] = ()
    deaths: Mapping[str, Crash] = field(default_factory=dict)

    def death_of(self, case: Case) -> Crash | None:
        """How the generator of this case died, if it did: nothing of the case can be run then."""
        return self.deaths.get(case.reference.rpartition("#")[0])


def collect(
    pool: Pool,
    discovery: Discovery,
    options: Mapping[str, Any],
    *,
    timeout: float,
    import_timeout: float,
    on_death: Callable[[str, Crash], None] = lambda _what, _crash: None,
) -> Collected | None:
    """Complete a static discovery and list the cases. None if the pool was stopped meanwhile.

    `options` go to the worker as they are.
    """
    deadly: dict[str, ImportProblem] = {}
    deaths: dict[str, Crash] = {}
    for _ in range(MOST_DEATHS):
        message = {
            "do": "collect",
            "discovery": codec.encode(_without(discovery, deadly)),
            "skip": sorted(deaths),
            **options,
        }
        pool.submit(Task(key="collect", message=message, timeout=timeout, import_timeout=import_timeout, fresh=True))
        ended = next(iter(pool.run()), None)
        if ended is None:
            return None
        if ended.crash is None:
            return replace(_collected(ended, discovery, deadly), deaths=deaths)
        on_death(ended.what, ended.crash)
        if not ended.what or ended.what in deadly or ended.what in deaths:
            raise GradbotError(
                f"collecting cases failed at {ended.crash.stage} {ended.what}: {messages.crash_text(ended.crash)}"
            )
        if ended.crash.stage == "import":
            deadly[ended.what] = _problem(discovery, ended.what, ended.crash)
        else:
            deaths[ended.what] = ended.crash
    raise GradbotError(f"more than {MOST_DEATHS} modules or generators of cases kill the process; giving up")


def _without(discovery: Discovery, deadly: Mapping[str, ImportProblem]) -> Discovery:
    return replace(
        discovery,
        modules=tuple(each for each in discovery.modules if each.name not in deadly),
        case_files=tuple(each for each in discovery.case_files if each not in deadly),
    )


def _problem(discovery: Discovery, what: str, crash: Crash) -> ImportProblem:
    """`what` is a module's name or, for a file of cases, its path."""
    paths = {each.name: each.path for each in discovery.modules}
    said = messages.crash_text(replace(crash, stage=""))
    reason = said if crash.cause == "timeout" else f"the process {said}"
    return ImportProblem(module=what, path=paths.get(what, what), reason=reason, crash=crash)


def _collected(ended: Ended, discovery: Discovery, deadly: Mapping[str, ImportProblem]) -> Collected:
    assert ended.reply is not None
    body = ended.reply["body"]
    if "broken" in body:
        raise GradbotError(f"collecting cases failed: {body['broken']}")
    found = codec.decode(body["discovery"], Discovery)
    return Collected(
        discovery=replace(
            found,
            modules=discovery.modules,
            case_files=discovery.case_files,
            problems=(*found.problems, *deadly.values()),
        ),
        cases=tuple(codec.decode(each, Case) for each in body["cases"]),
    )
