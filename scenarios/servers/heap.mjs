// GET /gc of every server: a forced garbage collection, and what is left after it. Costs nothing until it is asked.
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

let collect;

export async function heap() {
  if (!collect) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc");
  }
  // Twice, with a turn between: what finalizers let go of is collected too.
  collect();
  await turn();
  collect();
  return { heap_bytes: process.memoryUsage().heapUsed, handles: process.getActiveResourcesInfo().length };
}
