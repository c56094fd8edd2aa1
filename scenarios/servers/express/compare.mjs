import express from "express";
import { select } from "../users.mjs";

const app = express();
// Work that the other servers do not do.
app.disable("etag").disable("x-powered-by");
app.use(express.json());

app.get("/", (request, response) => {
  response.json({ message: "hello" });
});

app.get("/users/:id", (request, response) => {
  response.json(select(request.params.id, request.query.fields));
});

app.post("/echo", (request, response) => {
  response.json(request.body);
});

app.listen(Number(process.env.PORT), "127.0.0.1");
