"""What was discovered, as a table."""

from __future__ import annotations

from gradbot.model import Discovery, ImportProblem, Location, Offers, Target, TargetKind
from gradbot.report.targets import render


def function(name: str, **more: object) -> Target:
    place = Location(path="kernels/ops.py", line=7)
    module, _, qualname = name.partition(":")
    return Target(
        **{  # type: ignore[arg-type]
            "id": name,
            "kind": TargetKind.FUNCTION,
            "package": "kernels",
            "module": module,
            "qualname": qualname,
            "location": place,
            "offers": Offers(backward=True),
            "seen": "both",
            **more,
        }
    )


def lines(*targets: Target, **more: object) -> list[str]:
    found = Discovery(targets=targets, **more)  # type: ignore[arg-type]
    return [" ".join(line.split()) for line in render(found, width=140).splitlines() if line.strip()]


def test_each_target_says_where_it_is_what_it_offers_and_whether_it_has_cases() -> None:
    full = Offers(backward=True, jvp=True, setup_context=True, vmap="rule", once_differentiable=True)
    op = Offers(backward=True, autograd_formula=True, fake_kernel=True, vmap="rule")
    shown = lines(
        function("kernels.ops:A", offers=full),
        function("kernels.ops:B", offers=Offers(backward=False, vmap="generated"), seen="static"),
        function("kernels.ops:C", offers=Offers()),
        function("mylib::d", kind=TargetKind.OP, offers=op, triton=True),
        function("mylib::e", kind=TargetKind.OP, offers=Offers(), location=None),
        case_ids={"kernels.ops:A": ("kernels.ops:A[x]cpu:float64",)},
    )
    assert shown == [
        "kernels place offers cases",
        "kernels.ops:A kernels/ops.py:7 backward (once differentiable), jvp, setup_context, vmap 1",
        "kernels.ops:B kernels/ops.py:7 no backward, generated vmap, not seen at import none",
        "kernels.ops:C kernels/ops.py:7 known once it is made none",
        "mylib::d (op) kernels/ops.py:7 autograd, fake, vmap, triton none",
        "mylib::e (op) ? known once it is made none",
        "3 Functions, 2 ops · 1 with cases, 4 without",
    ]


def test_from_the_sources_alone_it_is_known_that_cases_are_declared_but_not_how_many() -> None:
    target = function("kernels.ops:A", seen="static")
    shown = lines(target, declared={"kernels.ops:A": ("tests/cases.py:3",)})
    assert shown[1].endswith("backward declared")


def test_paths_outside_the_project_begin_at_the_package() -> None:
    place = Location(path="/opt/venv/lib/site-packages/kernels/ops.py", line=7)
    assert lines(function("kernels.ops:A", location=place))[1].startswith("kernels.ops:A kernels/ops.py:7 ")


def test_modules_that_fail_for_one_reason_share_a_line() -> None:
    problems = tuple(ImportProblem(module=f"p.m{n}", path="", reason="ImportError: no") for n in range(3))
    other = ImportProblem(module="q", path="", reason="SystemExit: 2")
    assert lines(problems=(*problems, other), notes=("something",)) == [
        "could not import p.m0 and 2 more: ImportError: no",
        "could not import q: SystemExit: 2",
        "note: something",
        "no custom Functions or registered ops found",
    ]
