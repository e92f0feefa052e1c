// The studio's modules name those of the drawings as the server has them, beside their own folder: ../draw/NAME.
// On disk they are two folders further up; this hook tells node where.

import { register } from "node:module";

const hook = `export function resolve(name, context, next) {
  const inside = context.parentURL?.includes("/studio/page/");
  return next(inside ? name.replace(/^\\.\\.\\/draw\\//, "../../../draw/") : name, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

/** A module of the studio's page. */
export function studio(name) {
  return import(`../../src/cutaway/apps/studio/page/${name}`);
}
