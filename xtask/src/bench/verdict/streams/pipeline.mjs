// Streams its response through stream.pipeline. loop.mjs sends the same by a plain loop of writes.
import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { chunks } from './chunks.mjs'

const server = createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  pipeline(Readable.from(chunks), response).catch(() => response.destroy())
})
server.listen(Number(process.env.PORT), '127.0.0.1')
