// The routes beside the usual ones, for measuring how a router grows: ROUTES of them, in the shape TABLE names.
//
// static: /resource0, /resource1, ... · tenant: /:tenant/item0, ... · params: /:a/:b/:c alone.
// /resource0 comes first in every table: what the others add is told against it, within one process.
const routes = Number(process.env.ROUTES ?? 0);

const shapes = {
  static: () => Array.from({ length: routes }, (_, n) => `/resource${n}`),
  tenant: () => ["/resource0", ...Array.from({ length: routes }, (_, n) => `/:tenant/item${n}`)],
  params: () => ["/resource0", "/:a/:b/:c"],
};

export const table = routes > 0 ? shapes[process.env.TABLE ?? "static"]() : [];
