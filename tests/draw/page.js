// As much of a browser's document as the drawings ask for, so that node can look at what they make.

class Node {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.colours = {};
    this.style = { setProperty: (name, value) => (this.colours[name] = value) };
    this.classList = { add: () => {} };
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  append(...children) {
    this.children.push(...children);
  }
  getContext() {
    return null; // no measuring of text: dom.js falls back on the number of letters
  }
}

globalThis.document = {
  createElement: (tag) => new Node(tag),
  createElementNS: (_, tag) => new Node(tag),
};

/** Every element with that tag, at any depth. */
export function all(node, tag) {
  const inside = node.children.flatMap((child) => (child instanceof Node ? all(child, tag) : []));
  return node.tag === tag ? [node, ...inside] : inside;
}

/** The text of every element with that tag. */
export function texts(node, tag) {
  return all(node, tag).map((found) => found.children.join(""));
}
