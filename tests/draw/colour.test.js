import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { amountColour, categoryColour, dashPattern, fractionColour, textColour, signedColour } from "../../src/cutaway/draw/colour.js";

// How the three dichromacies see linear RGB: G. Machado, M. Oliveira, L. Fernandes, A physiologically-based model for
// simulation of color vision deficiency, 2009, severity 1.
const EYES = {
  usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};
const TOLD_APART = 0.1; // in OKLab, where 0.02 is about the least difference that eyes see

const style = readFileSync(new URL("../../src/cutaway/draw/style.css", import.meta.url), "utf8");
const [light, dark] = [...style.matchAll(/:root \{[^}]*--paper[^}]*\}/g)].map(([block]) =>
  Object.fromEntries([...block.matchAll(/--(\w+): (#\w{6})/g)].map(([, name, colour]) => [name, colour])),
);

const multiply = (matrix, vector) => matrix.map((row) => row.reduce((sum, m, i) => sum + m * vector[i], 0));

function linear(hex) {
  const channels = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  return channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
}

// B. Ottosson, A perceptual color space for image processing, 2020.
function oklab(rgb) {
  const lms = multiply(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]],
    rgb,
  );
  return multiply(
    [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]],
    lms.map((c) => Math.cbrt(Math.max(c, 0))),
  );
}

function distance(a, b, eyes) {
  const [p, q] = [a, b].map((hex) => oklab(multiply(eyes, linear(hex))));
  return Math.hypot(...p.map((c, i) => c - q[i]));
}

const luminance = (hex) => multiply([[0.2126, 0.7152, 0.0722]], linear(hex))[0];
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};

for (const [page, colours] of Object.entries({ light, dark })) {
  for (const [eyes, matrix] of Object.entries(EYES)) {
    test(`${eyes} eyes tell train, val and test apart on a ${page} page`, () => {
      const parts = [colours.train, colours.val, colours.test];
      for (const [i, j] of [[0, 1], [0, 2], [1, 2]]) {
        assert.ok(distance(parts[i], parts[j], matrix) > TOLD_APART, `${parts[i]} ${parts[j]}`);
      }
    });

    test(`${eyes} eyes tell too little from too much on a ${page} page`, () => {
      for (const t of [0.6, 1]) assert.ok(distance(signedColour(-t)[page], signedColour(t)[page], matrix) > TOLD_APART);
      assert.ok(distance(signedColour(0)[page], signedColour(1)[page], matrix) > TOLD_APART);
    });
  }

  test(`all eyes tell seven categories apart on a ${page} page, and their lines from its ground`, () => {
    const seven = [...Array(7).keys()].map((i) => categoryColour(i)[page]);
    for (let i = 0; i < 7; i++) {
      assert.ok(contrast(seven[i], colours.paper) >= 3, seven[i]);
      for (let j = 0; j < i; j++) {
        for (const eyes of Object.values(EYES)) assert.ok(distance(seven[i], seven[j], eyes) > TOLD_APART, `${seven[i]} ${seven[j]}`);
      }
    }
  });

  test(`words on any shade can be read on a ${page} page`, () => {
    for (let i = -20; i <= 20; i++) {
      for (const pair of [signedColour(i / 20), amountColour(Math.abs(i) / 20)]) {
        assert.ok(contrast(textColour(pair)[page], pair[page]) >= 4.5, pair[page]);
      }
    }
  });

  test(`amounts grow away from the ground of a ${page} page`, () => {
    const steps = [...Array(21).keys()].map((i) => contrast(amountColour(i / 20)[page], colours.paper));
    for (let i = 1; i < steps.length; i++) assert.ok(steps[i] > steps[i - 1]);
  });

  test(`words can be read on a ${page} page`, () => {
    for (const name of ["ink", "soft", "train", "val", "test"]) {
      assert.ok(contrast(colours[name], colours.paper) >= 4.5, `${name} ${contrast(colours[name], colours.paper)}`);
    }
  });
}

test("one per cent can be told from nothing, and what is out of range is brought into it", () => {
  assert.ok(distance(fractionColour(0).light, fractionColour(0.01).light, EYES.usual) > 0.015);
  assert.deepEqual(signedColour(7), signedColour(1));
  assert.deepEqual(amountColour(-1), amountColour(0));
});

test("no two of twenty-eight lines have the same colour and the same dashes", () => {
  assert.equal(new Set([...Array(28).keys()].map((i) => `${categoryColour(i).light} ${dashPattern(i)}`)).size, 28);
});
