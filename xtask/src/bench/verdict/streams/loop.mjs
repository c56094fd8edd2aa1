// Streams its response by a plain loop of writes. pipeline.mjs sends the same through stream.pipeline.
import { createServer } from 'node:http'
import { chunks } from './chunks.mjs'

const server = createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  for (const chunk of chunks) response.write(chunk)
  response.end()
})
server.listen(Number(process.env.PORT), '127.0.0.1')
