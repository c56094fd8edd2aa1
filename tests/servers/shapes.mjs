// Node's own server, answering in every shape a response can have. Listens on a free port and prints it.
import { createReadStream, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGzip, gzipSync } from 'node:zlib';

const KIB = 1024;
const MIB = 1024 * KIB;
const file = join(process.env.TRACER_TMP ?? tmpdir(), `shapes-${process.pid}`);
writeFileSync(file, Buffer.alloc(MIB, 'f'));
// Hardly compresses, and is the same each time.
let state = 1;
const noise = Buffer.from(Array.from({ length: 200 * KIB }, () => (state = (state * 48271) % 2147483647) >> 8));
const bodies = { '64k': Buffer.alloc(64 * KIB, 'x'), '1m': Buffer.alloc(MIB, 'x'), '10m': Buffer.alloc(10 * MIB, 'x') };

function later(response, pieces, ms) {
  const next = () => {
    response.write(pieces.shift());
    if (pieces.length > 0) setTimeout(next, ms);
    else response.end();
  };
  next();
}

const routes = {
  '/hello': (response) => response.end('hello'),
  '/one-tick': (response) => {
    response.write('a');
    response.write('b');
    response.end('c');
  },
  '/apart': (response) => later(response, ['a', 'b', 'c'], 3),
  '/events': (response) => {
    response.setHeader('content-type', 'text/event-stream');
    later(response, Array.from({ length: 5 }, (_, i) => `data: ${i}\n\n`), 2);
  },
  '/cork': (response) => {
    response.cork();
    for (let i = 0; i < 5; i++) response.write('piece');
    response.end();
  },
  '/flush': (response) => {
    response.flushHeaders();
    response.end('hello');
  },
  '/early-hints': (response) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    setTimeout(() => response.end('hello'), 1);
  },
  '/processing': (response) => {
    response.writeProcessing();
    response.end('hello');
  },
  '/gzip': (response) => {
    response.setHeader('content-encoding', 'gzip');
    const gzip = createGzip();
    gzip.pipe(response);
    gzip.end(noise);
  },
  '/gzip-sync': (response) => response.end(gzipSync('hello '.repeat(1000))),
  '/64k': (response) => response.end(bodies['64k']),
  '/1m': (response) => response.end(bodies['1m']),
  '/10m': (response) => response.end(bodies['10m']),
  '/stream': (response) => createReadStream(file).pipe(response),
  '/204': (response) => response.writeHead(204).end(),
  '/304': (response) => response.writeHead(304).end(),
  '/echo': (response, request) => request.pipe(response),
};

const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const route = routes[request.url];
  if (route) route(response, request);
  else response.writeHead(404).end('not found');
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.on('SIGTERM', () => process.exit(0));
