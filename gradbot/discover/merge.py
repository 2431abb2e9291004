"""Joins what the sources say with what importing registered. Where both speak, the import is right about what a target
offers, and the sources are right about where it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from gradbot.model import Discovery, ImportProblem, Location, Offers, Target


def merge(static: Discovery, runtime: Discovery) -> Discovery:
    """One discovery of two. Targets stay listed if their module could not be imported; each is listed once."""
    known = {target.id: target for target in static.targets}
    by_place = {key: target for target in static.targets if (key := _place_key(target)) is not None}
    moved: dict[str, str] = {}
    for live in runtime.targets:
        stated = known.get(live.id) or by_place.get(_place_key(live) or ("", 0, ""))
        if stated is not None and stated.id != live.id:
            moved[stated.id] = live.id
            known.pop(stated.id, None)
        known[live.id] = live if stated is None else _both(stated, live)
    declared = {moved.get(target, target): places for target, places in static.declared.items()}
    return replace(
        static,
        targets=tuple(sorted(known.values(), key=lambda each: (each.kind.value, each.id))),
        problems=_unique([*static.problems, *runtime.problems]),
        notes=tuple(dict.fromkeys([*static.notes, *runtime.notes])),
        declared={**declared, **runtime.declared},
    )


def _place_key(target: Target) -> tuple[str, int, str] | None:
    """Name and place of the forward: the same for a class that changed its `__module__` or was made by a call."""
    forward: Location | None = target.methods.get("forward")
    return (forward.path, forward.line, target.qualname) if forward is not None else None


def _both(stated: Target, live: Target) -> Target:
    return replace(
        live,
        package=live.package or stated.package,
        module=live.module or stated.module,
        location=stated.location or live.location,
        methods={**live.methods, **stated_methods(stated, live)},
        offers=_offers(stated.offers, live.offers),
        schema=live.schema or stated.schema,
        triton=live.triton or stated.triton,
        seen="both",
    )


def stated_methods(stated: Target, live: Target) -> dict[str, Location]:
    """Places from the sources, of methods that the live target does have, where both mean the same file."""
    kept = {}
    for name, place in stated.methods.items():
        other = live.methods.get(name)
        if other is None or other.path == place.path:
            kept[name] = place
    return kept


def _offers(stated: Offers, live: Offers) -> Offers:
    pairs = {each.name: (getattr(live, each.name), getattr(stated, each.name)) for each in fields(Offers)}
    return Offers(**{name: first if first is not None else second for name, (first, second) in pairs.items()})


def _unique(problems: Iterable[ImportProblem]) -> tuple[ImportProblem, ...]:
    """One problem a module; the one that came last, from the import, says more."""
    return tuple({each.module: each for each in problems}.values())
