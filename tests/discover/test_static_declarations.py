"""Declared cases are seen in the sources: in the package, in tests, in named files."""

from __future__ import annotations

from pathlib import Path

from small_projects import BODY, TORCH, scanned, write

from gradbot.discover.static import scan

KERNELS = f"{TORCH}class Square(Function):{BODY}"
OPS = """
    import torch

    @torch.library.custom_op("mylib::op", mutates_args=())
    def op(x): return x
"""
CASES = """
    import gradbot
    import gradbot as gb
    from gradbot import cases as declare, from_opinfo
    import torch
    import kernels
    from kernels import Square
    from kernels.ops import op

    @gradbot.cases(kernels.Square)
    def one(): ...

    @gb.cases(target=Square, rtol=1)
    def two(): ...

    @declare("kernels:Square")
    def three(): ...

    @declare(op)
    def four(): ...

    @declare(torch.ops.mylib.op.default)
    def five(): ...

    @declare("mylib::op")
    def six(): ...

    @declare(torch.nn.functional.gelu)
    def seven(): ...

    @declare([Square][0])
    def eight(): ...
"""


def project(folder: Path, **more: str) -> dict[str, str]:
    return {"pyproject.toml": "", "kernels/__init__.py": KERNELS, "kernels/ops.py": OPS, **more}


def test_targets_given_in_every_way(tmp_path: Path) -> None:
    found = scanned(tmp_path, project(tmp_path) | {"tests/cases_kernels.py": CASES})
    lines = {name: [place.rpartition(":")[2] for place in places] for name, places in found.declared.items()}
    assert lines == {
        "kernels:Square": ["11", "14", "17"],
        "mylib::op": ["20", "23", "26"],
        "torch.nn.functional:gelu": ["29"],
    }
    assert found.case_files == ("tests/cases_kernels.py",)


def test_cases_in_the_package_itself(tmp_path: Path) -> None:
    source = f"{KERNELS}\nimport gradbot\n@gradbot.cases(Square)\ndef square(): ...\n"
    found = scanned(tmp_path, {"kernels/__init__.py": source}, "kernels")
    assert set(found.declared) == {"kernels:Square"}
    assert found.case_files == ("kernels/__init__.py",)


def test_of_a_narrow_request_only_files_that_mention_it_count(tmp_path: Path) -> None:
    other = "import gradbot\n\ndef wrapped(x): ...\n\n@gradbot.cases(wrapped)\ndef cases_of_something_else(): ...\n"
    ours = other.replace("import gradbot", "import gradbot, kernels")
    files = {"kernels/__init__.py": KERNELS, "tests/test_other.py": other, "tests/test_ours.py": ours}
    files["tests/test_opinfo.py"] = "import gradbot\n\ndef test_it():\n    gradbot.from_opinfo([])\n"
    assert scanned(tmp_path, files, "kernels").case_files == ("tests/test_ours.py",)


def test_of_an_installed_package_only_files_that_mention_it_count(tmp_path: Path) -> None:
    installed = ".venv/lib/python3/site-packages"
    source = "import gradbot\nfrom gradbot import from_opinfo\n\nfrom_opinfo([])\n"
    write(
        tmp_path,
        {f"{installed}/kernels/__init__.py": KERNELS, "other.py": source, "ours.py": f"import kernels\n{source}"},
    )
    found = scan([f"{installed}/kernels"], root=tmp_path)
    assert found.case_files == ("ours.py",)


def test_files_that_only_speak_of_gradbot_are_no_case_files(tmp_path: Path) -> None:
    source = "# gradbot has cases\nimport gradbot\ndef cases(x): return x\n@cases(3)\ndef f(): ...\n"
    assert scanned(tmp_path, project(tmp_path) | {"tests/test_x.py": source}).case_files == ()


def test_named_files_and_globs_come_first_and_are_always_listed(tmp_path: Path) -> None:
    files = project(tmp_path) | {"more/b.py": "", "more/a.py": "", "one.py": "", "dir/x.py": CASES, "dir/y.py": ""}
    write(tmp_path, files)
    found = scan(["kernels"], root=tmp_path, case_files=["one.py", "more/*.py", "dir"], search_cases=False)
    assert found.case_files == ("one.py", "more/a.py", "more/b.py", "dir/x.py")


def test_from_opinfo_makes_a_case_file(tmp_path: Path) -> None:
    source = "import gradbot\ngradbot.from_opinfo([])\n"
    assert scanned(tmp_path, project(tmp_path) | {"tests/ops.py": source}).case_files == ("tests/ops.py",)


def test_a_case_file_that_does_not_parse_stays_listed(tmp_path: Path) -> None:
    source = "import gradbot\n@gradbot.cases(\n"
    assert scanned(tmp_path, project(tmp_path) | {"tests/ops.py": source}).case_files == ("tests/ops.py",)


def test_of_a_package_from_elsewhere_only_its_own_cases_count(tmp_path: Path) -> None:
    files = {
        "tests/a.py": CASES.partition("    @declare([Square]")[0],
        "tests/b.py": 'import gradbot\n@gradbot.cases("entmax.losses:Entmax15LossFunction")\ndef f(): ...\n',
    }
    found = scan(["entmax"], root=write(tmp_path, files))
    assert set(found.declared) == {"entmax.losses:Entmax15LossFunction"}


def test_the_package_around_an_asked_module_is_searched_too(tmp_path: Path) -> None:
    case = "import gradbot\nfrom around.{0} import Square\n@gradbot.cases(Square)\ndef f(): ...\n"
    files = {
        "site/around/__init__.py": "",
        "site/around/a.py": KERNELS,
        "site/around/b.py": KERNELS,
        "site/around/cases_a.py": case.format("a"),
        "site/around/cases_b.py": case.format("b"),
        "project/x.txt": "",
    }
    found = scan([str(write(tmp_path, files) / "site/around/a.py")], root=tmp_path / "project")
    assert [Path(each).name for each in found.case_files] == ["cases_a.py"]
    assert set(found.declared) == {"around.a:Square"}
