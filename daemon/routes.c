/* Dispatch over routes.def: the table has a handler for every row, or this does not compile. */
#include "daemon/handlers.h"

static void (*const handlers[])(struct request *r) = {
#define ROUTE(id, method, path, body, limit, role, summary) [PROTO_ROUTE_##id] = on_##id,
#include "proto/routes.def"
#undef ROUTE
};

_Static_assert(sizeof handlers / sizeof handlers[0] == PROTO_ROUTE_COUNT, "one handler a route");

void route_dispatch(struct request *r) {
    handlers[r->match.route->id](r);
}
