// Nest in JavaScript: decorators applied as the TypeScript compiler applies them, by the helpers it emits.
import "reflect-metadata";
import rateLimit from "@fastify/rate-limit";
import {
  All, Body, Controller, Get, HttpCode, HttpException, HttpStatus, Inject, Module, NotFoundException, Param, Post, Req,
  SerializeOptions, StandardSchemaSerializerInterceptor, StandardSchemaValidationPipe,
  UnauthorizedException, UseInterceptors,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { FastifyAdapter, RouteConfig } from "@nestjs/platform-fastify";
import cors from "cors";
import helmet from "helmet";
import * as jose from "jose";
import { __decorate, __param } from "tslib";
import { z } from "zod";
import { limit, openItems, schemas, subjectOf } from "../blixis.mjs";
import { heap } from "../heap.mjs";

const { person, member, item } = schemas(z);
const subject = subjectOf(jose);
const items = await openItems(() => import("pg"));

const on = (controller, name, ...decorators) => __decorate(decorators, controller.prototype, name, null);
const validBody = (schema) => Body({ schema, pipes: [StandardSchemaValidationPipe] });

class AppController {
  ping() {
    return { message: "pong" };
  }

  middleware() {
    return { message: "pong" };
  }

  validated({ name, email, tags }) {
    return { id: 42, name, email, tags };
  }

  authenticated(request, body) {
    return { ...body, subject: request.raw.subject };
  }

  gc() {
    return heap();
  }
}
on(AppController, "ping", Get("ping"));
// Nest's own throttler keeps a time per request and goes through them all at each: other work than the others do.
on(
  AppController, "middleware",
  Get("middleware"), RouteConfig({ rateLimit: { max: limit.requests, timeWindow: limit.windowMs } }),
);
on(
  AppController, "validated",
  Post("validated"), HttpCode(200),
  UseInterceptors(StandardSchemaSerializerInterceptor), SerializeOptions({ schema: member }),
  __param(0, validBody(person)),
);
on(AppController, "authenticated", All("authenticated"), HttpCode(200), __param(0, Req()), __param(1, Body()));
on(AppController, "gc", Get("gc"));
__decorate([Controller()], AppController);

class ItemsController {
  constructor(items) {
    this.items = items;
  }

  async read(id) {
    const found = await this.items.read(id);
    if (!found) throw new NotFoundException({ error: "not found" });
    return found;
  }

  write({ name }) {
    return this.items.write(name);
  }
}
on(ItemsController, "read", Get(":id"), __param(0, Param("id")));
on(ItemsController, "write", Post(), __param(0, validBody(item)));
__decorate([Controller("items"), __param(0, Inject("items"))], ItemsController);

// A middleware, no guard: guards come after the body is parsed.
async function authenticate(request, response, next) {
  request.subject = await subject(request.headers.authorization);
  if (request.subject) return next();
  response.setHeader("www-authenticate", "Bearer");
  next(new UnauthorizedException({ error: "unauthorized" }));
}

class AppModule {
  configure(consumer) {
    consumer.apply(cors(), helmet()).forRoutes("middleware");
    consumer.apply(authenticate).forRoutes("authenticated");
  }
}
__decorate(
  [
    Module({
      controllers: items ? [AppController, ItemsController] : [AppController],
      providers: [{ provide: "items", useValue: items }],
    }),
  ],
  AppModule,
);

const app = await NestFactory.create(AppModule, new FastifyAdapter(), { logger: false });
await app.register(rateLimit, {
  global: false,
  errorResponseBuilder: () => new HttpException({ error: "too many requests" }, HttpStatus.TOO_MANY_REQUESTS),
});
await app.listen(Number(process.env.PORT), "127.0.0.1");
