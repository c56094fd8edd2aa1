import express from "express";

const app = express();

app.get("/", (request, response) => {
  response.json({ message: "hello" });
});

app.get("/users/:id", (request, response) => {
  response.json({ id: request.params.id, name: "ada" });
});

app.post("/echo", express.raw({ type: () => true }), (request, response) => {
  response.type(request.headers["content-type"] ?? "application/octet-stream").send(request.body);
});

app.listen(Number(process.env.PORT), "127.0.0.1");
