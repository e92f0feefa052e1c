// All kinds of drawing. Each is a pure function of its description, a width and a state, which returns an SVG element and
// its hover targets. A page contains only the kinds that it uses. Prose and choice consist of HTML elements and are
// handled in view.js.

export { boundary } from "./boundary.js";
export { columns } from "./columns.js";
export { computation } from "./computation.js";
export { convolve } from "./convolve.js";
export { dots } from "./dots.js";
export { equation } from "./equation.js";
export { figure } from "./figure.js";
export { gallery } from "./gallery.js";
export { graph } from "./graph.js";
export { heat } from "./heat.js";
export { histogram } from "./histogram.js";
export { lines } from "./lines.js";
export { matrix } from "./matrix.js";
export { neurons } from "./neurons.js";
export { overlay } from "./overlay.js";
export { points } from "./points.js";
export { rows } from "./rows.js";
export { scatter } from "./scatter.js";
export { fractions } from "./fractions.js";
export { thoughts } from "./thoughts.js";
export { tiles } from "./tiles.js";
export { tokens } from "./tokens.js";
export { tree } from "./tree.js";
