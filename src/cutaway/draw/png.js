// PNG encoder for indexed colours: synchronous, identical in every browser, without a canvas.
// W3C, Portable Network Graphics (PNG) Specification, third edition; the data is stored without compression.

const SIGNATURE = [137, 80, 78, 71, 13, 10, 26, 10];
const STORED = 65535; // bytes per stored block (RFC 1951, 3.2.4)

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/**
 * Encode an image as a data: URL.
 * @param {number} width @param {number} height
 * @param {Uint8Array} pixels palette indices, row by row
 * @param {number[][]} palette at most 256 of [red, green, blue, opacity], each 0 to 255
 */
export function png(width, height, pixels, palette) {
  const lines = new Uint8Array(height * (width + 1)); // each row begins with its filter type: 0, none
  for (let row = 0; row < height; row++) {
    lines.set(pixels.subarray(row * width, (row + 1) * width), row * (width + 1) + 1);
  }
  const bytes = [
    ...[SIGNATURE],
    chunk("IHDR", [...uint32Bytes(width), ...uint32Bytes(height), 8, 3, 0, 0, 0]),
    chunk("PLTE", palette.flatMap((colour) => colour.slice(0, 3))),
    chunk("tRNS", palette.map((colour) => colour[3])),
    chunk("IDAT", zlibStored(lines)),
    chunk("IEND", []),
  ];
  let text = "";
  for (const part of bytes) {
    for (let i = 0; i < part.length; i += 8192) text += String.fromCharCode(...part.slice(i, i + 8192));
  }
  return `data:image/png;base64,${btoa(text)}`;
}

/**
 * Return the width and height of a PNG in a data: URL, or null for other URLs.
 * @param {string} url @returns {number[] | null}
 */
export function sizeOf(url) {
  const start = "data:image/png;base64,";
  if (!url.startsWith(start)) return null;
  const head = atob(url.slice(start.length, start.length + 32));
  const at = (/** @type {number} */ i) => [0, 1, 2, 3].reduce((sum, k) => sum * 256 + head.charCodeAt(i + k), 0);
  return head.length >= 24 ? [at(16), at(20)] : null;
}

/** @param {number} value encoded as four bytes, big-endian */
function uint32Bytes(value) {
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];
}

/**
 * Encode a chunk: length, name, data and checksum.
 * @param {string} name @param {ArrayLike<number>} data
 */
function chunk(name, data) {
  const whole = new Uint8Array(data.length + 12);
  whole.set(uint32Bytes(data.length), 0);
  whole.set([...name].map((letter) => letter.charCodeAt(0)), 4);
  whole.set(data, 8);
  let sum = 0xffffffff;
  for (let i = 4; i < data.length + 8; i++) sum = CRC[(sum ^ whole[i]) & 255] ^ (sum >>> 8);
  whole.set(uint32Bytes((sum ^ 0xffffffff) >>> 0), data.length + 8);
  return whole;
}

/**
 * Encode bytes as a zlib stream of stored blocks (RFC 1950) with an Adler-32 checksum.
 * @param {Uint8Array} bytes
 */
function zlibStored(bytes) {
  const blocks = Math.max(1, Math.ceil(bytes.length / STORED));
  const whole = new Uint8Array(2 + blocks * 5 + bytes.length + 4);
  whole.set([0x78, 0x01]);
  let at = 2;
  for (let i = 0; i < blocks; i++) {
    const block = bytes.subarray(i * STORED, (i + 1) * STORED);
    const [low, high] = [block.length & 255, block.length >>> 8];
    whole.set([i === blocks - 1 ? 1 : 0, low, high, low ^ 255, high ^ 255], at);
    whole.set(block, at + 5);
    at += 5 + block.length;
  }
  let [a, b] = [1, 0];
  for (const byte of bytes) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  whole.set(uint32Bytes(((b << 16) | a) >>> 0), at);
  return whole;
}
