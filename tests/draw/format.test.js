import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { formatTick, formatValue } from "../../src/cutaway/draw/format.js";

const FORMATS = JSON.parse(readFileSync(new URL("../reports/formats.json", import.meta.url), "utf8"));

test("numbers are written as in the sentences that Python makes", () => {
  for (const [value, format, text] of FORMATS) assert.equal(formatValue(value, format), text);
});

test("an axis leaves out decimals that say nothing", () => {
  assert.equal(formatTick(0.9, "fraction"), "90\u202f%");
  assert.equal(formatTick(0.975, "fraction"), "97.5\u202f%");
  assert.equal(formatTick(0.30000000000000004, "number"), "0.3");
});

test("text stays as it is and what is absent in it is empty", () => {
  assert.equal(formatValue("007", "text"), "007");
  assert.equal(formatValue(null, "text"), "");
});
