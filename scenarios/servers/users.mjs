// GET /users/:id?fields=name,email of compare's servers: a user with the fields asked for; all, if none are named.
const user = { name: "ada", email: "ada@example.org", role: "author" };

export function select(id, fields) {
  if (!fields) return { id, ...user };
  const selected = { id };
  for (const field of String(fields).split(",")) if (Object.hasOwn(user, field)) selected[field] = user[field];
  return selected;
}
