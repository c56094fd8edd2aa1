// What both servers send: sixteen pieces of a kilobyte.
export const chunks = Array.from({ length: 16 }, (_, index) => Buffer.alloc(1024, 97 + index))
