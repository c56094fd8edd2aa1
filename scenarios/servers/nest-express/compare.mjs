// Nest in JavaScript: decorators applied as the TypeScript compiler applies them, by the helpers it emits.
import "reflect-metadata";
import { Body, Controller, Get, HttpCode, Module, Param, Post, Query } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { __decorate, __param } from "tslib";
import { select } from "../users.mjs";

class AppController {
  hello() {
    return { message: "hello" };
  }

  user(id, fields) {
    return select(id, fields);
  }

  echo(body) {
    return body;
  }
}
const handler = (name, ...decorators) => __decorate(decorators, AppController.prototype, name, null);
handler("hello", Get());
handler("user", Get("users/:id"), __param(0, Param("id")), __param(1, Query("fields")));
handler("echo", Post("echo"), HttpCode(200), __param(0, Body()));
__decorate([Controller()], AppController);

class AppModule {}
__decorate([Module({ controllers: [AppController] })], AppModule);

const app = await NestFactory.create(AppModule, new ExpressAdapter(), { logger: false });
// Work that the other servers do not do.
app.disable("etag").disable("x-powered-by");
await app.listen(Number(process.env.PORT), "127.0.0.1");
