import assert from "node:assert/strict";
import test from "node:test";

import { studio } from "./studio.js";

const { sameSettings, parseLog, parseState, withoutSteps, formatState } = await studio("state.js");

const HASH =
  "#data=moons&noise=0.1&model=mlp&seed=3&model.hidden_dims=8,8&lr=0.01&steps=140" +
  "&log=120:lr=0.1;130:weight:hidden.0.linear.weight[0,1]=0.5&b.model.hidden_dims=2&b.lr=0.1&views=boundary,curves&hide=lr,seed&sides=2";

test("what is written into the URL is read from it again, and stays readable", () => {
  const state = parseState(HASH);
  assert.equal(state.a["model.hidden_dims"], "8,8");
  assert.equal(state.a.log, "120:lr=0.1;130:weight:hidden.0.linear.weight[0,1]=0.5");
  assert.deepEqual(state.page, { views: "boundary,curves", hide: "lr,seed", sides: "2" });
  assert.deepEqual(parseState(formatState(state)), state);
  assert.equal(`#${formatState(state)}`, HASH);
});

test("the second model is as the first in all that is not said of it", () => {
  const { a, b } = parseState(HASH);
  assert.deepEqual(b, { ...a, "model.hidden_dims": "2", lr: "0.1" });
  assert.equal(parseState("#data=moons&model=mlp").b, null);
  assert.deepEqual(parseState("#data=moons&sides=2").b, { data: "moons" });
  assert.deepEqual(parseState("#data=moons&b.lr=1").b, { data: "moons", lr: "1" });
});

test("what the second model lacks and the first has is said as nothing", () => {
  const state = { page: {}, a: { data: "xor", lr: "1", steps: "20", log: "3:lr=2" }, b: { data: "xor" } };
  const hash = formatState(state);
  assert.match(hash, /b\.lr=&b\.steps=&b\.log=/);
  assert.deepEqual(parseState(hash).b, { data: "xor" });
});

test("any key and value comes back, whatever is in it", () => {
  const letters = ["a", "&", "=", "#", "%", "+", " ", "é", "猫", "😀", "<", '"', "\n", ";", ":", ",", "/", "[", "%41", "b."];
  let seed = 7;
  const draw = (n) => (seed = (seed * 16807) % 2147483647) % n;
  for (let round = 0; round < 400; round++) {
    const word = () => Array.from({ length: 1 + draw(5) }, () => letters[draw(letters.length)]).join("");
    const own = () => Object.fromEntries(Array.from({ length: draw(5) }, () => [`k${word().replaceAll("b.", "")}`, word()]));
    const state = { page: { hide: word() }, a: own(), b: null };
    assert.deepEqual(parseState(formatState(state)), state, JSON.stringify(state));
    const two = { page: { hide: "x", sides: "2" }, a: own(), b: own() };
    const back = parseState(formatState(two));
    assert.deepEqual([back.a, back.b], [two.a, two.b], JSON.stringify(two));
  }
});

test("a hash that nobody wrote is read as far as it goes", () => {
  assert.deepEqual(parseState("").a, {});
  assert.deepEqual(parseState("#&&=x&lr&data=%E0%A4%A").a, { data: "%E0%A4%A" });
});

test("two sides are alike however far they are trained, but not if something was changed on the way", () => {
  assert.ok(sameSettings({ lr: "1", steps: "3" }, { lr: "1", noise: "" }));
  assert.ok(!sameSettings({ lr: "1", log: "2:lr=3" }, { lr: "1" }));
  assert.deepEqual(withoutSteps({ lr: "1", steps: "3", log: "2:lr=3" }), { lr: "1" });
});

test("the last of several changes holds, and weights are no settings", () => {
  const log = "0:lr=1;120:lr=0.1;130:weight:hidden.0.linear.weight[0,1]=0.5;140:model.dropout=0.2;150:lr=0.2";
  assert.deepEqual(parseLog(log), { lr: "0.2", "model.dropout": "0.2" });
  assert.deepEqual(parseLog(""), {});
});
