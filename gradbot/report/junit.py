"""A report as JUnit XML: one testcase per case and check, one suite per device and shard.

`xunit1` (what pytest calls legacy, with `file` and `line` on testcases) and `xunit2` (valid against the Jenkins xunit
plugin's junit-10.xsd). A wrong gradient is a failure; user code that raised, died or hung is an error; what was not
checked, is not supported, inconclusive or declared to fail is skipped, each with the reason.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from typing import Any

from junitparser import xunit2
from junitparser.junitparser import Error, Failure, Skipped, SystemOut

from gradbot import messages
from gradbot.model import CaseResult, CheckResult, Outcome, Report, Severity
from gradbot.report import aggregate, terminal, text, wording
from gradbot.report.aggregate import Occurrence

FAMILIES = ("xunit1", "xunit2")

_MESSAGE = 300
_BODY = 6000
_SKIPPED = {
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.UNSUPPORTED: "unsupported",
    Outcome.EXPECTED_FAILURE: "expected failure",
    Outcome.SKIPPED: "skipped",
}
# What XML 1.0 cannot hold, and what would hide or reorder text where it is shown.
_BAD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufffe\uffff]"
)


def render(report: Report, family: str = "xunit1") -> str:
    """The report as an XML document.

    Raises `ValueError` where `family` is not one of FAMILIES.
    """
    if family not in FAMILIES:
        raise ValueError(f"junit family is {family!r}; expected {' or '.join(FAMILIES)}")
    places = _Places(report, family == "xunit1")
    document: Any = xunit2.JUnitXml("gradbot")
    for name, properties, cases in _suites(report, places):
        suite: Any = xunit2.TestSuite(xml_text(name))  # type: ignore[no-untyped-call]
        suite.add_testcases(cases)
        if report.run.started:
            suite.timestamp = xml_text(report.run.started)
        for key, value in properties:
            suite.add_property(xml_text(key), xml_text(value))
        document.add_testsuite(suite)
    document.update_statistics()
    if family == "xunit1":
        skipped = sum(int(suite.skipped or 0) for suite in document)
        document._elem.set("skipped", str(skipped))
    return _serialise(document._elem)


def xml_text(value: str) -> str:
    """`value` with everything that XML 1.0 forbids, and invisible or reordering characters, written as `#xNN`."""
    plain = value.replace("\r\n", "\n").replace("\r", "\n")
    return _BAD.sub(lambda match: f"#x{ord(match.group()):02X}", plain)


class _Places:
    """Where testcases say they come from; nothing at all in the family whose schema has no such attributes."""

    def __init__(self, report: Report, wanted: bool) -> None:
        self._targets = aggregate.targets_by_id(report)
        self._wanted = wanted

    def set(self, testcase: Any, occurrence: Occurrence, target: str, check: str) -> None:
        if not self._wanted:
            return
        item = aggregate.Item(
            target=target,
            check=check,
            kind="",
            rule="",
            severity=Severity.NOTE,
            outcome=Outcome.PASSED,
            occurrences=(occurrence,),
        )
        place = aggregate.location(item, self._targets)
        if place is not None:
            testcase._elem.set("file", xml_text(place.path))
            testcase._elem.set("line", str(max(place.line, 1)))


Suite = tuple[str, Sequence[tuple[str, str]], list[Any]]


def _suites(report: Report, places: _Places) -> Iterable[Suite]:
    environments = {environment.name: environment for environment in report.environments}
    by_device: dict[str, list[CaseResult]] = {}
    for result in report.results:
        by_device.setdefault(result.case.device, []).append(result)
    for device, results in sorted(by_device.items()):
        # Some readers want the names of properties to be unique in the whole document.
        properties = [(f"{device}.shard", report.shard.name)]
        environment = environments.get(results[0].worker) or environments.get(device)
        if environment is not None:
            named = ("device_name", "driver", "python", "platform", "torch", "cuda")
            properties += [(f"{device}.{name}", value) for name in named if (value := getattr(environment, name))]
        cases = [testcase for result in results for testcase in _testcases(result, places)]
        yield _name(device, report), properties, cases
    across = [_across(Occurrence(finding=each), places) for each in report.findings]
    if across:
        yield _name("across devices", report), [], across
    rest = [*_unchecked(report), *_missing(report)]
    if rest:
        yield _name("not checked", report), [], rest


def _name(what: str, report: Report) -> str:
    return f"gradbot {what} (shard {report.shard.name})"


def _testcases(result: CaseResult, places: _Places) -> Iterable[Any]:
    for check in result.checks:
        occurrences = [Occurrence(result=result, check=check, finding=each) for each in check.findings]
        lead = next(iter(occurrences), Occurrence(result=result, check=check))
        testcase = _testcase(result, check.check, check.seconds)
        places.set(testcase, lead, result.case.target, check.check)
        _fill(testcase, check.outcome, lead, occurrences or [lead])
        _add_attempts(testcase, result, check)
        yield testcase
    ended = result.crash is not None or result.outcome in aggregate.ERRORS
    covered = result.crash is None and any(check.outcome is result.outcome for check in result.checks)
    if not result.checks or (ended and not covered):
        stage = result.crash.stage if result.crash else ""
        done = {check.check for check in result.checks}
        spent = sum(check.seconds for check in result.checks)
        testcase = _testcase(result, stage if stage and stage not in done else "run", result.seconds - spent)
        lead = Occurrence(result=result)
        places.set(testcase, lead, result.case.target, stage)
        _fill(testcase, result.outcome, lead, [lead])
        yield testcase


def _testcase(result: CaseResult, check: str, seconds: float) -> Any:
    case = result.case
    name = f"{check}[{case.name}:{case.device}:{case.dtype}]"
    return _bare(name, case.target, seconds)


def _bare(name: str, target: str, seconds: float = 0.0) -> Any:
    testcase = xunit2.TestCase(xml_text(name), xml_text(re.sub(r"(?<!:):(?!:)", ".", target)))
    testcase.time = round(seconds, 3) if 0 <= seconds < 1e9 else 0.0
    return testcase


def _fill(testcase: Any, outcome: Outcome, lead: Occurrence, occurrences: Sequence[Occurrence]) -> None:
    """Give a testcase its one result, and what else there is to say as its output."""
    line = xml_text(text.cut(wording.occurrence_headline(lead, outcome), _MESSAGE))
    body = "\n\n".join(terminal.plain(each, outcome) for each in occurrences[:8])
    crash = lead.result.crash if lead.result and lead.check is None else None
    if outcome in aggregate.BAD:
        kind = lead.finding.kind if lead.finding else crash.cause if crash else outcome.value
        element = (Failure if outcome in aggregate.FAILURES else Error)(line, xml_text(kind))
        again = messages.reproduction(lead.result.case) if lead.result else ""
        said = f"{body}\n\nagain: {again}" if again and not text.has_hidden(again) else body
        element.text = xml_text(text.cut(said, _BODY))
        testcase.append(element)
    elif outcome in _SKIPPED:
        testcase.append(Skipped(f"{_SKIPPED[outcome]}: {line}", _SKIPPED[outcome].replace(" ", "_")))
    elif any(each.finding for each in occurrences) or outcome is Outcome.UNEXPECTED_PASS:
        testcase.append(SystemOut(xml_text(text.cut(body, _BODY))))
    if crash is not None and crash.output_tail:
        testcase.append(SystemOut(xml_text(text.tail(crash.output_tail))))


def _add_attempts(testcase: Any, result: CaseResult, check: CheckResult) -> None:
    """Runs that ended otherwise than the last one: rerun for a failing testcase, flaky for a passing one."""
    tries = result.attempts
    if tries is None or not 0 < tries.failures < tries.runs:
        return
    if check.outcome not in (Outcome.FAILED, Outcome.PASSED):
        return
    kind = xunit2.RerunFailure if check.outcome is Outcome.FAILED else xunit2.FlakyFailure
    if check.outcome is Outcome.PASSED and result.outcome in aggregate.BAD:
        return  # another check of the case is the one that fails
    testcase.append(kind(f"failed in {tries.failures} of {tries.runs} runs", "flaky"))


def _across(occurrence: Occurrence, places: _Places) -> Any:
    finding = occurrence.finding
    assert finding is not None
    target = str(finding.details.get("target", ""))
    testcase = _bare(f"{finding.check}[{finding.details.get('case', 'across')}]", target or "across targets")
    places.set(testcase, occurrence, target, finding.check)
    failed = finding.severity is Severity.ERROR
    _fill(testcase, Outcome.FAILED if failed else Outcome.PASSED, occurrence, [occurrence])
    return testcase


def _unchecked(report: Report) -> Iterable[Any]:
    for each in aggregate.unchecked(report):
        if not each.case:
            testcase = _bare("checked", each.target)
            why = text.one_line(messages.reason_text(each.reason, each.details), _MESSAGE)
            testcase.append(Skipped(xml_text(f"not checked: {why}"), "unchecked"))
            yield testcase
    for problem in report.problems:
        testcase = _bare("import", problem.module)
        testcase.append(Skipped(xml_text(text.one_line(f"not imported: {problem.reason}", _MESSAGE)), "unchecked"))
        yield testcase


def _missing(report: Report) -> Iterable[Any]:
    for name in aggregate.missing_shards(report):
        testcase = _bare("reported", f"shard {name}")
        testcase.append(Error("the shard never reported: what it holds is not checked", "missing_shard"))
        yield testcase
    if report.run.interrupted:
        testcase = _bare("finished", "run")
        testcase.append(Error("the run was interrupted: what is missing is not checked", "interrupted"))
        yield testcase


def _serialise(element: Any) -> str:
    """Written by the standard library whichever XML library is installed, with times in three decimals."""
    root = _copied(element)
    for suite in root.iter("testsuite"):
        times = [float(testcase.get("time", "0")) for testcase in suite.iter("testcase")]
        suite.set("time", f"{sum(times):.3f}")
        for testcase in suite.iter("testcase"):
            testcase.set("time", f"{float(testcase.get('time', '0')):.3f}")
    total = sum(float(suite.get("time", "0")) for suite in root.iter("testsuite"))
    root.set("time", f"{total:.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _copied(element: Any) -> ElementTree.Element:
    copy = ElementTree.Element(element.tag, dict(element.attrib))
    copy.text = element.text
    copy.extend(_copied(child) for child in element)
    return copy
