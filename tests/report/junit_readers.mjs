// Reads a JUnit file with two packages and prints how each counts it: { name: [tests, bad, skipped] }.
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, copyFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [file, modules] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const log = console.log;
console.log = console.info = console.warn = () => {};

const { parse } = require("test-results-parser");
const cases = parse({ type: "junit", files: [file] }).suites.flatMap((suite) => suite.cases);
const counted = (word) => cases.filter((each) => each.status === word).length;

const { convertJUnitToCTRFReport } = require("junit-to-ctrf");
const folder = mkdtempSync(join(tmpdir(), "ctrf-"));
copyFileSync(file, join(folder, "junit.xml"));
const { summary } = (await convertJUnitToCTRFReport(join(folder, "junit.xml"), { outputPath: join(folder, "ctrf.json") })
  ?? JSON.parse(readFileSync(join(folder, "ctrf.json"), "utf8"))).results;

log(JSON.stringify({
  "test-results-parser": [cases.length, counted("FAIL"), counted("SKIP")],
  "junit-to-ctrf": [summary.tests, summary.failed, summary.skipped],
}));
